"""Which records of the log touched a row of a view, where its key can be followed to them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.topic import Topic
from penstock.upkeep.changes import one_array
from penstock.upkeep.compiled import CompiledView
from penstock.upkeep.inputs import TopicInput
from penstock.verify.compare import Example
from penstock.verify.cuts import Recorded

RECORDS_MAX = 10
"""So many are shown of one row; how many there are is always said."""
_PLACE = struct.Struct(">HHQI")
"""The stored key of a view without one: topic, partition, offset, position (`penstock.upkeep.fold_rows`)."""


@dataclass(frozen=True)
class Record:
    """One record of the log."""

    topic: str
    partition: int
    offset: int
    arrived: datetime
    is_late: bool
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Touched:
    """The records that touched one row: how many, and the first of them."""

    count: int
    records: tuple[Record, ...]
    tables: Mapping[str, pa.Table]
    """By input of the view, all of them."""


def records_of(view: CompiledView, example: Example, recorded: Recorded) -> Touched | None:
    """The records behind a row; None where its key cannot be followed to the columns of a topic.

    A key column is followed by its name, a window by the event time. Every topic that the view reads must have the
    whole key, else it could not be said which of its records count.
    """
    topics = [each for each in view.inputs.values() if isinstance(each, TopicInput)]
    if not topics or view.upstream:
        return None
    tables: dict[str, pa.Table] = {}
    for each in topics:
        topic = recorded.topics[each.topic]
        found = _by_place(topic, example) if view.spec.key is None else _by_key(topic, each, example, recorded)
        if found is None or (view.spec.key is None and len(topics) > 1):
            return None
        tables[each.name] = found if each.late == "correct" else found.filter(pc.invert(found.column("_late")))
    names = {each.name: each.topic for each in topics}
    records = [_record(names[name], row) for name, table in tables.items() for row in _first(table)]
    count = sum(table.num_rows for table in tables.values())
    return Touched(count, tuple(sorted(records, key=lambda each: each.arrived)[:RECORDS_MAX]), tables)


def _by_place(topic: Topic, example: Example) -> pa.Table | None:
    if len(example.place) != _PLACE.size:
        return None
    _, partition, offset, _ = _PLACE.unpack(example.place)
    return topic.slice({partition: offset}, {partition: offset + 1})


def _by_key(topic: Topic, each: TopicInput, example: Example, recorded: Recorded) -> pa.Table | None:
    if not example.key:
        return None
    table = topic.slice(recorded.start[each.topic], recorded.end[each.topic])
    for name, value in example.key.items():
        if name in topic.schema.names:
            column = one_array(table.column(name))
            same = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
        elif each.event_time is not None and isinstance(value, dict) and value.keys() == {"start", "end"}:
            column = one_array(table.column(each.event_time))
            start, end = (pa.scalar(value[side], column.type) for side in ("start", "end"))
            same = pc.and_(pc.greater_equal(column, start), pc.less(column, end))
        else:
            return None
        table = table.filter(pc.fill_null(same, False))
    return table


def _first(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.sort_by("_arrived").slice(0, RECORDS_MAX).to_pylist()
    return rows


def _record(topic: str, row: dict[str, Any]) -> Record:
    place = [row.pop(name) for name in ("_partition", "_offset", "_arrived", "_late")]
    return Record(topic, *place, values=row)
