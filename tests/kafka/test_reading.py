"""Reading what others wrote, and what is no longer all there."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import OffsetOutOfRange
from penstock.kafka.log import KafkaLog
from penstock.kafka.topic import KafkaTopic
from tests.eventually import LIMIT_SECONDS, eventually
from tests.kafka.foreign import begun, write, write_and_abort
from tests.log.rows import SCHEMA, rows
from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services
OpenLog = Callable[..., KafkaLog]
BAD = [
    b"\xff\x00garbage",
    b'{"n": 1, "unknown": 2}',
    b"",
    b'{"n": "many"}',
    b"[1]",
    b'{"n": 1',
    b'"n"',
    b'{"n": 1} {"n": 2}',
]


def numbers(topic: KafkaTopic, **options: object) -> list[int]:
    return topic.slice(**options).column("n").to_pylist()  # type: ignore[arg-type, no-any-return]


def dead(log: KafkaLog, topic: str) -> list[bytes]:
    return log.topic(f"{topic}.dead").slice().column("raw").to_pylist()  # type: ignore[no-any-return]


def made(log: KafkaLog, name: str, schema: str = "n bigint, word string") -> KafkaTopic:
    log.create(name, schema)
    topic = log.topic(name)
    assert isinstance(topic, KafkaTopic)
    return topic


# --- records of others ---


def test_what_others_write_as_json_is_read(kafka: KafkaCluster, open_log: OpenLog, name: str) -> None:
    topic = made(open_log(), name)
    write(kafka, name, [b'{\n  "n": 1,\n  "word": "over\\nlines"\n}\n', b'{"word": "no number"}'])
    write(kafka, name, [b' {"n":2,"word":null}', None, b"{}"], key=None)
    found = [(row["n"], row["word"]) for row in topic.slice().to_pylist()]
    assert found == [(1, "over\nlines"), (None, "no number"), (2, None), (None, None)]
    assert f"{name}.dead" not in open_log().topics(dead=True), "a tombstone is no event, and nothing bad"


def test_bad_records_are_dead_letters_once_however_often_they_are_met(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    first = made(open_log(), name)
    write(kafka, name, [BAD[0], b'{"n": 1}', *BAD[1:4]])
    assert [numbers(first) for _ in range(2)] == [[1], [1]]
    write(kafka, name, [*BAD[4:], b'{"n": 2}'])
    assert numbers(open_log().topic(name)) == [1, 2]  # type: ignore[arg-type]
    assert numbers(first) == [1, 2]
    assert dead(open_log(), name) == BAD


def test_another_topic_of_the_same_name_has_dead_letters_of_its_own(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    log = open_log()
    for lives in (1, 2):
        topic = made(log, name)
        write(kafka, name, [BAD[0], b'{"n": 1}'])
        assert numbers(topic) == [1]
        assert dead(open_log(), name) == [BAD[0]] * lives
        log.delete(name)


@pytest.mark.parametrize(
    "value", [b"2026-01-01T00:00:00Z", b"", None, b"9" * 30, b"1767225600000000000", b"-99999999999999999", b"\xff"]
)
def test_an_arrival_that_is_none_counts_for_nothing(
    kafka: KafkaCluster, open_log: OpenLog, name: str, value: bytes | None
) -> None:
    topic = made(open_log(), name)
    before = datetime.now(UTC) - timedelta(seconds=5)
    write(kafka, name, [b'{"n": 1}'], headers={"penstock-arrived": value, "penstock-schema": value})
    write(kafka, name, [b'{"n": 2}'], headers={"penstock-arrived": b"1767225600000000"})
    [broken, whole] = topic.slice().column("_arrived").to_pylist()
    assert before < broken < datetime.now(UTC) + timedelta(seconds=5)
    assert whole == datetime(2026, 1, 1, tzinfo=UTC)


def test_avro_of_others_is_read_and_what_is_none_is_a_dead_letter(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    log = open_log()
    log.create(name, "n bigint, word string", values="avro")
    topic = log.topic(name)
    topic.append(pa.table({"n": [1], "word": ["ours"]}))
    [ours] = raw_values(kafka, name)
    assert ours.startswith(b"\xc3\x01")
    schema = json.loads(CliRunner().invoke(app, ["topic", "schema", name, "--avro", "--log", log.url]).stdout)
    theirs = io.BytesIO()
    fastavro.schemaless_writer(theirs, schema, {"n": 2, "word": "theirs"})
    bad = [b'{"n": 3}', ours[:-1], ours + b"!", ours[:4] + b"\x00" + ours[5:]]
    write(kafka, name, [*bad, ours[:10] + theirs.getvalue(), None])
    found = [(row["n"], row["word"]) for row in topic.slice().to_pylist()]
    assert found == [(1, "ours"), (2, "theirs")]
    assert dead(open_log(), name) == bad


def test_avro_of_a_newer_schema_is_read_by_one_that_opened_before(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    log = open_log()
    log.create(name, "n bigint", values="avro")
    before = log.topic(name)
    log.topic(name).append(pa.table({"n": [1]}))
    newer = open_log().topic(name)
    newer.alter(schema="n bigint, word string")
    newer.append(pa.table({"n": [2], "word": ["new"]}))
    [_, value] = raw_values(kafka, name)
    write(kafka, name, [value])  # Without the header that says which version it is.
    assert before.schema.names == ["n"]
    [found] = before.partitions[0].read(2)
    assert (found.column("n").to_pylist(), found.column("word").to_pylist()) == ([2], ["new"])
    assert f"{name}.dead" not in open_log().topics(dead=True)


def raw_values(cluster: KafkaCluster, topic: str) -> list[bytes]:
    """What the broker holds."""
    consumer = Consumer({**cluster.client(), "group.id": "raw", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(LIMIT_SECONDS)) is not None and message.error() is None:
        found.append(message.value() or b"")
    consumer.close()
    return found


def test_bad_records_are_dead_letters_once_though_many_meet_them_together(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    made(open_log(), name)
    topics = [open_log().topic(name) for _ in range(4)]
    found: list[list[int]] = []
    for step in range(3):
        write(kafka, name, [b"bad %d" % step, b'{"n": %d}' % step])
        threads = [threading.Thread(target=lambda each=each: found.append(numbers(each))) for each in topics]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found[-4:] == [list(range(step + 1))] * 4
    assert dead(open_log(), name) == [b"bad 0", b"bad 1", b"bad 2"]


# --- offsets without a record ---


def test_gaps_at_the_start_in_the_middle_and_at_the_end_are_passed_over(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    topic = made(open_log(), name)
    write_and_abort(kafka, name, 3)
    write(kafka, name, [b'{"n": 1}', b'{"n": 2}'])
    write_and_abort(kafka, name, 2)
    write(kafka, name, [b'{"n": 3}'])
    write_and_abort(kafka, name, 4)
    eventually(lambda: topic.end()[0] == 15)
    places = {4: 1, 5: 2, 9: 3}
    assert topic.slice().column("_offset").to_pylist() == list(places)
    for start in (0, 2, 4, 5, 6, 9, 10, 12, 14, 15):
        for _ in range(2):  # A reader that stands there already must not wait for what it has seen.
            assert numbers(topic, start={0: start}) == [n for offset, n in places.items() if offset >= start]
    assert topic.partitions[0].end().arrived_us > 0


def test_what_is_not_decided_is_not_read_and_does_not_end(kafka: KafkaCluster, open_log: OpenLog, name: str) -> None:
    topic = made(open_log(), name)
    write(kafka, name, [b'{"n": 1}'])
    undecided = begun(kafka, name, 2)
    write(kafka, name, [b'{"n": 2}'])
    assert (numbers(topic), topic.end()) == ([1], {0: 1})
    undecided.commit_transaction(LIMIT_SECONDS)
    eventually(lambda: numbers(topic) == [1, -1, -1, 2])


# --- retention ---


def test_what_retention_removed_is_an_error_that_says_how_much_is_lost(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    log = open_log()
    log.create(name, SCHEMA)
    topic = log.topic(name)
    topic.append(rows(range(10)))
    with log.consumer(name) as slow, log.consumer(name, on_removed="raise") as strict:
        remove_before(kafka, name, 6)
        with pytest.raises(OffsetOutOfRange, match="retention removed 4 records from offset 2 on") as error:
            topic.slice({0: 2})
        assert (error.value.offset, error.value.start, error.value.end) == (2, 6, 10)
        with pytest.raises(OffsetOutOfRange, match="retention removed 6 records"):
            strict.poll(LIMIT_SECONDS)
        assert [n for records in slow.poll(LIMIT_SECONDS) for n in records.batch.column("n").to_pylist()] == [
            6,
            7,
            8,
            9,
        ]
        assert slow.stats.removed == 6
    assert topic.slice().column("n").to_pylist() == [6, 7, 8, 9]


def test_what_retention_removes_during_a_read_is_an_error_too(
    kafka: KafkaCluster, open_log: OpenLog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.create(name, SCHEMA)
    [partition] = log.topic(name).partitions
    for number in range(40):
        partition.append(rows([number]))
    remove_before(kafka, name, 30)
    monkeypatch.setattr(type(partition), "start_offset", lambda _: 0)  # As it was just before.
    with pytest.raises(OffsetOutOfRange, match="retention removed 30 records from offset 0 on"):
        list(partition.read(0))


def remove_before(cluster: KafkaCluster, topic: str, offset: int) -> None:
    asked = TopicPartition(topic, 0, offset)
    admin = AdminClient(cluster.client())
    for answer in admin.delete_records([asked]).values():
        answer.result(LIMIT_SECONDS)
