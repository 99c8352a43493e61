from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from penstock.errors import (
    NotAcknowledged,
    NotAnEvent,
    ProducerClosed,
    ProducerFenced,
    ProducerSettingError,
    SequenceRefused,
    TopicDefinitionError,
)
from penstock.log.files import locked
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.produce.producer import OffsetRange, Producer, Receipt
from tests.eventually import eventually
from tests.produce.producing import SCHEMA, events, held, new_topic, sender_threads, stored


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False) as opened:
        yield opened


@pytest.fixture
def topic(log: FolderLog) -> FolderTopic:
    return new_topic(log)


# --- sending ---


def test_an_acknowledged_event_is_on_disk_and_knows_its_offset(topic: FolderTopic) -> None:
    with topic.producer() as producer:
        receipts = [producer.send({"user": "ann", "n": n}).wait() for n in range(3)]
        assert [receipt.offset for receipt in receipts] == [0, 1, 2]
        (row,) = topic.slice(columns=["n"]).filter(pa.compute.equal(topic.slice().column("n"), 2)).to_pylist()
        assert (row["_partition"], row["_offset"]) == (receipts[2].partition, receipts[2].offset)


def test_an_event_goes_after_the_linger_without_a_flush(topic: FolderTopic) -> None:
    with topic.producer(linger="1ms") as producer:
        ack = producer.send({"n": 1})
        assert ack.wait().stored == 1
        assert ack.done


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"user": "ann", "n": 1}, id="dict"),
        pytest.param([{"user": "ann", "n": 1}], id="list"),
        pytest.param(({"user": "ann", "n": 1},), id="tuple"),
        pytest.param(pa.table({"user": ["ann"], "n": [1]}), id="table"),
        pytest.param(pa.RecordBatch.from_pydict({"n": [1], "user": ["ann"]}), id="batch"),
        pytest.param(pd.DataFrame({"user": ["ann"], "n": [1]}), id="pandas"),
        pytest.param(b'\n{"user": "ann", "n": 1}\n\n', id="json lines"),
        pytest.param(bytearray(b'{"n": 1, "user": "ann"}'), id="bytearray"),
    ],
)
def test_every_kind_of_data_is_sent(topic: FolderTopic, data: Any) -> None:
    with topic.producer() as producer:
        assert producer.send(data).wait().stored == 1
    assert topic.slice().select(["user", "n", "tags"]).to_pylist() == [{"user": "ann", "n": 1, "tags": None}]


@pytest.mark.parametrize("data", ["text", 5, None, (n for n in range(3)), pd.Series([1])])
def test_what_is_no_event_is_refused_at_once(topic: FolderTopic, data: Any) -> None:
    with topic.producer() as producer, pytest.raises(NotAnEvent) as refused:
        producer.send(data)
    assert refused.value.found_type == type(data).__name__


@pytest.mark.parametrize("data", [[], b"\n \n", pa.table({"n": pa.array([], pa.int64())}), pd.DataFrame({"n": []})])
def test_nothing_is_acknowledged_at_once(topic: FolderTopic, data: Any) -> None:
    with topic.producer() as producer:
        assert producer.send(data).wait() == Receipt(())
    assert stored(topic) == []


def test_every_event_of_a_batch_has_its_own_receipt(topic: FolderTopic) -> None:
    with topic.producer(linger="1h") as producer:
        acks = [producer.send(event) for event in events(range(100))]
        many = producer.send(events(range(100, 150)))
        assert not acks[0].done
        producer.flush()
        places = [(ack.wait().partition, ack.wait().offset) for ack in acks]
    read = {row["n"]: (row["_partition"], row["_offset"]) for row in topic.slice().to_pylist()}
    assert places == [read[n] for n in range(100)]
    expected = {read[n] for n in range(100, 150)}
    assert {(p, offset) for p, start, stop in many.wait().ranges for offset in range(start, stop)} == expected
    assert many.wait().stored == 50


def test_events_keep_their_order_within_a_partition(topic: FolderTopic) -> None:
    with topic.producer(linger="0", batch_rows=50) as producer:
        for n in range(3000):
            producer.send({"user": f"user{n % 7}", "n": n})
        producer.send(pa.table({"user": ["user1"] * 5, "n": range(3000, 3005)}))
        producer.send(events(range(3005, 3050)))
    for partition in topic.partitions:
        numbers = [n for batch in partition.read(0, columns=["n"]) for n in batch.column("n").to_pylist()]
        assert numbers == sorted(numbers)
    assert stored(topic) == list(range(3050))


