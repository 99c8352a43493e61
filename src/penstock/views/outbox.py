"""The outbox: what views send to topics, stored once each, though log and database share no transaction.

A step puts records into the outbox in the transaction that stores its rows; a relay then appends them to the log, and
deletes them after that. Every record has an id, which is its sequence in the log: what was appended before a crash,
and not deleted yet, is recognised there and left out. That memory outlives sealing and retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, Engine, Row, case, delete, func, insert, select, update

from penstock.clock import now_us
from penstock.errors import PenstockError, RecordsRefused
from penstock.events.encode import encode
from penstock.log.log import Log
from penstock.log.partition import Sequences
from penstock.log.producers import named_producer
from penstock.log.topic import Topic
from penstock.views.system_tables import OUTBOX, OUTBOX_IDS

if TYPE_CHECKING:
    from penstock.views.store import Store

ENTRY_BYTES_MAX = 4 * 1024 * 1024
"""About how large one entry may become; more records make more entries."""

DELIVERY_BYTES_MAX = 16 * 1024 * 1024
"""About how much is appended to the log at once, and then deleted."""

_O, _I = OUTBOX.c, OUTBOX_IDS.c
_Entry: TypeAlias = Row[Any, Any]


_given: WeakKeyDictionary[Engine, dict[tuple[str, str], int]] = WeakKeyDictionary()
"""By pipeline and topic, the greatest id that this process has given out, or knows to be in the log.

