"""Appending to Kafka: each record once, and with what its producer remembers in one transaction."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException

from penstock.errors import RecordTooLarge
from penstock.kafka.brokers import Brokers
from penstock.kafka.connection import is_passing
from penstock.kafka.values import Written, sizes_over
from penstock.log.partition import Sequences

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

logger = logging.getLogger("penstock.kafka")

ABORT_SECONDS = 5.0
TO_ALLOW = "raise message.max.bytes in\n  [log.conf], max.message.bytes of the topic in Kafka, and log.record_bytes_max"
"""What makes brokers and clients take larger records."""
TRANSACTIONAL_MAX = 16
"""So many clients with a transactional id are kept open: each has threads of its own."""

FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""Who may not do something may not do it a second later either."""


class Writer:
    """Brings records to the brokers. Any thread may use it."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._transactional: OrderedDict[str, Transactional] = OrderedDict()

    def store(self, topic: str, partition: int, records: Sequence[Written]) -> Sequences:
        """Appends records in order, and returns their offsets when all replicas that count have them."""
        producer = self._open()
        try:
            return Batch(producer).send(topic, partition, records).wait(self._brokers)
        except KafkaException as error:
            if error.args[0].fatal():
                self._drop(producer)
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                largest = max(sizes_over(records, 0).values(), default=0)
                limit = self._brokers.settings_of(topic).get("max.message.bytes", "0")
                raise RecordTooLarge(f"{topic}/{partition}", largest, int(limit), to_allow=TO_ALLOW) from error
            raise self._brokers.told(error, f"records for {topic}/{partition}") from error

    @contextmanager
    def transactional(self, name: str) -> Iterator[Transactional]:
        """The client of this transactional id; whoever had it before, in any process, can store nothing more.

        One thread at a time. After an exception it is made anew the next time.
        """
        with self._lock:
            found = self._transactional.pop(name, None) or Transactional(self._brokers, name)
            self._transactional[name] = found
            self._close_spare()
        with found.turn:
            try:
                yield found
            except BaseException:
                found.close()
                raise

    def close(self) -> None:
        """Brings away what is under way, and lets go of everything."""
        with self._lock:
            producer, self._producer = self._producer, None
            transactional = list(self._transactional.values())
            self._transactional.clear()
        if producer is not None:
            producer.flush(self._brokers.connection.answer_seconds)
        for each in transactional:
            each.close()

    def _open(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = self._brokers.connection.producer()
            return self._producer

    def _drop(self, producer: Producer) -> None:
        """A client that has met a fatal error stores nothing more: the next record gets another one."""
        with self._lock:
            if self._producer is producer:
                self._producer = None

    def _close_spare(self) -> None:
        """Closes the client that was not used for the longest time, if there are too many."""
        if len(self._transactional) > TRANSACTIONAL_MAX:
            for name, each in list(self._transactional.items())[:-1]:
                if each.turn.acquire(blocking=False):
                    try:
                        each.close()
                        del self._transactional[name]
                    finally:
                        each.turn.release()
                    return


class Batch:
    """Records under way, and what became of them."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._offsets: list[int] = []
        self._expected = 0
        self._error: KafkaError | None = None

    def send(self, topic: str, partition: int, records: Sequence[Written]) -> Batch:
        """Hands records over."""
        for key, value, headers in records:
            while True:
                try:
                    self._producer.produce(
                        topic, value, key, partition, on_delivery=self._on_delivery, headers=[*(headers or ())]
                    )
                    break
                except BufferError:  # Full: waits until some are delivered.
                    self._producer.poll(0.05)
            self._expected += 1
        return self

    def wait(self, brokers: Brokers) -> Sequences:
        """The offsets, when all are stored. Raises if one is not, and it is not certain that it never will be."""
        deadline = time.monotonic() + brokers.connection.delivery_seconds + brokers.connection.answer_seconds
        while len(self._offsets) < self._expected:
            self._producer.poll(0.05)
            if time.monotonic() > deadline:
                raise brokers.unavailable("records were handed over, and nobody said what became of them")
        if self._error is not None:
            raise KafkaException(self._error)
        # Threads that share a client take its reports from one another; Kafka stores what is sent in its order.
        return np.sort(np.array(self._offsets, np.int64))

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self._error = self._error or error
        self._offsets.append(message.offset() or 0)


class Transactional:
    """A client with a transactional id: what it stores is read together, or not at all."""

    def __init__(self, brokers: Brokers, name: str) -> None:
        self._brokers = brokers
        self._name = name
        self._producer: Producer | None = None
        self.turn = threading.RLock()

    def begin(self) -> bool:
        """Makes sure that nobody else has the id. True if somebody may have had it since the last transaction."""
        if self._producer is not None:
            return False
        connection = self._brokers.connection
        milliseconds = int(connection.transaction_seconds * 1000)
        self._producer = connection.producer(
            **{"transactional.id": self._name, "transaction.timeout.ms": milliseconds,
               "delivery.timeout.ms": min(milliseconds, int(connection.delivery_seconds * 1000))}
        )  # fmt: skip
        self._call(lambda: self._open.init_transactions(connection.answer_seconds))
        return True

    def store(self, stores: Sequence[tuple[str, int, Sequence[Written]]]) -> list[Sequences]:
        """Appends to several partitions, all or nothing. Returns the offsets of each."""
        producer = self._open
        self._call(producer.begin_transaction)
        try:
            batches = [Batch(producer).send(*each) for each in stores]
            offsets = [each.wait(self._brokers) for each in batches]
            self._call(lambda: producer.commit_transaction(self._brokers.connection.answer_seconds))
        except BaseException:
            self._abort()
            raise
        return offsets

    def _abort(self) -> None:
        """Else the transaction would hold up readers until the brokers give it up. They do, if this cannot be said."""
        try:
            self._open.abort_transaction(ABORT_SECONDS)
        except KafkaException as error:
            logger.debug("log: the transaction of %s is left to the brokers: %s", self._name, error)

    def close(self) -> None:
        """Lets go of the id; what was begun and not committed is never read."""
        self._producer = None

    @property
    def _open(self) -> Producer:
        assert self._producer is not None, "begin() was not called"
        return self._producer

    def _call(self, call: Callable[[], Any]) -> None:
        """Calls again while Kafka says that this helps."""
        deadline = time.monotonic() + self._brokers.connection.delivery_seconds
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


def is_worth_repeating(error: KafkaException) -> bool:
    """Whether it may succeed yet: another client took the id over, the transaction was given up, a broker left."""
    cause = error.args[0]
    if cause.code() in FORBIDDEN:
        return False
    return (
        is_passing(error)
        or bool(cause.fatal() or cause.txn_requires_abort())
        or cause.code()
        in (
            KafkaError._FENCED,
            KafkaError._FATAL,
            KafkaError._PURGE_QUEUE,
            KafkaError._PURGE_INFLIGHT,
            KafkaError.INVALID_PRODUCER_EPOCH,
            KafkaError.PRODUCER_FENCED,
            KafkaError.INVALID_TXN_STATE,
            KafkaError.CONCURRENT_TRANSACTIONS,
        )
    )
