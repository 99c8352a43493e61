"""The Python data source "penstock", in plain Spark and without it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.errors import (
    OffsetOutOfRange,
    SchemaOutgrown,
    SourceOptionError,
    TopicReplaced,
    UnknownColumn,
    UnknownTopic,
)
from penstock.log.definition import OWN_COLUMNS
from penstock.log.folder_log import FolderLog
from penstock.spark.source import PenstockDataSource, Task
from tests.log.rows import START_US, rows, small_topic
from tests.spark.spark_rows import by_place, in_the_log, many_kinds, records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False) as opened:
        yield opened


def options_of(log: FolderLog, **more: object) -> dict[str, str]:
    return {"log": f"dir:{log.root}", "topic": "events", **{name: str(value) for name, value in more.items()}}


def read_here(log: FolderLog, **more: object) -> pa.Table:
    """What the source would give Spark, read in this process without it."""
    source = PenstockDataSource(options_of(log, **more))
    reader = source.reader(source.schema())
    return pa.Table.from_batches(batch for task in reader.partitions() for batch in reader.read(task))


def big_topic(log: FolderLog, **settings: Any) -> None:
    """Enough bytes for several tasks: 2,400 records of 10 kB over three partitions."""
    topic = log.create("events", "n bigint, text string", partitions=3, **settings)
    for start in range(0, 2400, 100):
        numbers = range(start, start + 100)
        batch = pa.record_batch({"n": pa.array(numbers, pa.int64()), "text": ["x" * 10_000] * 100})
        topic.partitions[start // 100 % 3].append(batch)


# --- without Spark ---


def test_sealed_and_hot_records_come_out_alike(log: FolderLog) -> None:
    topic = many_kinds(log)
    topic.append(records(range(40)))
    topic.seal(active=True)
    topic.append(records(range(40, 80)))
    expected = in_the_log(topic)
    assert len(expected) == 80
    assert by_place(read_here(log)) == expected


def test_offsets_and_both_clocks_are_exact(log: FolderLog) -> None:
    topic = small_topic(log, partitions=2)
    for partition in topic.partitions:
        for start in range(0, 100, 10):
            partition.append(rows(range(start, start + 10)))
    found = read_here(log, startingOffsets='{"0": 13, "1": 0}', endingOffsets='{"0": 87, "1": 5}')
    assert found.num_rows == 74 + 5
    second = f"[{START_US + 25_000_000}, {START_US + 31_000_000}]"
    assert read_here(log, eventTime=second).column("n").to_pylist() == [*range(25, 31)] * 2
    moment = topic.slice().column("_arrived")[55].value
    expected = topic.slice(arrived=(moment, None)).num_rows
    assert 0 < read_here(log, arrived=f"[{moment}, null]").num_rows == expected < 200


def test_only_the_columns_asked_for_are_read(log: FolderLog) -> None:
    many_kinds(log).append(records(range(10)))
    assert read_here(log, columns="word,n").column_names == ["word", "n", *OWN_COLUMNS]
    with pytest.raises(UnknownColumn, match="did you mean 'word'"):
        read_here(log, columns="n,wrod")


def test_a_slice_is_cut_into_tasks_that_leave_nothing_out(log: FolderLog) -> None:
    big_topic(log)
    source = PenstockDataSource(options_of(log))
    tasks = source.reader(source.schema()).partitions()
    assert 4 <= len(tasks) <= 8
    spans = [span for task in tasks if isinstance(task, Task) for span in task.spans]
    assert sum(span.stop - span.start for span in spans) == 2400
    assert len({(span.partition, span.start) for span in spans}) == len(spans)


def test_many_small_partitions_share_a_task(log: FolderLog) -> None:
    topic = small_topic(log, partitions=16)
    for partition in topic.partitions:
        partition.append(rows(range(10)))
    source = PenstockDataSource(options_of(log))
    assert len(source.reader(source.schema()).partitions()) == 1


def test_a_topic_made_again_is_not_read_with_the_old_ones_offsets(log: FolderLog) -> None:
    small_topic(log).append(rows(range(10)))
    source = PenstockDataSource(options_of(log))
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    log.delete("events")
    small_topic(log).append(rows(range(10)))
    with pytest.raises(TopicReplaced, match="deleted and made again") as caught:
        next(reader.read(task))
    assert caught.value.found == log.topic("events").definition.id


def test_columns_that_grew_meanwhile_are_cast_back_or_refused(log: FolderLog) -> None:
    topic = log.create("events", "n int")
    topic.append(pa.record_batch({"n": pa.array([1, 2], pa.int32())}))
    source = PenstockDataSource(options_of(log, endingOffsets='{"0": 9}'))
    reader = source.reader(source.schema())
    topic.alter(schema="n bigint, more string")
    topic.append(pa.record_batch({"n": pa.array([3], pa.int64()), "more": ["x"]}))
    assert [row["n"] for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()] == [
        1,
        2,
        3,
    ]
    topic.append(pa.record_batch({"n": pa.array([1 << 40], pa.int64()), "more": ["x"]}))
    with pytest.raises(SchemaOutgrown, match="start the query again") as caught:
        _ = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert "more string" in caught.value.found


def test_what_is_not_there_is_told(log: FolderLog, tmp_path: Path) -> None:
    small_topic(log, name="events").append(rows(range(10)))
    with pytest.raises(UnknownTopic, match="did you mean 'events'"):
        PenstockDataSource({"log": str(log.root), "topic": "evnets"}).schema()
    with pytest.raises(SourceOptionError, match="the address of a log"):
        PenstockDataSource({"log": str(tmp_path / "nowhere"), "topic": "events"}).schema()
    with pytest.raises(OffsetOutOfRange):
        read_here(log, startingOffsets='{"0": 11}', endingOffsets='{"0": 20}')


# --- in Spark ---


def load(spark: SparkSession, log: FolderLog, **more: object) -> DataFrame:
    return spark.read.format("penstock").options(**options_of(log, **more)).load()


def test_spark_finds_the_format_by_itself(spark: SparkSession, log: FolderLog) -> None:
    topic = many_kinds(log)
    topic.append(records(range(40)))
    topic.seal(active=True)
    topic.append(records(range(40, 80)))
    assert by_place(load(spark, log)) == in_the_log(topic)


def test_a_filter_of_one_query_does_not_reach_the_next(spark: SparkSession, log: FolderLog) -> None:
    """Spark 4.3.0 would keep a filter that was pushed down, and use it for every query over the same DataFrame."""
    small_topic(log).append(rows(range(100)))
    frame = load(spark, log)
    assert [frame.count(), frame.where("n >= 90").count(), frame.count()] == [100, 10, 100]
    assert frame.where("_offset < 5").union(frame).union(frame.where("n = 7")).count() == 106


def test_tasks_open_the_log_by_themselves(spark: SparkSession, log: FolderLog) -> None:
    """The driver has it open as well, and a Python worker runs one task after the other: no handle is shared."""
    big_topic(log)
    log.topic("events").partitions[0].append(pa.record_batch({"n": pa.array([1], pa.int64()), "text": ["last"]}))

    def with_process(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"rows": [batch.num_rows], "process": [os.getpid()]})

    for _ in range(2):
        frame = load(spark, log)
        assert frame.rdd.getNumPartitions() >= 4
        found = frame.select("n").mapInArrow(with_process, "rows bigint, process bigint").toArrow().to_pydict()
        assert sum(found["rows"]) == 2401
        assert os.getpid() not in found["process"]


def test_a_schema_given_by_the_user_chooses_columns(spark: SparkSession, log: FolderLog) -> None:
    small_topic(log).append(rows(range(10)))
    reader = spark.read.format("penstock").options(**options_of(log))
    assert reader.schema("n bigint, _offset bigint").load().selectExpr("sum(n)", "max(_offset)").first() == (45, 9)
    with pytest.raises(Exception, match="expected: n bigint"):
        reader.schema("n string").load().count()


def test_a_slice_without_records_is_an_empty_frame(spark: SparkSession, log: FolderLog) -> None:
    small_topic(log, partitions=3)
    assert load(spark, log).count() == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "evnets"}, "nothing is named 'evnets'.*did you mean 'events'"),
        ({"topic": ""}, "option 'topic' is missing.*expected: "),
        ({"log": "dir:/nowhere/at/all"}, "option 'log' cannot be 'dir:/nowhere.*expected: the address of a log"),
        ({"startingOffset": "0"}, "option 'startingoffset'.*did you mean 'startingOffsets'"),
        ({"columns": "nn"}, "has no column named 'nn'.*columns: time, user, n"),
        ({"startingOffsets": json.dumps({"0": 99}), "endingOffsets": '{"0": 100}'}, "events/0 has no offset 99"),
    ],
)
def test_a_mistake_is_told_in_spark_as_it_is_elsewhere(
    spark: SparkSession, log: FolderLog, given: dict[str, str], message: str
) -> None:
    small_topic(log).append(rows(range(10)))
    with pytest.raises(Exception, match=f"(?s){message}"):
        spark.read.format("penstock").options(**{**options_of(log), **given}).load().count()
