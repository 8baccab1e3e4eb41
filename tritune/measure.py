"""measure: Compiled -> Measured | Rejected.

Decides which candidate of one problem to sample next; a `Device` does the sampling, so the
same decisions are tested with no GPU. Does not know what wins: that is choosing's business.

Two configs timed minutes apart cannot be ranked (the median of one config was seen to move
15 % with power and clocks), so every comparison here is made inside one interleaved window.
Screening goes in chunks in which the best so far rides along; a candidate's score is its
ratio to that rider, chained to the first chunk's clock. The finals compare round by round.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from tritune.device import Device
from tritune.model import Compiled, Config, Measured, Outcome, Reason, Rejected, Timing

IN_FLIGHT = 16
"""Most candidates that are loaded on the device and interleaved at a time."""
DROP_AT_ONCE = 3.0
"""Out after one sample, if it is this many times slower than the best beside it."""
DROP = 1.5
"""Out after the screening samples."""
FINAL_BAND = 0.05
"""This near to the best is in the finals; more where screening itself is noisy."""
FINAL_NOISE = 3.0
FINALISTS = 16
BLOCK = 5
"""Rounds of the finals between two decisions."""
FIRST_DECISION = 10
"""Rounds before anything is decided: the fewest blocks with a 99 % interval of a median."""
SAME = 0.005
"""Nearer than this is a tie; nothing is eliminated that is not surely slower by more."""
DOUBT = 0.01
"""One minus the confidence of the paired interval."""


def measure(  # noqa: PLR0913 (a race has these parts, and no two of them belong together)
    device: Device,
    compiled: Sequence[Compiled],
    *,
    default: Config,
    incumbent: Config | None,
    timing: Timing,
    record: Callable[[Outcome], None],
    progress: Callable[[str], None],
) -> tuple[Outcome, ...]:
    """Verify, screen and race the candidates of one problem; one outcome each, in their order.

    The default and the incumbent are always in the finals, as themselves or as the group of
    configs that share their binary. Finalists that can still be locked are verified again.
    """
    race = _Race(device, timing, frozenset({default, incumbent or default}), record, progress)
    race.finals(race.screen(compiled))
    return tuple(race.outcomes[binary.candidate.config] for binary in compiled)


@dataclass(slots=True)
class _Entrant:
    """One candidate on its way through the race: what was measured of it so far."""

    measured: Measured
    score: float = math.inf
    """Time in microseconds as the first chunk's clock would have shown it."""


class _Race:
    """The state of one problem's race: what is out, and with which outcome."""

    def __init__(
        self,
        device: Device,
        timing: Timing,
        protected: frozenset[Config],
        record: Callable[[Outcome], None],
        progress: Callable[[str], None],
    ) -> None:
        self._device = device
        self._timing = timing
        self._protected = protected
        self._record = record
        self._progress = progress
        self.outcomes: dict[Config, Outcome] = {}

    def screen(self, compiled: Sequence[Compiled]) -> list[_Entrant]:
        """Sample every candidate a few times; the finalists, best first."""
        waiting = iter(sorted(compiled, key=lambda binary: not self._is_protected(binary)))
        field: list[_Entrant] = []
        while chunk := list(islice(waiting, IN_FLIGHT - bool(field))):
            rider = min(field, key=lambda entrant: entrant.score, default=None)
            field += self._screen_chunk(list(self._verified(chunk)), rider)
            field = [entrant for entrant in field if not self._is_out(entrant)]
            self._say(f"screened {len(self.outcomes) + len(field)} of {len(compiled)}", field)
        return self._finalists(field)

    def _screen_chunk(self, fresh: list[_Entrant], rider: _Entrant | None) -> list[_Entrant]:
        """The entrants of a chunk that are worth a look at the end; the others are out."""
        if not fresh:
            return []
        ride = () if rider is None else _sampled_anew(rider)
        # The first round of a window warms up clocks and caches, and is thrown away.
        running = self._sample([*ride, *fresh], 2, skip=1)
        running = self._near(running, DROP_AT_ONCE)
        if self._timing.screen_samples > 1:
            running = self._sample(running, self._timing.screen_samples - 1)
        _score(running, rider)
        kept = self._near(running, DROP)
        return [entrant for entrant in kept if entrant not in ride]

    def _verified(self, chunk: Iterable[Compiled]) -> Iterator[_Entrant]:
        for compiled in chunk:
            answer = self._device.verify(compiled)
            if isinstance(answer, Rejected):
                self._finish(answer, compiled)
            else:
                error = float(f"{answer.error:.3g}")
                measured = Measured(
                    compiled=compiled, samples_us=(), error=error, bits=answer.bits
                )
                yield _Entrant(measured)
