"""The brokers that other tests rely on: they keep records, survive kills and let in only the clients they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.conftest import ROOT
from tests.eventually import LIMIT_SECONDS, eventually
from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services


def create(cluster: KafkaCluster, topic: str) -> None:
    admin = AdminClient(cluster.client())
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(LIMIT_SECONDS)


def produce(client: dict[str, Any], topic: str, *values: bytes) -> None:
    failed: list[KafkaError] = []
    producer = Producer({**client, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(LIMIT_SECONDS) == 0
    assert failed == []


def stored(client: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    """The first `count` values of the topic."""
    consumer = Consumer({**client, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []

    def are_all_there() -> bool:
        found.extend(each for each in consumer.consume(count - len(found), timeout=1) if not each.error())
        return len(found) == count

    eventually(are_all_there, explain=lambda: f"found {found}")
    consumer.close()
    return [message.value() for message in found]


def test_a_killed_broker_has_its_records_when_it_is_back(kafka: KafkaCluster) -> None:
    create(kafka, "killed")
    produce(kafka.client(), "killed", b"one", b"two")
    kafka.kill(1)
    kafka.restart(1)
    produce(kafka.client(), "killed", b"three")
    assert stored(kafka.client(), "killed", 3) == [b"one", b"two", b"three"]


def test_secured_listener_serves_a_known_user(kafka: KafkaCluster) -> None:
    create(kafka, "secured")
    produce(kafka.secured_client(), "secured", b"one")
    assert stored(kafka.secured_client(), "secured", 1) == [b"one"]


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"sasl.password": "guessed"}, KafkaError._AUTHENTICATION),
        ({"ssl.ca.location": "probe"}, KafkaError._SSL),
        ({"security.protocol": "PLAINTEXT"}, KafkaError._ALL_BROKERS_DOWN),
    ],
    ids=["wrong password", "unknown authority", "no TLS"],
)
def test_secured_listener_refuses_other_clients(kafka: KafkaCluster, change: dict[str, str], refused: int) -> None:
    errors: list[KafkaError] = []
    changed: dict[str, Any] = {**kafka.secured_client(), **change, "error_cb": errors.append, "log_level": 0}
    admin = AdminClient(changed)

    def is_refused() -> bool:
        admin.poll(0.1)
        return refused in [error.code() for error in errors]

    eventually(is_refused, explain=lambda: f"errors: {errors}")
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_two_of_three_brokers_go_on_and_the_third_catches_up(kafka3: KafkaCluster) -> None:
    create(kafka3, "moved")
    produce(kafka3.client(), "moved", b"one")
    leader = AdminClient(kafka3.client()).list_topics("moved").topics["moved"].partitions[0].leader
    kafka3.kill(leader)
    produce(kafka3.client(), "moved", b"two")
    kafka3.restart(leader)
    other = next(each for each in kafka3.brokers if each != leader)
    kafka3.kill(other)
    assert stored(kafka3.client(), "moved", 2) == [b"one", b"two"]
    kafka3.restart(other)


def test_services_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys; from tests.services.process import Service\n"
        "service = Service('sleep', ['sleep', 'infinity'], pathlib.Path(sys.argv[1]), {})\n"
        "print(service.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "output")]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    assert done.returncode == -9
    status = Path(f"/proc/{int(done.stdout)}/stat")

    def has_ended() -> bool:
        try:
            return status.read_text().rpartition(")")[2].split()[0] == "Z"  # An orphan that nothing reaps.
        except (FileNotFoundError, ProcessLookupError):
            return True

    eventually(has_ended, explain=lambda: "it still runs")
