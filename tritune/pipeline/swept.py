"""pipeline.swept: a sweep file's problems on a device -> their keys, and what cannot run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tritune.device import locked, targets
from tritune.errors import TableError, TrituneError
from tritune.model import Config, DeviceIdentity, KernelInfo, Problem, Sweep
from tritune.pipeline.looking import LOOK_LIMIT_S, desks
from tritune.workers import Done, Raised


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """A sweep file and the kernel of it that takes the entries."""

    sweep: Sweep
    info: KernelInfo

    def task(
        self, device: DeviceIdentity, problem: Problem, held: Mapping[str, Config]
    ) -> tuple[object, ...]:
        """What `locked.look` is asked of a problem, with what nobody ran yet under its key."""
        reference = self.sweep.kernel or self.info.name, self.sweep.problem
        configs = tuple(dict.fromkeys((self.info.default, *self.info.configs)))
        return reference, targets.of_device(device), problem, configs, held, tuple(held)


def keys_of(swept: Swept, device: DeviceIdentity) -> dict[str, Problem]:
    """The key of every problem of a sweep file, as a launch there would have it."""
    sweep = swept.sweep
    tasks = [swept.task(device, problem, {}) for problem in sweep.problems]
    keys: dict[int, str] = {}
    with desks() as pool:
        for index, answer in pool.run(locked.look, tasks, LOOK_LIMIT_S):
            match answer:
                case Done(locked.Seen(key=key, unknown="")):
                    keys[index] = key
                case Raised(error=TrituneError() as error):
                    raise error
                case _:
                    why = answer.value.unknown if isinstance(answer, Done) else str(answer)
                    raise TableError(
                        f"the key of {sweep.problems[index]} is not known here: {why}",
                        where=sweep.path,
                        hint="--kernel with --key needs no sweep file",
                    )
    return {keys[index]: sweep.problems[index] for index in sorted(keys) if keys[index]}


def refusals(
    swept: Swept, device: DeviceIdentity, held: Mapping[str, tuple[Problem, Config]]
) -> dict[str, str]:
    """Why the kernel cannot run there with what a key has; of the keys where it cannot.

    That is what does not compile, and what surely takes more shared memory than the device has.
    """
    keys = [*held]
    tasks = [swept.task(device, problem, {key: config}) for key, (problem, config) in held.items()]
    found: dict[str, str] = {}
    with desks() as pool:
        for index, answer in pool.run(locked.look, tasks, LOOK_LIMIT_S):
            if isinstance(answer, Done) and answer.value.broken:
                found[keys[index]] = answer.value.broken
    return {key: found[key] for key in keys if key in found}
