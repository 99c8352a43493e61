"""What a consumer promises, in one process; processes that die are in `test_consumer_processes.py`."""

from __future__ import annotations

import gc
import logging
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.consume.attendance import Attendance
from penstock.consume.consumer import Consumer
from penstock.consume.position import Records
from penstock.errors import (
    ConsumerClosed,
    ConsumerOptionError,
    ForkedHandle,
    GroupNameError,
    MemberEvicted,
    NoGroup,
    NotAssigned,
    OffsetOutOfRange,
    StartError,
    UnknownTopic,
)
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[FolderLog]:
    with FolderLog(tmp_path, background=False, clock=clock) as made:
        yield made


@pytest.fixture
def orders(log: FolderLog) -> FolderTopic:
    return log.create("orders", "n bigint", partitions=2)


def put(topic: FolderTopic, *values: int, partition: int = 0) -> None:
    topic.partitions[partition].append(pa.record_batch({"n": pa.array(values, pa.int64())}))


def values(records: list[Records]) -> list[int]:
    return [value for each in records for value in each.batch.column("n").to_pylist()]


def crash(consumer: Consumer) -> None:
    """What SIGKILL leaves behind of a member."""
    attendance = consumer._intake.attendance
    assert isinstance(attendance, Attendance)
    assert attendance._seat is not None
    attendance._is_stopping = True
    attendance._wakeup.notify()
    attendance._thread.join()
    attendance._seat.abandon()
    attendance._seat = None
    consumer._is_closed = True


def eventually(is_true: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


# --- reading ---


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
            assert 0.1 <= time.monotonic() - before < 0.5
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
        assert values(early.poll(5)) == list(range(10))
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
        assert consumer.poll(5)[0].batch.schema.names[0] == "n"
        with FolderLog(log.root, background=False) as elsewhere:
            topic = elsewhere.topic("orders")
            topic.alter(schema="n bigint, note string")
            topic.partitions[0].append(
                pa.record_batch({"n": pa.array([2], pa.int64()), "note": pa.array(["new"], pa.string())})
            )
        (records,) = consumer.poll(5)
        assert records.batch.select(["n", "note"]).to_pylist() == [{"n": 2, "note": "new"}]


# --- where it starts ---


def test_start_is_earliest_latest_an_offset_or_a_time(log: FolderLog, orders: FolderTopic, clock: ManualClock) -> None:
    put(orders, 1, 2)
    clock.move(timedelta(hours=1))
    put(orders, 3)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.now_us)
    for start, expected in (
        ("earliest", [1, 2, 3]), ("latest", []), (1, [2, 3]), ("2", [3]), (99, []), (at, [3]),
        (at.isoformat(), [3]), (at.replace(tzinfo=None).isoformat(), [3]), (at + timedelta(seconds=1), []),
        (at - timedelta(seconds=1), [3]), (at - timedelta(hours=1), [1, 2, 3]),
    ):  # fmt: skip
        with log.consumer("orders", start=start) as consumer:
            assert values(consumer.poll(0)) == expected, start


@pytest.mark.parametrize("start", ["soon", -1, True, 1.5, "2026-13-01", None])
def test_a_start_that_makes_no_sense_is_refused(log: FolderLog, orders: FolderTopic, start: object) -> None:
    with pytest.raises(StartError) as caught:
        log.consumer("orders", start=start)
    assert caught.value.found == start


def test_a_group_goes_on_where_it_left_off_and_ignores_start(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1, 2)
    with log.consumer("orders", group="g") as consumer:
        assert values(consumer.poll(0)) == [1, 2]
    put(orders, 3)
    with log.consumer("orders", group="g", start="earliest") as consumer:
        assert values(consumer.poll(0)) == [3]
    with log.consumer("orders", group="other") as consumer:
        assert values(consumer.poll(0)) == [1, 2, 3], "another group gets everything"


def test_the_latest_is_the_latest_of_the_moment_the_group_began(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1)
    first = log.consumer("orders", group="g", start="latest")
    put(orders, 2)
    crash(first)
    with log.consumer("orders", group="g", start="latest") as second:
        assert values(second.poll(0)) == [2]


