"""retrace: a TracedKernel -> the text of a module of problems that make its launches again.

Pure. The problems launch the kernel itself, through its autotuner, with the arguments and on
the grid that were traced. What a tensor holds is not traced, short tensors of integers excepted:
others get numbers that make a launch valid most often. Floating point is normally distributed.
Integers of 16 bits and more are mostly indices, so they lie in the range that was seen, else are
zero, which is inside of everything; 8 bits are mostly quantised weights, and are all used.
"""

from __future__ import annotations

import json
import keyword
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tritune.blame import is_installed
from tritune.tracelog import TracedKernel, TracedLaunch

MORE = 4
"""Times a tensor, up to which what lies behind it in its storage is made as well."""
MOST = (1 << 63) - 1
"""Where a range of integers ends, for torch."""
_TAKEN = frozenset(
    {
        *("torch", "tritune", "triton", "tl", "sys", "TensorDescriptor"),
        *("kernel", "grid", "run", "made", "held", "copied"),
    }
)
_HELPERS = '''\
def numbers(count, dtype):
    """What is in a tensor is not traced: put in what the kernel needs, if it needs more."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(count).to(dtype)
    if dtype.itemsize == 1:
        return torch.randint(0, 2 if dtype == torch.bool else 128, (count,)).to(dtype)
    return torch.zeros(count, dtype=dtype)  # indices, mostly: zero is inside of everything


def copied(made):
    """Copies, so that each run begins with what the first one did."""
    return [one.clone() for one in made]
'''


def about(launch: TracedLaunch) -> str:
    """One line of a launch, for a comment."""
    time = "" if launch.total_us is None else f", {launch.total_us / 1e3:.3g} ms"
    launches = "1 launch" if launch.count == 1 else f"{launch.count:,} launches"
    return f"{launch.key}: {launches}{time}"


def module(kernel: TracedKernel, launches: Sequence[TracedLaunch], short: str, folder: Path) -> str:
    blocks = [text for n, one in enumerate(launches, 1) for text in _launch(n, one, kernel)]
    return "\n".join(
        [
            f'"""traced_{short}: the launches of `{short}` that `tritune trace` saw, made again.',
            "",
            "The results of each config are compared with those of the first one. Check what the",
            "tensors hold, and give a reference where there is one.",
            '"""',
            "",
            *_imports(kernel, launches, folder),
            "",
            "",
            _HELPERS,
            "",
            *blocks,
            f"LAUNCHES = {{{', '.join(f'{n}: launch_{n}' for n, _ in enumerate(launches, 1))}}}",
            "",
            "",
            f"def {short}_problem(launch):",
            "    return tritune.Problem(LAUNCHES[launch]())  # reference=lambda: ...",
            "",
        ]
    )


def _imports(kernel: TracedKernel, launches: Sequence[TracedLaunch], folder: Path) -> list[str]:
    module, _, attribute = kernel.attribute.partition(":")
    module = kernel.name.partition(":")[0] if module == "__main__" else module
    root, parts = Path(kernel.file).parent, module.split(".")
    for _ in parts[1:] if Path(kernel.file).stem != "__init__" else parts:
        root = root.parent
    first, _, rest = attribute.partition(".")
    hops = ".fn" * kernel.hops
    text = " ".join(one.facts for one in launches)
    home = []
    if not is_installed(root):
        beside = json.dumps(Path(os.path.relpath(root, folder)).as_posix(), ensure_ascii=False)
        home = ["import sys", "from pathlib import Path", "", "import torch"]
        path = f"sys.path.append(str(Path(__file__).parent / {beside}))  # of {module}"
        home += ["import tritune", "", path]
    imports = home or ["import torch", "import tritune"]
    if '"tl.' in text:
        imports.append("import triton.language as tl")
    if '"descriptor"' in text:
        imports.append("from triton.tools.tensor_descriptor import TensorDescriptor")
    for place in sorted(_functions(launches)):
        imports.append(f"import {place}")
    imports.append(f"from {module} import {first}")
    if kernel.attribute.startswith("__main__"):
        imports[-1] += '  # a script: what it runs belongs under `if __name__ == "__main__":`'
    rest = f".{rest}" if rest else ""
    return [*imports, "", f"kernel = {first}{rest}{hops}"]


