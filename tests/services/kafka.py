"""Real Kafka brokers for the tests of this process: KRaft in combined mode, on loopback, in a temporary folder.

The jars come from Maven Central, once: `make service-tools` puts them into the virtual environment.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives import serialization

from penstock.java import require_java
from tests.eventually import LIMIT_SECONDS, eventually
from tests.services.process import Service, port_of, reserve_port

POM = Path(__file__).with_name("kafka.pom.xml")
VERSION = re.findall("<version>(4[^<]+)</version>", POM.read_text())[0]
JARS = Path(sys.prefix) / f"kafka-{VERSION}"
"""Where `make service-tools` puts the jars."""

# A small broker, which prints nothing unless something is wrong.
JAVA_OPTIONS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true")
LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %c: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""
MECHANISM = "SCRAM-SHA-256"
CLUSTER_ID = "penstock-for-its-tests"
OTHER_ID = "another-for-its-tests1"
OTHER_SETTINGS = {
    # Kafka's default.
    "auto.create.topics.enable": "true",
    # Clients of the plain listener may do everything, others what no rule denies them.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}


class KafkaCluster:
    """Kafka brokers, numbered from 1, that can be killed and started again with what they had stored.

    With `secured` each has a second listener, which speaks only TLS and wants `username` and `password`.
    A topic is kept by all brokers (three: two must have a record before it is acknowledged) unless it says otherwise.
    """

    username = "penstock"

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        secured: bool = False,
        jars: Path = JARS,
        cluster_id: str = CLUSTER_ID,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        assert brokers in (1, 3), f"a cluster has one broker or three, not {brokers}"
        self._cluster_id = cluster_id
        self._more_settings = dict(settings or {})
        self.brokers = range(1, brokers + 1)
        self.password = secrets.token_hex(12)
        self.ca_file = folder / "ca.pem"
        self._folder = folder
        self._jars = jars
        self._is_secured = secured
        self._running: dict[int, Service] = {}
        # Brokers advertise their ports and keep them over a restart, so they are reserved as long as the cluster lives.
        self._reserved = {
            name: {each: reserve_port() for each in self.brokers} for name in ("PLAIN", "CONTROLLER", "SECURED")
        }

    @property
    def bootstrap(self) -> str:
        """The addresses of the plain listeners."""
        return self._addresses("PLAIN")

    @property
    def secured_bootstrap(self) -> str:
        """The addresses of the listeners with TLS and a password."""
        assert self._is_secured, "KafkaCluster(..., secured=True) has such listeners"
        return self._addresses("SECURED")

    def client(self) -> dict[str, Any]:
        """What a client of confluent-kafka is configured with."""
        return {"bootstrap.servers": self.bootstrap}

    def secured_client(self) -> dict[str, Any]:
        """What a client of the secured listeners is configured with."""
        return {
            "bootstrap.servers": self.secured_bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca_file),
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.username,
            "sasl.password": self.password,
        }

    def start(self) -> None:
        """Formats storage that is not formatted yet, starts all brokers and waits until each of them answers."""
        self._write_files()
        self._format()
        for broker in self.brokers:
            self._launch(broker)
        for broker in self.brokers:
            self._wait_for(broker)

    def stop(self) -> None:
        """Kills all brokers. What they stored stays in the folder."""
        for broker in [*self._running]:
            self.kill(broker)

    def kill(self, broker: int) -> None:
        """SIGKILL, so that the broker hands nothing over."""
        self._running.pop(broker).kill()

    def restart(self, broker: int) -> None:
        """Starts a broker that was killed, and waits until it and its neighbours know each other."""
        self._launch(broker)
        self._wait_for(broker)

    def _addresses(self, listener: str) -> str:
        return ",".join(self._address(listener, broker) for broker in self.brokers)

    def _address(self, listener: str, broker: int) -> str:
        return f"127.0.0.1:{port_of(self._reserved[listener][broker])}"

    def _launch(self, broker: int) -> None:
        command = self._java("kafka.Kafka", str(self._properties(broker)))
        self._running[broker] = Service(f"Kafka broker {broker}", command, self._folder / f"broker-{broker}.log", {})

    def _wait_for(self, broker: int) -> None:
        """Waits until the broker knows all running brokers and their controller."""
        service = self._running[broker]
        address = self._address("PLAIN", broker)
        admin = AdminClient({"bootstrap.servers": address, "reconnect.backoff.max.ms": 200, "log_level": 0})
        eventually(lambda: self._is_joined(service, admin), explain=service.said)

    def _is_joined(self, service: Service, admin: AdminClient) -> bool:
        assert service.is_running, service.said()
        try:
            known = admin.list_topics(timeout=5)
        except KafkaException:
            return False
        return set(known.brokers) == set(self._running) and known.controller_id in known.brokers

    def _format(self) -> None:
        """Gives each broker its storage, unless it has one."""
        arguments = ["format", "--cluster-id", self._cluster_id]
        if self._is_secured:
            arguments += ["--add-scram", f"{MECHANISM}=[name={self.username},password={self.password}]"]
        started = [
            subprocess.Popen(
                self._java("kafka.tools.StorageTool", *arguments, "--config", str(self._properties(broker))),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for broker in self.brokers
            if not (self._folder / f"broker-{broker}" / "meta.properties").exists()
        ]
        for process in started:
            said, _ = process.communicate(timeout=LIMIT_SECONDS)
            assert process.returncode == 0, said

    def _java(self, main: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        return [str(require_java()), *JAVA_OPTIONS, logging, "-cp", f"{self._jars}/*", main, *arguments]

    def _properties(self, broker: int) -> Path:
        return self._folder / f"broker-{broker}.properties"

    def _write_files(self) -> None:
        (self._folder / "log4j2.properties").write_text(LOGGING)
        if self._is_secured:
            self._write_certificates()
        for broker in self.brokers:
            lines = [f"{name}={value}\n" for name, value in self._settings(broker).items()]
            self._properties(broker).write_text("".join(lines))

    def _settings(self, broker: int) -> dict[str, str]:
        count = len(self.brokers)
        return {
            "process.roles": "broker,controller",
            "node.id": str(broker),
            "log.dirs": str(self._folder / f"broker-{broker}"),
            "controller.quorum.voters": ",".join(
                f"{each}@{self._address('CONTROLLER', each)}" for each in self.brokers
            ),
            **self._listeners(broker),
            **(self._security() if self._is_secured else {}),
            "default.replication.factor": str(count),
            "offsets.topic.replication.factor": str(count),
            "transaction.state.log.replication.factor": str(count),
            "share.coordinator.state.topic.replication.factor": str(count),
            "min.insync.replicas": str(min(count, 2)),
            "transaction.state.log.min.isr": str(min(count, 2)),
            "share.coordinator.state.topic.min.isr": str(min(count, 2)),
            # To use a topic that was not created is a mistake of the test.
            "auto.create.topics.enable": "false",
            # Fewer partitions of the brokers' own topics, and less waiting for members and brokers that are gone.
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": "6000",
            "broker.heartbeat.interval.ms": "1000",
            **self._more_settings,
        }

    def _listeners(self, broker: int) -> dict[str, str]:
        protocols = {"PLAIN": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | (
            {"SECURED": "SASL_SSL"} if self._is_secured else {}
        )
        addresses = {name: f"{name}://{self._address(name, broker)}" for name in protocols}
        return {
            "listeners": ",".join(addresses.values()),
            "advertised.listeners": ",".join(address for name, address in addresses.items() if name != "CONTROLLER"),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
        }

    def _security(self) -> dict[str, str]:
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            "listener.name.secured.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.secured.{MECHANISM.lower()}.sasl.jaas.config": login,
            "listener.name.secured.ssl.keystore.type": "PEM",
            "listener.name.secured.ssl.keystore.location": str(self._folder / "broker.pem"),
        }

    def _write_certificates(self) -> None:
        """An authority of this cluster's own, and one certificate of it for all brokers."""
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        authority.cert_pem.write_to_path(self.ca_file)
        # Kafka reads only this form of a key.
        key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = b"".join(each.bytes() for each in certificate.cert_chain_pems)
        (self._folder / "broker.pem").write_bytes(key + chain)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One broker, with a secured listener too. The test is skipped without its jars; it carries the mark `services`."""
    yield from running(brokers=1, secured=True)


@pytest.fixture(scope="session")
def kafka3() -> Iterator[KafkaCluster]:
    """Three brokers. The test is skipped without their jars; it carries the mark `services`."""
    yield from running(brokers=3)


@pytest.fixture(scope="session")
def other_kafka() -> Iterator[KafkaCluster]:
    """Another cluster of one broker. Its secured listener checks permissions, and it creates topics on demand."""
    yield from running(brokers=1, secured=True, cluster_id=OTHER_ID, settings=OTHER_SETTINGS)


def running(*, brokers: int, **options: Any) -> Iterator[KafkaCluster]:
    """A cluster in a temporary folder, up to the end of the iteration."""
    if not JARS.is_dir():
        pytest.skip(f"Kafka {VERSION} is not installed: run `make service-tools`, which needs mvn (apt install maven)")
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as folder:
        cluster = KafkaCluster(Path(folder), brokers=brokers, **options)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
