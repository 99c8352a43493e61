"""Retention: what is dropped, and what is remembered of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.clock import HOUR_US
from penstock.errors import OffsetOutOfRange
from penstock.log.folder_log import FolderLog
from penstock.testing import ManualClock
from tests.log.rows import START_US, numbers_of, rows, small_topic


def test_segments_are_dropped_by_age_counted_from_the_append(tmp_path: Path) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        topic = small_topic(log, retention_age="7 days")
        (partition,) = topic.partitions
        old = pa.array([5] * 40, pa.int64()).view(pa.timestamp("us", "UTC"))
        partition.append(rows(range(40)), arrived=old)  # Arrived in 1970, but appended today.
        topic.seal(active=True)
        assert topic.retain()[0].records == 0
        clock.move(timedelta(days=4))
        partition.append(rows(range(40, 80)))
        clock.move(timedelta(days=4))
        removed = topic.retain()[0]
        assert (removed.records, removed.start_offset) == (40, 40)
        assert numbers_of(partition) == list(range(40, 80))
        clock.move(timedelta(days=4))  # Nobody writes any more: the active segment is closed and dropped too.
        assert topic.retain()[0].records == 40
        assert numbers_of(partition) == []
        assert partition.append(rows([80])).base_offset == 80


def test_segments_are_dropped_by_size_oldest_first(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log, retention_bytes=12_000)
        (partition,) = topic.partitions
        for start in range(0, 400, 10):
            partition.append(rows(range(start, start + 10)))
        topic.seal()
        removed = topic.retain()[0]
        assert removed.segments > 0
        assert numbers_of(partition) == list(range(removed.start_offset, 400))
        left = [path for path in partition.directory.iterdir() if path.suffix in (".log", ".parquet")]
        assert sum(path.stat().st_size for path in left) <= 12_000


def test_what_was_removed_is_remembered_by_offset_and_hour(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log, retention_bytes=1)
        (partition,) = topic.partitions
        partition.append(rows(range(10), time_us=START_US))
        topic.seal(active=True)
        topic.retain()
        manifest = partition.manifest()
        assert (manifest.start_offset, manifest.removed_hours) == (10, ((START_US // HOUR_US, START_US // HOUR_US),))
        with pytest.raises(OffsetOutOfRange, match="retention removed 7 records"):
            list(partition.read(3))


def test_a_reader_that_started_before_retention_gets_all_or_an_error(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log, retention_bytes=1)
        (partition,) = topic.partitions
        for start in range(0, 400, 10):
            partition.append(rows(range(start, start + 10)))
        topic.seal(active=True)
        reader = partition.read(0, columns=["n"])
        seen = next(reader).column("n").to_pylist()
        with FolderLog(tmp_path, background=False) as other:
            other.topic("events").retain()
        with pytest.raises(OffsetOutOfRange) as caught:
            seen.extend(n for batch in reader for n in batch.column("n").to_pylist())
        assert seen == list(range(caught.value.offset)), "nothing was skipped silently"
