"""Ranges of time as people write them, turned into microseconds in one place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from penstock.errors import TimeRangeError
from penstock.events.times import to_timestamp
from penstock.events.unfit import Unfit
from penstock.log.hours import TimeRange

Moment = int | datetime | str
"""Microseconds since 1970, a datetime or ISO text; UTC where it names no zone."""

MomentRange = tuple[Moment | None, Moment | None]
"""From (inclusive) until (exclusive); None is open."""

MomentRanges = MomentRange | Sequence[MomentRange] | str | None
"""One range, several, or no limit. As text: `FROM/UNTIL`, either of them empty, or the same in JSON."""


def time_ranges(given: MomentRanges, what: str) -> list[TimeRange] | None:
    """The ranges in microseconds, sorted and joined where they overlap; None where there is no limit.

    An empty list is a limit too: nothing is inside. Raises TimeRangeError, which calls the ranges `what`.

    >>> time_ranges(("1970-01-01T00:00:01Z", None), "arrived")
    [(1000000, None)]
    >>> time_ranges("1970-01-01/1970-01-02", "arrived")
    [(0, 86400000000)]
    """
    if given is None:
        return None
    pairs: object = _from_text(given, what) if isinstance(given, str) else given
    if not isinstance(pairs, list | tuple):
        raise TimeRangeError(what, given)
    if len(pairs) == 2 and not any(isinstance(each, list | tuple) for each in pairs):
        pairs = [pairs]
    return _joined([_range(pair, given, what) for pair in pairs])


def _from_text(text: str, what: str) -> object:
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise TimeRangeError(what, text, str(error)) from None
    low, slash, high = text.partition("/")
    if not slash or "/" in high:
        raise TimeRangeError(what, text, "one '/' stands between from and until")
    return [(low.strip() or None, high.strip() or None)]


def _range(pair: object, given: object, what: str) -> TimeRange:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise TimeRangeError(what, given)
    return _moment(pair[0], given, what), _moment(pair[1], given, what)


def _moment(value: object, given: object, what: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    try:
        return to_timestamp(value)
    except Unfit as error:
        raise TimeRangeError(what, given, str(error)) from None


def _joined(ranges: list[TimeRange]) -> list[TimeRange]:
    joined: list[TimeRange] = []
    for low, high in sorted(ranges, key=lambda each: (each[0] is not None, each[0] or 0)):
        if low is not None and high is not None and high <= low:
            continue
        last = joined[-1][1] if joined else None
        if joined and (last is None or low is None or low <= last):
            joined[-1] = (joined[-1][0], None if last is None or high is None else max(last, high))
        else:
            joined.append((low, high))
    return joined
