"""Whoever reads records counts the late ones on the way: exactly, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.clock import now_us
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.spark.late_counts import LateCounts
from penstock.upkeep.slices import SMALL_ROWS, Slice

ROWS = SMALL_ROWS + 5_000
LATE_EVERY = 7
LATE = -(-ROWS // LATE_EVERY)
HOUR_US = 3_600_000_000

pytestmark = pytest.mark.spark


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False) as opened:
        yield opened


@pytest.fixture
def topic(log: FolderLog) -> FolderTopic:
    """Every seventh record is a day late."""
    made = log.create("events", "time timestamp, n bigint", event_time="time", lateness="1 hour", partitions=2)
    now = now_us()
    times = [now - (24 * HOUR_US if number % LATE_EVERY == 0 else 0) for number in range(ROWS)]
    kinds = [pa.array(times, pa.int64()).view(pa.timestamp("us", tz="UTC")), pa.array(range(ROWS))]
    made.append(pa.table(kinds, names=["time", "n"]))
    return made


@pytest.mark.parametrize("columns", [["time", "n"], ["n"], []])
@pytest.mark.parametrize("small_rows", [0, 10 * ROWS], ids=["by tasks", "by the driver"])
def test_late_records_are_counted_where_they_are_read(
    spark: SparkSession, topic: FolderTopic, columns: list[str], small_rows: int
) -> None:
    counts = LateCounts()
    frame = topic.read(spark, columns=columns, small_rows=small_rows, late_counts=counts)
    assert frame.count() == ROWS
    assert counts.total == LATE


def test_a_frame_that_is_read_twice_counts_once(spark: SparkSession, topic: FolderTopic) -> None:
    counts = LateCounts()
    frame = topic.read(spark, small_rows=0, late_counts=counts)
    assert frame.unionAll(frame).count() == 2 * ROWS
    assert frame.count() == ROWS
    assert counts.total == LATE


def test_what_is_not_read_to_its_end_is_not_counted(spark: SparkSession, topic: FolderTopic) -> None:
    counts = LateCounts()
    frame = topic.read(spark, small_rows=0, late_counts=counts)
    assert counts.total is None
    assert len(frame.limit(3).collect()) == 3
    assert counts.total is None


def test_sealed_files_are_left_to_the_log(spark: SparkSession, topic: FolderTopic) -> None:
    topic.seal(active=True)
    counts = LateCounts()
    assert topic.read(spark, small_rows=0, late_counts=counts).count() == ROWS
    assert counts.total is None


def test_a_slice_need_not_be_read_again_to_count_its_late_records(
    spark: SparkSession, topic: FolderTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Slice(topic, topic.start(), topic.end())
    schema = topic.read(spark).schema
    assert part.frame(spark, schema, "drop", ["time", "n"]).count() == ROWS - LATE
    monkeypatch.delattr(FolderTopic, "count_late")
    assert part.late == LATE


def test_a_slice_that_nobody_read_is_counted_by_the_log(topic: FolderTopic) -> None:
    assert Slice(topic, topic.start(), topic.end()).late == LATE
