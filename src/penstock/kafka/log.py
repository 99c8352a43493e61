"""The log in Apache Kafka."""

from __future__ import annotations

import re
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import TopicDefinitionError
from penstock.kafka.brokers import Brokers
from penstock.kafka.connection import Connection
from penstock.kafka.definitions import Definitions
from penstock.kafka.groups import KafkaGroups
from penstock.kafka.sequences import SequenceBook
from penstock.kafka.signals import Signals
from penstock.kafka.topic import KafkaTopic
from penstock.kafka.values import check_values
from penstock.kafka.writing import Writer
from penstock.log.definition import TopicDefinition
from penstock.log.log import Log

SEGMENT_BYTES_MIN = 1 << 20
"""Kafka refuses smaller ones."""


class KafkaLog(Log):
    """The log in Kafka: brokers keep and replicate it, and drop and compact by themselves.

    Acknowledged means that all replicas in sync have a record. A topic that is there already, made by others, becomes
    a topic of the log by `create`: its broker must stamp records when they are appended.
    """

    def __init__(self, url: str | Path, **options: Any) -> None:
        """Opens `kafka://HOST:PORT[,HOST:PORT...]`; see `Log` for the options."""
        super().__init__(url, **options)
        self.connection = Connection.parse(str(url), self.conf)
        self.brokers = Brokers(self.connection)
        self.writer = Writer(self.brokers)
        self.sequences = SequenceBook(self.brokers)
        self.definitions = Definitions(self.brokers, self.writer)
        self.signals = Signals(self.brokers, self.definitions)
        self._topics: dict[str, KafkaTopic] = {}
        self._lock = threading.RLock()

    @property
    def url(self) -> str:
        return self.connection.url

    @property
    def spill_directory(self) -> Path:
        """A folder for each cluster: topics of the same name in two of them are two topics."""
        return Path("data/spill") / re.sub(r"[^A-Za-z0-9_-]", "-", self.brokers.cluster_id)

    @property
    def groups(self) -> KafkaGroups:
        return KafkaGroups(self)

    def topics_signals(self) -> list[Path]:
        return [self.signals.of_topics()]

    def is_there(self) -> bool:
        return bool(self.definitions.all())

    # --- topics ---

    def _make(self, definition: TopicDefinition) -> bool:
        check_values(definition)
        there = self.brokers.topics().get(definition.name)
        if there is not None and definition.name not in self.definitions.all():
            if self.brokers.id_of(definition.name) == self.definitions.deleted(definition.name):
                self.brokers.delete_topic(definition.name)  # Who deleted it did not get that far.
            else:
                self._check_adopted(definition, there)
        if not self.definitions.add(definition):
            return False
        self.set_up(definition)
        return True

    def adopt(self, definition: TopicDefinition) -> None:
        """Makes a topic that was defined elsewhere. It keeps its id, unless one of that id was here and is deleted."""
        is_new = not self.definitions.has_known(definition.id)
        self._make(definition if is_new else replace(definition, id=uuid.uuid4().hex))

    def _find(self, name: str) -> KafkaTopic | None:
        definition = self.definitions.all().get(name)
        with self._lock:
            known = self._topics.get(name)
            if definition is None:
                return None
            if known is None or known.definition.id != definition.id:
                self._ensure(definition)
                known = self._topics[name] = KafkaTopic(self, definition)
            else:
                known.refresh()
            return known

    def _names(self) -> list[str]:
        return list(self.definitions.all())

    def delete(self, name: str) -> None:
        topic = self.topic(name)
        kafka_id = self.brokers.id_of(name)
        self.definitions.remove(topic.definition, kafka_id)
        if self.brokers.id_of(name) == kafka_id:  # Else somebody has made it anew already.
            self.brokers.delete_topic(name)
        with self._lock:
            self._topics.pop(name, None)

    def set_up(self, definition: TopicDefinition) -> None:
        """Brings the topic of Kafka in line with its definition; makes it if it is not there."""
        if not self._ensure(definition):
            self.brokers.set_up(definition.name, self._settings(definition))

    def _ensure(self, definition: TopicDefinition) -> bool:
        """Makes the topic of Kafka, if its maker did not get that far. False if it is there."""
        deadline = time.monotonic() + self.connection.answer_seconds
        while True:
            if self.brokers.make_topic(definition.name, definition.partitions, self._settings(definition)):
                return True
            if self.brokers.topics().get(definition.name) == definition.partitions or time.monotonic() > deadline:
                return False
            time.sleep(0.05)  # One of the same name is still being deleted.

    def _check_adopted(self, definition: TopicDefinition, partitions: int) -> None:
        """A topic made by others: it has its own number of partitions, and must be stamped as ours are."""
        if partitions != definition.partitions:
            raise TopicDefinitionError(
                definition.name, "partitions", f"{partitions}, as the topic in Kafka has", repr(definition.partitions)
            )
        kind = self.brokers.settings_of(definition.name).get("message.timestamp.type")
        if kind != "LogAppendTime":
            raise TopicDefinitionError(
                definition.name, "its topic in Kafka", "message.timestamp.type=LogAppendTime", f"{kind}",
                "\n  records are late, and cut into steps, by the time of arrival; to change it: kafka-configs.sh "
                f"--alter --topic {definition.name} --add-config message.timestamp.type=LogAppendTime",
            )  # fmt: skip

    def _settings(self, definition: TopicDefinition) -> dict[str, str]:
        return {**_settings(definition), "max.message.bytes": str(self.connection.record_bytes_max)}

    def close(self) -> None:
        self.signals.close()
        self.definitions.close()
        self.sequences.close()
        self.writer.close()
        self.brokers.close()


def _settings(definition: TopicDefinition) -> dict[str, str]:
    """What Kafka is told of a topic."""
    age = definition.retention_age
    keeps = ["compact"] if definition.compact else []
    keeps += ["delete"] if age is not None or definition.retention_bytes is not None or not keeps else []
    return {
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": ",".join(keeps),
        "retention.ms": "-1" if age is None else str(int(age.total_seconds() * 1000)),
        "retention.bytes": str(definition.retention_bytes or -1),
        "segment.bytes": str(max(definition.segment_bytes, SEGMENT_BYTES_MIN)),
    }
