"""Logs in the brokers of this session."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator

import pytest

from penstock.kafka.log import KafkaLog
from tests.services.kafka import KafkaCluster

_counter = itertools.count()


@pytest.fixture
def open_log(kafka: KafkaCluster) -> Iterator[Callable[..., KafkaLog]]:
    """Opens the log of the single broker, as often as one likes: each is another handle, as another process has it."""
    yield from opening(kafka)


@pytest.fixture
def open_log3(kafka3: KafkaCluster) -> Iterator[Callable[..., KafkaLog]]:
    """Opens the log of the three brokers."""
    yield from opening(kafka3)


@pytest.fixture
def open_other(other_kafka: KafkaCluster) -> Iterator[Callable[..., KafkaLog]]:
    """Opens the log of the other cluster, whose brokers make what is written to."""
    yield from opening(other_kafka)


@pytest.fixture
def name() -> str:
    """A topic that no other test has: brokers are shared."""
    return f"t{next(_counter)}-{secrets.token_hex(3)}"


def opening(cluster: KafkaCluster) -> Iterator[Callable[..., KafkaLog]]:
    opened: list[KafkaLog] = []

    def open_one(**conf: str) -> KafkaLog:
        opened.append(KafkaLog(f"kafka://{cluster.bootstrap}", conf={key.replace("_", "."): conf[key] for key in conf}))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