def test_many_threads_may_send(topic: FolderTopic) -> None:
    def send(first: int) -> None:
        for n in range(first, first + 500):
            producer.send({"user": f"thread{first}", "n": n})

    with topic.producer() as producer:
        threads = [threading.Thread(target=send, args=(first,)) for first in range(0, 4000, 500)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert stored(topic) == list(range(4000))
    for row_user in range(0, 4000, 500):
        rows = [row for row in topic.slice().to_pylist() if row["user"] == f"thread{row_user}"]
        assert [row["n"] for row in rows] == sorted(row["n"] for row in rows)


def test_without_a_key_events_go_to_all_partitions(log: FolderLog) -> None:
    topic = log.create("plain", SCHEMA, partitions=3)
    with topic.producer() as producer:
        producer.send(events(range(600)))
    assert all(150 <= end <= 250 for end in topic.end().values())


def test_a_schema_that_grew_elsewhere_is_followed(log: FolderLog, topic: FolderTopic) -> None:
    with topic.producer() as producer:
        producer.send({"n": 1}).wait()
        with FolderLog(log.root, background=False) as other:
            other.topic("events").alter(schema=SCHEMA + ", color string")
        receipt = producer.send({"n": 2, "color": "red"}).wait()
    assert receipt.rejected == 0
    assert {row["n"]: row["color"] for row in topic.slice().to_pylist()} == {1: None, 2: "red"}


# --- flush, close, stats ---


def test_flush_waits_for_everything_sent_before(topic: FolderTopic) -> None:
    with topic.producer(linger="1h") as producer:
        for event in events(range(500)):
            producer.send(event)
        producer.flush()
        assert stored(topic) == list(range(500))
        producer.flush()
        assert producer.stats.acknowledged == producer.stats.sent == 500


def test_flush_and_wait_give_up_after_their_time_and_nothing_is_lost(topic: FolderTopic) -> None:
    with topic.producer() as producer:
        with held(topic):
            ack = producer.send({"n": 1})
            with pytest.raises(NotAcknowledged):
                producer.flush(0.05)
            with pytest.raises(TimeoutError):
                ack.wait(0.05)
            assert not ack.done
        producer.flush()
        assert ack.wait().stored == 1


def test_a_partition_that_is_held_does_not_keep_the_others_waiting(topic: FolderTopic) -> None:
    with topic.producer() as producer:
        place = {n: producer.send({"user": f"user{n}", "n": n}).wait().partition for n in range(7)}
        blocked, free = 0, next(n for n in place if place[n] != place[0])
        with locked(topic.partitions[place[blocked] or 0].directory / "lock"):
            acks = [producer.send({"user": f"user{n}", "n": n}) for n in (blocked, free)]
            assert acks[1].wait().partition == place[free]
            assert not acks[0].done
        assert acks[0].wait().stored == 1


def test_a_closed_producer_refuses_and_its_threads_are_gone(topic: FolderTopic) -> None:
    before = sender_threads()
    producer = topic.producer(linger="1h")
    ack = producer.send({"n": 1})
    producer.close()
    producer.close()
    assert ack.wait(0).stored == 1
    assert sender_threads() == before
    with pytest.raises(ProducerClosed):
        producer.send({"n": 2})
    with pytest.raises(ProducerClosed):
        producer.send([{"n": 2}])
    producer.flush()


def test_threads_of_an_idle_producer_sleep_until_woken(topic: FolderTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep: dict[threading.Thread, float | None] = {}
    wait = threading.Condition.wait

    def spied(condition: threading.Condition, timeout: float | None = None) -> bool:
        asleep[threading.current_thread()] = timeout
        try:
            return wait(condition, timeout)
        finally:
            del asleep[threading.current_thread()]

    monkeypatch.setattr(threading.Condition, "wait", spied)
    before = {*threading.enumerate()}
    with topic.producer() as producer:
        producer.send({"n": 1}).wait()
        threads = {*threading.enumerate()} - before
        assert len(threads) == 2, "the sender, and the lane of one partition"
        eventually(lambda: all(asleep.get(each, 0.0) is None for each in threads), explain=lambda: asleep)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("on_full", "explode"), ("batch_rows", 0), ("buffer_bytes", -1), ("epoch", -1), ("epoch", True), ("name", "")],
)
def test_an_impossible_setting_is_refused(topic: FolderTopic, setting: str, value: Any) -> None:
    with pytest.raises(ProducerSettingError) as refused:
        topic.producer(**{setting: value})
    assert (refused.value.setting, refused.value.found) == (setting, value)


# --- rejected events ---


def test_a_rejected_event_is_a_dead_letter_when_it_is_acknowledged(log: FolderLog, topic: FolderTopic) -> None:
    with topic.producer(name="shop") as producer:
        receipt = producer.send([{"n": 1}, {"n": "many"}, {"colour": "red"}, {"n": 4}], sequence=10).wait()
        letters = log.topic("events.dead").slice().to_pylist()
        assert (receipt.stored, receipt.rejected) == (2, 2)
        assert [(letter["raw"], letter["column"], letter["producer"]) for letter in letters] == [
            (b'{"n": "many"}', "n", "shop"),
            (b'{"colour": "red"}', "colour", "shop"),
        ]
        assert producer.send({"n": []}, sequence=14).wait() == Receipt((), rejected=1)
        assert (producer.stats.rejected, producer.stats.acknowledged) == (3, 5)
    assert stored(topic) == [1, 4]


