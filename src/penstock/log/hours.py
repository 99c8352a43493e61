"""Which hours of event time a piece of the log holds, as a short list of ranges.

A list and not a minimum and a maximum: one stray event from 1970 or 2099 adds one hour to it and widens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.clock import HOUR_US

Hours = tuple[tuple[int, int], ...]
"""Sorted, disjoint, inclusive ranges of hours since 1970, such as ((0, 0), (490128, 490151))."""

TimeRange = tuple[int | None, int | None]
"""From (inclusive) until (exclusive), in microseconds; None is open."""

MARKED_HOURS_MAX = 1 << 21
"""240 years: further apart than that, hours are sorted."""

RANGES_MAX = 16
"""More ranges than this are joined across their smallest gaps, so that the list stays small."""


def hours_of(times: pa.Array | None) -> Hours:
    """The hours that a timestamp column touches. NULLs touch none."""
    if times is None or len(times) == times.null_count:
        return ()
    if times.null_count:
        times = times.drop_null()
    stamps = np.asarray(times.view(pa.int64()))
    low, high = int(stamps.min()) // HOUR_US, int(stamps.max()) // HOUR_US
    if low == high:
        return ((low, high),)
    hours = stamps // HOUR_US
    if high - low >= MARKED_HOURS_MAX:
        return _ranges(np.unique(hours))
    is_there = np.zeros(high - low + 1, bool)  # Marks instead of sorting: ten times as fast.
    is_there[hours - low] = True
    return _ranges(np.flatnonzero(is_there) + low)


def join_hours(pieces: Iterable[Hours]) -> Hours:
    """The hours of several pieces together."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(span for piece in pieces for span in piece):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return _at_most(merged)


def hours_meet(hours: Hours, ranges: Sequence[TimeRange]) -> bool:
    """Whether a piece may hold an event in one of the time ranges. Never says no wrongly."""
    for low_us, high_us in ranges:
        low = None if low_us is None else low_us // HOUR_US
        high = None if high_us is None else (high_us - 1) // HOUR_US
        if any((high is None or first <= high) and (low is None or last >= low) for first, last in hours):
            return True
    return False


def _ranges(hours: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Hours:
    breaks = np.flatnonzero(np.diff(hours) > 1)
    firsts = hours[np.concatenate(([0], breaks + 1))]
    lasts = hours[np.concatenate((breaks, [len(hours) - 1]))]
    return _at_most(list(zip(firsts.tolist(), lasts.tolist(), strict=True)))


def _at_most(ranges: list[tuple[int, int]]) -> Hours:
    if len(ranges) > RANGES_MAX:
        gaps = np.array([after[0] - before[1] for before, after in pairwise(ranges)])
        kept = np.sort(np.argsort(gaps, kind="stable")[-(RANGES_MAX - 1) :])
        firsts = [ranges[0][0], *(ranges[i + 1][0] for i in kept)]
        lasts = [*(ranges[i][1] for i in kept), ranges[-1][1]]
        ranges = list(zip(firsts, lasts, strict=True))
    return tuple(ranges)
