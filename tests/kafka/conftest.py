"""Logs in the brokers of this run."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.services.kafka import KafkaCluster

if TYPE_CHECKING:
    from penstock.kafka.log import KafkaLog

_counter = itertools.count()


@pytest.fixture
def open_log(kafka: KafkaCluster) -> Iterator[Callable[..., KafkaLog]]:
    """Opens the log of the single broker. Each call returns a handle of its own, as another process would have."""
    yield from opening(kafka)


@pytest.fixture
def open_log3(kafka3: KafkaCluster) -> Iterator[Callable[..., KafkaLog]]:
    """Opens the log of the three brokers."""
    yield from opening(kafka3)


@pytest.fixture
def open_other(other_kafka: KafkaCluster) -> Iterator[Callable[..., KafkaLog]]:
    """Opens the log of the other cluster, whose brokers create topics on demand."""
    yield from opening(other_kafka)


@pytest.fixture
def name() -> str:
    """A topic name of this test's own: brokers are shared."""
    return f"t{next(_counter)}-{secrets.token_hex(3)}"


def opening(cluster: KafkaCluster) -> Iterator[Callable[..., KafkaLog]]:
    from penstock.kafka.log import KafkaLog  # Imports Spark; quick tests load this file too.

    opened: list[KafkaLog] = []

    def open_one(**conf: str) -> KafkaLog:
        opened.append(KafkaLog(f"kafka://{cluster.bootstrap}", conf={key.replace("_", "."): conf[key] for key in conf}))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
