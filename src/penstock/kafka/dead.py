"""Records of Kafka that are no events of their topic: each is brought to the dead letters once, whoever meets it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import KafkaException

from penstock.events.encoded import Rejected
from penstock.events.schema import parse_ddl
from penstock.kafka.values import written
from penstock.kafka.writing import is_worth_repeating
from penstock.log.definition import DEAD_SUFFIX
from penstock.produce.dead_letters import SCHEMA, shortened

if TYPE_CHECKING:
    from penstock.kafka.topic import KafkaTopic
    from penstock.log.topic import Topic


LOOK_SECONDS = 0.05


class DeadRecords:
    """Which records of a topic were buried already, and the way to bury others.

    Who was buried is read from the grave itself. A transactional id lets one gravedigger at a time work on a topic: one
    that was overtaken in between stores nothing, looks again, and goes on with what is left.
    """

    def __init__(self, topic: KafkaTopic) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._buried: set[str] = set()
        self._read_to = 0

    def bury(self, partition: int, rejected: Sequence[tuple[int, Rejected]]) -> None:
        """Stores these records of a partition, by their offsets, unless they are there."""
        topic = self._topic
        if topic.definition.is_dead_letters:
            return  # There is no second grave.
        named = {f"{name_in_grave(topic)}/{partition} offset {offset}": each for offset, each in rejected}
        with self._lock:
            if named.keys() <= self._buried:
                return
            grave = topic.log.create(topic.name + DEAD_SUFFIX, SCHEMA, exist_ok=True)
            deadline = time.monotonic() + topic.log.connection.delivery_seconds
            while True:
                try:
                    self._bury(grave, named)
                    return
                except KafkaException as error:
                    if not is_worth_repeating(error) or time.monotonic() > deadline:
                        raise topic.log.brokers.told(error, f"dead letters of {topic.name}") from error

    def _bury(self, grave: Topic, named: dict[str, Rejected]) -> None:
        topic = self._topic
        with topic.log.writer.transactional(f"penstock-dead-{topic.definition.id}") as client:
            client.begin()
            self._look(grave)
            new = {name: each for name, each in named.items() if name not in self._buried}
            if new:
                client.store([(grave.name, 0, written(*grave.fit(shortened(_batch(topic.name, new)))))])
                self._buried.update(new)

    def _look(self, grave: Topic) -> None:
        """Takes in what was buried since the last look."""
        brokers, connection = self._topic.log.brokers, self._topic.log.connection
        wanted = brokers.undecided_end(grave.name, 0)
        deadline = time.monotonic() + connection.answer_seconds + connection.transaction_seconds
        while (end := grave.end()[0]) < wanted:  # Somebody else has a transaction under way in front of ours.
            if time.monotonic() > deadline:
                raise brokers.unavailable(f"{grave.name} cannot be read to its end")
            time.sleep(LOOK_SECONDS)
        if end > self._read_to:
            for batch in grave.partitions[0].read(max(self._read_to, grave.start()[0]), end, columns=["producer"]):
                self._buried.update(name for name in batch.column("producer").to_pylist() if name)
            self._read_to = end


def name_in_grave(topic: Topic) -> str:
    """How dead letters call their topic: no other one of its name is called so, for they outlive it."""
    return f"kafka {topic.name}-{topic.definition.id[:8]}"


def _batch(topic: str, records: dict[str, Rejected]) -> pa.RecordBatch:
    rows = [
        {"topic": topic, "reason": each.reason, "column": each.column, "raw": each.raw, "producer": name}
        for name, each in records.items()
    ]
    return pa.RecordBatch.from_pylist(rows, parse_ddl(SCHEMA))