Ids go on above it even if the database has lost commits since, and the pool of connections hides that.
"""


def remembered_ids(pipeline: str, topics: Iterable[Topic]) -> dict[str, int]:
    """By topic, the greatest id that the log remembers of this pipeline. Asks the log, so not in a transaction."""
    found = {}
    for topic in topics:
        producer = _producer(pipeline, topic.name)
        found[topic.name] = max((each.last_sequence(producer) or 0 for each in topic.partitions), default=0)
    return found


def prepare(connection: Connection, pipeline: str, remembered: Mapping[str, int]) -> None:
    """Enters the topics that the pipeline sends to: at the start of a run, before anything is put in for them.

    Ids go on above all that the log remembers of this pipeline, also where the database was restored from a copy: the
    log would take ids that were used before for repetitions. A topic that is not there yet needs no preparation.
    """
    given = _given.setdefault(connection.engine, {})
    for topic, least in remembered.items():
        mine = (_I.pipeline == pipeline, _I.topic == topic)
        connection.execute(update(OUTBOX_IDS).where(*mine, _I.last_id < least).values(last_id=least))
        if connection.execute(select(_I.last_id).where(*mine)).scalar() is None:
            connection.execute(insert(OUTBOX_IDS).values(pipeline=pipeline, topic=topic, last_id=least))
        given[pipeline, topic] = max(given.get((pipeline, topic), 0), least)


def enqueue(connection: Connection, pipeline: str, topic: str, rows: pa.Table) -> None:
    """Puts records for a topic into the outbox, in order, within the caller's transaction.

    The caller has claimed the pipeline, so ids are given out by one at a time. `rows` has columns of the topic.
    """
    if not rows.num_rows:
        return
    first = _take_ids(connection, pipeline, topic, rows.num_rows)
    for start, part in _parts(rows):
        # One by one: a database ends a transaction that it hears nothing of.
        entry = {"first_id": first + start, "records": part.num_rows, "payload": _to_bytes(part)}
        connection.execute(insert(OUTBOX).values(pipeline=pipeline, topic=topic, **entry))


def sent_to(connection: Connection) -> frozenset[str]:
    """The topics that pipelines send to."""
    return frozenset(connection.scalars(select(_I.topic).distinct()))


def waiting(connection: Connection, pipeline: str | None = None) -> dict[str, int]:
    """How many records wait to be delivered, by topic."""
    counted = select(_O.topic, func.sum(_O.records)).group_by(_O.topic)
    if pipeline is not None:
        counted = counted.where(_O.pipeline == pipeline)
    return {topic: int(count) for topic, count in connection.execute(counted)}


@dataclass(frozen=True)
class Delivered:
    """What one delivery did."""

    stored: int = 0
    """Records appended to the log."""
    duplicates: int = 0
    """Records that a relay which died had appended already."""


class Relay:
    """Carries the outbox of a pipeline to the log.

    May be killed at any point; several may even run at once: every record is stored once, each key's in order. The
    topics exist. Records without a key all go to one partition, chosen by their entry, for a retry must find it again.
    """

    def __init__(self, store: Store, log: Log, pipeline: str) -> None:
        self._store = store
        self._log = log
        self._pipeline = pipeline

    def deliver(self) -> Delivered:
        """Appends everything that is in the outbox now, then deletes it. Returns when it is safe in the log.

        A topic that cannot be appended to keeps its records in the outbox and does not hold up the others; its error
        is raised at the end.
        """
        stored = duplicates = 0
        failure: PenstockError | None = None
        for topic in self._topics():
            try:
                for done in self._deliver(topic):
                    stored, duplicates = stored + done.stored, duplicates + done.duplicates
            except PenstockError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return Delivered(stored, duplicates)

    def _topics(self) -> list[str]:
        query = select(_O.topic).where(_O.pipeline == self._pipeline).distinct().order_by(_O.topic)
        with self._store.snapshot() as snapshot:
            return list(snapshot.connection.scalars(query))

    def _deliver(self, name: str) -> Iterator[Delivered]:
        """One topic, a bounded amount at a time, in order of ids."""
        topic = self._log.topic(name)
        producer = _producer(self._pipeline, name)
        mine = (_O.pipeline == self._pipeline, _O.topic == name)
        after = -1
        while entries := self._next(name, after):
            stored = duplicates = 0
            for number, batch, ids in _routed(topic, entries):
                # Always epoch 0: it would start again with a new database, and the log would refuse it for ever.
                done = topic.partitions[number].append(batch, producer=producer, sequences=ids)
                stored, duplicates = stored + done.count, duplicates + done.duplicates
            after = entries[-1].first_id
            with self._store.transaction(None) as transaction:  # Whoever owns the pipeline: this much is delivered.
                transaction.connection.execute(
                    delete(OUTBOX).where(*mine, _O.first_id >= entries[0].first_id, _O.first_id <= after)
                )
            yield Delivered(stored, duplicates)

    def _next(self, topic: str, after: int) -> list[_Entry]:
        """The oldest entries, as many as go into one delivery, and at least one."""
        query = (
            select(_O.first_id, _O.payload)
            .where(_O.pipeline == self._pipeline, _O.topic == topic, _O.first_id > after)
            .order_by(_O.first_id)
            .limit(256)
        )
        entries: list[_Entry] = []
        size = 0
        with self._store.snapshot() as snapshot, snapshot.connection.execute(query) as result:
            for row in result:
                size += len(row.payload)
                if entries and size > DELIVERY_BYTES_MAX:
                    break
                entries.append(row)
        return entries


def _producer(pipeline: str, topic: str) -> bytes:
    return named_producer(f"view.{pipeline}/{topic}")


def _take_ids(connection: Connection, pipeline: str, topic: str, count: int) -> int:
    """The first of so many ids, which nobody has had and nobody will have."""
    given = _given.setdefault(connection.engine, {})
    known = given.get((pipeline, topic))
    # Not prepared: by the clock. The log may remember ids of a database that was deleted, or has lost commits.
    least = now_us() if known is None else known
    mine = (_I.pipeline == pipeline, _I.topic == topic)
    raised = case((_I.last_id < least, least), else_=_I.last_id) + count
    if not connection.execute(update(OUTBOX_IDS).where(*mine).values(last_id=raised)).rowcount:
        connection.execute(insert(OUTBOX_IDS).values(pipeline=pipeline, topic=topic, last_id=least + count))
    last: int = connection.execute(select(_I.last_id).where(*mine)).scalar_one()
    given[pipeline, topic] = last
    return last - count + 1


def _parts(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows in pieces of a bounded size, each with its position."""
    size = max(1, rows.num_rows * ENTRY_BYTES_MAX // max(rows.nbytes, 1))
    for start in range(0, rows.num_rows, size):
        yield start, rows.slice(start, size)


def _to_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _routed(topic: Topic, entries: list[_Entry]) -> Iterator[tuple[int, pa.RecordBatch, Sequences]]:
    """A partition, its records and their ids, in order. The same records always go to the same partition."""
    count = len(topic.partitions)
    if topic.definition.key or count == 1:
        batch, ids = _joined(topic, entries)
        for number, part, rows in topic.route(batch):
            yield number, part, ids[rows]
        return
    for number in range(count):  # Without a key a topic's own routing goes round robin: a retry would go elsewhere.
        if chosen := [entry for entry in entries if entry.first_id % count == number]:
            yield number, *_joined(topic, chosen)


def _joined(topic: Topic, entries: list[_Entry]) -> tuple[pa.RecordBatch, Sequences]:
    """All records of these entries, in the columns that the topic has now, and their ids."""
    batches, ids = [], []
    for entry in entries:
        encoded = encode(pa.ipc.open_stream(entry.payload).read_all(), topic.schema)
        if encoded.rejected:
            first = encoded.rejected[0]
            raise RecordsRefused(topic.name, len(encoded.rejected), first.index, first.column, first.reason)
        batches.append(encoded.batch)
        ids.append(np.arange(entry.first_id, entry.first_id + encoded.batch.num_rows, dtype=np.int64))
    return pa.concat_batches(batches), np.concatenate(ids)