def _functions(launches: Sequence[TracedLaunch]) -> set[str]:
    """The modules of functions that are passed."""
    found: set[str] = set()
    for one in launches:
        said = json.loads(one.facts)
        for fact in [*said["args"], *said["kwargs"].values()]:
            for each in fact.get("items", [fact]):
                if each["is"] == "function":
                    found.add(each["text"].partition(":")[0])
    return found


def _launch(number: int, launch: TracedLaunch, kernel: TracedKernel) -> Iterator[str]:
    said = json.loads(launch.facts)
    args = list(zip(kernel.params, said["args"], strict=False))
    tensors = _Tensors([*args, *said["kwargs"].items()])
    passed = [tensors.text(fact, name) for name, fact in args]
    passed += [f"{name}={tensors.text(fact, name)}" for name, fact in said["kwargs"].items()]
    yield f"def launch_{number}():  # {about(launch)}"
    yield "    made = ["
    yield from (f"        {text}," for text in tensors.made())
    yield "    ]"
    yield ""
    yield from _grid(said["grid"])
    yield "    def run():"
    yield "        held = copied(made)"
    yield from (f"        {line}" for line in tensors.views())
    yield f"        kernel[grid]({', '.join(passed)})"
    yield "        return held"
    yield ""
    yield "    return run"
    yield ""
    yield ""


def _grid(said: Mapping[str, Any]) -> Iterator[str]:
    if "fixed" in said:
        yield f"    grid = {tuple(said['fixed'])!r}"
        yield ""
        return
    table = {tuple(config.items()): tuple(sizes) for config, sizes in said["table"]}
    names = list(dict.fromkeys(name for config in table for name, _ in config))
    sizes = list(dict.fromkeys(table.values()))
    deciding = _deciding(table, names)
    if len(sizes) == 1 or not deciding:
        yield f"    grid = {sizes[0]!r}"
        yield ""
        return
    yield f"    grids = {{  # by {', '.join(deciding)}: what the launch itself gave for each config"
    rows = {tuple(dict(config).get(n) for n in deciding): each for config, each in table.items()}
    yield from (f"        {at!r}: {each!r}," for at, each in rows.items())
    yield "    }"
    yield ""
    yield "    def grid(meta):"
    meta = ", ".join(f'meta.get("{name}")' for name in deciding)
    yield f"        return grids[{meta}{',' if len(deciding) == 1 else ''}]"
    yield ""


def _deciding(table: Mapping[tuple[Any, ...], Any], names: Sequence[str]) -> list[str]:
    """The fewest tunables, dropped one by one, that still tell the grids apart."""
    kept = list(names)
    for name in names:
        fewer = [one for one in kept if one != name]
        if _tells(table, fewer):
            kept = fewer
    return kept


def _tells(table: Mapping[tuple[Any, ...], Any], names: Sequence[str]) -> bool:
    seen: dict[tuple[Any, ...], Any] = {}
    return all(
        seen.setdefault(tuple(dict(config).get(name) for name in names), sizes) == sizes
        for config, sizes in table.items()
    )


