"""Records that do not fit the schema: kept in `<topic>.dead`, each with its reason and its raw bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import TopicDefinitionError
from penstock.events.encode import Rejected
from penstock.events.schema import parse_ddl
from penstock.log.definition import DEAD_SUFFIX
from penstock.log.partition import Appended
from penstock.log.producers import named_producer

if TYPE_CHECKING:
    from penstock.log.topic import Topic

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
        return self._grave.partitions[0].append(
            batch,
            producer=None if producer is None else _grave_digger(producer),
            producer_epoch=producer_epoch,
            sequences=sequences,
        )


def _grave_digger(producer: bytes) -> bytes:
    """The id under which a producer buries: its sequences must not meet those of events sent to the same topic."""
    return named_producer(f"dead letters of {producer.hex()}")
