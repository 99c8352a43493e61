"""Lengths of time as people write them: "10 minutes", "500ms", "1h 30m"."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from penstock.errors import DurationError

_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_SPELLINGS = {
    "us": ("µs", "μs", "micro", "micros", "microsecond", "microseconds"),
    "ms": ("milli", "millis", "millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "d": ("day", "days"),
    "w": ("week", "weeks"),
}
_UNIT_OF = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in (unit, *spellings)}
_WORDS = (("weeks", "w"), ("days", "d"), ("hours", "h"), ("minutes", "m"), ("seconds", "s"), ("ms", "ms"), ("us", "us"))
_TERM = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[^\W\d_]+)\s*(?:,|and\b)?\s*")


def parse_duration(value: str | timedelta) -> timedelta:
    """The length of time that `value` names; a timedelta is given back as it is.

    A text is one or more numbers with units. "0" needs no unit. A length is never negative and never finer than a
    microsecond; anything else raises `DurationError`.

    >>> parse_duration("1h 30m")
    datetime.timedelta(seconds=5400)
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise DurationError(str(value), "it is negative")
        return value
    if not isinstance(value, str):
        raise DurationError(str(value), f"it is a {type(value).__name__}, not a text; write the unit too")
    text = value.strip()
    if text == "0":
        return timedelta(0)
    if not text:
        raise DurationError(value, "it is empty")
    total_us, position = Fraction(0), 0
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None:
            raise DurationError(value, _what_is_wrong(text[position:]))
        unit = term["unit"]
        # 'M' could be minutes or months to a reader, so one-letter units are read only as they are listed.
        short = _UNIT_OF.get(unit if len(unit) == 1 else unit.lower())
        if short is None:
            raise DurationError(value, f"no unit is named {unit!r}")
        total_us += Fraction(term["number"]) * _UNITS_US[short]
        position = term.end()
    if total_us.denominator != 1:
        raise DurationError(value, "it is finer than a microsecond")
    try:
        return timedelta(microseconds=int(total_us))
    except OverflowError:
        raise DurationError(value, "it is longer than 999999999 days") from None


def format_duration(value: timedelta) -> str:
    """The shortest exact text for a length of time; `parse_duration` reads it back as the same.

    >>> format_duration(timedelta(minutes=10)), format_duration(timedelta(milliseconds=500))
    ('10 minutes', '500ms')
    """
    total_us = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    if total_us == 0:
        return "0s"
    for word, unit in _WORDS:
        count, rest = divmod(total_us, _UNITS_US[unit])
        if rest == 0 and (unit != "w" or value.days >= 14):
            return _term(count, word)
    raise AssertionError(f"{value!r} is not a whole number of microseconds")


def _term(count: int, word: str) -> str:
    if word in ("ms", "us"):
        return f"{count}{word}"
    return f"{count} {word[:-1] if count == 1 else word}"


def _what_is_wrong(rest: str) -> str:
    if rest.lstrip().startswith("-"):
        return "it is negative"
    if re.fullmatch(r"\s*[0-9.]+\s*", rest):
        return f"{rest.strip()!r} has no unit"
    return f"cannot read {rest.strip()!r}"
