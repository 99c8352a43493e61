"""Numbers and times as people read them: thin separators, few digits, relative times with the exact one beside."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

THIN = "\u202f"
"""A narrow space that does not break: what stands between thousands."""
NOTHING = "\u2013"
"""What is shown where there is no value."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def count(value: int | None) -> str:
    """A whole number.

    >>> count(1234567).replace(THIN, " ")
    '1 234 567'
    """
    return NOTHING if value is None else f"{value:,}".replace(",", THIN)


def rate(value: float | None) -> str:
    """So many in a second: three digits where it is small, whole numbers where it is large.

    >>> rate(0), rate(0.04), rate(12.34), rate(1234.5).replace(THIN, " ")
    ('0', '0.04', '12.3', '1 235')
    """
    if value is None:
        return NOTHING
    if value == 0 or value >= 100:
        return count(math.floor(value + 0.5))
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def size(value: int | None) -> str:
    """Bytes.

    >>> size(999), size(1_500_000).replace(THIN, " ")
    ('999 B', '1.5 MB')
    """
    if value is None:
        return NOTHING
    number, units = float(value), ["B", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{value} B" if units[0] == "B" else f"{number:.1f} {units[0]}"


def duration(seconds: float | None) -> str:
    """A length of time, in the two units that matter.

    >>> duration(0.0042), duration(3.14), duration(75), duration(7260)
    ('4 ms', '3.1 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole, units = int(seconds), [*_UNITS, (1, "s")]
    for (length, name), (lower, lower_name) in pairwise(units):
        if whole >= length:
            rest = whole % length // lower
            return f"{whole // length} {name}" + (f" {rest} {lower_name}" if rest else "")
    raise AssertionError(whole)


def ago(us: int | None, now_us: int) -> str:
    """How long ago a moment was.

    >>> ago(0, 90_000_000), ago(5, 5)
    ('1 min 30 s ago', 'now')
    """
    if us is None:
        return NOTHING
    seconds = (now_us - us) / 1e6
    if abs(seconds) < 1.5:
        return "now"
    length = abs(int(seconds))
    text = f"{length} s" if length < 60 else duration(length)
    return f"{text} ago" if seconds > 0 else f"in {text}"


def exact(us: int | None) -> str:
    """A moment in UTC, to the second.

    >>> exact(0)
    '1970-01-01 00:00:00 UTC'
    """
    if us is None:
        return ""
    try:
        return f"{_EPOCH + timedelta(microseconds=us):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:
        return f"{us} µs since 1970"


def microseconds(moment: datetime) -> int:
    """A moment as the log counts it. One without a zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def plural(number: int, one: str) -> str:
    """
    >>> plural(1, "view"), plural(2, "view")
    ('1 view', '2 views')
    """
    return f"{count(number)} {one if number == 1 else one + 's'}"


def cell(value: Any) -> str:
    """Any value of a row, as text; never markup, and never longer than people read."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Decimal):
        return f"{value:,}".replace(",", THIN)
    if isinstance(value, dict) and value.keys() == {"start", "end"}:
        return window(value)
    return shortened(str(value))


def number(value: float) -> str:
    """A number with a fraction, in six digits at most.

    >>> number(0.25), number(float("nan"))
    ('0.25', 'nan')
    """
    if not math.isfinite(value) or value == 0 or not 1e-4 <= abs(value) < 1e15:
        return f"{value:g}"
    digits = max(0, 5 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(digits, 6)}f}".replace(",", THIN)
    return text.rstrip("0").rstrip(".") if "." in text else text


def window(value: dict[str, Any]) -> str:
    """A window of time: its day, its start and its end."""
    texts = (str(value[name] or "").replace("Z", "").replace("T", " ") for name in ("start", "end"))
    start, end = (text.removesuffix(".000000") for text in texts)
    return f"{start} {NOTHING} {end[11:] if start[:10] == end[:10] else end}"


def shortened(text: str, most: int = 200) -> str:
    """
    >>> shortened("abcdef", 3)
    'abc…'
    """
    return text if len(text) <= most else f"{text[:most]}…"
