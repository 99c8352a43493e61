"""Late events of a topic: how many, and for people to look at. What is late is a column of the log; this reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.clock import HOUR_US
from penstock.log.manifest import SealedSegment
from penstock.log.reading import pieces
from penstock.log.sealed import event_times

if TYPE_CHECKING:
    from penstock.log.definition import TopicDefinition
    from penstock.log.folder_topic import FolderTopic
    from penstock.log.reading import FolderPiece
    from penstock.log.topic import Topic

OWN = ("_partition", "_offset", "_arrived", "_late")


@dataclass(frozen=True)
class LateEvent:
    """One event that came late."""

    partition: int
    offset: int
    arrived: datetime
    event_time: datetime
    delay: timedelta
    """How long after its event time it arrived."""
    columns: Mapping[str, Any]
    """What else it says: without its event time."""


def late_events(topic: Topic, *, limit: int, since_us: int | None = None) -> tuple[list[LateEvent], int]:
    """The late events that arrived last, the earliest of them first, and how many late ones there are in all.

    Reads the topic from `since_us` on, a piece at a time; what is kept of it meanwhile is `limit` events.
    """
    event_time = topic.definition.event_time
    assert event_time is not None, f"topic {topic.name!r} has no event time"
    total = 0
    kept = topic.read_schema().empty_table()
    for partition in topic.partitions:
        start = partition.start_offset() if since_us is None else partition.offset_at(since_us)
        start, stop = max(start, partition.start_offset()), partition.end().offset
        if start >= stop:
            continue
        for batch in partition.read(start, stop):
            late = batch.filter(batch.column("_late"))
            if late.num_rows:
                total += late.num_rows
                found = pa.Table.from_batches([pa.RecordBatch.from_arrays(late.columns, schema=kept.schema)])
                kept = _latest(pa.concat_tables([kept, found]), limit)
    return [_event(row, event_time) for row in kept.to_pylist(maps_as_pydicts="lossy")], total


def count_late(topic: FolderTopic, start: Mapping[int, int], until: Mapping[int, int]) -> int:
    """How many records between two cuts came late. Reads only what statistics leave open, and of that two columns."""
    definition = topic.definition
    if definition.event_time is None:
        return 0
    total = 0
    for partition in topic.partitions:
        first, last = start.get(partition.number, 0), until.get(partition.number, 0)
        unknown: list[tuple[int, int]] = []
        for piece in pieces(partition, first, last) if first < last else ():
            low, high = max(piece.start, first), min(piece.stop, last)
            known = _late_by_statistics(piece, definition)
            if known == 0 or (known is not None and (low, high) == (piece.start, piece.stop)):
                total += known
            elif unknown and unknown[-1][1] == low:
                unknown[-1] = (unknown[-1][0], high)
            else:
                unknown.append((low, high))
        for low, high in unknown:
            for batch in partition.read(low, high, columns=[]):
                total += int(pc.sum(batch.column("_late")).as_py() or 0)
    return total


def latest_arrivals(topic: FolderTopic, start: Mapping[int, int], until: Mapping[int, int]) -> dict[int, int]:
    """Partition -> greatest arrival between two cuts, in microseconds. Reads at most one piece of each partition."""
    latest = {}
    for partition in topic.partitions:
        first, last = start.get(partition.number, 0), until.get(partition.number, 0)
        found = pieces(partition, first, last) if first < last else []
        stamps = [piece.arrived_max for piece in found if piece.stop <= last]
        # Arrivals never decrease within a partition, so the last record of the piece that the cut divides decides.
        for piece in found:
            if piece.stop > last:
                batches = partition.read(max(piece.start, first), last, columns=[])
                stamps += [batch.column("_arrived")[-1].value for batch in batches if batch.num_rows]
        if stamps:
            latest[partition.number] = max(stamps)
    return latest


def _late_by_statistics(piece: FolderPiece, definition: TopicDefinition) -> int | None:
    """How many records of a piece came late, if that can be told without reading it."""
    limit_us = definition.lateness // timedelta(microseconds=1)
    if not piece.hours:
        return 0  # No record of it has an event time.
    if piece.arrived_max - piece.hours[0][0] * HOUR_US <= limit_us:
        return 0
    if not isinstance(piece.home, SealedSegment) or not isinstance(piece.place, int):
        return None
    try:
        times = event_times(piece.path, piece.home.crc32c, definition.event_time or "")[piece.place]
    except FileNotFoundError:
        return None
    if times is None:
        return None
    if piece.arrived_max - times.least <= limit_us:
        return 0
    return piece.rows - times.missing if piece.arrived_min - times.greatest > limit_us else None


def _latest(table: pa.Table, limit: int) -> pa.Table:
    ordered = table.take(
        pc.sort_indices(
            table.select(["_arrived", "_partition", "_offset"]),
            sort_keys=[("_arrived", "ascending"), ("_partition", "ascending"), ("_offset", "ascending")],
        )
    )
    return ordered.slice(max(ordered.num_rows - limit, 0))


def _event(row: dict[str, Any], event_time: str) -> LateEvent:
    happened, arrived = row[event_time], row["_arrived"]
    if happened.tzinfo is None:
        happened = happened.replace(tzinfo=arrived.tzinfo)
    others = {name: value for name, value in row.items() if name not in OWN and name != event_time}
    return LateEvent(row["_partition"], row["_offset"], arrived, row[event_time], arrived - happened, others)
