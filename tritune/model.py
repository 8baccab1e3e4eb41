"""model: the nouns of a sweep, in the order a sweep makes them.

`Sweep -> Config x Problem = Candidate -> Compiled -> Measured -> Winner -> Lock`;
`Rejected` is an ordinary outcome of every step from planning to measuring.
Every noun is frozen and hashable, so equality, dictionary keys, pickling to a worker
and the journal come free. Knows nothing of files, torch, triton or the terminal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

Value = bool | int | float | str | None
"""What a tunable, or an axis of a problem, may hold."""

USUAL: Mapping[str, Value] = {"num_warps": 4, "num_stages": 3}
RARE: Mapping[str, Value] = {"num_ctas": 1, "maxnreg": None}
"""Launch options that every config says, and that only few do: what a launch has without."""
FIELDS: Mapping[str, Value] = {**USUAL, **RARE}
"""Those that a Config of Triton's has a field for."""
LAUNCH_OPTIONS = frozenset({*FIELDS, "waves_per_eu", "matrix_instr_nonkdim", "kpack"})
"""Options of a launch that are not parameters of the kernel's own signature."""
DTYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "i1",
}
"""Element types as a sweep file and torch spell them -> as the key of a lockfile does."""
LOCKFILE = "tritune.lock"
"""The name of a lockfile, beside the module of a kernel."""
PLAIN = (bool, int, float, str, type(None))
"""The types of a `Value`: what a lockfile can hold."""


def _show(value: Value) -> str:
    return "none" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Config:
    """One value for every tunable, sorted by name so that equal configs are equal values."""

    values: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Config:
        return cls(tuple(sorted(values.items())))

    def __getitem__(self, name: str) -> Value:
        return dict(self.values)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.values)

    def __str__(self) -> str:
        return " ".join(f"{name}={_show(value)}" for name, value in self.values)

    def as_dict(self) -> dict[str, Value]:
        return dict(self.values)

    def meta(self) -> Config:
        """Only the meta-parameters: what an interpreter, which has no warps, can tell apart."""
        return Config(tuple(item for item in self.values if item[0] not in LAUNCH_OPTIONS))

    def order(self) -> tuple[tuple[int, float, str], ...]:
        """Canonical order, fewest resources first: warps, stages, then the blocks, then text."""
        values = dict(self.values)
        first = [name for name in ("num_warps", "num_stages", "num_ctas") if name in values]
        rest = [name for name in values if name not in first]
        return tuple(_rank(values[name]) for name in first + rest)


def _rank(value: Value) -> tuple[int, float, str]:
    if isinstance(value, (bool, int, float)):
        return (1, float(value), "")
    return (0, 0.0, "") if value is None else (2, 0.0, value)


