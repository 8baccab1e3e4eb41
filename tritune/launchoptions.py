"""launchoptions: a launch option and a number -> why no launch on any GPU can have it."""

from __future__ import annotations

POWERS = frozenset({"num_warps", "num_ctas"})
ENDS = {"num_warps": (1, 32), "maxnreg": (1, 255)}
"""What no target goes beyond: 1,024 threads of a program, and registers that code can name."""
NUMBER = "write a number"


def slip(name: str, value: int) -> tuple[str, str] | None:
    """What is wrong with it, and what to write; None where some launch can have it."""
    if value < 0:
        return f"expected an integer of at least 0, got {value}", "write a positive number"
    if name in POWERS and (value < 1 or value & (value - 1)):
        return f"expected a power of two, got {value}", nearest(value)
    least, most = ENDS.get(name, (0, value))
    if not least <= value <= most:
        hint = f"write {most} or less" if value > most else f"write {least} or more"
        return f"expected an integer from {least} to {most}, got {value}", hint
    return None


def nearest(value: int) -> str:
    """The powers of two around a number that is none."""
    if value < 1:
        return "the smallest is 1"
    below = 1 << (value.bit_length() - 1)
    return f"write {below} or {2 * below}"
