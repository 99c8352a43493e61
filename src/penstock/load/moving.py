"""Moving a log from a folder to Kafka: every record keeps its partition, its offset and its arrival.

Because offsets stay the same, everything that speaks of them stays true: how far views and consumer groups have come,
which records made a row. Offsets whose records are gone, by retention or compaction, are filled with records without
a value, which readers pass over. What is there already is not copied again, so a move that was killed goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.errors import MoveRefused, NothingToMove
from penstock.kafka.log import KafkaLog
from penstock.kafka.partition import KafkaPartition
from penstock.kafka.values import Written, values_of, written
from penstock.log.definition import TopicDefinition
from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.folder_topic import FolderTopic

GAP_KEY = b"\x00gap"
"""The key of a record that fills an offset: without one a compacted topic would not take it."""
FILL_RECORDS = 50_000
Progress = Callable[[str, int, int], None]
"""Told of a topic, how many of its offsets are moved, and how many there are."""


@dataclass(frozen=True)
class Moved:
    """What became of one topic."""

    topic: str
    records: int
    """Records copied by this call."""
    already: int
    """Offsets that an earlier call had moved."""
    filled: int
    """Offsets whose records were gone, filled."""


def move_log(
    source: FolderLog, target: KafkaLog, *, pattern: str = "*", progress: Progress = lambda *_: None
) -> list[Moved]:
    """Copies all topics that match, what producers have stored, and how far consumer groups have come.

    Nobody may write to either side meanwhile: MoveRefused names the topic where somebody did. NothingToMove where no
    topic matches.
    """
    if not source.topics(pattern, dead=True):
        raise NothingToMove(source.url, pattern, source.topics())
    moved = [_move_topic(source.topic(name), target, progress) for name in source.topics(pattern, dead=True)]
    _move_groups(source, target, frozenset(each.topic for each in moved))
    return moved


def _move_topic(source: FolderTopic, target: KafkaLog, progress: Progress) -> Moved:
    definition = _made(source.definition, target)
    total = sum(source.end().values())
    records = already = filled = 0
    found = target.topic(definition.name)
    for here in source.partitions:
        there = found.partitions[here.number]
        assert isinstance(there, KafkaPartition)
        reached = there.end().offset
        already += reached
        if reached > here.end().offset:
            raise MoveRefused(here.place, f"it ends at {reached} in Kafka, and at {here.end().offset} here")
        for offsets, batch in _stretches(here, reached):
            _store(there, definition, offsets, batch)
            records += 0 if batch is None else batch.num_rows
            filled += len(offsets) if batch is None else 0
            progress(definition.name, already + records + filled, total)
        if there.start_offset() < here.start_offset():  # What is filled there was never there for readers.
            target.brokers.drop_before(definition.name, here.number, here.start_offset())
        there.remember(here.remembered())
    return Moved(definition.name, records, already, filled)


def _made(definition: TopicDefinition, target: KafkaLog) -> TopicDefinition:
    """The topic in Kafka, made unless it is there: then it must be the same one."""
    if definition.name not in target.topics(dead=True):
        target.adopt(definition)
    known = target.topic(definition.name).definition
    if replace(known, id=definition.id) != definition:
        raise MoveRefused(definition.name, "Kafka has a topic of that name, with other columns or settings")
    return known


def _stretches(partition: FolderPartition, start: int) -> Iterator[tuple[range, pa.RecordBatch | None]]:
    """Offsets from `start` on, in order: with their records, or with None where those are gone."""
    reached = start
    for batch in partition.read(max(start, partition.start_offset())):
        while batch.num_rows:
            offsets = batch.column("_offset").to_numpy()
            yield from ((each, None) for each in _pieces(reached, int(offsets[0])))
            # As many as follow one another.
            together = int(np.argmax(np.append(np.diff(offsets) != 1, True))) + 1
            yield range(int(offsets[0]), int(offsets[0]) + together), batch.slice(0, together)
            reached = int(offsets[together - 1]) + 1
            batch = batch.slice(together)
    yield from ((each, None) for each in _pieces(reached, partition.end().offset))


def _pieces(start: int, stop: int) -> Iterator[range]:
    for low in range(start, stop, FILL_RECORDS):
        yield range(low, min(low + FILL_RECORDS, stop))


def _store(there: KafkaPartition, definition: TopicDefinition, offsets: range, batch: pa.RecordBatch | None) -> None:
    """Stores records at exactly these offsets."""
    records: list[Written] = [(GAP_KEY, None, None)] * len(offsets)
    if batch is not None:
        events = batch.select(definition.schema.names)
        records = written(events, definition, arrived=batch.column("_arrived"))
        again = values_of(definition).read([value or b"" for _, value, _ in records])
        if again.rejected or not _are_equal(again.batch, events):
            raise MoveRefused(
                there.place,
                f"records from offset {offsets[0]} on do not come back from {definition.values} as they were",
            )
    stored = there.store(records)
    if not np.array_equal(stored, np.arange(offsets.start, offsets.stop)):
        raise MoveRefused(
            there.place, f"offsets {offsets.start} up to {offsets.stop} became {stored[0]} up to {stored[-1] + 1}: "
            "somebody else writes to this topic in Kafka",
        )  # fmt: skip


def _are_equal(some: pa.RecordBatch, others: pa.RecordBatch) -> bool:
    """Whether all values are the same; NaN is the same as NaN here, which Arrow says of no two of them."""
    return some.equals(others) or (some.schema == others.schema and str(some.to_pylist()) == str(others.to_pylist()))


def _move_groups(source: FolderLog, target: KafkaLog, topics: frozenset[str]) -> None:
    for name in source.groups.names():
        committed = {
            (each.topic, each.partition): each.committed
            for each in source.groups.status(name).partitions
            if each.topic in topics and each.committed is not None
        }
        if committed:
            target.groups.set_offsets(name, committed)
