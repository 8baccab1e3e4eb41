"""filters: entries and outcomes -> those that a command line asks for.

A name that stands nowhere is a mistake, not an empty answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import click

from tritune import keys
from tritune.errors import SpecError
from tritune.model import Entry, Lock, LockedKey, Rejected, Value
from tritune.words import some

T = TypeVar("T")
Locked = tuple[LockedKey, Entry]


def of_kernel(name: str) -> Callable[[Locked], bool]:
    """Entries of a kernel by its full name or by its function's."""
    return lambda item: name in {item[0].kernel, item[0].kernel.rpartition(":")[2]}


def of_device(name: str) -> Callable[[Locked], bool]:
    """Entries of a device by its label, in any case."""
    return lambda item: item[0].device.casefold() == name.casefold()


def only(text: str, locks: Iterable[Lock]) -> Callable[[Locked], bool]:
    """Entries whose key has all the names that *text* uses, and for which it holds."""
    from tritune import expression

    def holds(item: Locked) -> bool:
        values = key_values(item[0].key)
        return needed <= values.keys() and answer(expression.truth, values)

    def answer(ask: Callable[..., T], *more: object) -> T:
        try:
            return ask(text, *more)
        except expression.ConstraintError as error:
            meant = f"; {error.hint}" if error.hint else ""
            raise click.BadParameter(f"{text!r}: {error}{meant}", param_hint="'--only'") from None

    held = [key_values(key.key) for lock in locks for key, _ in lock.entries]
    known = {name for values in held for name in values}
    needed = answer(expression.names)
    texts = {value for values in held for value in values.values()}
    if quote := expression.unquoted(needed - known, texts):
        raise click.BadParameter(f"{text!r}: {quote}", param_hint="'--only'")
    _all_known(sorted(needed), known, "'--only'")
    return holds


def key_values(key: str) -> dict[str, Value]:
    """The parts of a key: `M=64 a=f16` -> M 64, a `f16`."""
    return {name: keys.value_of(text) for name, text in keys.split(key).items()}


def keep(lock: Lock, tests: Sequence[Callable[[Locked], bool]]) -> Lock:
    """A lock with only the entries that pass every test, and their devices."""
    entries = tuple(item for item in lock.entries if all(test(item) for test in tests))
    devices = {key.device for key, _ in entries}
    kernels = {key.kernel for key, _ in entries}
    return replace(
        lock,
        entries=entries,
        devices=tuple(device for device in lock.devices if device.name in devices),
        near=tuple(item for item in lock.near if item[0] in kernels),
    )


def kept(text: str, locks: Sequence[Lock]) -> list[Lock]:
    """Locks with only the entries for which `--only` holds.

    Raises:
        SpecError: it holds for none.
    """
    test = only(text, locks)
    left = [keep(lock, [test]) for lock in locks]
    if not any(lock.entries for lock in left):
        raise none_left(text, locks)
    return left


def none_left(text: str, locks: Iterable[Lock]) -> SpecError:
    """What to say where `--only` holds for no entry of *locks*."""
    keys = list(dict.fromkeys(at.key for lock in locks for at, _ in lock.entries))
    hint = f"locked are {some(keys)}" if keys else ""
    return SpecError("no entry is left", where=f"--only {text}", hint=hint)


def known_name(name: str, flag: str, locks: Iterable[Lock]) -> str:
    """*name*, if an entry of these lockfiles is of that kernel or device."""
    items = [item for lock in locks for item in lock.entries]
    test = of_kernel(name) if flag == "--kernel" else of_device(name)
    if not any(test(item) for item in items):
        there = {key.kernel if flag == "--kernel" else key.device for key, _ in items}
        _unknown(name, there, f"'{flag}'")
    return name


def pairs(texts: Sequence[str], hint: str = "'NAME=VALUE'") -> dict[str, str]:
    """`NAME=VALUE` arguments by name; *hint* is what a message calls them."""
    wrong = [text for text in texts if not text.partition("=")[0] or "=" not in text]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE", param_hint=hint)
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def rejected(
    outcomes: Sequence[Rejected], wanted: Mapping[str, str], names: Iterable[str] = ()
) -> tuple[Rejected, ...]:
    """The outcomes whose config or problem has these values; *names* are of what is not out."""
    rows = [(outcome, _values(outcome)) for outcome in outcomes]
    known = {*names, *(name for _, values in rows for name in values)}
    _all_known(wanted, known, "'NAME=VALUE'")
    return tuple(
        outcome
        for outcome, values in rows
        if all(values.get(name) == value for name, value in wanted.items())
    )


def _values(outcome: Rejected) -> dict[str, str]:
    candidate = outcome.candidate
    both = {**candidate.problem.as_dict(), **candidate.config.as_dict()}
    return {name: "none" if value is None else str(value) for name, value in both.items()}


def _all_known(names: Iterable[str], known: Iterable[str], flag: str) -> None:
    there = set(known)
    for name in names:
        if name not in there:
            _unknown(name, there, flag)


def _unknown(name: str, there: Iterable[str], flag: str) -> None:
    listed = ", ".join(sorted(there)) or "nothing"
    raise click.BadParameter(f"no `{name}` here; there is {listed}", param_hint=flag)
