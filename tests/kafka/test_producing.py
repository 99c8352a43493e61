"""Producers over Kafka: records that no broker takes, and what was spilled when a process was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from penstock.errors import RecordTooLarge, TopicDeleted
from penstock.kafka.connection import AROUND_RECORD_BYTES, RECORD_BYTES_MAX
from penstock.kafka.log import KafkaLog
from penstock.load.loading import load
from penstock.log.producers import named_producer, new_producer, spilled_producer
from penstock.log.topic import Topic
from penstock.produce.spill import Spill
from penstock.produce.spill_file import Content
from tests.eventually import LIMIT_SECONDS, eventually
from tests.kafka.foreign import write
from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services
OpenLog = Callable[..., KafkaLog]
LIMIT = RECORD_BYTES_MAX - AROUND_RECORD_BYTES
LARGE = "x" * RECORD_BYTES_MAX


def numbers(topic: Topic) -> list[int]:
    return topic.slice(columns=["n"]).column("n").to_pylist()  # type: ignore[no-any-return]


def letters(log: KafkaLog, topic: str) -> list[dict[str, Any]]:
    return log.topic(f"{topic}.dead").slice().to_pylist()  # type: ignore[no-any-return]


def set_limit(cluster: KafkaCluster, topic: str, limit: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(cluster.client())  # It must live until the answer is there.
    for answer in admin.incremental_alter_configs([asked]).values():
        answer.result(LIMIT_SECONDS)


# --- what is said of what was stored ---


def test_threads_that_share_a_client_are_told_their_own_offsets(open_log: OpenLog, name: str) -> None:
    topic = open_log().create(name, "n bigint", partitions=3)
    count = 20_000

    def store(turn: int) -> dict[tuple[int, int], int]:
        number, sent = turn % 3, range(turn * count, (turn + 1) * count)
        stored = topic.partitions[number].append(pa.record_batch({"n": pa.array(sent, pa.int64())})).offsets
        assert stored is not None
        return dict(zip(((number, int(offset)) for offset in stored), sent, strict=True))

    told: dict[tuple[int, int], int] = {}
    with ThreadPoolExecutor(3) as threads:
        for each in threads.map(store, range(9)):  # Two of them may write to one partition at once, and take turns.
            told |= each
    kept = topic.slice()
    places = zip(kept["_partition"].to_pylist(), kept["_offset"].to_pylist(), strict=True)
    assert dict(zip(places, kept["n"].to_pylist(), strict=True)) == told
    assert set(topic.end().values()) == {3 * count}


def test_a_load_with_arrivals_is_repeated_and_nothing_comes_twice(open_log: OpenLog, name: str, tmp_path: Path) -> None:
    topic = open_log().create(name, "n bigint, seen timestamp", event_time="seen")
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f'{{"n": {n}, "seen": "2026-01-01T00:00:{n:02}Z"}}\n' for n in range(60)))
    assert [load(topic, path, arrived="seen").stored for _ in range(2)] == [60, 0]
    assert numbers(topic) == list(range(60))


# --- records that are too large ---


@pytest.mark.parametrize("values", ["json", "avro"])
def test_a_record_that_is_too_large_is_an_error_before_anything_is_sent(
    open_log: OpenLog, name: str, values: Any
) -> None:
    topic = open_log().create(name, "n bigint, text string", values=values)
    with pytest.raises(RecordTooLarge) as refused:
        topic.append(pa.table({"n": [1, 2, 3], "text": ["a", LARGE, "c"]}))
    error = refused.value
    assert (error.place, error.limit, [*error.rows]) == (f"{name}/0", LIMIT, [1])
    assert RECORD_BYTES_MAX < error.size < RECORD_BYTES_MAX + 100
    for part in (name, f"{error.size:,}", f"{LIMIT:,}", "message.max.bytes"):
        assert part in str(error)
    assert topic.end() == {0: 0}


def test_the_largest_record_that_is_allowed_is_taken_though_it_cannot_be_compressed(
    open_log: OpenLog, name: str
) -> None:
    topic = open_log().create(name, "raw binary", values="avro")
    noise = os.urandom(RECORD_BYTES_MAX)
    overhead = 10 + 1 + 4  # Header, branch of the union, length.
    topic.append(pa.table({"raw": [noise[: LIMIT - overhead]]}))
    with pytest.raises(RecordTooLarge):
        topic.append(pa.table({"raw": [noise[: LIMIT - overhead + 1]]}))
    assert topic.slice().num_rows == 1


@pytest.mark.parametrize("producer_name", [None, "relay"])
def test_a_producer_stores_the_neighbours_of_what_is_too_large_and_goes_on(
    open_log: OpenLog, name: str, producer_name: str | None
) -> None:
    log = open_log()
    topic = log.create(name, "n bigint, text string", key="n", partitions=2)
    named = None if producer_name is None else f"{producer_name} of {name}"
    for _ in range(1 if named is None else 2):  # One with a name repeats itself, and that changes nothing.
        with topic.producer(name=named, linger="1s") as producer:
            acks = [
                producer.send({"n": n, "text": LARGE if n in (3, 7) else "fine"}, sequence=n if named else None)
                for n in range(20)
            ]
            last = producer.send([{"n": 20, "text": LARGE}], sequence=20 if named else None)
            producer.flush(LIMIT_SECONDS)
            receipts = [each.wait(LIMIT_SECONDS) for each in (*acks, last)]
            assert [n for n, each in enumerate(receipts) if each.rejected] == [3, 7, 20]
            assert all(each.rejected + each.stored + each.duplicates == 1 for each in receipts)
            assert producer.stats.rejected == 3
    assert sorted(numbers(topic)) == [n for n in range(20) if n not in (3, 7)]
    found = letters(log, name)
    assert len(found) == 3
    for each in found:
        assert f"expected at most {LIMIT:,} bytes, found 8,38" in each["reason"]
        assert each["raw"].startswith(b'{"n": ')
        assert len(each["raw"]) == LIMIT // 2
        assert "kept are" in each["reason"]


def test_the_offsets_of_the_neighbours_are_their_own(open_log: OpenLog, name: str) -> None:
    topic = open_log().create(name, "n bigint, text string")
    with topic.producer() as producer:
        ack = producer.send([{"n": n, "text": LARGE if n == 1 else ""} for n in range(4)])
        receipt = ack.wait(LIMIT_SECONDS)
    assert ([(each.start, each.stop) for each in receipt.ranges], receipt.rejected) == ([(0, 3)], 1)
    assert numbers(topic) == [0, 2, 3]


def test_the_limit_of_the_topic_in_kafka_counts(kafka: KafkaCluster, open_log: OpenLog, name: str) -> None:
    log = open_log()
    log.create(name, "n bigint, text string")
    set_limit(kafka, name, 1 << 20)
    topic = open_log().topic(name)
    with topic.producer() as producer:
        producer.send([{"n": n, "text": "y" * (n << 20)} for n in range(3)])
    assert numbers(topic) == [0]
    assert len(letters(log, name)) == 2


def test_what_the_brokers_refuse_by_themselves_is_told_clearly(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    topic = open_log().create(name, "raw binary")
    topic.append(pa.table({"raw": [bytes(100_000)]}))  # Now it knows the limit, which somebody changes.
    set_limit(kafka, name, 100_000)
    noise = os.urandom(200_000)
    with pytest.raises(RecordTooLarge, match="at most 100,000"):
        topic.append(pa.table({"raw": [noise]}))


def test_what_others_wrote_is_a_dead_letter_however_large_it_is(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    log = open_log()
    topic = log.create(name, "n bigint")
    bad = b"z" * (7 << 20)
    write(kafka, name, [bad, b'{"n": 1}'], conf={"message.max.bytes": RECORD_BYTES_MAX})
    assert numbers(topic) == [1]
    eventually(lambda: bool(letters(log, name)))
    [letter] = letters(log, name)
    assert (letter["raw"], f"of its {7 << 20:,} bytes" in letter["reason"]) == (bad[: 4 << 20], True)


# --- what was spilled ---

CHILD = """
import os, signal, sys
from penstock.log.log import Log
from penstock.produce.spill_file import SpillFile
url, name, folder = sys.argv[1:]
topic = Log(url, background=False).topic(name)
# The log has a frame, and nobody can note it any more.
SpillFile.mark_done = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with topic.producer(on_full="spill", buffer_bytes=40_000, batch_rows=8, spill_directory=folder) as producer:
    for n in range(2000):
        producer.send({"n": n, "text": "x" * 1000})
