"""Late events of a topic, for people to look at. What is late is a column of the log, so this only reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
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
