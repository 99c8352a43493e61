"""How far stored views are behind the log, in records and in seconds. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from penstock.errors import TopicError
from penstock.log.log import Log
from penstock.log.partition import Partition
from penstock.log.topic import Topic
from penstock.views.catalog import Generation

US = timedelta(microseconds=1)


@dataclass(frozen=True)
class TopicLag:
    """The distance between a fence and the end of one topic."""

    topic: str
    records: int
    """Records that are there and not in the view yet."""
    seconds: float
    """Since the oldest of them arrived; 0 if there is none."""
    offsets: Mapping[int, int]
    """The fence: by partition, the first offset that is not in yet."""
    ends: Mapping[int, int]


def topic_lag(topic: Topic, offsets: Mapping[int, int], now_us: int) -> TopicLag:
    """How far a fence with these offsets is behind this topic."""
    starts, ends = topic.start(), topic.end()
    reached = {number: max(offsets.get(number, 0), starts[number]) for number in ends}
    records = sum(max(end - reached[number], 0) for number, end in ends.items())
    oldest = oldest_unread_us(topic, reached, ends)
    seconds = 0.0 if oldest is None else max((now_us - oldest) / 1e6, 0.0)
    return TopicLag(topic.name, records, seconds, {n: offsets.get(n, 0) for n in ends}, ends)


def oldest_unread_us(topic: Topic, reached: Mapping[int, int], ends: Mapping[int, int]) -> int | None:
    """The arrival of the oldest record from these offsets on; None if there is none."""
    firsts = (
        _first_arrived_us(partition, reached[partition.number], ends[partition.number])
        for partition in topic.partitions
        if reached[partition.number] < ends[partition.number]
    )
    return min((each for each in firsts if each is not None), default=None)


def _first_arrived_us(partition: Partition, start: int, stop: int) -> int | None:
    """When the first record of a range arrived: within a partition, none after it arrived earlier."""
    for low, high in _spans(partition, start, stop):
        for batch in partition.read(low, high, columns=[]):
            if batch.num_rows:
                return int(batch.column("_arrived")[0].value)
    return None


def _spans(partition: Partition, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Where to look for the first record. Of a compacted topic the very first may be gone, and more after it."""
    yield start, start + 1
    for piece in partition.pieces(start, stop):
        yield max(start, piece.start), min(piece.stop, stop)


def topics_of(generation: Generation, view: str) -> tuple[str, ...]:
    """The topics that a view is made of: its own, and those of the views it reads."""
    names: dict[str, None] = {}
    waiting = [view]
    while waiting:
        known = generation.views.get(waiting.pop())
        if known is not None:
            names.update(dict.fromkeys(known.details.get("topics", ())))
            waiting += known.details.get("upstream", ())
    return tuple(names)


def view_lag(generation: Generation, view: str, log: Log) -> list[TopicLag]:
    """How far one view is behind each of its topics. A topic that is no longer there is left out."""
    found = []
    for name in topics_of(generation, view):
        try:
            found.append(topic_lag(log.topic(name), generation.fence.offsets.get(name, {}), log.clock()))
        except TopicError:
            continue
    return found


def closed_us(generation: Generation, view: str, log: Log) -> int | None:
    """Windows of this view that end at this moment or before are closed: only late events change them.

    None if that is not known, since one of its topics is not there.
    """
    try:
        lateness = [log.topic(name).definition.lateness // US for name in topics_of(generation, view)]
    except TopicError:
        return None
    return generation.fence.clock_us - max(lateness, default=0)
