"""Programs other than Penstock that use the same brokers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.eventually import LIMIT_SECONDS, eventually
from tests.services.kafka import KafkaCluster


def write(
    cluster: KafkaCluster,
    topic: str,
    values: Sequence[bytes | None],
    *,
    key: bytes | None = b"k",
    headers: Mapping[str, bytes | None] | None = None,
    conf: Mapping[str, Any] | None = None,
) -> None:
    """Appends values to the first partition, outside of any transaction."""
    producer = Producer({**cluster.client(), "enable.idempotence": True, **(conf or {})})
    for value in values:
        producer.produce(topic, value, key, 0, headers=dict(headers or {}))
    assert producer.flush(LIMIT_SECONDS) == 0


def write_and_abort(cluster: KafkaCluster, topic: str, count: int) -> None:
    """Leaves a gap: the records of an aborted transaction."""
    producer = begun(cluster, topic, count)
    producer.abort_transaction(LIMIT_SECONDS)


def begun(cluster: KafkaCluster, topic: str, count: int, **conf: Any) -> Producer:
    """A transaction whose records are stored, and which is neither committed nor aborted."""
    producer = Producer({**cluster.client(), "transactional.id": secrets.token_hex(6), **conf})
    producer.init_transactions(LIMIT_SECONDS)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b'{"n": -1}', b"k", 0)
    assert producer.flush(LIMIT_SECONDS) == 0
    return producer


def committed(cluster: KafkaCluster, topic: str) -> list[Any]:
    """All committed records of a topic of JSON, those of each partition in order."""
    consumer = Consumer(
        {**cluster.client(), "group.id": "auditor", "isolation.level": "read_committed", "enable.auto.commit": False,
         "enable.partition.eof": True}
    )  # fmt: skip
    partitions = consumer.list_topics(topic, timeout=LIMIT_SECONDS).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: list[Any] = []
    ended: set[int | None] = set()

    def is_read() -> bool:
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                found.append(json.loads(message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return len(ended) == len(partitions)

    eventually(is_read, explain=lambda: f"of {topic}, only partitions {ended} were read to their end")
    consumer.close()
    return found


def make_topic(cluster: KafkaCluster, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient(cluster.client())
    wanted = NewTopic(topic, partitions, config={name.replace("_", "."): value for name, value in config.items()})
    admin.create_topics([wanted])[topic].result(LIMIT_SECONDS)
