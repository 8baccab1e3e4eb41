"""setting: options and this machine -> where a sweep's times come from, and for which target.

One of three: a GPU of this machine, a recorded journal, or nothing (then nothing is locked).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tritune import places
from tritune.device import cuda, targets
from tritune.errors import EnvironmentFaultError, TrituneError
from tritune.journal import Journal
from tritune.model import DeviceIdentity, Sweep, Target

REPLAY = "replay:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Where the times come from. `index` is a GPU here, `record` a journal; never both."""

    target: Target
    identity: DeviceIdentity | None = None
    index: int | None = None
    record: Path | None = None
    triton: str = ""

    @property
    def source(self) -> str:
        """One line for a reader."""
        if self.index is not None:
            return f"measured on GPU {self.index}, {self.target.name}, with Triton {self.triton}"
        if self.record is not None:
            return f"no GPU is used; times recorded on {self.target.name} are in {self.record}"
        return f"no GPU here, and no recorded times for {self.target.name}: nothing will be locked"


def find(sweep: Sweep, *, device: str | None, target: str | None, log: Path) -> Setting:
    """Decide where a sweep's times come from.

    Raises:
        TrituneError: the named device or target does not exist, or is not the GPU's.
    """
    wanted = targets.find(target) if target else None
    if device and device.startswith(REPLAY):
        return _replay(Path(device.removeprefix(REPLAY)), wanted)
    if device or (wanted is None and cuda.present()):
        return _gpu(device or "0", wanted, log)
    return _recorded(sweep, wanted)


def gpu(device: str | None, log: Path, *, hint: str) -> Setting:
    """A GPU of this machine, the first where none is named.

    Raises:
        TrituneError: there is none; *hint* is what to do about it.
    """
    if device is None and not cuda.present():
        raise EnvironmentFaultError(
            "no GPU on this machine that torch and Triton can use", hint=hint
        )
    return _gpu(device or "0", None, log)


def _gpu(device: str, wanted: Target | None, log: Path) -> Setting:
    if not device.isdecimal():  # `²` is a digit, and no number
        raise TrituneError(
            f"`{device}` is not a device of this version",
            where="--device",
            hint="give one index, such as 0, or replay:JOURNAL",
        )
    identity, triton = cuda.probe(int(device), log)
    target = targets.of_device(identity)
    if wanted and wanted.name != target.name:
        raise EnvironmentFaultError(
            f"GPU {device} is a {target.name}, not a {wanted.name}",
            where="--target",
            hint="leave --device out to compile for a target with no GPU",
        )
    return Setting(
        target=target, identity=targets.identity(target), index=int(device), triton=triton
    )


def _replay(path: Path, wanted: Target | None) -> Setting:
    if not path.is_file():
        hint = "give the file of a journal, as replay:sweeps/recorded/matmul.H200.jsonl.gz"
        raise TrituneError("there is no such journal", where=f"{REPLAY}{path}", hint=hint)
    identities = Journal.open(path, read_only=True).devices()
    named = [
        one for one in identities if wanted is None or targets.of_device(one).name == wanted.name
    ]
    if len(named) != 1:
        known = ", ".join(targets.of_device(one).name for one in identities)
        raise TrituneError(
            f"the journal holds {known or 'no device'}",
            where=str(path),
            hint="choose with --target",
        )
    return Setting(target=targets.of_device(named[0]), identity=named[0], record=path)


def _recorded(sweep: Sweep, wanted: Target | None) -> Setting:
    """The first target with a recorded journal, else the first target of the file."""
    path = Path(sweep.path)
    asked = (wanted,) if wanted else tuple(targets.find(name) for name in sweep.targets)
    for target in asked:
        record = places.record_path(path, target.name)
        if record.is_file():
            return _replay(record, target)
    if not asked:
        raise TrituneError(
            "no GPU here, and no target to compile for",
            where=sweep.path,
            hint="name one with --target, or add `targets: [H200]` to the file",
        )
    return Setting(target=asked[0])
