"""A topic as a DataFrame: one frame from cold files and hot tail, exact at every border."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.clock import HOUR_US
from penstock.errors import CorruptionError, OffsetOutOfRange, TopicDefinitionError, UnknownColumn
from penstock.log.definition import OWN_COLUMNS
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.spark import sealed as spark_sealed
from penstock.spark.read import BATCH_ROWS, LOCAL_BYTES
from penstock.testing import ManualClock
from tests.log.rows import START_US, rows, small_topic
from tests.spark.spark_rows import by_place, in_the_log, many_kinds, records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False, clock=clock) as opened:
        yield opened


def half_sealed(log: FolderLog, clock: ManualClock) -> FolderTopic:
    """Two partitions of 200 records, 20 an hour by both clocks, in four sealed segments each and a hot tail."""
    topic = many_kinds(log, segment_bytes=1 << 20)
    for hour in range(10):
        clock.now_us = START_US + hour * HOUR_US
        for partition in topic.partitions:
            partition.append(records([*range(hour * 20, hour * 20 + 20)], time_us=clock.now_us))
        if hour % 2 == 1 and hour < 8:
            topic.seal(active=True)
    return topic


def physical_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def jobs_started(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup())


# --- what is in it ---


def test_every_record_is_there_in_every_kind_of_column(spark: SparkSession, log: FolderLog, clock: ManualClock) -> None:
    topic = half_sealed(log, clock)
    expected = in_the_log(topic)
    assert len(expected) == 400
    assert by_place(topic.read(spark)) == expected
    large = topic.read(spark, small_rows=0)
    assert "MapInArrow" in physical_plan(large)
    assert by_place(large) == expected


def test_the_schema_does_not_depend_on_where_records_are(spark: SparkSession, log: FolderLog) -> None:
    topic = many_kinds(log)
    schemas = [topic.read(spark).schema]
    topic.append(records(range(20)))
    schemas += [topic.read(spark).schema, topic.read(spark, small_rows=0).schema]
    topic.seal(active=True)
    schemas.append(topic.read(spark).schema)
    topic.append(records(range(20)))
    schemas += [topic.read(spark).schema, topic.read(spark, small_rows=0).schema]
    assert [each for each in schemas if each != schemas[0]] == []
    assert schemas[0].names == [*topic.schema.names, *OWN_COLUMNS]
    assert schemas[0]["word"].metadata == {"comment": "may be missing"}


@pytest.mark.parametrize("seed", range(4))
def test_borders_are_exact(spark: SparkSession, log: FolderLog, clock: ManualClock, seed: int) -> None:
    topic = half_sealed(log, clock)
    everything = in_the_log(topic)
    choice = random.Random(seed)
    moments = [START_US + choice.randrange(11 * 20) * HOUR_US // 20 + choice.randrange(3) for _ in range(8)]
    start = {number: choice.randrange(200) for number in (0, 1)}
    until = {number: choice.randrange(start[number], 220) for number in (0, 1)}
    event_time = [(min(moments[:2]), max(moments[:2])), (max(moments[2:4]), None)]
    arrived = (min(moments[4:6]), max(moments[4:6]) + HOUR_US)

    def microseconds(value: Any) -> int:
        return int((value - type(value)(1970, 1, 1, tzinfo=value.tzinfo)) / timedelta(microseconds=1))

    def is_inside(row: dict[str, Any], asked: dict[str, Any]) -> bool:
        if "start" in asked and not start[row["_partition"]] <= row["_offset"] < until[row["_partition"]]:
            return False
        if "arrived" in asked and not arrived[0] <= microseconds(row["_arrived"]) < arrived[1]:
            return False
        time = None if row["time"] is None else microseconds(row["time"])
        return "event_time" not in asked or (
            time is not None and any(low <= time and (high is None or time < high) for low, high in event_time)
        )

    ways: list[dict[str, Any]] = [
        {"start": start, "until": until},
        {"arrived": arrived},
        {"event_time": event_time},
        {"start": start, "until": until, "arrived": arrived, "event_time": event_time, "small_rows": 0},
    ]
    for asked in ways:
        expected = [row["_offset"] for row in everything if is_inside(row, asked)]
        found = by_place(topic.read(spark, columns=[], **asked))
        assert [row["_offset"] for row in found] == expected, asked


def test_a_frame_is_a_snapshot(spark: SparkSession, log: FolderLog) -> None:
    topic = small_topic(log)
    topic.append(rows(range(50)))
    small, large = topic.read(spark), topic.read(spark, small_rows=0)
    topic.append(rows(range(50, 60)))
    topic.seal(active=True)
    assert (small.count(), large.count(), topic.read(spark).count()) == (50, 50, 60)


def test_only_the_columns_asked_for_are_there(spark: SparkSession, log: FolderLog, clock: ManualClock) -> None:
    topic = half_sealed(log, clock)
    frame = topic.read(spark, columns=["word", "n", "_offset"], event_time=(START_US, None))
    assert frame.columns == ["word", "n", *OWN_COLUMNS]
    assert by_place(frame) == in_the_log(topic, columns=["word", "n"], event_time=(START_US, None))


def test_sealed_files_are_read_by_spark_itself_and_only_what_a_query_needs(
    spark: SparkSession, log: FolderLog, clock: ManualClock
) -> None:
    topic = half_sealed(log, clock)
    topic.seal(active=True)
    plan = physical_plan(topic.read(spark).groupBy("word").count())
    assert "FileScan parquet [word" in plan
    assert "ReadSchema: struct<word:string>" in plan
    assert "Filter" not in plan.replace("Filters: []", "")
    hour = topic.read(spark, event_time=(START_US + 2 * HOUR_US, START_US + 3 * HOUR_US))
    assert len(hour.inputFiles()) == 2
    assert re.search(r"time#\d+ >= 2026-01-01 02:00:00\)", physical_plan(hour))
    assert len(topic.read(spark, arrived=(START_US + 6 * HOUR_US, None)).inputFiles()) == 4


def test_a_stray_event_does_not_make_a_slice_read_everything(
    spark: SparkSession, log: FolderLog, clock: ManualClock
) -> None:
    topic = small_topic(log, segment_bytes=1 << 20)
    for hour in range(6):
        batch = rows([*range(20), -(10**9), 10**9], time_us=START_US + hour * HOUR_US)
        topic.append(batch)
        topic.seal(active=True)
    frame = topic.read(spark, event_time=(START_US + 2 * HOUR_US, START_US + 3 * HOUR_US))
    assert len(frame.inputFiles()) == 1
    assert frame.count() == 20


# --- without a job ---


def test_a_small_hot_slice_starts_no_job_and_no_worker(spark: SparkSession, log: FolderLog) -> None:
    topic = small_topic(log, segment_bytes=1 << 20)
    topic.append(rows(range(100)))
    topic.seal(active=True)
    topic.append(rows(range(100, 200)))
    before = jobs_started(spark)
    frame = topic.read(spark, start={0: 100})
    assert jobs_started(spark) == before
    assert "LocalTableScan" in physical_plan(frame)
    assert "Union" not in physical_plan(frame)
    assert [row.n for row in frame.select("n").collect()] == [*range(100, 200)]
    assert jobs_started(spark) == before


def test_a_larger_hot_slice_is_cut_into_tasks_without_a_job(spark: SparkSession, log: FolderLog) -> None:
    topic = small_topic(log, segment_bytes=1 << 20)
    topic.append(rows(range(60_000)))
    before = jobs_started(spark), spark.conf.get(BATCH_ROWS), spark.conf.get(LOCAL_BYTES)
    frame = topic.read(spark)
    assert (jobs_started(spark), spark.conf.get(BATCH_ROWS), spark.conf.get(LOCAL_BYTES)) == before
    assert "MapInArrow" not in physical_plan(frame)
    assert frame.rdd.getNumPartitions() == 4
    assert frame.selectExpr("sum(n)", "count(*)").first() == (sum(range(60_000)), 60_000)


def test_planning_starts_no_job_however_many_files_there_are(spark: SparkSession, log: FolderLog) -> None:
    topic = small_topic(log, segment_bytes=1 << 20)
    for start in range(0, 80, 2):
        topic.append(rows(range(start, start + 2)))
        topic.seal(active=True)
    before, threshold = jobs_started(spark), spark.conf.get(spark_sealed.LISTING)
    frame = topic.read(spark)
    assert len(frame.inputFiles()) == 40
    assert jobs_started(spark) == before
    assert spark.conf.get(spark_sealed.LISTING) == threshold
    assert frame.selectExpr("sum(n)").first() == (sum(range(80)),)


# --- late ---


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_late_is_the_same_wherever_it_is_computed(
    spark: SparkSession, log: FolderLog, clock: ManualClock, kind: str, zone: str
) -> None:
    """Around the hour that New York has twice, and around the one that it does not have."""
    topic = log.create("events", f"time {kind}", event_time="time", lateness="1h 2s")
    limit_us = 3_602_000_000
    arrivals = [START_US + 1, 1_772_953_200_000_000, 1_793_512_800_000_000, 1_793_516_400_000_000]
    times = [
        None if delay is None else arrival - delay
        for arrival in arrivals
        for delay in (limit_us, limit_us + 1, limit_us - 1, None, 0, -(10**15), 6 * 10**16, HOUR_US)
    ]
    stamps = pa.array([arrival for arrival in arrivals for _ in range(8)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array(times, pa.int64()).cast(topic.schema.field("time").type)], ["time"])
    clock.now_us = arrivals[-1]
    topic.append(batch, arrived=stamps)
    expected = [row["_late"] for row in in_the_log(topic)]
    assert sum(expected) == 8
    between = (arrivals[1] - limit_us, arrivals[2] - limit_us + 1)
    inside = [row["_offset"] for row in in_the_log(topic, event_time=between)]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for _ in ("hot", "sealed"):
            found = topic.read(spark).orderBy("_offset").select("_late", "_offset").collect()
            assert [row._late for row in found] == expected
            found = topic.read(spark, event_time=between).orderBy("_offset").collect()
            assert [row._offset for row in found] == inside
            topic.seal(active=True)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_without_event_time_nothing_is_late(spark: SparkSession, log: FolderLog) -> None:
    topic = log.create("plain", "n bigint")
    topic.append(pa.record_batch({"n": [1, 2]}))
    topic.seal(active=True)
    assert [row._late for row in topic.read(spark).collect()] == [False, False]
    with pytest.raises(TopicDefinitionError, match="range of event time"):
        topic.read(spark, event_time=(0, None))


# --- segments from before ---


def test_old_segments_are_read_with_the_columns_of_today(spark: SparkSession, log: FolderLog) -> None:
    versions = [
        "i int, f float, d decimal(5,2), t tinyint, s struct<a: int>, l array<smallint>, m map<string, int>",
        """i bigint, f double, d decimal(12,4), t decimal(10,2), s struct<a: bigint, b: string>, l array<int>,
           m map<string, decimal(12,1)>, fresh string""",
        """i decimal(21,1), f double, d decimal(30,4), t decimal(10,2), s struct<a: decimal(19,0), b: string, c: float>,
           l array<decimal(11,1)>, m map<string, decimal(12,1)>, fresh string, newest array<string>""",
    ]
    first: dict[str, Any] = {"i": -(2**31), "f": 1.5, "d": Decimal("-9.99"), "t": -128, "s": {"a": 5}}
    second = {"i": 2**63 - 1, "f": 0.1, "d": Decimal("1.2345"), "t": Decimal("0.25"), "s": {"a": 2**40, "b": "x"}}
    third = {"i": Decimal("0.5"), "d": Decimal("5.0000"), "s": {"a": 1, "b": None, "c": 1.0}, "newest": ["z"]}
    data: list[dict[str, Any]] = [
        {**first, "l": [1, None, -(2**15)], "m": {"k": 7}},
        {**second, "l": [2**31 - 1], "m": {"k": Decimal("0.5")}, "fresh": "y"},
        third,
    ]
    topic = log.create("events", versions[0])
    for version, row in zip(versions, data, strict=True):
        topic.alter(schema=version)
        topic.append(pa.RecordBatch.from_pylist([row, {}], topic.schema))
        topic.seal(active=True)
    topic.append(pa.RecordBatch.from_pylist([data[-1]], topic.schema))
    expected = in_the_log(topic)
    assert len(expected) == 7
    assert {type(row["i"]) for row in expected} == {Decimal, type(None)}
    found = by_place(topic.read(spark))
    for row in [*expected, *found]:
        row["m"] = None if row["m"] is None else dict(row["m"])
    assert found == expected
    # A field that the old file lacks, asked for alone, is NULL in a struct that is there.
    assert topic.read(spark, until={0: 1}).selectExpr("s.c", "s IS NULL").first() == (None, False)


def test_the_year_one_can_be_read(spark: SparkSession, log: FolderLog) -> None:
    topic = log.create("events", "time timestamp, day date, wall timestamp_ntz", event_time="time")
    long_ago = -62_135_596_800_000_000
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([long_ago], pa.int64()).view(pa.timestamp("us", "UTC")),
            pa.array([long_ago // 86_400_000_000], pa.int32()).view(pa.date32()),
            pa.array([long_ago], pa.int64()).view(pa.timestamp("us")),
        ],
        schema=topic.schema,
    )
    topic.append(batch)
    topic.seal(active=True)
    frame = topic.read(spark).selectExpr("unix_micros(time)", "unix_date(day)", "cast(wall AS string)", "_late")
    assert frame.first() == (long_ago, long_ago // 86_400_000_000, "0001-01-01 00:00:00", True)


# --- what can go wrong ---


def test_what_retention_removed_is_told_unless_nobody_asked_for_it(
    spark: SparkSession, log: FolderLog, clock: ManualClock
) -> None:
    topic = small_topic(log, segment_bytes=1 << 20, retention_age="1h")
    topic.append(rows(range(10)))
    topic.seal(active=True)
    clock.move(timedelta(hours=2))
    topic.append(rows(range(10, 20)))
    topic.retain()
    assert topic.read(spark).count() == 10
    with pytest.raises(OffsetOutOfRange, match="retention removed 6 records") as caught:
        topic.read(spark, start={0: 4})
    assert (caught.value.offset, caught.value.start, caught.value.end) == (4, 10, 20)
    with pytest.raises(OffsetOutOfRange, match="the log ends 5 records before it"):
        topic.read(spark, start={0: 25})


def test_a_damaged_file_is_found_before_spark_sees_it(spark: SparkSession, log: FolderLog) -> None:
    topic = small_topic(log, segment_bytes=1 << 20)
    topic.append(rows(range(1000)))
    topic.seal(active=True)
    (path,) = topic.partitions[0].directory.glob("*.parquet")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match="the checksum of the file does not match"):
        topic.read(spark)


def test_the_path_of_a_log_may_hold_any_character(spark: SparkSession, tmp_path: Path) -> None:
    with FolderLog(tmp_path / "we ird [x]{y,z} 100% #*?:=ö", background=False) as log:
        topic = small_topic(log, segment_bytes=1 << 20)
        topic.append(rows(range(10)))
        topic.seal(active=True)
        topic.append(rows(range(10, 20)))
        assert topic.read(spark).count() == 20
        assert topic.read(spark, small_rows=0).count() == 20


def test_a_column_that_is_not_there_is_told(spark: SparkSession, log: FolderLog) -> None:
    topic = small_topic(log)
    with pytest.raises(UnknownColumn, match="did you mean 'user'"):
        topic.read(spark, columns=["usr"])
    with pytest.raises(UnknownColumn, match="did you mean 'user'"):
        topic.read_stream(spark, columns=["usr"])