class _Tensors:
    """The tensors of one launch: their storages, and views of them."""

    def __init__(self, named: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        self._views: dict[int, tuple[str, Mapping[str, Any]]] = {}
        found: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
        for name, fact in named:
            self._find(name, fact, found)
        self._made = [each for held in found.values() for each in _overlapping(held)]
        """Tensors that share what they are made of, whose content is one."""

    def _find(
        self,
        name: str,
        fact: Mapping[str, Any],
        found: dict[tuple[int, str], list[Mapping[str, Any]]],
    ) -> None:
        if fact["is"] == "tuple":
            for number, item in enumerate(fact["items"]):
                self._find(f"{name}_{number}", item, found)
        elif fact["is"] == "descriptor":
            self._find(f"{name}_base", fact["base"], found)
        elif fact["is"] == "tensor":
            safe = f"{name}_" if keyword.iskeyword(name) or name in _TAKEN else name
            self._views[id(fact)] = safe, fact
            found.setdefault((fact["storage"], fact["dtype"]), []).append(fact)

    def made(self) -> Iterator[str]:
        """How each storage is made."""
        yield from map(_made, self._made)

    def views(self) -> Iterator[str]:
        """How each tensor is a view of its storage."""
        places = {id(fact): at for at, facts in enumerate(self._made) for fact in facts}
        for name, fact in self._views.values():
            at = places[id(fact)]
            offset = _offset(fact, self._made[at])
            shape, stride = tuple(fact["shape"]), tuple(fact["stride"])
            more = f", {offset}" if offset else ""
            yield f"{name} = held[{at}].as_strided({shape}, {stride}{more})"

    def text(self, fact: Mapping[str, Any], name: str) -> str:
        """An argument as the launch passes it."""
        match fact["is"]:
            case "tensor":
                return self._views[id(fact)][0]
            case "descriptor":
                base = self.text(fact["base"], name)
                return (
                    f"TensorDescriptor({base}, {fact['shape']}, {fact['stride']}, {fact['block']})"
                )
            case "tuple":
                items = "".join(f"{self.text(item, name)}, " for item in fact["items"])
                return f"({items.rstrip()})"
            case "float":
                return f'float("{fact["text"]}")'
            case "function":
                return str(fact["text"]).replace(":", ".")
        return str(fact["text"] if fact["is"] == "dtype" else repr(fact["value"]))


def _overlapping(facts: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Tensors of one storage, those apart that share none of it: it may be of any size."""
    held: list[Mapping[str, Any]] = []
    end = -1
    for fact in sorted(facts, key=lambda one: one["offset"]):
        if held and fact["offset"] >= end:
            yield held
            held = []
        held.append(fact)
        end = max(end, fact["offset"] + _span(fact))
    if held:
        yield held


def _made(facts: Sequence[Mapping[str, Any]]) -> str:
    count = max(_offset(fact, facts) + _reach(fact) for fact in facts)
    first, dtype = facts[0], facts[0]["dtype"]
    if len(facts) == 1 and "values" in first and len(first["values"]) == count:
        return f"torch.tensor({first['values']}, dtype=torch.{dtype})"
    ranges = [one for fact in facts if (one := fact.get("range") or _range(fact))]
    if len(ranges) == len(facts):
        end = min(max(high for _, high in ranges) + 1, MOST)
        low = min(end - 1, *(low for low, _ in ranges))
        return f"torch.randint({low}, {end}, ({count},), dtype=torch.{dtype})"
    return f"numbers({count}, torch.{dtype})"


def _range(fact: Mapping[str, Any]) -> list[int] | None:
    return [min(fact["values"]), max(fact["values"])] if fact.get("values") else None


def _offset(fact: Mapping[str, Any], facts: Sequence[Mapping[str, Any]]) -> int:
    """From the start of what is made: no further than it must be, and aligned as it was."""
    first = min(facts, key=lambda one: one["offset"])
    return int(fact["offset"] - first["offset"] + first["align"])


def _reach(fact: Mapping[str, Any]) -> int:
    """All that is behind a pointer, where it is not much more: kernels go beyond a view."""
    span, room = _span(fact), int(fact["room"])
    return max(span, room if room <= MORE * span else 0)


def _span(fact: Mapping[str, Any]) -> int:
    """Elements from the first to the last of a tensor."""
    if not math.prod(fact["shape"]):
        return 0
    reach = zip(fact["shape"], fact["stride"], strict=True)
    return 1 + sum((int(size) - 1) * int(step) for size, step in reach)