def test_seek_goes_anywhere_in_the_partition(log: FolderLog, orders: FolderTopic, clock: ManualClock) -> None:
    put(orders, 1, 2)
    clock.move(timedelta(hours=1))
    put(orders, 3, 4)
    put(orders, 5, partition=1)
    hour = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.now_us)
    with log.consumer("orders", group="g") as consumer:
        assert sorted(values(consumer.poll(0))) == [1, 2, 3, 4, 5]
        consumer.seek("orders", 0, 1)
        assert values(consumer.poll(0)) == [2, 3, 4]
        consumer.seek_time("orders", hour)
        assert consumer.positions() == {("orders", 0): 2, ("orders", 1): 0}
        assert sorted(values(consumer.poll(0))) == [3, 4, 5]
        with pytest.raises(OffsetOutOfRange):
            consumer.seek("orders", 0, 5)
        with pytest.raises(NotAssigned) as caught:
            consumer.seek("orders", 7, 0)
        assert caught.value.assigned == ("orders/0", "orders/1")
        with pytest.raises(NotAssigned):
            consumer.seek_time("clicks", hour)
        with pytest.raises(StartError):
            consumer.seek_time("orders", "latest")
        consumer.seek("orders", 0, 3)
    with log.consumer("orders", group="g") as consumer:
        assert values(consumer.poll(0)) == [4], "where it was sent is where the group goes on"


def test_a_seek_inside_a_loop_takes_effect_at_once(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, *range(10))
    seen = []
    with log.consumer("orders") as consumer:
        for event in consumer.events(timeout=0):
            seen.append(event["n"])
            if seen == [0, 1, 2]:
                consumer.seek("orders", 0, 8)
    assert seen == [0, 1, 2, 8, 9]


def test_lag_is_what_is_left(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, *range(10))
    with log.consumer("orders", max_rows=4) as consumer:
        assert consumer.lag() == {("orders", 0): 10, ("orders", 1): 0}
        consumer.poll(0)
        assert consumer.lag() == {("orders", 0): 6, ("orders", 1): 0}


# --- commits ---


def test_what_a_poll_returned_counts_as_processed_at_the_next(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1, 2, 3)
    first = log.consumer("orders", group="g", max_rows=1, auto_commit="0")
    assert values([*first.poll(0), *first.poll(0)]) == [1, 2]
    crash(first)
    with log.consumer("orders", group="g") as second:
        assert values(second.poll(0)) == [2, 3]


def test_progress_is_committed_while_waiting_for_more(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1)
    first = log.consumer("orders", group="g", auto_commit="100ms")
    first.poll(0)
    assert first.poll(0.4) == []
    assert first.stats.commits == 1
    crash(first)
    with log.consumer("orders", group="g") as second:
        assert second.poll(0) == []


def test_a_block_left_by_an_exception_does_not_count_its_last_batch(log: FolderLog, orders: FolderTopic) -> None:
    def work() -> None:
        with log.consumer("orders", group="g", max_rows=1) as consumer:
            for records in consumer.batches():
                if values([records]) == [2]:
                    raise ZeroDivisionError

    put(orders, 1, 2)
    with pytest.raises(ZeroDivisionError):
        work()
    with log.consumer("orders", group="g") as consumer:
        assert values(consumer.poll(0)) == [2]


def test_a_loop_left_in_the_middle_counts_exactly_what_it_saw(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1, 2, 3, 4)
    with log.consumer("orders", group="g") as consumer:
        assert [next(consumer.events())["n"], *(event["n"] for event in zip_two(consumer))] == [1, 2, 3]
    with log.consumer("orders", group="g") as consumer:
        assert values(consumer.poll(0)) == [4]


def zip_two(consumer: Consumer) -> Iterator[dict[str, object]]:
    events = consumer.events()
    yield next(events)
    yield next(events)


def test_batches_that_were_not_handed_out_are_not_committed(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1)
    put(orders, 2, partition=1)
    with log.consumer("orders", group="g") as consumer:
        first = values([next(consumer.batches())])
    with log.consumer("orders", group="g") as consumer:
        assert sorted(first + values(consumer.poll(0))) == [1, 2]


