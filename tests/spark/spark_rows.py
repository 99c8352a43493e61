"""A topic with every kind of column, for the tests of the Spark side."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.events.encode import encode
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.log.rows import START_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = """time timestamp, n bigint NOT NULL, word string COMMENT 'may be missing', small tinyint, price decimal(12,2),
    wall timestamp_ntz, raw binary, day date, flags array<boolean>, counts map<string, int>,
    place struct<city: string NOT NULL, times: array<timestamp>, deep: struct<x: double>>"""


def records(numbers: Sequence[int], *, time_us: int = START_US) -> pa.RecordBatch:
    """One record per number, a second apart; every fifth has nothing but its number."""
    times = [time_us + number * 1_000_000 for number in numbers]
    rows = [
        {"n": number} if number % 5 == 4 else _row(number, time) for number, time in zip(numbers, times, strict=True)
    ]
    encoded = encode(rows, _schema())
    assert not encoded.rejected, encoded.rejected
    return encoded.batch


def many_kinds(log: FolderLog, name: str = "events", **settings: Any) -> FolderTopic:
    """An empty topic with all those columns."""
    return log.create(name, SCHEMA, **{"event_time": "time", "lateness": "10s", "partitions": 2, **settings})


def by_place(frame: DataFrame | pa.Table) -> list[dict[str, Any]]:
    """All rows in the order of the log, as Python values that can be compared."""
    table = frame if isinstance(frame, pa.Table) else frame.toArrow()
    return _comparable(table.sort_by([("_partition", "ascending"), ("_offset", "ascending")]).to_pylist())


def in_the_log(topic: FolderTopic, **asked: Any) -> list[dict[str, Any]]:
    """The same, as the log itself reads them."""
    return _comparable(
        [
            row
            for partition in topic.partitions
            for batch in partition.read(partition.start_offset(), **asked)
            for row in batch.to_pylist()
        ]
    )


def _comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: dict(value) if name == "counts" and value else value for name, value in row.items()} for row in rows]


def _row(number: int, time_us: int) -> dict[str, Any]:
    return {
        "time": _text(time_us, "Z"),
        "n": number,
        "word": None if number % 3 == 0 else f"wörd {number}",
        "small": number % 100,
        "price": Decimal(number) / 4,
        "wall": _text(time_us, ""),
        "raw": bytes([number % 256]),
        "day": "2026-01-31",
        "flags": [True, None, number % 2 == 0],
        "counts": {"a": number, "b": None},
        "place": {"city": "Kyōto", "times": [_text(time_us, "Z"), None], "deep": {"x": number / 2}},
    }


def _text(time_us: int, zone: str) -> str:
    return str(pa.scalar(time_us, pa.int64()).cast(pa.timestamp("us")).cast(pa.string()).as_py()) + zone


def _schema() -> pa.Schema:
    from penstock.events.schema import parse_ddl

    return parse_ddl(SCHEMA)
