"""A partition of a topic in Kafka."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException

from penstock.errors import KafkaRefused, LogError, OffsetOutOfRange, ProducerFenced, TopicDeleted
from penstock.kafka.brokers import UNKNOWN
from penstock.kafka.reading import Found, read_range
from penstock.kafka.values import Written, written
from penstock.kafka.writing import Transactional, is_worth_repeating
from penstock.log.partition import ARRIVED, Appended, Described, Partition, Piece, Ranges, Sequences
from penstock.log.producers import Remembered, is_remembered, is_shared

if TYPE_CHECKING:
    from penstock.kafka.topic import KafkaTopic

PIECE_RECORDS = 50_000
RECORD_BYTES = 200
"""What a record is taken to need: Kafka does not say."""
DECIDED_SECONDS = 1.0
"""A broker needs milliseconds to mark a transaction as committed, once it has said so."""
_EVER = 1 << 62
_LOOK_BACK = (1, 64, 4096, 1 << 18)
REPEAT_SECONDS_MAX = 0.2
"""So long at most a client that was fenced off waits before it tries again: another one has stored something."""


@dataclass(frozen=True)
class KafkaEnd:
    """Where a partition ends."""

    offset: int
    partition: KafkaPartition

    @cached_property
    def arrived_us(self) -> int:
        """The arrival of the last record; 0 if there is none."""
        return self.partition.arrived_before(self.offset)


class KafkaPartition(Partition):
    """One ordered part of a topic in Kafka. Offsets may have gaps: transactions and compaction leave some."""

    topic: KafkaTopic

    def __init__(self, topic: KafkaTopic, number: int) -> None:
        super().__init__(topic, number)
        self._brokers = topic.log.brokers

    # --- writing ---

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        arrived: pa.Array | None = None,
        producer: bytes | None = None,
        producer_epoch: int = 0,
        sequences: Sequences | None = None,
    ) -> Appended:
        batch, definition = self.topic.fit(batch)
        records = written(batch, definition, arrived=arrived)
        self.topic.check_written(self.place, records)
        if producer is None or sequences is None or not is_remembered(producer):
            self._check_arrivals(arrived)
            offsets = self._store(records) if records else _NONE
            return self._appended(offsets, duplicates=0)
        deadline = time.monotonic() + self._brokers.connection.delivery_seconds
        while True:
            try:
                with self.topic.log.writer.transactional(_transactional_id(producer)) as client:
                    remembered = self._remembered(producer, client)
                    if remembered.epoch > producer_epoch:
                        raise ProducerFenced(self.place, producer_epoch, remembered.epoch)
                    skip = int(np.searchsorted(sequences, remembered.last_sequence, side="right"))
                    if skip == len(records):
                        return self._appended(_NONE, duplicates=skip)
                    self._check_arrivals(arrived, skip)
                    noted = Remembered(producer_epoch, int(sequences[-1]), self.topic.log.clock())
                    book = self.topic.log.sequences
                    mine = (self.topic.name, self.number, records[skip:])
                    [offsets, _] = client.store([mine, book.entry(producer, self._id, noted)])
                    book.note(producer, self._id, noted)
                    self._wait_for_readers(int(offsets[-1]))
                    return self._appended(offsets, duplicates=skip)
            except KafkaException as error:
                self._check_deleted(error.args[0].code())
                # Whether it was stored is known once the id is ours again.
                if not is_worth_repeating(error):
                    raise self._brokers.told(error, f"records for {self.place}") from error
                if time.monotonic() > deadline:
                    raise self._brokers.unavailable(error.args[0].str()) from error
            time.sleep(random.uniform(0, REPEAT_SECONDS_MAX))  # Two that overtake each other shall not do it for ever.

    def store(self, records: Sequence[Written]) -> Sequences:
        """Appends records as they are, and returns their offsets. RecordTooLarge before any of them is sent."""
        self.topic.check_written(self.place, records)
        return self._store(records)

    def remember(self, producers: Mapping[bytes, Remembered]) -> None:
        """Notes what producers stored that were moved here, unless more is known of them already."""
        book = self.topic.log.sequences
        for producer, found in producers.items():
            book.follow(producer)
            known = book.get(producer, self._id)
            if known is None or known.last_sequence < found.last_sequence:
                self.topic.log.writer.store(*book.entry(producer, self._id, found))
                book.note(producer, self._id, found)

    def last_sequence(self, producer: bytes) -> int | None:
        self.topic.log.sequences.follow(producer)
        found = self.topic.log.sequences.get(producer, self._id)
        return None if found is None else found.last_sequence

    @property
    def signal(self) -> Path:
        return self.topic.log.signals.of(self.topic.name, self.number)

    # --- where it begins and ends ---

    def end(self) -> KafkaEnd:
        return KafkaEnd(self.topic.end()[self.number], self)

    def start_offset(self) -> int:
        return self.topic.start()[self.number]

    def describe(self) -> Described:
        start, end = self.start_offset(), self.end()
        first = self.first_arrived(start, end.offset)
        stamps = (None, None) if first is None else (first, end.arrived_us)
        return Described(start, end.offset, end.offset - start, None, None, None, stamps)

    # --- reading ---

    def read(
        self,
        start: int,
        stop: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        arrived: Ranges = None,
        event_time: Ranges = None,
    ) -> Iterator[pa.RecordBatch]:
        end = self.end().offset
        earliest = self.start_offset()
        if start < earliest or start > end:
            raise OffsetOutOfRange(self.place, start, earliest, end)
        stop = end if stop is None else min(stop, end)
        for found in read_range(self._brokers, self.topic, self.number, start, stop):
            batch = found.batch(self.topic, self.number, columns, arrived=arrived, event_time=event_time)
            if batch.num_rows:
                yield batch

    def pieces(self, start: int, stop: int | None = None) -> list[Piece]:
        stop = self.end().offset if stop is None else stop
        bounds = [*range(start, stop, PIECE_RECORDS), stop]
        return [
            Piece(low, high, high - low, (high - low) * RECORD_BYTES, -_EVER, _EVER, ((-_EVER, _EVER),))
            for low, high in pairwise(bounds)
        ]

    def offset_at(self, arrived_us: int) -> int:
        """The first offset that arrived at this moment or later.

        The broker's stamps lead to it, unless records brought their arrival along: those arrived before they were
        stamped, so it lies further on. Arrivals only grow, so it is found by halving.
        """
        low = self._brokers.stamped_at(self.topic.name, [self.number], -(-arrived_us // 1000))[self.number]
        end = self.end().offset
        first = self.first_arrived(low, end)
        if first is None or first >= arrived_us:
            return low
        high = end
        while high - low > 1:
            middle = (low + high) // 2
            stamp = self.first_arrived(middle, end)
            low, high = (middle, high) if stamp is not None and stamp < arrived_us else (low, middle)
        return high

    def first_arrived(self, start: int, stop: int) -> int | None:
        """The arrival of the first record from `start` on; None if there is none before `stop`."""
        for found in self._found(start, stop):
            return int(found.arrived[0])
        return None

    def first_stamped(self, start: int, stop: int) -> int | None:
        """The broker's stamp of the first record from `start` on, in milliseconds; None if there is none."""
        for found in self._found(start, stop):
            return found.first_stamp
        return None

    def arrived_before(self, offset: int) -> int:
        """The arrival of the last record before `offset`; 0 if there is none. Looks further and further back."""
        earliest = self.start_offset()
        stop = offset
        for step in (*_LOOK_BACK, offset):
            start = max(earliest, offset - step)
            stamps = [int(found.arrived[-1]) for found in self._found(start, stop)]
            if stamps:
                return stamps[-1]
            stop = start
            if start == earliest:
                break
        return 0

    def close(self) -> None:
        """There is nothing open that is not the log's."""

    # --- helpers ---

    @property
    def _id(self) -> str:
        """A place that no other topic of the same name ever has."""
        return f"{self.topic.definition.id}/{self.number}"

    def _found(self, start: int, stop: int) -> Iterator[Found]:
        return read_range(self._brokers, self.topic, self.number, start, stop) if start < stop else iter(())

    def _store(self, records: Sequence[Written]) -> Sequences:
        try:
            return self.topic.log.writer.store(self.topic.name, self.number, records)
        except KafkaRefused as error:
            self._check_deleted(error.code)
            raise

    def _check_deleted(self, code: int) -> None:
        """TopicDeleted if this is why the brokers do not know the partition: by us, or by others in Kafka alone."""
        if code in UNKNOWN:
            self.topic.refresh()
            if self.topic.name not in self._brokers.topics():
                raise TopicDeleted(self.topic.name)

    def _remembered(self, producer: bytes, client: Transactional) -> Remembered:
        book = self.topic.log.sequences
        if client.begin() or is_shared(producer):  # A shared id may have been taken over for another's sake.
            book.follow(producer)
        return book.get(producer, self._id) or Remembered(0, -1, 0)

    def _wait_for_readers(self, offset: int) -> None:
        """What is committed can be read a moment later, so whoever was acknowledged finds it.

        Unless another transaction is under way in front of it: nobody is held up by that here.
        """
        deadline = time.monotonic() + DECIDED_SECONDS
        with suppress(LogError, TopicDeleted):  # It is stored, whether the end can be asked for or not.
            while self._brokers.ends(self.topic.name, [self.number])[self.number] <= offset:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.005)

    def _check_arrivals(self, arrived: pa.Array | None, skip: int = 0) -> None:
        """Those of what is stored: all behind the first `skip`."""
        if arrived is None:
            return
        stamps = np.asarray(arrived.slice(skip).cast(ARRIVED).view(pa.int64()))
        self._check_stamps(stamps, self.end().arrived_us)

    def _appended(self, offsets: Sequences, *, duplicates: int) -> Appended:
        if not len(offsets):
            return Appended(self.end().offset, 0, duplicates, self.topic.log.clock())
        return Appended(int(offsets[0]), len(offsets), duplicates, self.topic.log.clock(), offsets)


_NONE = np.empty(0, np.int64)


def _transactional_id(producer: bytes) -> str:
    """Named producers and spills have one each; those of idempotency keys, of which there are many, share a few."""
    return f"penstock-keys-{producer[1] % 16}" if is_shared(producer) else f"penstock-{producer.hex()}"
