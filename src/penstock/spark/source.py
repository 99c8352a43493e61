"""The Python data source `penstock`: a topic for people who write plain Spark.

    spark.read.format("penstock").option("log", "dir:./data/log").option("topic", "access").load()
    spark.readStream.format("penstock").option("log", ...).option("topic", "access").option("maxRowsPerTrigger", 10000)

Everything comes through Python here, as Arrow batches, sealed segments too: a Python source cannot hand Parquet files
to Spark. In a batch `topic.read(spark)` is faster, for it lets Spark read them by itself; a stream reads mostly the hot
tail, and what it catches up on before that costs about as much as any Python source.

Filters of a query are not pushed down. Spark 4.3.0 keeps what was pushed for one query and uses it for the next one
over the same DataFrame, which then silently gets too few rows. The options `arrived`, `eventTime`, `startingOffsets`
and `endingOffsets` say the same safely, and skip what need not be read.

Each task opens the log by itself and closes it, without background work. No open file ever travels between processes.
A log in Kafka stays open for the next task of the same worker: opening it takes about a tenth of a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import SchemaOutgrown, SourceOptionError, TopicReplaced, UnknownColumn
from penstock.events.schema import format_ddl, parse_ddl, to_spark
from penstock.log.definition import OWN_COLUMNS
from penstock.log.log import Log
from penstock.log.reading import may_hold
from penstock.spark.columns import check_event_time, chosen_columns, source_schema
from penstock.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.log.topic import Topic
    from penstock.spark.stream import TopicStreamReader

TASK_BYTES_MIN = 4 << 20
"""Less than this is not worth a task of its own: starting one costs as much as reading it."""
TASK_BYTES_MAX = 32 << 20
"""More than this is cut, so that a failed task repeats little and all cores have work until the end."""


class PenstockDataSource(DataSource):
    """A topic as a Spark source. For the options see `penstock.spark.options.SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._parsed = SourceOptions.parse(options)

    def schema(self) -> StructType:
        with open_topic(self._parsed) as topic:
            return source_schema(topic, chosen_columns(topic, self._parsed.columns))

    def reader(self, schema: StructType) -> TopicReader:
        return TopicReader(self._parsed.for_batch(), schema)

    def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802 (Spark's name)
        from penstock.spark.stream import TopicStreamReader

        return TopicStreamReader(self._parsed.for_stream(), schema)


@dataclass(frozen=True)
class Span:
    """Records of one partition that are read one after the other."""

    partition: int
    start: int
    stop: int


class Task(InputPartition):
    """What one Spark task reads. `topic_id` makes sure that it is still the same topic."""

    def __init__(self, topic_id: str, spans: Sequence[Span]) -> None:
        super().__init__((topic_id, tuple(spans)))
        self.topic_id = topic_id
        self.spans = tuple(spans)


class TopicReader(DataSourceReader):
    """Reads a slice of a topic. The slice is fixed when the first query over the DataFrame is planned, and stays."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        with open_topic(self._options) as topic:
            check_schema(topic, self._schema)
            start, stop = self._options.starting_offsets(topic), self._options.ending_offsets(topic)
            return [*tasks_of(topic, start, stop, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one task, without spans, where there is nothing to read.
        return batches_of(self._options, self._schema, partition) if isinstance(partition, Task) else iter(())


@contextmanager
def open_topic(options: SourceOptions, topic_id: str | None = None) -> Iterator[Topic]:
    """The topic, opened for this process alone and closed at the end."""
    with _open_log(options) as log:
        yield _topic_of(log, options, topic_id)


_kept: dict[tuple[object, ...], Log] = {}
"""The logs in Kafka that this process has open, for its tasks."""


@contextmanager
def kept_topic(options: SourceOptions, topic_id: str) -> Iterator[Topic]:
    """The topic, for a task. After an error, or if not all is read, the log is closed and the next opens it anew."""
    if not options.log.startswith("kafka:"):
        with open_topic(options, topic_id) as topic:
            yield topic
        return
    place = (os.getpid(), options.log, *sorted(dict(options.conf).items()))  # What a parent has open is not ours.
    log = _kept.pop(place, None) or _open_log(options)
    try:
        yield _topic_of(log, options, topic_id)
    except BaseException:
        log.close()
        raise
    if _kept.setdefault(place, log) is not log:
        log.close()  # Two tasks at once in this process: one is enough for the next.


def _open_log(options: SourceOptions) -> Log:
    return Log(options.log, background=False, conf=dict(options.conf))


def _topic_of(log: Log, options: SourceOptions, topic_id: str | None) -> Topic:
    if not log.is_there():
        expected = "the address of a log that is there: dir:FOLDER or kafka://HOST:PORT"
        raise SourceOptionError("log", expected, options.log)
    topic = log.topic(options.topic)
    if topic_id is not None and topic.definition.id != topic_id:
        raise TopicReplaced(topic.name, topic_id, topic.definition.id)
    return topic


def check_schema(topic: Topic, schema: StructType) -> None:
    """A schema that the user gave may leave columns out, and change nothing else.

    The types of an older version are fine too: the topic may have grown since the query began.
    """
    known = {field.name: field for field in source_schema(topic, topic.schema.names)}
    older = [to_spark(parse_ddl(ddl)) for ddl in topic.definition.schemas[:-1]]
    for field in schema:
        if field.name not in known:
            raise UnknownColumn(topic.name, field.name, [*known])
        types = [known[field.name].dataType.simpleString()]
        types += [version[field.name].dataType.simpleString() for version in older if field.name in version.names]
        if field.dataType.simpleString() not in types:
            found = f"{field.name} {field.dataType.simpleString()}"
            raise SourceOptionError("schema", f"{field.name} {types[0]}", found)


def tasks_of(topic: Topic, start: Mapping[int, int], stop: Mapping[int, int], options: SourceOptions) -> list[Task]:
    """Cuts a slice into tasks of about equal size. Pieces that cannot hold what is asked for are left out."""
    if options.event_time is not None:
        check_event_time(topic.definition)
    arrived = None if options.arrived is None else list(options.arrived)
    event_time = None if options.event_time is None else list(options.event_time)
    chosen = [
        (partition.number, piece)
        for partition in topic.partitions
        if stop[partition.number] > start[partition.number]
        for piece in partition.pieces(start[partition.number], stop[partition.number])
        if may_hold(piece, arrived, event_time)
    ]
    total = sum(piece.bytes for _, piece in chosen)
    enough = min(max(total // (2 * (os.cpu_count() or 1)), TASK_BYTES_MIN), TASK_BYTES_MAX)
    tasks: list[list[Span]] = []
    size = enough
    for number, piece in chosen:
        if size >= enough:
            tasks.append([])
            size = 0
        size += piece.bytes
        span = Span(number, max(piece.start, start[number]), min(piece.stop, stop[number]))
        last = tasks[-1][-1] if tasks[-1] else None
        if last is not None and (last.partition, last.stop) == (span.partition, span.start):
            tasks[-1][-1] = Span(number, last.start, span.stop)
        else:
            tasks[-1].append(span)
    return [Task(topic.definition.id, spans) for spans in tasks]


def batches_of(
    options: SourceOptions, schema: StructType, task: Task, on_end: Callable[[int], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of one task, in exactly the types that Spark expects; `on_end` is told how many came late."""
    late = 0
    target = to_arrow_schema(schema, timezone="UTC")
    names = [name for name in schema.names if name not in OWN_COLUMNS]
    with kept_topic(options, task.topic_id) as topic:
        for span in task.spans:
            for batch in topic.partitions[span.partition].read(
                span.start, span.stop, columns=names, arrived=options.arrived, event_time=options.event_time
            ):
                late += batch.column("_late").true_count
                yield as_spark(topic, batch, target)
    if on_end is not None:
        on_end(late)


def as_spark(topic: Topic, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The batch in the types that Spark expects. Columns that are in them already are not copied."""
    found = [batch.column(field.name) for field in target]
    try:
        arrays = [
            array if array.type.equals(field.type) else array.cast(field.type)
            for array, field in zip(found, target, strict=True)
        ]
    except pa.ArrowInvalid as error:
        raise SchemaOutgrown(topic.name, str(target), format_ddl(topic.schema), str(error)) from None
    return pa.RecordBatch.from_arrays(arrays, schema=target)
