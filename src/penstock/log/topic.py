"""A topic: events of one kind, kept in order in one or more partitions."""

from __future__ import annotations

import itertools
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.durations import parse_duration
from penstock.errors import RecordsRefused, UnknownColumn
from penstock.events.encode import encode
from penstock.events.keys import partition_of
from penstock.events.schema import upgrade
from penstock.log.definition import TopicDefinition
from penstock.log.partition import ARRIVED, Appended, Offsets, Partition, Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.log.log import Log
    from penstock.produce.producer import Producer

_UNCHANGED: Any = object()
Routed = tuple[int, pa.RecordBatch, npt.NDArray[np.int64]]
"""A partition, its records, and where in the batch they stood."""


class Topic(ABC):
    """A handle on one topic. Any number of threads and processes may have one; none survives a fork.

    The handle follows changes that other processes make to the topic (`refresh`).
    """

    log: Log
    partitions: tuple[Partition, ...]

    def __init__(self, definition: TopicDefinition) -> None:
        self.name = definition.name
        self._definition = definition
        self._turn = itertools.count(secrets.randbelow(1 << 16))

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, partitions={len(self.partitions)})"

    # --- what every kind of log has in its own way ---

    @abstractmethod
    def refresh(self, *, is_fresh: bool = False) -> bool:
        """Takes over a change made by another process. True if there was one.

        Whoever is going to change the definition reads it again (`is_fresh`), however lately that was done.
        """

    @abstractmethod
    def check_there(self) -> None:
        """TopicDeleted if the topic is gone, or another one bears its name now. It takes over no change."""

    @abstractmethod
    def _change(self, change: Callable[[TopicDefinition], TopicDefinition]) -> None:
        """Exchanges the definition for everybody, one at a time."""

    @abstractmethod
    def check_sizes(self, place: str, batch: pa.RecordBatch) -> None:
        """RecordTooLarge, with the rows, if the log cannot take some of them. `place` is what the error names."""

    @abstractmethod
    def cut(
        self,
        after: Mapping[int, int],
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        until: Mapping[int, int] | None = None,
    ) -> Offsets:
        """The next cut after `after`, along arrival time over all partitions: as much as the limits allow.

        It takes at least one record if there is any. `until` is the farthest it may go; without it, the end.
        """

    @abstractmethod
    def count_late(self, start: Mapping[int, int], until: Mapping[int, int]) -> int:
        """How many records between two cuts came late."""

    @abstractmethod
    def latest_arrivals(self, start: Mapping[int, int], until: Mapping[int, int]) -> dict[int, int]:
        """Partition -> greatest arrival between two cuts, in microseconds. Partitions without a record are left out."""

    def close(self) -> None:
        """Lets go of everything."""
        for partition in self.partitions:
            partition.close()

    # --- what it is ---

    @property
    def definition(self) -> TopicDefinition:
        return self._definition

    @property
    def schema(self) -> pa.Schema:
        """The current columns, without the log's own."""
        return self._definition.schema

    @property
    def schema_version(self) -> int:
        return self._definition.schema_version

    def definition_with(self, schema_version: int) -> TopicDefinition:
        """The definition, fresh enough to know this schema version."""
        if schema_version > self._definition.schema_version:
            self.refresh()
        return self._definition

    def alter(
        self,
        *,
        schema: str | None = None,
        lateness: str | timedelta | None = None,
        retention_age: str | timedelta | None = _UNCHANGED,
        retention_bytes: int | None = _UNCHANGED,
        compact: bool | None = None,
        segment_bytes: int | None = None,
    ) -> TopicDefinition:
        """Changes the topic for everybody. A schema may only grow: a new nullable column, a wider number."""
        changes: dict[str, Any] = {}
        if lateness is not None:
            changes["lateness"] = parse_duration(lateness)
        if retention_age is not _UNCHANGED:
            changes["retention_age"] = None if retention_age is None else parse_duration(retention_age)
        if retention_bytes is not _UNCHANGED:
            changes["retention_bytes"] = retention_bytes
        if compact is not None:
            changes["compact"] = compact
        if segment_bytes is not None:
            changes["segment_bytes"] = segment_bytes
        self._change(lambda known: replace(known if schema is None else known.grown(schema), **changes))
        return self._definition

    # --- writing ---

    def producer(self, **options: Any) -> Producer:
        """A producer for this topic; see `Producer` for the options."""
        from penstock.produce.producer import Producer

        return Producer(self, **options)

    def append(self, data: pa.RecordBatch | pa.Table, *, arrived: pa.Array | None = None) -> list[Appended]:
        """Stores Arrow data and returns when it is on disk, or stores nothing of it if a record does not fit.

        For dicts, for many small batches, and for what may not fit: `producer`.
        """
        encoded = encode(data, self.schema)
        if encoded.rejected:
            first = encoded.rejected[0]
            raise RecordsRefused(self.name, len(encoded.rejected), first.index, first.column, first.reason)
        if len(self.partitions) > 1:
            self.check_sizes(self.name, encoded.batch)
        appended = []
        for number, part, rows in self.route(encoded.batch):
            stamps = None if arrived is None else arrived.take(pa.array(rows))
            appended.append(self.partitions[number].append(part, arrived=stamps))
        return appended

    def route(self, batch: pa.RecordBatch) -> list[Routed]:
        """Splits a batch by key, or round robin without one. Order within a partition is the batch's order."""
        count = len(self.partitions)
        rows = np.arange(batch.num_rows)
        if count == 1:
            return [(0, batch, rows)] if batch.num_rows else []
        if not self._definition.key:
            turn = next(self._turn)
            parts = np.array_split(rows, min(count, max(len(rows), 1)))
            return [
                ((turn + number) % count, batch.slice(int(part[0]), len(part)), part)
                for number, part in enumerate(parts)
                if len(part)
            ]
        numbers = partition_of(batch, self._definition.key, count)
        order = np.argsort(numbers.astype(np.int16), kind="stable")
        taken = batch.take(pa.array(order))
        starts = np.searchsorted(numbers[order], np.arange(count + 1))
        return [
            (number, taken.slice(int(first), int(last - first)), order[first:last])
            for number, (first, last) in enumerate(itertools.pairwise(starts))
            if last > first
        ]

    def fit(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, TopicDefinition]:
        """The batch in the current schema, and whose that is. Batches made before the schema grew are upgraded."""
        definition = self._definition
        if not batch.schema.equals(definition.schema):
            for name in batch.schema.names:
                if name not in definition.schema.names:
                    raise UnknownColumn(self.name, name, definition.schema.names)
            batch = upgrade(batch, definition.schema)
        return batch, definition

    # --- reading ---

    def start(self) -> Offsets:
        """The first offset of each partition that retention has left."""
        return {partition.number: partition.start_offset() for partition in self.partitions}

    def end(self) -> Offsets:
        """The offset that the next record of each partition will get."""
        return {partition.number: partition.end().offset for partition in self.partitions}

    def slice(
        self,
        start: Mapping[int, int] | None = None,
        until: Mapping[int, int] | None = None,
        *,
        columns: Sequence[str] | None = None,
        arrived: Ranges = None,
        event_time: Ranges = None,
    ) -> pa.Table:
        """Records between two cuts as one Arrow table, read right here without Spark.

        `arrived` and `event_time` are ranges in microseconds, half open, None for no limit on a side.
        """
        first = self.start() if start is None else start
        last = self.end() if until is None else until
        batches = [
            batch
            for partition in self.partitions
            if last.get(partition.number, 0) > first.get(partition.number, 0)
            for batch in partition.read(
                first.get(partition.number, 0),
                last[partition.number],
                columns=columns,
                arrived=arrived,
                event_time=event_time,
            )
        ]
        schema = self.read_schema(columns)
        return pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(each.columns, schema=schema) for each in batches], schema
        )

    def read_schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """The columns that readers get: those asked for, then the log's own."""
        names = self.schema.names if columns is None else columns
        return pa.schema(
            [
                *(self.schema.field(name) for name in names),
                pa.field("_partition", pa.int32()),
                pa.field("_offset", pa.int64()),
                pa.field("_arrived", ARRIVED),
                pa.field("_late", pa.bool_()),
            ]
        )

    def read(self, spark: SparkSession, **options: Any) -> DataFrame:
        """The topic as a Spark DataFrame; see `penstock.spark.read.read`."""
        from penstock.spark.read import read

        return read(self, spark, **options)

    def read_stream(self, spark: SparkSession, **options: Any) -> DataFrame:
        """The topic as a streaming DataFrame; see `penstock.spark.read.read_stream`."""
        from penstock.spark.read import read_stream

        return read_stream(self, spark, **options)
