"""Brokers that can be reached and refuse: everybody is told who refuses what, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from penstock.errors import KafkaRefused
from penstock.kafka.log import KafkaLog
from penstock.log.producers import named_producer
from penstock.views.outbox import Relay, enqueue, prepare, remembered_ids, waiting
from penstock.views.store import open_store
from tests.eventually import LIMIT_SECONDS
from tests.log.rows import SCHEMA, rows
from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services
OpenLog = Callable[..., KafkaLog]


@pytest.fixture
def user(other_kafka: KafkaCluster) -> Iterator[KafkaLog]:
    """The log as somebody has it who may do what nobody denied."""
    conf = {key: str(value) for key, value in other_kafka.secured_client().items() if key != "bootstrap.servers"}
    with KafkaLog(f"kafka://{other_kafka.secured_bootstrap}", conf=conf) as log:
        yield log


@contextmanager
def denied(cluster: KafkaCluster, kind: ResourceType, name: str, operation: AclOperation) -> Iterator[None]:
    """The user may not do this for a while."""
    admin = AdminClient(cluster.client())
    about = (kind, name, ResourcePatternType.LITERAL, f"User:{cluster.username}", "*", operation)
    for made in admin.create_acls([AclBinding(*about, AclPermissionType.DENY)]).values():
        made.result(LIMIT_SECONDS)
    try:
        yield
    finally:
        for gone in admin.delete_acls([AclBindingFilter(*about, AclPermissionType.DENY)]).values():
            gone.result(LIMIT_SECONDS)


def test_a_session_that_the_brokers_do_not_take_is_told_to_who_waits_for_records(open_log: OpenLog, name: str) -> None:
    open_log().create(name, SCHEMA).append(rows([1]))
    with open_log().consumer(name, group=name, session_timeout="1 hour") as consumer:
        for _ in range(2):
            with pytest.raises(KafkaRefused, match=r"(?s)refuses a member of group .*[Ss]ession timeout.*group\.max"):
                consumer.poll(LIMIT_SECONDS)


def test_a_group_that_is_not_allowed_is_told_and_works_once_it_is(
    other_kafka: KafkaCluster, user: KafkaLog, name: str
) -> None:
    user.create(name, SCHEMA).append(rows([1]))
    with (
        denied(other_kafka, ResourceType.GROUP, name, AclOperation.READ),
        user.consumer(name, group=name) as consumer,
        pytest.raises(KafkaRefused, match=r"(?s)authorization failed.*kafka-acls"),
    ):
        consumer.poll(LIMIT_SECONDS)
    with user.consumer(name, group=name) as again:
        assert [len(each) for each in again.poll(LIMIT_SECONDS)] == [1]


def test_a_topic_that_must_not_be_written_to_does_not_hold_up_the_others(
    other_kafka: KafkaCluster, user: KafkaLog, name: str, tmp_path: Path
) -> None:
    shut, free = (user.create(f"{name}.{each}", "n bigint") for each in ("a", "b"))
    with (
        open_store(f"sqlite:{tmp_path / 'views.db'}") as store,
        denied(other_kafka, ResourceType.TOPIC, shut.name, AclOperation.WRITE),
    ):
        with store.transaction(None) as transaction:
            prepare(transaction.connection, "shop", remembered_ids("shop", [shut, free]))
            for topic in (shut, free):
                enqueue(transaction.connection, "shop", topic.name, pa.table({"n": pa.array([1, 2], pa.int64())}))
        with pytest.raises(KafkaRefused, match=f"refuses records for {shut.name}/0: .*[Tt]opic authorization failed"):
            Relay(store, user, "shop").deliver()
        with store.snapshot() as snapshot:
            assert waiting(snapshot.connection) == {shut.name: 2}
        with pytest.raises(KafkaRefused):
            shut.append(pa.table({"n": [1]}))
    assert free.slice().column("n").to_pylist() == [1, 2]


def test_a_transactional_id_that_is_not_allowed_is_told(other_kafka: KafkaCluster, user: KafkaLog, name: str) -> None:
    [partition] = user.create(name, SCHEMA).partitions
    producer = named_producer(name)
    with (
        denied(other_kafka, ResourceType.TRANSACTIONAL_ID, f"penstock-{producer.hex()}", AclOperation.WRITE),
        pytest.raises(KafkaRefused, match=r"(?s)[Tt]ransactional Id authorization failed.*kafka-acls"),
    ):
        partition.append(rows([1]), producer=producer, sequences=np.array([1]))
