"""Records that do not fit the schema: kept in `<topic>.dead`, each with its reason and its raw bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import RecordTooLarge, TopicDefinitionError
from penstock.events.encode import Rejected
from penstock.events.schema import parse_ddl
from penstock.log.definition import DEAD_SUFFIX
from penstock.log.partition import Appended
from penstock.log.producers import named_producer

if TYPE_CHECKING:
    from penstock.log.topic import Topic

RAW_BYTES_MAX = 4 << 20
SCHEMA = "topic string, reason string, column string, raw binary, producer string"


class DeadLetters:
    """The dead letters of one topic, made on first need, with one partition.

    `append` returns when they are on disk; whoever is acknowledged before that could lose a record. What does not fit
    a topic of dead letters stays in that topic: there is no second grave.
    """

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._grave: Topic | None = topic if topic.definition.is_dead_letters else None

    @property
    def name(self) -> str:
        """The name of the dead-letter topic."""
        name = self._topic.name
        return name if self._topic.definition.is_dead_letters else name + DEAD_SUFFIX

    def batch(self, rejected: Sequence[Rejected], producer: str) -> pa.RecordBatch:
        """The records as rows of the dead-letter topic. `producer` is its name, or its id for one without."""
        columns: list[list[object]] = [
            [self._topic.name] * len(rejected),
            [one.reason for one in rejected],
            [one.column for one in rejected],
            [one.raw for one in rejected],
            [producer] * len(rejected),
        ]
        schema = parse_ddl(SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        producer: bytes | None = None,
        producer_epoch: int = 0,
        sequences: npt.NDArray[np.int64] | None = None,
    ) -> Appended:
        """Stores what `batch` made, durably. The same producer and sequence are stored once, as in every topic."""
        if self._grave is None:
            self._grave = self._topic.log.create(self.name, SCHEMA, partitions=1, exist_ok=True)
        for column in parse_ddl(SCHEMA):
            if column.name not in self._grave.schema.names or column.type != self._grave.schema.field(column.name).type:
                found = self._grave.definition.schemas[-1]
                raise TopicDefinitionError(self.name, "schema", f"for dead letters: {SCHEMA}", found)
        digger = None if producer is None else _grave_digger(producer)
        append = partial(
            self._grave.partitions[0].append, producer=digger, producer_epoch=producer_epoch, sequences=sequences
        )
        try:
            return append(batch)
        except RecordTooLarge as error:
            return append(shortened(batch, error.limit // 2))


def shortened(batch: pa.RecordBatch, most: int = RAW_BYTES_MAX) -> pa.RecordBatch:
    """The letters, with only the beginning of what has more bytes than that: no log takes records of any size."""
    raws = batch.column("raw").to_pylist()
    if all(raw is None or len(raw) <= most for raw in raws):
        return batch
    reasons = [
        reason if raw is None or len(raw) <= most else f"{reason}; kept are {most:,} of its {len(raw):,} bytes"
        for reason, raw in zip(batch.column("reason").to_pylist(), raws, strict=True)
    ]
    cut = pa.array([None if raw is None else raw[:most] for raw in raws], pa.binary())
    columns = {**dict(zip(batch.schema.names, batch.columns, strict=True)), "raw": cut, "reason": pa.array(reasons)}
    return pa.RecordBatch.from_arrays([*columns.values()], schema=batch.schema)


def _grave_digger(producer: bytes) -> bytes:
    """The id under which a producer buries: its sequences must not meet those of events sent to the same topic."""
    return named_producer(f"dead letters of {producer.hex()}")
