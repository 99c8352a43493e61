from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import (
    PartitionReadOnly,
    TopicDeleted,
)
from penstock.events.encode import encode
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.produce import sender as sender_module
from tests.eventually import eventually
from tests.produce.producing import SCHEMA, events, files_at_most, held, is_blocked, new_topic, sender_threads, stored


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False) as opened:
        yield opened


@pytest.fixture
def topic(log: FolderLog) -> FolderTopic:
    return new_topic(log)


def encode_no_bytes(data: Any, schema: pa.Schema) -> Any:
    if isinstance(data, bytes):
        raise MemoryError("no memory for this one")
    return encode(data, schema)


def test_only_the_events_of_a_failed_partition_fail(topic: FolderTopic) -> None:
    producer = topic.producer()
    place = {n: producer.send({"user": f"user{n}", "n": n}).wait().partition for n in range(7)}
    full = place[0]
    producer.send([{"user": "user0", "n": 0}] * 20_000).wait()
    with files_at_most(100_000):
        acks = {n: producer.send({"user": f"user{n}", "n": 100 + n}) for n in range(7)}
        with pytest.raises(PartitionReadOnly):
            producer.flush()
    for n, ack in acks.items():
        assert ack.done
        if place[n] == full:
            with pytest.raises(PartitionReadOnly):
                ack.wait(0)
        else:
            assert ack.wait(0).partition == place[n]
    assert producer.send({"user": next(f"user{n}" for n in place if place[n] != full)}).wait().stored == 1
    lost = sum(place[n] == full for n in range(7))
    stats = producer.stats
    assert (stats.failed, stats.sent) == (lost, stats.acknowledged + lost)
    producer.close()


def test_send_raises_when_no_partition_is_left(topic: FolderTopic) -> None:
    producer = topic.producer()
    everybody = [{"user": f"user{n}", "n": n} for n in range(100)]
    producer.send(everybody).wait()
    with files_at_most(10):
        producer.send(everybody)
        with pytest.raises(PartitionReadOnly):
            producer.flush()
    with pytest.raises(PartitionReadOnly):
        producer.send({"n": 1})
    producer.close()
    assert stored(topic) == list(range(100))


def test_a_blocked_send_is_told_when_no_partition_is_left(log: FolderLog) -> None:
    topic = log.create("single", SCHEMA)
    producer = topic.producer(buffer_bytes=1000)
    producer.send({"n": 0}).wait()
    errors: list[BaseException] = []

    def send_many() -> None:
        try:
            for event in events(range(1000)):
                producer.send(event)
        except PartitionReadOnly as error:
            errors.append(error)

    with files_at_most(10):
        with held(topic):
            thread = threading.Thread(target=send_many)
            thread.start()
            eventually(lambda: is_blocked(producer))
        thread.join()
    assert len(errors) == 1
    with pytest.raises(PartitionReadOnly):
        producer.close()


def test_a_topic_that_is_deleted_stops_its_producers(log: FolderLog, topic: FolderTopic) -> None:
    producer = topic.producer()
    producer.send({"n": 1}).wait()
    with FolderLog(log.root, background=False) as other:
        other.delete("events")
    with pytest.raises(TopicDeleted):
        producer.send({"n": 2}).wait()
    with pytest.raises(TopicDeleted):
        producer.send({"n": 3})
    with pytest.raises(TopicDeleted):
        producer.close()


def test_an_error_while_encoding_fails_its_events_only(topic: FolderTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "encode", encode_no_bytes)
    producer = topic.producer()
    good, bad = producer.send({"n": 1}), producer.send(b'{"n": 2}')
    assert good.wait().stored == 1
    with pytest.raises(MemoryError):
        bad.wait()
    with pytest.raises(MemoryError):
        bad.wait()
    assert producer.send({"n": 3}).wait().stored == 1
    with pytest.raises(MemoryError):
        producer.close()


def test_whoever_waits_is_told_when_the_thread_dies(topic: FolderTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise SystemExit("the thread was torn down")

    before = sender_threads()
    monkeypatch.setattr(sender_module.Sender, "_dispatch", broken)
    producer = topic.producer()
    ack = producer.send({"n": 1})
    with pytest.raises(SystemExit):
        ack.wait()
    with pytest.raises(SystemExit):
        producer.send({"n": 2})
    with pytest.raises(SystemExit):
        producer.close()
    assert sender_threads() == before


def test_nothing_overtakes_what_a_named_producer_lost(topic: FolderTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "encode", encode_no_bytes)
    producer = topic.producer(name="relay", linger="1h")
    sent = ({"n": 1}, b'{"n": 2}', {"n": 3})
    acks = [producer.send(data, sequence=n) for n, data in enumerate(sent, 1)]
    with pytest.raises(MemoryError):
        producer.close()
    assert acks[0].wait(0).stored == 1
    for ack in acks[1:]:
        with pytest.raises(MemoryError):
            ack.wait(0)
    with topic.producer(name="relay") as again:
        for n in (1, 2, 3):
            again.send([{"n": n}], sequence=n)
    assert stored(topic) == [1, 2, 3]


@pytest.mark.parametrize("on_full", ["block", "spill", "drop"])
def test_every_send_gets_its_answer_whatever_happens_at_once(topic: FolderTopic, on_full: Any) -> None:
    def send(first: int) -> None:
        for n in range(first, first + 300):
            event = {"user": f"user{n % 7}", "n": n if n % 50 else "bad"}
            data = event if n % 3 else pa.table({"n": [n]}) if n % 2 else [event]
            acks.append(producer.send(data))

    acks: list[Any] = []
    with topic.producer(on_full=on_full, buffer_bytes=3000, batch_rows=16, linger="1ms") as producer:
        threads = [threading.Thread(target=send, args=(first,)) for first in range(0, 1200, 300)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            with held(topic):
                time.sleep(0.02)
            producer.flush()
        for thread in threads:
            thread.join()
        receipts = [ack.wait() for ack in acks]
    stats = producer.stats
    assert stats.sent == stats.acknowledged == sum(receipt.stored + receipt.rejected for receipt in receipts)
    assert sum(receipt.dropped for receipt in receipts) == stats.dropped == 1200 - stats.sent
    assert len(stored(topic)) == len(set(stored(topic))) == sum(receipt.stored for receipt in receipts)
