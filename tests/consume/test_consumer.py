"""What a consumer hands out, in one process; processes that die are in `test_consumer_processes.py`."""

from __future__ import annotations

import itertools
import logging
import math
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.consume import intake
from penstock.consume.wakeup import Wakeup
from penstock.errors import (
    ConsumerOptionError,
    ForkedHandle,
    GroupNameError,
    OffsetOutOfRange,
    UnknownTopic,
)
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.testing import ManualClock
from tests.consume.consuming import put, values
from tests.eventually import eventually


def test_records_come_in_order_with_the_columns_of_the_log(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1, 2)
    put(orders, 3)
    with log.consumer("orders") as consumer:
        (records,) = consumer.poll(0)
    assert (records.topic, records.partition, records.start, records.stop, len(records)) == ("orders", 0, 0, 3, 3)
    assert records.batch.schema.names == ["n", "_partition", "_offset", "_arrived", "_late"]
    assert values([records]) == [1, 2, 3]


def test_events_are_dicts_that_say_where_they_are_from(log: FolderLog, orders: FolderTopic, clock: ManualClock) -> None:
    put(orders, 7, partition=1)
    with log.consumer("orders") as consumer:
        (event,) = consumer.events(timeout=0)
    arrived = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.now_us)
    assert event == {"n": 7, "_partition": 1, "_offset": 0, "_arrived": arrived, "_late": False, "_topic": "orders"}


def test_iteration_goes_on_for_ever(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1)
    with log.consumer("orders") as consumer:
        threading.Timer(0.2, put, (orders, 2)).start()
        events = iter(consumer)
        assert [next(events)["n"], next(events)["n"]] == [1, 2]


def test_an_empty_poll_ends_after_its_timeout(log: FolderLog, orders: FolderTopic) -> None:
    with log.consumer("orders") as consumer:
        for timeout in (0.1, "100ms", timedelta(milliseconds=100)):
            before = time.monotonic()
            assert consumer.poll(timeout) == []
            assert time.monotonic() - before >= 0.1
        assert consumer.poll(0) == []


def test_a_poll_returns_at_most_so_many_rows_and_starves_no_partition(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, *range(10))
    put(orders, *range(100, 110), partition=1)
    with log.consumer("orders", max_rows=4) as consumer:
        polls = [consumer.poll(0) for _ in range(6)]
    assert [sum(map(len, poll)) for poll in polls] == [4, 4, 4, 4, 4, 0]
    assert {each.partition for poll in polls[:2] for each in poll} == {0, 1}
    assert sorted(values([each for poll in polls for each in poll])) == [*range(10), *range(100, 110)]


def test_a_long_partition_is_read_piece_by_piece(log: FolderLog, orders: FolderTopic) -> None:
    for start in range(0, 1000, 100):
        put(orders, *range(start, start + 100))
    orders.seal(active=True)
    put(orders, *range(1000, 1100))
    with log.consumer("orders", max_rows=33) as consumer:
        batches = list(consumer.batches(timeout=0))
    assert values(batches) == list(range(1100))
    assert [each.start for each in batches[1:]] == [each.stop for each in batches[:-1]]
    assert max(map(len, batches)) == 33


def test_a_compacted_topic_is_read_over_its_gaps(log: FolderLog) -> None:
    topic = log.create("prices", "key string, n bigint", key="key", compact=True)

    def set_price(*values: int) -> None:
        topic.append(pa.table({"key": ["a"] * len(values), "n": pa.array(values, pa.int64())}))

    with log.consumer("prices", group="early") as early:
        set_price(*range(10))
        assert values(early.poll()) == list(range(10))
        set_price(*range(10, 20))
        topic.seal(active=True)
        topic.compact()
        with log.consumer("prices", group="late") as late:
            assert values(late.poll(0)) == [19]
            assert late.positions() == {("prices", 0): 20}
        set_price(20)
        assert values([*early.batches(timeout=0)])[-2:] == [19, 20]
        assert early.lag() == {("prices", 0): 0}


