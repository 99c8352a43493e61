"""What came last: the newest records of a topic, those of them that are late, and what did not fit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.dashboard.numbers import microseconds, shortened
from penstock.log.topic import Topic
from penstock.service.answers import as_json

SEARCHED = 20_000
"""Late events are looked for among so many of the newest records."""
LETTERS_MAX = 2_000
"""So much of an event is shown."""
OWN = ("_partition", "_offset", "_arrived", "_late")


@dataclass(frozen=True)
class Shown:
    """A record as people look at it."""

    partition: int
    offset: int
    arrived_us: int
    is_late: bool
    delay_us: int | None
    """How long after its event time it arrived."""
    text: str


def newest(topic: Topic, rows: int) -> pa.Table:
    """The last records of each partition, about so many in all, in the order of their arrival."""
    ends, starts = topic.end(), topic.start()
    share = max(rows // max(len(ends), 1), 1)
    at = {number: max(starts[number], end - share) for number, end in ends.items()}
    table = topic.slice(at, ends)
    return table.sort_by([("_arrived", "ascending"), ("_partition", "ascending"), ("_offset", "ascending")])


def shown(topic: Topic, table: pa.Table) -> list[Shown]:
    """Records as text, the newest first."""
    event_time = topic.definition.event_time
    times = table.column(event_time).to_pylist() if event_time else [None] * table.num_rows
    arrivals = table.column("_arrived").to_pylist()
    found = []
    for row, arrived, happened in zip(as_json(table), arrivals, times, strict=True):
        event = {name: value for name, value in row.items() if name not in OWN}
        arrived_us = microseconds(arrived)
        delay = None if happened is None else arrived_us - microseconds(happened)
        text = shortened(json.dumps(event, ensure_ascii=False), LETTERS_MAX)
        found.append(Shown(row["_partition"], row["_offset"], arrived_us, bool(row["_late"]), delay, text))
    return found[::-1]


def late_of(table: pa.Table, limit: int) -> pa.Table:
    """The last of the late ones."""
    late = table.filter(table.column("_late"))
    return late.slice(max(late.num_rows - limit, 0))


def points_of(topic: Topic, rows: int) -> list[tuple[int, int, bool]]:
    """Of the newest records: arrival, event time, whether it came late. Those without an event time are left out."""
    event_time = topic.definition.event_time
    if event_time is None:
        return []
    table = newest(topic, rows).select([event_time, "_arrived", "_late"])
    return [
        (microseconds(arrived), microseconds(happened), bool(late))
        for happened, arrived, late in zip(*(each.to_pylist() for each in table.columns), strict=True)
        if happened is not None
    ]


def raw_text(raw: Any) -> str:
    """The bytes of a dead letter, as text where they are."""
    if raw is None:
        return ""
    return shortened(bytes(raw).decode("utf-8", "backslashreplace"), LETTERS_MAX)
