"""What was, as points in time: from beats, and for the time before them from the log and from what runs noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.dashboard.beat import Beat
from penstock.errors import PenstockError
from penstock.log.topic import Topic

if TYPE_CHECKING:
    from penstock.service.service import Service

STEP_US = 5_000_000
"""How far apart the points are that are worked out afterwards."""
PIECES_MAX = 20_000
"""A partition with more pieces than this in the last minutes is left out: looking at them would take too long."""

Line = list[tuple[int, float]]
"""Values by their time, in microseconds."""


@dataclass(frozen=True)
class Point:
    """A moment: how much there was of everything."""

    at_us: int
    totals: Mapping[str, float]
    """By topic, the records that were ever appended."""
    lag: int | None = None
    late: int | None = None
    corrected: int | None = None
    lags: Mapping[str, int] = field(default_factory=dict)
    """By view."""


def point_of(beat: Beat) -> Point:
    """What a beat leaves behind."""
    views = beat.views.values()
    return Point(
        beat.at_us,
        {name: state.total for name, state in beat.topics.items()},
        beat.lag,
        sum(each.counters.late for each in views),
        sum(each.counters.corrected for each in views),
        {name: each.lag for name, each in beat.views.items() if each.lag is not None},
    )


def earlier_points(service: Service, beat: Beat, seconds: float) -> list[Point]:
    """The time before the first beat: arrivals from the pieces of the log, lag from the samples of runs."""
    stop, start = beat.at_us, beat.at_us - int(seconds * 1e6)
    moments = range(start, stop, STEP_US)
    totals: dict[str, list[float]] = {}
    for name, state in beat.topics.items():
        try:
            found = _totals(service.log.topic(name), moments)
        except (PenstockError, OSError):
            found = None
        if found is not None:
            totals[name] = found
        else:
            totals[name] = [state.total] * len(moments)
    lags = _lags(beat, moments)
    return [
        Point(at, {name: values[number] for name, values in totals.items()}, lags[number])
        for number, at in enumerate(moments)
    ]


def _totals(topic: Topic, moments: Sequence[int]) -> list[float] | None:
    """By moment, how many records had been appended. Within a piece they are taken to have come evenly."""
    totals = [0.0] * len(moments)
    for partition in topic.partitions:
        end = partition.end()
        if end.arrived_us < moments[0]:
            totals = [each + end.offset for each in totals]
            continue
        pieces = partition.pieces(partition.start_offset())
        recent = [each for each in pieces if each.arrived_max >= moments[0]]
        if len(recent) > PIECES_MAX:
            return None
        corners = [(0, recent[0].start if recent else end.offset)]
        for piece in recent:
            corners += [(piece.arrived_min, piece.start), (max(piece.arrived_max, piece.arrived_min + 1), piece.stop)]
        totals = [each + value for each, value in zip(totals, _along(corners, moments), strict=True)]
    return totals


def _along(corners: Sequence[tuple[int, int]], moments: Sequence[int]) -> list[float]:
    """The heights at these moments of a line through the corners, which go upwards."""
    heights, number = [], 0
    for at in moments:
        while number + 1 < len(corners) and corners[number + 1][0] <= at:
            number += 1
        (left, low), (right, high) = corners[number], corners[min(number + 1, len(corners) - 1)]
        share = (at - left) / (right - left) if right > left and left else 0.0
        heights.append(low + (high - low) * min(max(share, 0.0), 1.0))
    return heights


def _lags(beat: Beat, moments: Sequence[int]) -> list[int | None]:
    """By moment, the records that were left, over the runs that noted something around then."""
    found: list[int | None] = [None] * len(moments)
    for run in beat.runs:
        for sample in run.samples:
            number = (sample.at_us - moments[0]) // STEP_US
            if 0 <= number < len(found):
                found[number] = max(found[number] or 0, sample.lag)
    return found


def rates_of(points: Sequence[Point], topic: str, step_us: int) -> Line:
    """Events a second of a topic, one value for each step of time."""
    return per_second([(each.at_us, each.totals[topic]) for each in points if topic in each.totals], step_us)


def per_second(totals: Iterable[tuple[int, float]], step_us: int) -> Line:
    """How fast something grows, from how much of it there was: one value per step. What shrinks has been made anew."""
    kept: list[tuple[int, float]] = []
    for at, total in totals:
        if kept and at - kept[-1][0] < step_us * 0.9:
            continue
        kept.append((at, total))
    return [
        (later, max(high - low, 0.0) / ((later - earlier) / 1e6)) for (earlier, low), (later, high) in pairwise(kept)
    ]
