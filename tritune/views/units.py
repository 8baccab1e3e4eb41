"""units: numbers -> text. The one place where a figure gets its unit and its digits.

The unit inside is fixed (microseconds, seconds, bytes, fractions); what a reader sees is
decided here and nowhere else.
"""

from __future__ import annotations

import math

NONE = "-"
"""What stands where there is no figure to show."""


def figures(value: float, digits: int = 3) -> str:
    """A number with *digits* significant figures, whole numbers never cut: `8.61`, `1,234`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{digits - 1}e}")
    places = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)
    return f"{value:,.{places}f}"


def format_us(us: float | None) -> str:
    """Microseconds without their unit, for a column that names it."""
    return NONE if us is None else figures(us)


def format_s(seconds: float) -> str:
    """A length of time as a person says it: `0.4 s`, `38 s`, `1 min 12 s`, `2 h 5 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def format_bytes(count: float) -> str:
    """Bytes in the largest binary unit that keeps at least one: `228 KiB`, `50 MiB`."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.0f} {unit}" if size == int(size) else f"{size:,.1f} {unit}"


def format_count(number: int) -> str:
    """A whole number with its thousands apart: `1,152`."""
    return f"{number:,}"


def format_ratio(ratio: float | None) -> str:
    """A speed-up, `2.87x` with a real multiplication sign; above 1 is faster."""
    return NONE if ratio is None else f"{figures(ratio)}\N{MULTIPLICATION SIGN}"


def format_percent(fraction: float | None, *, signed: bool = False) -> str:
    """A fraction in percent: `38 %`; signed, as a difference is shown: `+3.1 %`."""
    if fraction is None:
        return NONE
    return f"{fraction * 100:+.1f} %" if signed else f"{fraction * 100:.0f} %"


def format_noise(fraction: float) -> str:
    """A relative spread: `±0.3 %`."""
    return f"±{fraction * 100:.1f} %"
