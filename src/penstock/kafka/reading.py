"""Reading a range of offsets: Kafka's messages become Arrow batches, and what is no event a dead letter."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from penstock.errors import OffsetOutOfRange
from penstock.kafka.brokers import Brokers, take
from penstock.kafka.journal import offset_of
from penstock.kafka.values import ARRIVALS_US, ARRIVED_HEADER, SCHEMA_HEADER, values_of
from penstock.log.partition import ARRIVED, Ranges
from penstock.log.reading import as_ranges, late, within

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.kafka.topic import KafkaTopic

logger = logging.getLogger("penstock.kafka")

MESSAGES_AT_ONCE = 20_000


@dataclass(frozen=True)
class Found:
    """Some messages of one partition, in order."""

    values: list[bytes]
    offsets: npt.NDArray[np.int64]
    arrived: npt.NDArray[np.int64]
    """In microseconds."""
    first_stamp: int
    """The broker's stamp of the first of them, in milliseconds."""
    schema_version: int
    """The newest that a writer knew."""

    def batch(
        self,
        topic: KafkaTopic,
        number: int,
        columns: Sequence[str] | None,
        *,
        arrived: Ranges = None,
        event_time: Ranges = None,
    ) -> pa.RecordBatch:
        """The events as a batch: the columns asked for, then the log's own. What is no event is buried."""
        definition = topic.definition_with(self.schema_version)
        encoded = values_of(definition).read(self.values)
        if encoded.rejected:
            topic.refresh()
            if topic.definition != definition:  # Others write newer columns without a header that says so.
                definition = topic.definition
                encoded = values_of(definition).read(self.values)
        if encoded.rejected:
            topic.bury(number, [(int(self.offsets[each.index]), each) for each in encoded.rejected])
        kept = slice(None) if encoded.kept is None else encoded.kept
        stamps = pa.array(self.arrived[kept]).view(ARRIVED)
        times = encoded.batch.column(definition.event_time) if definition.event_time else None
        names = definition.schema.names if columns is None else columns
        own = {
            "_partition": pa.array(np.full(encoded.batch.num_rows, number, np.int32)),
            "_offset": pa.array(self.offsets[kept]),
            "_arrived": stamps,
            "_late": late(stamps, times, definition),
        }
        whole = pa.RecordBatch.from_arrays([*encoded.batch.columns, *own.values()], [*encoded.batch.schema.names, *own])
        whole = within(whole, "_arrived", as_ranges(arrived))
        if event_time is not None:
            whole = within(whole, definition.event_time or "", as_ranges(event_time))
        return whole.select([*names, *own])


def read_range(brokers: Brokers, topic: KafkaTopic, number: int, start: int, stop: int) -> Iterator[Found]:
    """The messages from `start` up to `stop`, some thousands at a time. Offsets without a message are passed over."""
    with brokers.reader(topic.name, number, start) as reader:
        reached = start
        patience = brokers.connection.answer_seconds
        deadline = time.monotonic() + patience
        while reached < stop:
            messages = take(reader.consumer, min(MESSAGES_AT_ONCE, stop - reached), 0.5)
            if told := [message for message in messages if message.error() is not None]:
                messages = [message for message in messages if message.error() is None]
                reached = max(reached, *(_told(brokers, topic, number, reached, message) for message in told))
            if messages:
                reached = max(reached, offset_of(messages[-1]) + 1)
            reader.passed(reached)
            if (found := _found(messages, stop)) is not None:
                yield found
            if messages or told:
                deadline = time.monotonic() + patience
            elif time.monotonic() > deadline:
                raise brokers.unavailable(f"{topic.name}/{number} gives no records from offset {reached} on")


def _told(brokers: Brokers, topic: KafkaTopic, number: int, reached: int, message: Message) -> int:
    """How far a message without a record takes a reader: to the end of the partition, or nowhere."""
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return offset_of(message)
    _refuse(brokers, topic, number, reached, error)
    return reached


def _refuse(brokers: Brokers, topic: KafkaTopic, number: int, offset: int, error: KafkaError) -> None:
    """What an error of a reader means. One that passes by itself is passed over."""
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        start, end = brokers.starts(topic.name, [number])[number], brokers.ends(topic.name, [number])[number]
        raise OffsetOutOfRange(f"{topic.name}/{number}", offset, start, end)
    if not error.retriable() and error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        raise brokers.told(KafkaException(error), f"to give records of {topic.name}/{number}")


def _found(messages: Sequence[Message], stop: int) -> Found | None:
    """What these messages hold, as far as they are records before `stop`; None if none is.

    One column after the other: with millions of messages, this is what reading costs.
    """
    values = [message.value() for message in messages]
    if not all(values) or (messages and offset_of(messages[-1]) >= stop):
        messages = [each for each in messages if each.value() is not None and offset_of(each) < stop]
        values = [message.value() for message in messages]
    if not messages:
        return None
    offsets = np.array([message.offset() for message in messages], np.int64)
    arrived = np.array([message.timestamp()[1] for message in messages], np.int64) * 1000
    first_stamp, version = int(arrived[0]) // 1000, 0
    headers = [message.headers() for message in messages]
    for place, found in enumerate(headers) if any(headers) else ():
        for name, value in dict(found or ()).items():
            if name == ARRIVED_HEADER and (stamp := _whole(value)) is not None and stamp in ARRIVALS_US:
                arrived[place] = stamp
            elif name == SCHEMA_HEADER:
                version = max(version, _whole(value) or 0)
    return Found([value or b"" for value in values], offsets, arrived, first_stamp, version)


def _whole(value: object) -> int | None:
    """The number in a header; None where others wrote something else there, which then counts for nothing."""
    text = value if isinstance(value, bytes) else str(value).encode()
    return int(text) if re.fullmatch(rb"-?\d{1,18}", text) else None
