"""Opening a log in Kafka: topics of others, interrupted creations, authentication and logging."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.errors import KafkaUnavailable, TopicDefinitionError
from penstock.kafka.connection import Connection, client_logger
from penstock.kafka.log import KafkaLog
from penstock.log.log import open_log as open_by_settings
from penstock.settings import LogSettings
from tests.eventually import LIMIT_SECONDS
from tests.kafka.foreign import make_topic, write
from tests.log.rows import SCHEMA, rows
from tests.services.kafka import MECHANISM, KafkaCluster

pytestmark = pytest.mark.services
OpenLog = Callable[..., KafkaLog]
SASL = {
    "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "secret"
}  # fmt: skip


@pytest.fixture
def settings(kafka: KafkaCluster) -> LogSettings:
    """How users reach the secured listener."""
    return LogSettings(
        url=f"kafka://{kafka.secured_bootstrap}",
        username=kafka.username,
        password=kafka.password,
        ca_file=str(kafka.ca_file),
        conf={"sasl.mechanism": MECHANISM},
    )


@pytest.fixture(autouse=True)
def _warns_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.loopback._warned", set())


# --- topics that are there, and topics that are not ---


def test_a_topic_of_others_is_adopted_with_what_it_holds(kafka: KafkaCluster, open_log: OpenLog, name: str) -> None:
    make_topic(kafka, name, 1, message_timestamp_type="LogAppendTime", retention_ms="1234567")
    write(kafka, name, [b'{"n": 1}'])
    topic = open_log().create(name, SCHEMA)
    topic.append(rows([2]))
    assert open_log().topic(name).slice().column("n").to_pylist() == [1, 2]


def test_a_topic_of_others_with_other_partitions_is_refused(kafka: KafkaCluster, open_log: OpenLog, name: str) -> None:
    make_topic(kafka, name, 3, message_timestamp_type="LogAppendTime")
    with pytest.raises(TopicDefinitionError, match="3, as the topic in Kafka has"):
        open_log().create(name, SCHEMA, partitions=2)
    assert name not in open_log().topics()
    assert len(open_log().create(name, SCHEMA, partitions=3).partitions) == 3


def test_a_topic_stamped_by_its_producers_is_refused_with_what_to_do(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    make_topic(kafka, name, message_timestamp_type="CreateTime")
    with pytest.raises(TopicDefinitionError) as error:
        open_log().create(name, SCHEMA)
    for part in ("LogAppendTime", "CreateTime", "kafka-configs.sh", name):
        assert part in str(error.value)
    assert name not in open_log().topics()


def test_opening_a_topic_completes_an_interrupted_creation(open_log: OpenLog, name: str) -> None:
    log = open_log()
    definition = replace(log.create(f"{name}.model", SCHEMA, partitions=2).definition, name=name, id=f"id-{name}")
    assert log.definitions.add(definition)
    assert name not in log.brokers.topics()
    topic = open_log().topic(name)
    topic.append(rows([1]))
    assert (topic.slice().column("n").to_pylist(), log.brokers.topics()[name]) == ([1], 2)


def test_a_topic_can_be_created_again_after_an_interrupted_deletion(open_log: OpenLog, name: str) -> None:
    log = open_log()
    topic = log.create(name, SCHEMA)
    topic.append(rows([1]))
    log.definitions.remove(topic.definition, log.brokers.id_of(name))
    assert name in log.brokers.topics()
    again = open_log().create(name, SCHEMA)
    again.append(rows([2]))
    assert again.slice().column("n").to_pylist() == [2]


@pytest.mark.parametrize("column", ["m map<int, string>", "a array<struct<m: map<date, int>>>"])
def test_a_map_that_json_cannot_give_back_is_refused_and_avro_keeps_it(
    open_log: OpenLog, name: str, column: str
) -> None:
    log = open_log()
    with pytest.raises(TopicDefinitionError, match="maps with text as their keys"):
        log.create(name, column)
    assert name not in log.topics()
    topic = log.create(name, "n int")
    with pytest.raises(TopicDefinitionError, match='values="avro"'):
        topic.alter(schema=f"n int, {column}")
    assert log.create(f"{name}.avro", column, values="avro").definition.values == "avro"


# --- authentication ---


def test_a_secured_listener_is_reached_with_the_settings(settings: LogSettings, name: str) -> None:
    with open_by_settings(settings) as log:
        log.create(name, SCHEMA).append(rows([1]))
        with log.consumer(name, group=name) as consumer:
            assert sum(len(each) for each in consumer.poll(LIMIT_SECONDS)) == 1


@pytest.mark.parametrize("wrong", ["password", "authority", "listener"])
def test_a_refused_client_gets_the_reason_and_no_password_is_shown(
    kafka: KafkaCluster, settings: LogSettings, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wrong == "password":
        settings = replace(settings, password="guessed-in-vain")
    elif wrong == "authority":
        settings = replace(settings, ca_file="", conf={**settings.conf, "ssl.ca.location": "probe"})
    else:  # Brokers that expect no TLS do not answer, so this one ends at the timeout.
        settings = replace(settings, url=f"kafka://{kafka.bootstrap}", conf={"socket.timeout.ms": "3000"})
    if wrong != "listener":  # A refusal is raised at once: waiting for an answer would outlast the test.
        monkeypatch.setattr(Connection, "answer_seconds", 3600.0)
    reached = Connection.parse(settings.url, settings.kafka)
    with open_by_settings(settings) as log, pytest.raises(KafkaUnavailable) as error:
        log.topics()
    assert {
        "password": "Authentication failed",
        "authority": "certificate",
        "listener": "right listener (plain or TLS)",
    }[wrong] in str(error.value)
    for shown in (str(error.value), repr(error.value), repr(log), repr(settings), repr(reached)):
        assert settings.password not in shown
        assert kafka.password not in shown


# --- who listens ---


@pytest.mark.parametrize(
    ("brokers", "conf", "warned"),
    [
        ("127.0.0.1:1,localhost:1,[::1]:1", {}, []),
        ("127.0.0.1:1,192.0.2.1:9092", {}, ["192.0.2.1:9092"]),
        ("kafka.example:9092", SASL, ["kafka.example:9092"]),
        ("kafka.example:9092", {"security.protocol": "SSL"}, []),
    ],
)
def test_a_plain_connection_that_leaves_the_machine_warns_once(
    brokers: str, conf: dict[str, str], warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(2):
            Connection(brokers, conf).admin()
    found = [each.getMessage() for each in caplog.records]
    assert [address for address in warned for text in found if address in text] == warned
    assert len(found) == len(warned)


def test_librdkafka_is_silent_unless_it_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    def said() -> list[str]:
        caplog.clear()
        admin = Connection("127.0.0.1:1").admin()
        for _ in range(10):
            admin.poll(0.1)
        return [each.name for each in caplog.records]

    assert said() == []
    with caplog.at_level(logging.DEBUG, client_logger.name):
        assert set(said()) == {"penstock.kafka.client"}
