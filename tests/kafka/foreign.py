"""Programs that are not ours and work with the same brokers."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.services.kafka import KafkaCluster

WITHIN_SECONDS = 60


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
    assert producer.flush(WITHIN_SECONDS) == 0


def write_and_abort(cluster: KafkaCluster, topic: str, count: int) -> None:
    """Leaves a gap: a transaction that was given up."""
    producer = begun(cluster, topic, count)
    producer.abort_transaction(WITHIN_SECONDS)


def begun(cluster: KafkaCluster, topic: str, count: int, **conf: Any) -> Producer:
    """A transaction that is stored and not decided."""
    producer = Producer({**cluster.client(), "transactional.id": secrets.token_hex(6), **conf})
    producer.init_transactions(WITHIN_SECONDS)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b'{"n": -1}', b"k", 0)
    assert producer.flush(WITHIN_SECONDS) == 0
    return producer


def committed(cluster: KafkaCluster, topic: str) -> list[Any]:
    """Everything that a reader of what is committed finds in a topic of JSON, partition by partition in order."""
    consumer = Consumer(
        {**cluster.client(), "group.id": "auditor", "isolation.level": "read_committed", "enable.auto.commit": False,
         "enable.partition.eof": True}
    )  # fmt: skip
    partitions = consumer.list_topics(topic, timeout=WITHIN_SECONDS).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: list[Any] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + WITHIN_SECONDS
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"of {topic}, only partitions {ended} came to an end"
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                found.append(json.loads(message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found


def make_topic(cluster: KafkaCluster, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient(cluster.client())
    wanted = NewTopic(topic, partitions, config={name.replace("_", "."): value for name, value in config.items()})
    admin.create_topics([wanted])[topic].result(WITHIN_SECONDS)


def wait_until(is_true: Callable[[], bool], seconds: float = 30) -> None:
    """Waits for what the brokers do a moment later, such as deciding a transaction."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"not true after {seconds:g} seconds"
        time.sleep(0.05)
