"""How brokers are reached: addresses, passwords, certificates, and what their errors mean to people."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.errors import LogUrlError
from penstock.loopback import is_loopback, warn_of_plain

client_logger = logging.getLogger("penstock.kafka.client")
"""What librdkafka says. It speaks of everything that it mends by itself, and of what we raise as errors anyway: so it
is silent, unless somebody gives this logger another level."""
if client_logger.level == logging.NOTSET:
    client_logger.setLevel(logging.CRITICAL + 1)

SCHEME = "kafka://"
RECORD_BYTES_MAX = 8 << 20
"""Larger ones are refused, by us and by the brokers (`message.max.bytes`)."""
AROUND_RECORD_BYTES = 512
"""More than Kafka itself puts around a record; the brokers count it too."""
ANSWER_MS = 30_000
ASKED_AGAIN_MS = 4_000
DELIVERY_MS = 120_000
TRANSACTION_MS = 30_000
_FOR_PRODUCERS = ("message.timeout.ms", "delivery.timeout.ms", "transaction.timeout.ms")

OnError = Callable[[KafkaError], None]


@dataclass(frozen=True)
class Connection:
    """Where the brokers are and how to speak with them. Travels to other processes: it holds nothing open."""

    brokers: str
    """HOST:PORT, several with commas."""
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of librdkafka, such as security.protocol; they may hold a password."""

    @staticmethod
    def parse(url: str, conf: Mapping[str, str] | None = None) -> Connection:
        """Reads `kafka://HOST:PORT[,HOST:PORT...]`. LogUrlError if it is something else."""
        brokers = url.removeprefix(SCHEME).rstrip("/")
        if not url.startswith(SCHEME) or not brokers or any(not each for each in brokers.split(",")):
            raise LogUrlError(url)
        if "@" in brokers:
            raise LogUrlError(url, "a user and a password are not part of it; set log.username and log.password")
        return Connection(brokers, dict(conf or {}))

    @property
    def url(self) -> str:
        return SCHEME + self.brokers

    @property
    def answer_seconds(self) -> float:
        """So long an answer is waited for (`socket.timeout.ms`); librdkafka asks again meanwhile, and finds the new
        leader of a partition."""
        return int(self.conf.get("socket.timeout.ms", ANSWER_MS)) / 1000

    @property
    def delivery_seconds(self) -> float:
        """So long the brokers are asked to take a record (`delivery.timeout.ms`), through restarts and elections."""
        known = self.conf.get("delivery.timeout.ms", self.conf.get("message.timeout.ms", DELIVERY_MS))
        return int(known) / 1000

    @property
    def transaction_seconds(self) -> float:
        """So long at most the transaction of a client that died holds up others (`transaction.timeout.ms`)."""
        return int(self.conf.get("transaction.timeout.ms", TRANSACTION_MS)) / 1000

    @property
    def record_bytes_max(self) -> int:
        """The largest record that clients take (`message.max.bytes`), with all that is around it."""
        return int(self.conf.get("message.max.bytes", RECORD_BYTES_MAX))

    def admin(self, on_error: OnError | None = None) -> AdminClient:
        """A client that asks about topics, offsets and groups."""
        self._warn_if_open()
        settings = self._settings()
        # A request waits for the broker it was meant for, though that one is gone: it is better asked again.
        settings["socket.timeout.ms"] = min(ASKED_AGAIN_MS, int(settings["socket.timeout.ms"]))
        if on_error is not None:
            settings["error_cb"] = on_error
        return AdminClient(settings)

    def consumer(self, **settings: Any) -> Consumer:
        """A client that reads what is committed, from where it is told, and never elsewhere."""
        self._warn_if_open()
        return Consumer(
            {
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 10,
                **self._settings(),
                "group.id": "penstock-reader",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                **settings,
            }
        )

    def producer(self, **settings: Any) -> Producer:
        """A client that stores each record once, in order, and is answered when all replicas have it."""
        self._warn_if_open()
        return Producer(
            {
                "linger.ms": 1,
                "compression.type": "lz4",
                "message.max.bytes": RECORD_BYTES_MAX,
                "queue.buffering.max.messages": 1_000_000,
                **self._settings(),
                "delivery.timeout.ms": int(self.delivery_seconds * 1000),
                "enable.idempotence": True,
                **settings,
            }
        )

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.brokers,
            "client.id": client_id(),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.interval.ms": 30_000,
            "topic.metadata.propagation.max.ms": 2_000,
            "socket.nagle.disable": True,
            "socket.timeout.ms": ANSWER_MS,
            "logger": client_logger,
            **{name: value for name, value in self.conf.items() if name not in _FOR_PRODUCERS},
            "allow.auto.create.topics": False,  # A topic that was deleted would come back by what is written to it.
        }

    def _warn_if_open(self) -> None:
        """Says once that others can read along."""
        protocol = str(self.conf.get("security.protocol", "PLAINTEXT")).upper()
        if not protocol.endswith("PLAINTEXT"):
            return
        for address in self.brokers.split(","):
            host = address.strip().rpartition(":")[0] or address.strip()
            if not is_loopback(host.strip("[]")):
                how = f"without encryption (security.protocol is {protocol})"
                expected = "TLS; set log.username and log.password, log.ca_file, or security.protocol in log.conf"
                warn_of_plain("log", f"Kafka at {address.strip()}", how, expected)


def client_id() -> str:
    """What the clients of this process are called, in the brokers' own messages too."""
    return f"penstock-{os.getpid()}"


def is_passing(error: KafkaException) -> bool:
    """Whether it is about reaching brokers, which may be better in a minute."""
    cause = error.args[0]
    return bool(cause.retriable()) or cause.code() in (
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._WAIT_COORD,
        KafkaError.REBALANCE_IN_PROGRESS,
    )