def test_without_automatic_commits_only_commit_counts(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1, 2, 3)
    with log.consumer("orders", group="g", auto_commit=None, max_rows=1) as consumer:
        assert values(consumer.poll(0)) == [1]
        consumer.commit()
        assert values(consumer.poll(0)) == [2]
        consumer.poll(0)
    with log.consumer("orders", group="g", auto_commit=None) as consumer:
        assert values(consumer.poll(0)) == [2, 3]


def test_commit_needs_a_group_and_an_open_consumer(log: FolderLog, orders: FolderTopic) -> None:
    consumer = log.consumer("orders")
    with pytest.raises(NoGroup):
        consumer.commit()
    consumer.close()
    consumer.close()
    for attempt in (consumer.commit, consumer.poll, lambda: next(iter(consumer))):
        with pytest.raises(ConsumerClosed):
            attempt()


# --- sharing ---


def test_members_share_and_each_record_comes_once(log: FolderLog, orders: FolderTopic) -> None:
    with log.consumer("orders", group="g") as first, log.consumer("orders", group="g") as second:
        eventually(lambda: len(first.assignment) == len(second.assignment) == 1)
        put(orders, 1)
        put(orders, 2, partition=1)
        assert sorted(values(first.poll(5)) + values(second.poll(5))) == [1, 2]
        second.close()
        eventually(lambda: len(first.assignment) == 2)
        assert first.poll(0.1) == [], "what the other committed does not come again"
        assert first.stats.rebalances == 3


def test_a_partition_waits_until_the_application_is_done_with_it(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1)
    put(orders, 2, partition=1)
    with log.consumer("orders", group="g") as first:
        assert sorted(values(first.poll(0))) == [1, 2]
        with log.consumer("orders", group="g") as second:
            assert second.poll(0.3) == []
            assert second.assignment == ()
            first.poll(0)
            eventually(lambda: len(second.assignment) == 1)
            assert second.poll(0.2) == first.poll(0.2) == []


def test_a_loop_over_events_gives_a_partition_up_between_two_events(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, *range(0, 100, 2))
    put(orders, *range(1, 100, 2), partition=1)
    with log.consumer("orders", group="g") as first:
        events = first.events(timeout=0.2)
        seen = [next(events)["n"] for _ in range(10)]
        with log.consumer("orders", group="g") as second:
            eventually(lambda: second.assignment == (("orders", 1),))  # The loop has not reached it yet.
            seen += [event["n"] for event in events]
            assert seen == list(range(0, 100, 2))
            assert [event["n"] for event in second.events(timeout=0.2)] == list(range(1, 100, 2))


def test_a_loop_over_events_gives_up_the_partition_it_is_in(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, *range(100), partition=1)
    with log.consumer("orders", group="g") as first:
        events = first.events(timeout=0.2)
        seen = [next(events)["n"] for _ in range(10)]
        with log.consumer("orders", group="g") as second:
            assert second.poll(0.2) == [], "the tenth event is in the application's hands"
            assert list(events) == []
            assert [event["n"] for event in second.events(timeout=0.2)] == list(range(10, 100))
    assert seen == list(range(10))


def test_without_automatic_commits_a_partition_waits_for_the_commit(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1)
    put(orders, 2, partition=1)
    options = {"group": "g", "auto_commit": None}
    with log.consumer("orders", **options) as first:
        assert len(first.poll(0)) == 2
        with log.consumer("orders", **options) as second:
            assert (first.poll(0.1), second.poll(0.1), second.assignment) == ([], [], ())
            first.commit()
            first.poll(0)
            eventually(lambda: len(second.assignment) == 1)
            assert second.poll(0.1) == []


def test_who_never_commits_cannot_hold_a_partition_for_ever(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1)
    put(orders, 2, partition=1)
    options = {"group": "g", "auto_commit": None, "session_timeout": "300ms"}
    with log.consumer("orders", **options) as first:
        assert len(first.poll(0)) == 2
        with log.consumer("orders", **options) as second:
            first.poll(1)
            assert len(values(second.poll(5))) == 1
            assert (first.stats.evictions, len(first.assignment)) == (0, 1)


