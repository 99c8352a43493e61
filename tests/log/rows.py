"""Small Arrow batches for the tests of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.folder_topic import FolderTopic

SCHEMA = "time timestamp, user string, n bigint"
START_US = 1_767_225_600_000_000


def rows(numbers: Sequence[int], *, user: str = "u", time_us: int = START_US) -> pa.RecordBatch:
    """One record per number, at one-second steps of event time."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([time_us + n * 1_000_000 for n in numbers], pa.int64()).view(pa.timestamp("us", "UTC")),
            pa.array([f"{user}{n % 7}" for n in numbers], pa.string()),
            pa.array(list(numbers), pa.int64()),
        ],
        ["time", "user", "n"],
    )


def numbers_of(source: FolderPartition | FolderTopic) -> list[int]:
    """All numbers in it, in order of offsets."""
    if isinstance(source, FolderTopic):
        found: list[int] = source.slice(columns=["n"]).column("n").to_pylist()
        return found
    return [n for batch in source.read(source.start_offset(), columns=["n"]) for n in batch.column("n").to_pylist()]


def small_topic(log: FolderLog, name: str = "events", **settings: Any) -> FolderTopic:
    """A topic with little segments, so that few records make many files."""
    return log.create(name, SCHEMA, **{"event_time": "time", "segment_bytes": 4096, **settings})
