"""A small topic of Penstock's own, read from its first record on and kept in mind: every process reads the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.errors import TopicDeleted
from penstock.kafka.brokers import Brokers, take

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.type": "LogAppendTime"}
COMPACTED = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}


def offset_of(message: Message) -> int:
    """Where a message is; every one that was received has an offset."""
    offset = message.offset()
    assert offset is not None
    return offset


class Journal:
    """One partition, followed to its end whenever somebody asks. Any thread may ask.

    `take` is called with each record, in order, once.
    """

    def __init__(
        self,
        brokers: Brokers,
        topic: str,
        settings: dict[str, str],
        take: Callable[[Message], None],
        *,
        partition: int = 0,
        partitions: int = 1,
    ) -> None:
        self.topic = topic
        self._partition = partition
        self._partitions = partitions
        self._brokers = brokers
        self._settings = settings
        self._take = take
        self._lock = threading.RLock()
        self._consumer: Consumer | None = None
        self._reached = 0
        self._is_made = False

    def follow(self) -> None:
        """Reads what is there by now: nothing that was committed before the call is missed.

        Others may have transactions under way in front of it: these are waited for. One whose client died is given up
        by the brokers in time.
        """
        with self._lock:
            end = self._end()
            connection = self._brokers.connection
            deadline = time.monotonic() + connection.answer_seconds + connection.transaction_seconds
            while self._reached < end:
                for message in take(self._reader(), 1000, 0.2):
                    self._read(message)
                if time.monotonic() > deadline:
                    raise self._brokers.unavailable(f"{self.topic} cannot be read to its end")

    def make(self) -> None:
        """Makes the topic, unless it is there."""
        if not self._is_made:
            self._brokers.make_topic(self.topic, self._partitions, self._settings)
            self._is_made = True

    def close(self) -> None:
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def _read(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._take(message)
            self._reached = offset_of(message) + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._reached = max(self._reached, offset_of(message))
        elif not error.retriable():
            raise self._brokers.told(KafkaException(error), f"to give records of {self.topic}")

    def _reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._brokers.connection.consumer()
            self._consumer.assign([TopicPartition(self.topic, self._partition, self._reached)])
        return self._consumer

    def _end(self) -> int:
        try:
            return self._brokers.undecided_end(self.topic, self._partition)
        except TopicDeleted:
            return 0