def test_a_rejected_event_whose_dead_letter_cannot_be_kept_fails(log: FolderLog, topic: FolderTopic) -> None:
    log.create("events.dead", "something_else int")
    producer = topic.producer()
    bad, good = producer.send({"n": "many"}), producer.send({"n": 2})
    assert good.wait().stored == 1
    with pytest.raises(TopicDefinitionError):
        bad.wait()
    with pytest.raises(TopicDefinitionError):
        producer.close()
    assert stored(topic) == [2]


def test_the_names_are_those_of_the_documentation(topic: FolderTopic) -> None:
    with topic.producer(name="shop") as producer:
        assert isinstance(producer, Producer)
        assert repr(producer) == "Producer('events', name='shop')"
        receipt = producer.send({"n": 1}, sequence=0).wait()
        assert receipt.ranges == (OffsetRange(receipt.partition or 0, 0, 1),)


# --- named producers ---


@pytest.mark.parametrize("key", ["user", None])
def test_what_a_named_producer_sends_again_is_stored_once(log: FolderLog, key: str | None) -> None:
    topic = log.create("orders", SCHEMA, key=key, partitions=3)
    with topic.producer(name="relay") as producer:
        for n in range(300):
            producer.send({"user": f"user{n % 7}", "n": n}, sequence=n)
        producer.send({"n": "bad"}, sequence=300)
    with FolderLog(log.root, background=False) as again, again.topic("orders").producer(name="relay") as producer:
        acks = [producer.send({"user": f"user{n % 7}", "n": n}, sequence=n) for n in range(200, 300)]
        producer.send({"n": "bad"}, sequence=300).wait()
        new = producer.send(events(range(301, 320)), sequence=301)
        producer.flush()
        assert all(ack.wait() == Receipt((), duplicates=1) for ack in acks)
        assert (new.wait().stored, producer.stats.duplicates) == (19, 100)
    assert stored(topic) == [*range(300), *range(301, 320)]
    assert log.topic("orders.dead").end() == {0: 1}


def test_producers_of_other_names_are_strangers(topic: FolderTopic) -> None:
    for name in ("one", "two"):
        with topic.producer(name=name) as producer:
            producer.send({"n": 1}, sequence=1)
    assert stored(topic) == [1, 1]


def test_a_newer_epoch_fences_the_older_one(topic: FolderTopic) -> None:
    old, new = topic.producer(name="relay", epoch=1), topic.producer(name="relay", epoch=2)
    old.send({"n": 1}, sequence=1).wait()
    new.send({"n": 2}, sequence=2).wait()
    ack = old.send({"n": 3}, sequence=3)
    with pytest.raises(ProducerFenced):
        ack.wait()
    with pytest.raises(ProducerFenced):
        old.send({"n": 4}, sequence=4)
    with pytest.raises(ProducerFenced):
        old.close()
    new.send({"n": 3}, sequence=3).wait()
    new.close()
    assert stored(topic) == [1, 2, 3]


def test_a_sequence_that_would_lose_an_event_is_refused(topic: FolderTopic) -> None:
    with topic.producer() as producer, pytest.raises(SequenceRefused):
        producer.send({"n": 1}, sequence=1)
    with topic.producer(name="relay") as producer:
        producer.send(events(range(3)), sequence=5)
        for sequence in (None, 7, 5, -1, True, "8", 1 << 63):
            with pytest.raises(SequenceRefused) as refused:
                producer.send({"n": 1}, sequence=sequence)  # type: ignore[arg-type]
            assert refused.value.found == sequence
        producer.send({"n": 3}, sequence=8)
        producer.send(b'{"n": 4}\n\n{"n": 5}', sequence=9)
        producer.send({"n": 6}, sequence=11)
    assert stored(topic) == list(range(7))


def test_a_named_producer_does_not_drop(topic: FolderTopic) -> None:
    with pytest.raises(ProducerSettingError) as refused:
        topic.producer(name="relay", on_full="drop")
    assert refused.value.setting == "on_full"


def test_duplicates_and_new_events_that_are_stored_together_are_told_apart(log: FolderLog) -> None:
    topic = log.create("single", SCHEMA)
    with topic.producer(name="relay") as producer:
        producer.send(events(range(10)), sequence=0)
    with topic.producer(name="relay", linger="0") as producer:
        with held(topic):
            first = producer.send({"n": 3}, sequence=3)  # Keeps the lane busy, so that the others gather.
            old, half, new = (producer.send(events(range(n, n + 4)), sequence=n) for n in (4, 8, 12))
        producer.flush()
    assert [ack.wait().duplicates for ack in (first, old, half, new)] == [1, 4, 2, 0]
    assert half.wait().ranges == (OffsetRange(0, 10, 12),)
    assert new.wait().ranges == (OffsetRange(0, 12, 16),)
    assert stored(topic) == list(range(16))