def test_a_column_that_is_added_meanwhile_appears(log: FolderLog, orders: FolderTopic) -> None:
    with log.consumer("orders") as consumer:
        put(orders, 1)
        assert consumer.poll()[0].batch.schema.names[0] == "n"
        with FolderLog(log.root, background=False) as elsewhere:
            topic = elsewhere.topic("orders")
            topic.alter(schema="n bigint, note string")
            topic.partitions[0].append(
                pa.record_batch({"n": pa.array([2], pa.int64()), "note": pa.array(["new"], pa.string())})
            )
        (records,) = consumer.poll()
        assert records.batch.select(["n", "note"]).to_pylist() == [{"n": 2, "note": "new"}]


def test_a_pattern_sees_topics_that_come_and_go(log: FolderLog) -> None:
    log.create("orders.eu", "n bigint")
    log.create("orders.eu.dead", "n bigint")
    log.create("clicks", "n bigint")
    for group in (None, "g"):
        with log.consumer("orders.*", group=group, start="latest") as consumer:
            assert consumer.assignment == (("orders.eu", 0),)
            threading.Timer(0.1, lambda: put(log.create("orders.us", "n bigint"), 1, 2)).start()
            (records,) = consumer.poll()
            assert (records.topic, values([records])) == ("orders.us", [1, 2]), (
                "a topic made later is read from its start"
            )
            log.delete("orders.us")
            eventually(lambda: consumer.poll(0.01) == [] and consumer.assignment == (("orders.eu", 0),))


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_consumer_that_never_waits_sees_topics_that_come_and_go(log: FolderLog, is_busy: bool) -> None:
    first = log.create("orders.a", "n bigint")
    put(first, 0)
    with log.consumer("orders.*") as consumer:
        assert values(consumer.poll(0)) == [0]
        put(log.create("orders.b", "n bigint"), 1000)
        numbers = itertools.count(1)

        def found() -> list[int]:
            if is_busy:  # There is something at every poll, so none ever comes to waiting.
                put(first, next(numbers))
            return [each for each in values(consumer.poll(0)) if each == 1000]

        eventually(found)
        log.delete("orders.b")
        eventually(lambda: [found(), [topic for topic, _ in consumer.assignment]][1] == ["orders.a"])


def test_dead_letters_are_read_by_name_or_by_their_pattern(log: FolderLog) -> None:
    log.create("orders.dead", "n bigint")
    for subscription in ("orders.dead", "*.dead"):
        with log.consumer(subscription) as consumer:
            assert consumer.assignment == (("orders.dead", 0),)


def test_a_topic_made_anew_starts_afresh(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, *range(10))
    for group in ("g", None):
        topic = log.topic("orders")
        with log.consumer("orders", group=group) as consumer:
            seen = values(consumer.poll(0))
            consumer.poll(0)
            log.delete("orders")
            topic = log.create("orders", "n bigint")
            put(topic, *range(100, 120))
            while seen[-1:] != [119]:
                seen += values(consumer.poll())
        assert seen[-20:] == list(range(100, 120))


def test_an_unknown_topic_is_refused_and_a_pattern_waits(log: FolderLog, orders: FolderTopic) -> None:
    with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
        log.consumer("order")
    with log.consumer("zz*", group="g") as consumer:
        assert consumer.assignment == ()
        assert consumer.poll(0.05) == []


@pytest.mark.parametrize("group", ["g", None])
def test_records_that_retention_removed_are_never_passed_over_silently(
    log: FolderLog, clock: ManualClock, caplog: pytest.LogCaptureFixture, group: str | None
) -> None:
    topic = log.create("short", "n bigint", retention_age="1h")
    put(topic, *range(5))
    with log.consumer("short", group=group, max_rows=2) as consumer:
        assert values(consumer.poll(0)) == [0, 1]
        consumer.seek("short", 0, 1)
        topic.seal(active=True)
        clock.move(timedelta(hours=2))
        put(topic, 5)
        topic.retain()
        assert topic.start() == {0: 5}
        with caplog.at_level(logging.WARNING):
            assert values(consumer.poll(0)) == [5]
        assert consumer.stats.removed == 4
    assert "retention removed 4 records from offset 1 on" in caplog.text


