"""A topic as a Spark stream, with admission control along arrival time and Trigger.AvailableNow.

A micro-batch is a slice between two cuts, and a cut is written into Spark's checkpoint as `{"0": 4711, "1": 4698, "id":
"..."}`: the next offset of each partition, and the id of the topic, for one that is deleted and made again is another
topic. The same two cuts always give the same records, so a batch that is repeated after a crash is the same batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.errors import OffsetOutOfRange, StreamDataLost, TopicReplaced
from penstock.log.partition import Offsets
from penstock.spark.source import Task, batches_of, check_schema, open_topic, tasks_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.log.topic import Topic
    from penstock.spark.options import SourceOptions

TOPIC_ID = "id"
Position = dict[str, Any]
"""A cut as Spark keeps it."""


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a topic from cut to cut.

    One process per query asks for cuts and keeps the log open for that; tasks read in other processes, each with a log
    of its own. Sealed segments are read through Python too: Spark lets a stream have one reader only.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._opened: tuple[ExitStack, Topic] | None = None
        self._available: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    # --- where it stands ---

    def initialOffset(self) -> Position:  # noqa: N802 (Spark's names, here and below)
        topic = self._topic()
        check_schema(topic, self._schema)
        return self._position(self._options.starting_offsets(topic))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:  # noqa: N802
        """The next cut. Both limits hold if both were given; Spark itself knows one at a time."""
        topic = self._topic()
        after = self._start_of(start)
        farthest = topic.end() if self._available is None else self._available
        # The checkpoint may be beyond what was available when the query began, if that was another run's target.
        until = {number: max(stop, after[number]) for number, stop in farthest.items()}
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if max_rows is not None:
            max_bytes = self._options.max_bytes
        if max_rows is None and max_bytes is None:
            return self._position(until)
        return self._position(topic.cut(after, max_rows=max_rows, max_bytes=max_bytes, until=until))

    def reportLatestOffset(self) -> Position:  # noqa: N802
        return self._position(self._topic().end())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available = self._topic().end()

    # --- what it reads ---

    def partitions(self, start: Position, end: Position) -> list[InputPartition]:
        topic = self._topic()
        return [*tasks_of(topic, self._start_of(start), self._offsets_of(end), self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches_of(self._options, self._schema, partition) if isinstance(partition, Task) else iter(())

    def commit(self, end: Position) -> None:
        """Nothing to do: progress is kept in Spark's checkpoint alone."""

    def stop(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    # --- inside ---

    def _topic(self) -> Topic:
        if self._opened is None:
            stack = ExitStack()
            self._opened = stack, stack.enter_context(open_topic(self._options))
        topic = self._opened[1]
        topic.refresh()
        return topic

    def _position(self, offsets: Mapping[int, int]) -> Position:
        found: Position = {str(number): offset for number, offset in sorted(offsets.items())}
        return {**found, TOPIC_ID: self._topic().definition.id}

    def _offsets_of(self, position: Position) -> Offsets:
        topic = self._topic()
        if position[TOPIC_ID] != topic.definition.id:
            raise TopicReplaced(topic.name, position[TOPIC_ID], topic.definition.id)
        return {partition.number: position[str(partition.number)] for partition in topic.partitions}

    def _start_of(self, position: Position) -> Offsets:
        """Where to go on. StreamDataLost if that is not there any more, unless the user said to go on regardless."""
        topic = self._topic()
        after, first = self._offsets_of(position), topic.start()
        lost = {number: (offset, first[number]) for number, offset in after.items() if offset < first[number]}
        if lost and self._options.fail_on_data_loss:
            raise StreamDataLost(topic.name, lost)
        end = topic.end()
        for number, offset in after.items():
            if offset > end[number]:
                raise OffsetOutOfRange(topic.partitions[number].place, offset, first[number], end[number])
        return {number: max(offset, first[number]) for number, offset in after.items()}