KEY = "@key"
"""An axis that no function can have: the one of several keys whose launches are tuned."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One point of the sweep file's `shapes:`, its axes in the order of the file."""

    axes: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, axes: Mapping[str, Value]) -> Problem:
        return cls(tuple(axes.items()))

    @property
    def key(self) -> str:
        """Only the launches under this key are tuned; all of the kernel's where it is empty."""
        return str(self.as_dict().get(KEY, ""))

    def under(self, key: str) -> Problem:
        """The same problem, of which only the launches under *key* are tuned."""
        return Problem((*self.axes, (KEY, key)))

    @property
    def written(self) -> tuple[tuple[str, Value], ...]:
        """The axes that a sweep file has."""
        return tuple((name, value) for name, value in self.axes if name != KEY)

    def __str__(self) -> str:
        axes = " ".join(f"{name}={_show(value)}" for name, value in self.written)
        return f"{axes} under `{self.key}`" if self.key else axes

    def as_dict(self) -> dict[str, Value]:
        return dict(self.axes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a result is valid on: the GPU product, with the facts that identify and limit it.

    Bytes, MHz, bits, GB/s and TFLOP/s as the names say; 0 is "not known".
    `peaks_tflops` holds dense peaks by element type as Triton spells it (`fp16`, `fp8`).
    """

    name: str
    backend: str
    arch: int | str
    warp_size: int
    sms: int
    shared_bytes: int
    """Most shared memory one program may take."""
    shared_bytes_sm: int = 0
    registers_sm: int = 65536
    threads: int = 1024
    """Most threads one program may have."""
    threads_sm: int = 2048
    programs_sm: int = 32
    """Most threads, and most programs, that one SM holds at once."""
    tensor_memory: int = 0
    """Columns of tensor memory of an SM (0 where the chip has none)."""
    l2_bytes: int = 0
    dram_gbps: float = 0.0
    bus_bits: int = 0
    memory_mhz: int = 0
    peaks_tflops: tuple[tuple[str, float], ...] = ()
    names: tuple[str, ...] = ()
    """What drivers call this silicon; for people, never matched by prefix."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One tunable and its values."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraint:
    """A predicate over axes of the space, of the problem, and facts of the target."""

    text: str
    where: str
    """`file:line:column: path`, for messages."""
    names: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """What one backend or one target changes: its axes replace or extend the space's."""

    scope: str
    space: tuple[Axis, ...]
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """How a sweep measures. A journal's outcomes count only under an equal protocol."""

    cache: str = "cold"
    """`cold`: the L2 cache is flushed before each sample; `hot`: it is not."""
    screen_samples: int = 3
    final_rounds: int = 30
    compile_limit_s: float = 120.0

    def protocol(self) -> str:
        return f"2 {self.cache} {self.screen_samples} {self.final_rounds}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """A sweep file, checked. `kernel`, `problem`: `module:name`, a module by path absolute."""

    path: str
    kernel: str | None
    problem: str | None
    targets: tuple[str, ...]
    space: tuple[Axis, ...]
    sections: tuple[Section, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    problems: tuple[Problem, ...]
    smoke: tuple[Problem, ...] = ()
    timing: Timing = field(default_factory=Timing)
    lines: tuple[tuple[str, str], ...] = ()
    """`path inside the file` -> `file:line:column`, for messages about what the kernel says."""

    def where(self, inside: str) -> str:
        """`file:line:column: inside` of a path such as `space.BLOCK_M`, as near as it is known."""
        place = dict(self.lines).get(inside, self.path)
        return f"{place}: {inside}"


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelInfo:
    """What a kernel module says of one tunable kernel, as plain data (no torch, no triton)."""

    name: str
    """`package.module:function`, how the lockfile names it."""
    file: str
    line: int
    params: tuple[str, ...]
    constexprs: tuple[str, ...]
    tunables: tuple[str, ...]
    """The names in its default config: meta-parameters, then launch options."""
    default: Config
    configs: tuple[Config, ...]
    """Its own list, where it stands over `@triton.autotune`; else only the default."""
    hooks: tuple[str, ...] = ()
    """The `pre_hook` of each of these, empty where it has none; nothing where none has one."""
    has_one_hook: bool = True
    """Whether it is one for all: two that only look the same are a hook of no other config."""
    key: tuple[str, ...]
    near: str | None
    lockfile: str
    problem: str
    problem_line: int
    problem_params: tuple[tuple[str, bool], ...]
    """Parameters of its problem function; True where one has a default."""
    source: str
    """A digest of the kernel's code and of every constant and function it reaches."""
    problem_source: str = ""
    """The same of its problem function, which reaches the op, its reference and other kernels."""
    foreign: bool = False
    """Nobody decorated it: it was found under `triton.autotune` inside the op."""
    installed: bool = False
    """It is of a package that somebody else wrote, whose files are left as they are."""
    keys: tuple[tuple[Problem, tuple[str, ...]], ...] = ()
    """What the op of each problem launches it under, where it is foreign."""
    foreseen: tuple[tuple[Problem, str, tuple[Config, ...]], ...] = ()
    """A problem, a key, and the configs that its author's perf_model leaves there."""
    stock_keys: tuple[tuple[Problem, str, str], ...] = ()
    """A problem, a key, and the coarser one that its own autotuner would cache a winner under."""
    notes: tuple[str, ...] = ()
    """What a reader should know of it, a line each."""

    def hook_of(self, config: Config) -> str:
        """The `pre_hook` that the kernel runs with a config: its own, or the one that all share."""
        said = config.as_dict().items()
        for own, hook in zip(self.configs, self.hooks, strict=False):
            if own.as_dict().items() <= said:
                return hook
        return self.hooks[0] if self.hooks and self.has_one_hook else ""

    @property
    def short(self) -> str:
        return self.name.rpartition(":")[2]

    @property
    def several(self) -> frozenset[Problem]:
        """The problems that launch it under more than one key, each a problem of its own then."""
        return frozenset(problem for problem, under in self.keys if len(under) > 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One config on one problem of one kernel."""

    kernel: str
    problem: Problem
    config: Config


class Reason(Enum):
    """Why a candidate is out. The value is what a reader sees."""

    ILLEGAL = "illegal value"
    LAUNCHES = "the op cannot be launched"
    PRUNED = "its own prune function leaves it out"
    FORESEEN = "its own perf_model leaves it out"
    COMPILE = "does not compile"
    CRASH = "the compiler crashed"
    TIMEOUT = "compile time-out"
    SHARED = "too much shared memory"
    TENSOR_MEMORY = "too much tensor memory"
    THREADS = "too many threads"
    REGISTERS = "too many registers"
    WRONG = "wrong result"
    LAUNCH = "crashes at launch"
    HANG = "never returns"
    MEMORY = "out of device memory"
    TIMING = "broken timing"
    MISTAKEN = "wrong result in the interpreter"
    INTERPRETED = "raises in the interpreter"
    ABORTED = "crashes the interpreter"
    UNVERIFIED = "cannot be verified with no GPU"


IN_INTERPRETER = frozenset({Reason.MISTAKEN, Reason.INTERPRETED, Reason.ABORTED})
"""Reasons against a config that no GPU has given, of a problem in `smoke:`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """A candidate that is out, with a reason; never `inf`, never `None`."""

    candidate: Candidate
    reason: Reason
    detail: str
    """The limit it broke or what was said, one line."""
    log: str = ""
    """A file with the full text, where there is more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launches:
    """What a candidate launches, known without compiling it."""

    candidate: Candidate
    key: str
    """What its winner is looked up by."""
    grids: tuple[tuple[int, ...], ...]
    """One grid a launch; empty when the op launches nothing (an empty problem)."""
    compile_class: str
    """Digest of signature, specialisation, constants and options: equal ones share a binary."""
    hooks: tuple[str, ...] = ()
    """The `pre_hook` before each launch, which is timed with it; empty for none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lowered:
    """One compile class as far as TTGIR."""

    candidate: Candidate
    ir: str
    """Digest of the TTIR without locations and names: the kernel's meaning."""
    ttgir: str
    """Digest of the TTGIR and of the options that matter below it."""
    shared_bound: int
    """Bytes; never above what the binary takes."""
    seconds: float
    work: float = 0.0
    """How much there is to compile below TTGIR, to say what will take long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """A binary, the resources it takes, and every config that it is the binary of."""

    candidate: Candidate
    key: str
    binary: str
    ir: str
    registers: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0
    tensor_memory: int = 0
    threads: int = 0
    """Threads of one program."""
    seconds: float = 0.0
    """What compiling it took in this sweep; 0 where its binary was in the cache."""
    aliases: tuple[Config, ...] = ()
    """Other configs whose launches are these very launches."""
    entries: frozenset[str] = field(default=frozenset(), compare=False)
    """What the compile cache calls what was compiled with it, this and equal ones."""


VARIES = "varies"
"""Stands for a digest of bits that are not the same twice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """A candidate whose result is right: its largest relative error and a digest of its bits."""

    candidate: Candidate
    error: float
    bits: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A candidate that ran, right and timed. All samples are kept; statistics are derived."""

    compiled: Compiled
    samples_us: tuple[float, ...]
    """Screening samples, in order."""
    finals_us: tuple[float, ...] = ()
    """Samples of the finals: entry i of every finalist was taken in round i."""
    error: float = 0.0
    bits: str = ""
    confirm_us: tuple[float, ...] = ()
    """Samples of the confirmation, in a fresh process, in rounds as those of the finals."""
    doubted_us: tuple[float, ...] = ()
    """Those of a first confirmation, by which a locked config would have lost its place."""
    floor: float = 0.0
    """How far one binary was from itself under another name in the same finals, relative."""

    @property
    def candidate(self) -> Candidate:
        return self.compiled.candidate

    @property
    def median_us(self) -> float:
        return statistics.median(self.confirm_us or self.finals_us or self.samples_us)

    @property
    def noise(self) -> float:
        """Relative spread: half the distance of the quartiles over the median."""
        samples = sorted(self.confirm_us or self.finals_us or self.samples_us)
        quarter = len(samples) // 4
        middle = statistics.median(samples)
        return (samples[-1 - quarter] - samples[quarter]) / 2 / middle if middle else 0.0


Outcome = Measured | Rejected


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Why this config: what a reviewer reads. Times in microseconds, three figures."""

    us: float
    default_us: float | None
    margin: float | None
    """How much slower the runner-up is, relative; None when nothing else ran."""
    noise: float
    bits: str
    ir: str
    triton: str
    source: str = ""
    """Digest of the kernel's source, for a Triton whose IR cannot be compared with `ir`."""
    space: str = ""
    """Digest of the configs that were searched for this problem."""
    unsettled: bool = False
    """Both sides of a merge changed the entry, and the next sweep has to race the two."""
    reach: str = ""
    """`32 <= M <= 128`: the sizes of the `near` argument for which its config may serve other keys
    than its own; both ends were verified. Empty is "not said"."""
    unmeasured: bool = False
    """Imported from elsewhere: it is served, but nobody timed it here; times are 0 for unknown."""
    hook: str = ""
    """`module:name@digest`: the config's `pre_hook`, without which it must not run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Winner:
    """The config to lock for one key of one kernel."""

    kernel: str
    key: str
    problem: Problem
    config: Config
    evidence: Evidence
    ties: int = 0
    """How many other configs it would not take the place of, were one of them locked."""
    change: str = "new"
    """Against the lockfile: `new`, `changed` or `kept`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One entry of a lockfile."""

    config: Config
    evidence: Evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceIdentity:
    """Silicon, as Triton's driver reports it; `names` are for people."""

    name: str
    backend: str
    arch: int | str
    sms: int
    shared_bytes: int
    bus_bits: int
    memory_mhz: int
    names: tuple[str, ...] = ()
    use: str = ""
    """The device whose entries it runs where it has none of its own: somebody's decision."""
    where: tuple[str, ...] = ()
    """What has to hold of a call for that, as constraints."""

    def silicon(self) -> tuple[str, int | str, int, int, int, int]:
        """The facts that must be equal for two devices to be one."""
        return (
            self.backend,
            self.arch,
            self.sms,
            self.shared_bytes,
            self.bus_bits,
            self.memory_mhz,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedKey:
    """Where an entry stands in a lockfile."""

    kernel: str
    device: str
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """A lockfile, parsed: devices by label, entries by kernel, device and key, sorted."""

    devices: tuple[DeviceIdentity, ...] = ()
    entries: tuple[tuple[LockedKey, Entry], ...] = ()
    near: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Kernel -> the constraints that name an axis of the problem, for a `near` look-up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a problem must do at least, for the roofline; None where its author does not say."""

    problem: Problem
    flops: float | None
    bytes: float | None
    dtype: str
    """Element type of the first tensor it launches with, as Triton spells it (`fp16`)."""
    timed: str = "kernel"
    """`kernel`: only its launches are timed; `op`: the whole op."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One line of what a sweep did, labelled for what it is."""

    name: str
    text: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Missed:
    """A key that a log of misses names, and the problem that has it."""

    key: str
    lines: int
    """So many of the log: each is a process that missed it; of a trace, its launches."""
    problem: Problem | None = None
    kept: tuple[str, ...] = ()
    """Axes of the problem whose values are the sweep file's, as the key does not say them."""
    is_listed: bool = False
    """The problem stands in the sweep file already."""
    why: str = ""
    """Why there is no problem of it."""
    is_traced: bool = False
    """The log is a trace's: it was launched, missed or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedKey:
    """Problems that a kernel's own autotuner takes for one, as it caches one winner for all."""

    key: str
    """What it would cache that winner under."""
    problems: tuple[Problem, ...]
    """Those that have a winner of their own here."""
    losses: tuple[float, ...]
    """How much slower each would be, relative, if all ran `config`; empty where there is none."""
    config: Config | None
    """The one that loses least over all of them; None where none runs on all."""
    untimed: tuple[Problem, ...] = ()
    """Problems that are one with another of them here too, and run what is tuned on that."""

    @property
    def loss(self) -> float:
        """Of all of them, the geometric mean: what winners of their own save."""
        return math.expm1(statistics.fmean(map(math.log1p, self.losses or (0.0,))))


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything a sweep of one kernel has to say; views turn it into text."""

    sweep: str
    kernel: KernelInfo
    target: Target
    work: tuple[Work, ...]
    steps: tuple[Step, ...]
    outcomes: tuple[Outcome, ...]
    winners: tuple[Winner, ...]
    unsolved: tuple[Problem, ...] = ()
    """Problems of which every config was rejected."""
    shared: tuple[SharedKey, ...] = ()
    """What winners for each problem gain over what a kernel's own autotuner would cache."""
    missed: tuple[Missed, ...] = ()
    """What a log of misses named, where the problems are those of one."""
    lockfile: str = ""
    """The file written, or the file that would have been."""
    locked: bool = False
    not_locked: str = ""
    """Why nothing was locked, where nothing was."""
    warnings: tuple[str, ...] = ()
    not_interpreted: tuple[Config, ...] = ()
    """Sets of meta-parameters that the interpreter was to verify, and that no smoke problem ran."""
    replayed: bool = False
    """The timings come from a recorded journal, not from a GPU of this machine."""
    wall_s: float = 0.0
    gpu_s: float = 0.0


def count(outcomes: Iterable[Outcome]) -> dict[Reason, int]:
    """How many are rejected for each reason."""
    counts: dict[Reason, int] = {}
    for outcome in outcomes:
        if isinstance(outcome, Rejected):
            counts[outcome.reason] = counts.get(outcome.reason, 0) + 1
    return counts