"""


def test_what_was_spilled_by_a_killed_process_is_stored_once(open_log: OpenLog, name: str, tmp_path: Path) -> None:
    log = open_log()
    topic = log.create(name, "n bigint, text string", partitions=2)
    child = subprocess.run([sys.executable, "-c", CHILD, log.url, name, str(tmp_path)], check=False)
    assert child.returncode == -9
    assert [*tmp_path.glob("*/*.spill")]
    before = numbers(topic)
    with topic.producer(spill_directory=tmp_path) as heir:
        heir.send({"n": 5000})
        heir.flush(LIMIT_SECONDS)
        adopted = heir.stats.adopted
    after = numbers(topic)
    assert adopted, "the first frame of the spill was stored, and not noted"
    assert len(after) == len({*after})
    assert {*before} <= {*after}
    assert not [*tmp_path.glob("*/*.spill")]


def test_what_was_spilled_for_one_cluster_waits_while_another_is_written_to(
    open_log: OpenLog, open_other: OpenLog, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    staging, live = (log.create(name, "n bigint") for log in (open_log(), open_other()))
    left = Spill(staging.log.spill_directory / name, staging.definition.id)
    batch = pa.record_batch({"n": pa.array([1, 2, 3], pa.int64())})
    left.put(Content(batch, np.arange(3), spilled_producer(new_producer()), 0), None)
    left.close()  # As the end of a process that was killed.
    for topic in (live, staging):
        with topic.producer() as producer:
            producer.send({"n": 4})
    assert (numbers(live), numbers(staging)) == ([4], [1, 2, 3, 4])
    assert not [*tmp_path.glob("**/*.spill")]


# --- topics that were deleted ---


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_what_is_written_to_a_deleted_topic_is_refused_and_makes_no_new_one(
    open_other: OpenLog, name: str, *, named: bool, is_known: bool
) -> None:
    log, other = open_other(), open_other()
    [partition] = log.create(name, "n bigint").partitions

    def append(n: int) -> None:
        batch = pa.record_batch({"n": pa.array([n], pa.int64())})
        if named:
            partition.append(batch, producer=named_producer(name), sequences=np.array([n]))
        else:
            partition.append(batch)

    if is_known:
        append(1)
    other.delete(name)
    with pytest.raises(TopicDeleted):
        append(2)
    assert name not in other.brokers.topics()


def test_a_topic_that_others_deleted_in_kafka_is_told_as_deleted(open_other: OpenLog, name: str) -> None:
    log = open_other()
    topic = log.create(name, "n bigint")
    log.brokers.delete_topic(name)
    with pytest.raises(TopicDeleted):
        topic.append(pa.table({"n": [1]}))
