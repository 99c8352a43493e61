"""A topic as a Spark stream: admission control, AvailableNow, restarts, and what is told when records are gone."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from penstock.errors import OffsetOutOfRange, StreamDataLost, TopicReplaced
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.spark.source import PenstockDataSource
from penstock.spark.stream import TopicStreamReader
from penstock.testing import ManualClock
from tests.log.rows import rows, small_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False, clock=clock) as opened:
        yield opened


def filled(log: FolderLog, clock: ManualClock, frames: int = 10, **settings: Any) -> FolderTopic:
    """Frames of ten records that arrive a second apart, in three partitions by turns."""
    topic = small_topic(log, partitions=3, segment_bytes=1 << 20, **settings)
    more(topic, clock, 0, frames)
    return topic


def more(topic: FolderTopic, clock: ManualClock, first: int, last: int) -> None:
    for number in range(first, last):
        clock.move(timedelta(seconds=1))
        topic.partitions[number % 3].append(rows(range(number * 10, number * 10 + 10)))


def reader_of(log: FolderLog, **options: str) -> TopicStreamReader:
    source = PenstockDataSource({"log": str(log.root), "topic": "events", **options})
    return source.streamReader(source.schema())


def numbers_between(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    tasks = reader.partitions(start, end)
    return sorted(n for task in tasks for batch in reader.read(task) for n in batch.column("n").to_pylist())


# --- without Spark ---


def test_cuts_follow_arrival_over_all_partitions(log: FolderLog, clock: ManualClock) -> None:
    filled(log, clock)
    reader = reader_of(log, maxRowsPerTrigger="25")
    start = reader.initialOffset()
    taken = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        taken.append(numbers_between(reader, start, end))
        start = end
    assert [len(batch) for batch in taken] == [25, 25, 25, 25]
    assert [n for batch in taken for n in batch] == [*range(100)]
    reader.stop()


def test_bytes_limit_a_batch_too_and_spark_may_ask_for_everything(log: FolderLog, clock: ManualClock) -> None:
    topic = filled(log, clock)
    frame_bytes = topic.partitions[0].pieces(0, 10)[0].bytes
    reader = reader_of(log, maxBytesPerTrigger=str(2 * frame_bytes))
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(2 * frame_bytes)
    start = reader.initialOffset()
    assert numbers_between(reader, start, reader.latestOffset(start, limit)) == [*range(20)]
    assert numbers_between(reader, start, reader.latestOffset(start, ReadAllAvailable())) == [*range(100)]
    both = reader_of(log, maxBytesPerTrigger=str(2 * frame_bytes), maxRowsPerTrigger="50")
    assert both.getDefaultReadLimit() == ReadMaxRows(50)
    assert numbers_between(both, start, both.latestOffset(start, ReadMaxRows(50))) == [*range(20)]


def test_available_now_ends_where_the_log_ended_when_it_began(log: FolderLog, clock: ManualClock) -> None:
    topic = filled(log, clock)
    reader = reader_of(log)
    reader.prepareForTriggerAvailableNow()
    more(topic, clock, 10, 13)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert numbers_between(reader, reader.initialOffset(), end) == [*range(100)]
    assert reader.latestOffset(end, ReadMaxRows(5)) == end
    assert {k: v for k, v in reader.reportLatestOffset().items() if k != "id"} == {"0": 50, "1": 40, "2": 40}


def test_the_same_cuts_give_the_same_records_before_and_after_sealing(log: FolderLog, clock: ManualClock) -> None:
    topic = filled(log, clock)
    reader = reader_of(log)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(33))
    end = reader.latestOffset(start, ReadMaxRows(33))
    before = numbers_between(reader, start, end)
    topic.seal(active=True)
    assert numbers_between(reader_of(log), start, end) == before == [*range(33, 66)]


def test_a_reader_travels_without_its_open_log(log: FolderLog, clock: ManualClock) -> None:
    filled(log, clock)
    reader = reader_of(log)
    start = reader.initialOffset()
    again: TopicStreamReader = pickle.loads(pickle.dumps(reader))
    assert again._opened is None
    assert reader._opened is not None
    assert numbers_between(again, start, again.latestOffset(start, ReadAllAvailable())) == [*range(100)]
    again.stop()
    assert again._opened is None


def test_what_retention_took_before_it_was_read_is_told_or_skipped(log: FolderLog, clock: ManualClock) -> None:
    topic = filled(log, clock, retention_age="1h")
    reader = reader_of(log)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(15))
    topic.seal(active=True)
    clock.move(timedelta(hours=2))
    topic.retain()
    more(topic, clock, 10, 12)
    with pytest.raises(StreamDataLost, match="85 records were removed by retention") as caught:
        reader.latestOffset(start, ReadAllAvailable())
    assert caught.value.lost == {0: (10, 40), 1: (5, 30), 2: (0, 30)}
    assert "events/0: offsets 10 up to 40, 30 records" in str(caught.value)
    with pytest.raises(StreamDataLost):
        reader.partitions(start, start)
    lenient = reader_of(log, failOnDataLoss="false")
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert numbers_between(lenient, start, end) == [*range(100, 120)]


def test_a_checkpoint_of_another_topic_is_refused(log: FolderLog, clock: ManualClock) -> None:
    filled(log, clock)
    position = reader_of(log).reportLatestOffset()
    beyond = {**position, "0": 999}
    with pytest.raises(OffsetOutOfRange):
        reader_of(log).latestOffset(beyond, ReadAllAvailable())
    log.delete("events")
    filled(log, clock)
    with pytest.raises(TopicReplaced, match="a stream with a new checkpoint"):
        reader_of(log).latestOffset(position, ReadAllAvailable())


# --- in Spark ---


def run(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    """Runs a stream into Parquet files until it has nothing more to do."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "rows"))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    query.awaitTermination()
    return query