def test_who_does_not_poll_loses_its_partitions_and_hears_of_it(
    log: FolderLog, orders: FolderTopic, caplog: pytest.LogCaptureFixture
) -> None:
    put(orders, 1)
    options = {"group": "g", "session_timeout": "300ms", "processing_timeout": "200ms"}
    with log.consumer("orders", **options) as slow:
        assert values(slow.poll(0)) == [1]
        with log.consumer("orders", **options) as other:
            assert values(other.poll(5)) == [1]
            other.commit()
            for _ in range(2):
                with pytest.raises(MemberEvicted, match="did not poll") as caught:
                    slow.commit()
            assert (caught.value.group, caught.value.lost) == ("g", ("orders/0",)), (
                "the idle one was handed over before"
            )
            assert slow.assignment == ()
            put(orders, 2)
            seen: list[int] = []
            while not seen:
                seen = values([*slow.poll(0.05), *other.poll(0.05)])
            assert seen == [2]
            assert slow.stats.evictions == 1
    assert "joins again" in caplog.text


def test_a_consumer_that_was_forgotten_frees_its_partitions(log: FolderLog, orders: FolderTopic) -> None:
    forgotten = log.consumer("orders", group="g", session_timeout="30s")
    with log.consumer("orders", group="g") as other:
        eventually(lambda: len(other.assignment) == 1)
        del forgotten
        # Its own thread may hold it for a moment, just while the collector looks: so it looks again.
        eventually(lambda: gc.collect() >= 0 and len(other.assignment) == 2)


# --- topics that come and go ---


def test_a_pattern_sees_topics_that_come_and_go(log: FolderLog) -> None:
    log.create("orders.eu", "n bigint")
    log.create("orders.eu.dead", "n bigint")
    log.create("clicks", "n bigint")
    for group in (None, "g"):
        with log.consumer("orders.*", group=group, start="latest") as consumer:
            assert consumer.assignment == (("orders.eu", 0),)
            threading.Timer(0.1, lambda: put(log.create("orders.us", "n bigint"), 1, 2)).start()
            (records,) = consumer.poll(5)
            assert (records.topic, values([records])) == ("orders.us", [1, 2]), (
                "a topic made later is read from its start"
            )
            log.delete("orders.us")
            consumer.poll(0.1)
            eventually(lambda: consumer.poll(0) == [] and consumer.assignment == (("orders.eu", 0),))


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
                seen += values(consumer.poll(5))
        assert seen[-20:] == list(range(100, 120))


def test_an_unknown_topic_is_refused_and_a_pattern_waits(log: FolderLog, orders: FolderTopic) -> None:
    with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
        log.consumer("order")
    with log.consumer("zz*", group="g") as consumer:
        assert consumer.assignment == ()
        assert consumer.poll(0.05) == []


# --- what retention removed ---


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


# --- what it costs, and what it refuses ---


def test_an_append_wakes_a_waiting_consumer_within_milliseconds(log: FolderLog, orders: FolderTopic) -> None:
    delays = []
    with log.consumer("orders", group="g") as consumer:
        for number in range(20):
            sent: list[float] = []

            def send(number: int = number, sent: list[float] = sent) -> None:
                put(orders, number)
                sent.append(time.monotonic())

            threading.Timer(0.02, send).start()
            consumer.poll(5)
            now = time.monotonic()
            eventually(lambda: bool(sent))  # noqa: B023
            delays.append(now - sent[0])
    assert sorted(delays)[10] < 0.02, f"it took {sorted(delays)[10] * 1000:.1f} ms"


def test_idle_consumers_need_no_processor_time(log: FolderLog, orders: FolderTopic) -> None:
    consumers = [log.consumer("orders", group="g") for _ in range(4)] + [log.consumer("*")]
    eventually(lambda: sum(len(consumer.assignment) for consumer in consumers) == 4)
    threads = [threading.Thread(target=consumer.poll, args=(2,)) for consumer in consumers]
    time.sleep(0.2)
    before = resource.getrusage(resource.RUSAGE_SELF)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    for consumer in consumers:
        consumer.close()
    assert spent < 0.02 * len(consumers), f"{spent / len(consumers) / 2:.1%} of a processor for each"


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
