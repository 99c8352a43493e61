"""A topic as a Spark DataFrame: the cold body read by Spark itself, only the hot tail through Python.

Which files and which part of the tail hold what is asked for is decided on the driver, from what the log knows of each
segment; then up to three frames become one:

    sealed segments   Spark's own Parquet reader, at its own speed
    a small tail      read here and handed to Spark as an Arrow table: no job, no Python worker
    a large tail      several tasks, each of which reads its part in a Python worker
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import OffsetOutOfRange
from penstock.log.folder_partition import FolderPartition
from penstock.log.partition import Offsets, Piece
from penstock.log.reading import RETRIES, FolderPiece, may_hold
from penstock.spark.columns import (
    check_event_time,
    chosen_columns,
    column,
    late_column,
    maybe_null,
    place_columns,
    source_schema,
    spark_schema,
    with_place,
)
from penstock.spark.options import KAFKA, SourceOptions, as_options
from penstock.spark.sealed import SealedFile, read_sealed, sealed_files
from penstock.spark.session_settings import settings_for_now
from penstock.spark.source import as_spark, batches_of, tasks_of
from penstock.spark.time_ranges import MomentRanges, time_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.log.hours import TimeRange
    from penstock.log.partition import Partition
    from penstock.log.topic import Topic
    from penstock.spark.late_counts import LateCounts

SMALL_BYTES = 64 << 20
"""A hot tail up to this size is handed over by the driver: Python workers would cost 0.1 s to start."""
SMALL_ROWS = 1_000_000
"""And up to this many records."""
LOCAL_ROWS = 10_000
"""So few become rows of the plan itself. Spark then needs no job to collect them, but is slow with more."""

LOCAL_BYTES = "spark.sql.execution.arrow.localRelationThreshold"
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def read(
    topic: Topic,
    spark: SparkSession,
    start: Mapping[int, int] | None = None,
    until: Mapping[int, int] | None = None,
    *,
    columns: Sequence[str] | None = None,
    arrived: MomentRanges = None,
    event_time: MomentRanges = None,
    small_rows: int = SMALL_ROWS,
    small_bytes: int = SMALL_BYTES,
    late_counts: LateCounts | None = None,
) -> DataFrame:
    """The records between two cuts as a DataFrame: the columns asked for, then _partition, _offset, _arrived, _late.

    Without `start` it begins at the earliest record, without `until` it ends at the latest one of this moment; a cut
    need not name partitions at offset 0. Ranges of arrival and event time are half open and exact, and skip whatever
    cannot hold them. The frame is a snapshot: records that come later are not in it. It names files, so use it before
    retention or compaction (ten minutes later) removes them. Starts no Spark job; checks every sealed file against its
    checksum, once per process. `late_counts` are told of late records, unless some are in sealed files.

    Raises OffsetOutOfRange where retention removed what `start` asks for, CorruptionError where a file is damaged.
    """
    topic.refresh()
    names = chosen_columns(topic, columns)
    asked = _Asked(start, until, time_ranges(arrived, "arrived"), time_ranges(event_time, "event_time"))
    if asked.event_time is not None:
        check_event_time(topic.definition)
    plan = _plan(topic, asked)
    frames = read_sealed(topic, spark, plan.files, names, asked.arrived, asked.event_time)
    is_small = plan.hot_rows <= small_rows and plan.hot_bytes <= small_bytes
    counts = None if plan.files else late_counts
    if plan.hot_rows and not is_small:
        frames.append(_through_workers(topic, spark, plan, names, asked, counts))
    elif plan.hot_rows or not frames:
        frames.append(_from_driver(topic, spark, plan, names, asked, counts))
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionAll(frame)
    return whole


def read_stream(
    topic: Topic,
    spark: SparkSession,
    *,
    start: Mapping[int, int] | str = "earliest",
    columns: Sequence[str] | None = None,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    fail_on_data_loss: bool = True,
) -> DataFrame:
    """The topic as a streaming DataFrame, from `start` on: a cut, "earliest", "latest" or a time of arrival.

    A micro-batch holds at most `max_rows` records and `max_bytes` bytes, cut along arrival time over all partitions.
    With Trigger.AvailableNow it ends at the records that are there when the query begins. Once there is a checkpoint
    the query goes on from it and `start` no longer counts. If retention removes records before they are read, the
    query stops with StreamDataLost, which says which, unless `fail_on_data_loss` is off.
    """
    topic.refresh()
    chosen_columns(topic, columns)
    given = {
        "log": topic.log.url,
        "topic": topic.name,
        "columns": None if columns is None else json.dumps([*columns]),
        "startingOffsets": as_options(start),
        "maxRowsPerTrigger": max_rows,
        "maxBytesPerTrigger": max_bytes,
        "failOnDataLoss": str(fail_on_data_loss).lower(),
        **{f"{KAFKA}{name}": value for name, value in topic.log.conf.items()},
    }
    options = {name: str(value) for name, value in given.items() if value is not None}
    SourceOptions.parse(options).starting_offsets(topic)  # A mistake is told here, not from a worker.
    return spark.readStream.format("penstock").options(**options).load()


@dataclass(frozen=True)
class _Asked:
    start: Mapping[int, int] | None
    until: Mapping[int, int] | None
    arrived: list[TimeRange] | None
    event_time: list[TimeRange] | None


@dataclass(frozen=True)
class _Plan:
    files: list[SealedFile]
    hot_start: Offsets
    hot_stop: Offsets
    hot_rows: int
    hot_bytes: int


def _plan(topic: Topic, asked: _Asked) -> _Plan:
    """What to read from where, as of one moment. Looks again if a file vanished while it was checked."""
    for attempt in range(RETRIES):
        try:
            return _plan_once(topic, asked)
        except FileNotFoundError:  # Compacted or dropped just now.
            if attempt == RETRIES - 1:
                raise
    raise AssertionError("unreachable")


def _plan_once(topic: Topic, asked: _Asked) -> _Plan:
    files: list[SealedFile] = []
    hot: list[Piece] = []
    hot_start: Offsets = {}
    hot_stop: Offsets = {}
    for partition in topic.partitions:
        first, last = _bounds(partition, asked)
        chosen = [
            piece
            for piece in (partition.pieces(first, last) if last > first else ())
            if may_hold(piece, asked.arrived, asked.event_time)
        ]
        sealed = [piece for piece in chosen if isinstance(piece, FolderPiece) and piece.is_sealed]
        if isinstance(partition, FolderPartition):
            files += sealed_files(partition, sealed, first, last, asked.arrived)
        mine = chosen[len(sealed) :]
        hot += mine
        hot_start[partition.number] = max(mine[0].start, first) if mine else last
        hot_stop[partition.number] = min(mine[-1].stop, last) if mine else last
    return _Plan(files, hot_start, hot_stop, sum(piece.rows for piece in hot), sum(piece.bytes for piece in hot))


def _bounds(partition: Partition, asked: _Asked) -> tuple[int, int]:
    end = partition.end().offset
    earliest = partition.start_offset()
    first = earliest if asked.start is None else asked.start.get(partition.number, 0)
    last = end if asked.until is None else min(asked.until.get(partition.number, 0), end)
    if first > end or (first < earliest and last > first):
        raise OffsetOutOfRange(partition.place, first, earliest, end)
    return first, max(first, last)


def _from_driver(
    topic: Topic, spark: SparkSession, plan: _Plan, names: list[str], asked: _Asked, counts: LateCounts | None
) -> DataFrame:
    schema = spark_schema(topic, names)
    target = to_arrow_schema(schema, timezone="UTC")
    found = [
        batch
        for partition in topic.partitions
        if plan.hot_stop[partition.number] > plan.hot_start[partition.number]
        for batch in partition.read(
            plan.hot_start[partition.number], plan.hot_stop[partition.number],
            columns=names, arrived=asked.arrived, event_time=asked.event_time,
        )
    ]  # fmt: skip
    if counts is not None:
        counts.known(sum(batch.column("_late").true_count for batch in found))
    batches = [as_spark(topic, batch, target) for batch in found]
    # Never without a batch: PySpark cannot make a frame from nested times in no chunks at all.
    nothing = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in target], schema=target)
    table = pa.Table.from_batches(batches or [nothing])
    if table.num_rows <= LOCAL_ROWS:
        return spark.createDataFrame(table, schema)
    batch_rows = max(table.num_rows // (2 * spark.sparkContext.defaultParallelism) + 1, LOCAL_ROWS)
    with settings_for_now(spark, {LOCAL_BYTES: "0", BATCH_ROWS: str(batch_rows)}):
        return spark.createDataFrame(table, schema)


def _through_workers(
    topic: Topic, spark: SparkSession, plan: _Plan, names: list[str], asked: _Asked, counts: LateCounts | None
) -> DataFrame:
    """Reads a large tail in Python workers, in as few columns as can be: each costs Spark about 40 ns a row.

    Partition and offset travel as one number. What is late Spark works out by itself, if somebody asks.
    """
    options = SourceOptions(
        topic.log.url,
        topic.name,
        tuple(topic.log.conf.items()),
        arrived=_frozen(asked.arrived),
        event_time=_frozen(asked.event_time),
    )
    tasks = tasks_of(topic, plan.hot_start, plan.hot_stop, options)
    is_late_sent = topic.definition.event_time is not None and topic.definition.event_time not in names
    fields = [field for field in source_schema(topic, names) if field.name != "_late" or is_late_sent]

    told = None if counts is None else counts.by_tasks(spark, len(tasks))

    def records(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                on_end = None if told is None else partial(told.tell, number)
                yield from map(with_place, batches_of(options, StructType(fields), tasks[number], on_end))

    schema = StructType([field for field in fields if field.name != "_partition"])
    # Not the source itself: Spark counts its rows one by one, and starts two more processes to plan it.
    frame = spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(records, schema)
    late = column("_late") if is_late_sent else late_column(topic.definition)
    return frame.selectExpr(*map(column, names), *place_columns("_offset"), maybe_null("_arrived"), late)


def _frozen(ranges: list[TimeRange] | None) -> tuple[TimeRange, ...] | None:
    return None if ranges is None else tuple(ranges)