def test_every_record_reaches_the_sink_once_across_restarts(
    spark: SparkSession, log: FolderLog, clock: ManualClock, tmp_path: Path
) -> None:
    topic = filled(log, clock)
    first = run(topic.read_stream(spark, max_rows=30), tmp_path)
    assert [progress.numInputRows for progress in first.recentProgress] == [30, 30, 30, 10]
    topic.seal(active=True)
    more(topic, clock, 10, 15)
    second = run(topic.read_stream(spark, max_rows=40), tmp_path)
    assert sum(progress.numInputRows for progress in second.recentProgress) == 50
    run(topic.read_stream(spark), tmp_path)
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert sorted(row.n for row in found.collect()) == [*range(150)]
    assert found.columns == ["time", "user", "n", "_partition", "_offset", "_arrived", "_late"]


def test_a_batch_that_failed_half_way_is_given_again_as_it_was(
    spark: SparkSession, log: FolderLog, clock: ManualClock, tmp_path: Path
) -> None:
    topic = filled(log, clock)
    seen: list[tuple[int, list[int]]] = []

    def keep(batch: DataFrame, number: int) -> None:
        seen.append((number, sorted(row.n for row in batch.select("n").collect())))
        if len(seen) == 2:
            raise RuntimeError("pulled the plug")

    def start() -> StreamingQuery:
        writer = topic.read_stream(spark, max_rows=40, columns=["n"]).writeStream.foreachBatch(keep)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()

    with pytest.raises(Exception, match="pulled the plug"):
        start().awaitTermination()
    topic.seal(active=True)
    start().awaitTermination()
    assert [number for number, _ in seen] == [0, 1, 1, 2]
    assert seen[1] == seen[2]
    assert [n for number in (0, 2, 3) for n in seen[number][1]] == [*range(100)]


def test_a_running_stream_gets_what_comes(spark: SparkSession, log: FolderLog, clock: ManualClock) -> None:
    topic = filled(log, clock)
    frame = topic.read_stream(spark, start="latest").groupBy("_late").count()
    query = frame.writeStream.format("memory").queryName("running").outputMode("complete").start()
    try:
        query.processAllAvailable()
        more(topic, clock, 10, 13)
        query.processAllAvailable()
        assert spark.table("running").selectExpr("sum(count)").first() == (30,)
    finally:
        query.stop()


def test_a_stream_that_lost_records_says_which(
    spark: SparkSession, log: FolderLog, clock: ManualClock, tmp_path: Path
) -> None:
    topic = filled(log, clock, retention_age="1h")
    run(topic.read_stream(spark, start={0: 0, 1: 0, 2: 0}), tmp_path)
    more(topic, clock, 10, 13)
    topic.seal(active=True)
    clock.move(timedelta(hours=2))
    topic.retain()
    with pytest.raises(Exception, match=r"(?s)30 records were removed by retention.*failOnDataLoss=false"):
        run(topic.read_stream(spark), tmp_path)
