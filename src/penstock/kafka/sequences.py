"""What named producers have stored: the last sequence of each in each partition, in a compacted topic of Kafka.

It is written in the transaction that stores the records, so the two never disagree.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from penstock.kafka.brokers import Brokers
from penstock.kafka.journal import COMPACTED, Journal
from penstock.kafka.values import Written
from penstock.log.producers import Remembered

if TYPE_CHECKING:
    from confluent_kafka import Message

TOPIC = "_penstock.sequences"
PARTITIONS = 8
"""Who takes a producer over waits for transactions that others have under way in its partition: few share one."""


class SequenceBook:
    """The last sequences of all producers that are remembered."""

    def __init__(self, brokers: Brokers) -> None:
        self._journals = [
            Journal(brokers, TOPIC, COMPACTED, self._take, partition=number, partitions=PARTITIONS)
            for number in range(PARTITIONS)
        ]
        self._lock = threading.Lock()
        self._known: dict[str, Remembered] = {}

    def follow(self, producer: bytes) -> None:
        """Takes in what other processes have stored for this producer."""
        journal = self._journals[_partition(producer)]
        journal.make()
        journal.follow()

    def get(self, producer: bytes, place: str) -> Remembered | None:
        """What is known of a producer, as of the last `follow` and the last `note`."""
        return self._known.get(_key(producer, place))

    def note(self, producer: bytes, place: str, remembered: Remembered) -> None:
        """It was committed just now, by us."""
        self._grow(_key(producer, place), remembered)

    def entry(self, producer: bytes, place: str, remembered: Remembered) -> tuple[str, int, list[Written]]:
        """What has to be stored with the records."""
        return TOPIC, _partition(producer), [(_key(producer, place).encode(), json.dumps(remembered).encode(), None)]

    def close(self) -> None:
        for journal in self._journals:
            journal.close()

    def _take(self, message: Message) -> None:
        self._grow((message.key() or b"").decode(), Remembered(*json.loads(message.value() or b"")))

    def _grow(self, key: str, remembered: Remembered) -> None:
        """What one thread noted, another may read later, together with what was before it: so nothing goes back."""
        with self._lock:
            known = self._known.get(key, remembered)
            self._known[key] = Remembered(*map(max, known, remembered))


def _partition(producer: bytes) -> int:
    return producer[2] % PARTITIONS


def _key(producer: bytes, place: str) -> str:
    return f"{producer.hex()}/{place}"