def test_a_consumer_can_refuse_to_go_on_after_a_gap(log: FolderLog, clock: ManualClock) -> None:
    topic = log.create("short", "n bigint", retention_age="1h")
    put(topic, *range(5))
    with log.consumer("short", group="g", on_removed="raise") as consumer:
        topic.seal(active=True)
        clock.move(timedelta(hours=2))
        put(topic, 5)
        topic.retain()
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange) as caught:
                consumer.poll(0)
        assert (caught.value.offset, caught.value.start) == (0, 5)
        consumer.seek("short", 0, 5)
        assert values(consumer.poll(0)) == [5]


def test_an_append_wakes_a_waiting_consumer(
    log: FolderLog, orders: FolderTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "LOOK_SECONDS", 3600.0)  # A consumer that is not woken stays asleep.
    with log.consumer("orders", group="g", session_timeout="1h") as consumer:
        for number in range(10):
            threading.Timer(0.02, put, (orders, number)).start()
            assert values(consumer.poll()) == [number]


@pytest.mark.timing
def test_an_append_wakes_a_waiting_consumer_within_milliseconds(log: FolderLog, orders: FolderTopic) -> None:
    delays = []
    with log.consumer("orders", group="g") as consumer:
        for number in range(20):
            sent: list[float] = []

            def send(number: int = number, sent: list[float] = sent) -> None:
                put(orders, number)
                sent.append(time.monotonic())

            sender = threading.Timer(0.02, send)
            sender.start()
            consumer.poll()
            now = time.monotonic()
            sender.join()
            delays.append(now - sent[0])
    assert sorted(delays)[10] < 0.02, f"it took {sorted(delays)[10] * 1000:.1f} ms"


def test_idle_consumers_sleep_until_the_kernel_wakes_them(log: FolderLog, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep: dict[Wakeup, float] = {}
    waits = itertools.count()
    wait = Wakeup.wait

    def spied(wakeup: Wakeup, timeout: float | None) -> frozenset[Path]:
        next(waits)
        asleep[wakeup] = math.inf if timeout is None else timeout
        try:
            return wait(wakeup, timeout)
        finally:
            del asleep[wakeup]

    monkeypatch.setattr(Wakeup, "wait", spied)
    monkeypatch.setattr(intake, "LOOK_SECONDS", 3600.0)
    topic = log.create("wide", "n bigint", partitions=4)
    consumers = [log.consumer("wide", group="g", session_timeout="1h") for _ in range(4)]
    consumers.append(log.consumer("wide*"))
    threads = [threading.Thread(target=consumer.poll) for consumer in consumers]
    for thread in threads:
        thread.start()
    # Five consumers, and the group threads of four.
    eventually(
        lambda: sum(seconds > 25 and not each.is_polling for each, seconds in [*asleep.items()]) == 9,
        explain=lambda: asleep,
    )

    def is_quiet() -> bool:
        before = next(waits)
        time.sleep(0.3)
        return next(waits) == before + 1

    eventually(is_quiet, explain=lambda: "threads keep waking up although nothing happens")
    for number in range(4):
        put(topic, number, partition=number)
    for thread, consumer in zip(threads, consumers, strict=True):
        thread.join()
        consumer.close()


def test_options_that_make_no_sense_are_refused(log: FolderLog, orders: FolderTopic) -> None:
    for option, value in (
        ("max_rows", 0), ("session_timeout", "1ms"), ("processing_timeout", "0"), ("on_removed", "ignore"),
    ):  # fmt: skip
        with pytest.raises(ConsumerOptionError) as caught:
            log.consumer("orders", group="g", **{option: value})
        assert (caught.value.option, caught.value.found) == (option, value)
    with pytest.raises(ConsumerOptionError, match="at least one topic"):
        log.consumer()
    with pytest.raises(GroupNameError):
        log.consumer("orders", group="A group")


def test_a_consumer_does_not_survive_a_fork(
    log: FolderLog, orders: FolderTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = log.consumer("orders", group="g")
    pid = os.getpid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: pid + 1)
        with pytest.raises(ForkedHandle):
            consumer.poll(0)
        consumer.close()
    assert len(consumer.assignment) == 2, "a child that closes its copy takes nothing from the parent"
    consumer.close()
