"""Where a consumer starts and goes to, and what of it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from penstock.consume.consumer import Consumer
from penstock.errors import (
    ConsumerClosed,
    NoGroup,
    NotAssigned,
    OffsetOutOfRange,
    StartError,
)
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.testing import ManualClock
from tests.consume.consuming import crash, put, values


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
