"""Members of a group, in one process: who has which partition, and who has to give it up."""

from __future__ import annotations

import gc

import pytest

from penstock.errors import (
    MemberEvicted,
)
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.consume.consuming import Seconds, is_asked_to_give_up, pass_time, put, values
from tests.eventually import eventually


def test_members_share_and_each_record_comes_once(log: FolderLog, orders: FolderTopic) -> None:
    with (
        log.consumer("orders", group="g", session_timeout="1h") as first,
        log.consumer("orders", group="g", session_timeout="1h") as second,
    ):
        eventually(lambda: len(first.assignment) == len(second.assignment) == 1)
        put(orders, 1)
        put(orders, 2, partition=1)
        assert sorted(values(first.poll()) + values(second.poll())) == [1, 2]
        second.close()
        eventually(lambda: len(first.assignment) == 2)
        assert first.poll(0.1) == [], "what the other committed does not come again"
        assert first.stats.rebalances == 3


def test_a_partition_waits_until_the_application_is_done_with_it(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1)
    put(orders, 2, partition=1)
    with log.consumer("orders", group="g", session_timeout="1h") as first:
        assert sorted(values(first.poll(0))) == [1, 2]
        with log.consumer("orders", group="g", session_timeout="1h") as second:
            assert second.poll(0.3) == []
            assert second.assignment == ()
            first.poll(0)
            eventually(lambda: len(second.assignment) == 1)
            assert second.poll(0.2) == first.poll(0.2) == []


def test_a_loop_over_events_gives_a_partition_up_between_two_events(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, *range(0, 100, 2))
    put(orders, *range(1, 100, 2), partition=1)
    with log.consumer("orders", group="g", session_timeout="1h") as first:
        events = first.events(timeout=0.2)
        seen = [next(events)["n"] for _ in range(10)]
        with log.consumer("orders", group="g", session_timeout="1h") as second:
            eventually(lambda: second.assignment == (("orders", 1),))  # The loop has not reached it yet.
            seen += [event["n"] for event in events]
            assert seen == list(range(0, 100, 2))
            assert [event["n"] for event in second.events(timeout=0.2)] == list(range(1, 100, 2))


def test_a_loop_over_events_gives_up_the_partition_it_is_in(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, *range(100), partition=1)
    with log.consumer("orders", group="g", session_timeout="1h") as first:
        events = first.events(timeout=0.2)
        seen = [next(events)["n"] for _ in range(10)]
        with log.consumer("orders", group="g", session_timeout="1h") as second:
            eventually(lambda: is_asked_to_give_up(first))
            assert second.poll(0) == [], "the tenth event is in the application's hands"
            assert list(events) == []
            eventually(lambda: second.assignment == (("orders", 1),))
            assert [event["n"] for event in second.events(timeout=0.2)] == list(range(10, 100))
    assert seen == list(range(10))


def test_without_automatic_commits_a_partition_waits_for_the_commit(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1)
    put(orders, 2, partition=1)
    options = {"group": "g", "auto_commit": None, "session_timeout": "1h"}
    with log.consumer("orders", **options) as first:
        assert len(first.poll(0)) == 2
        with log.consumer("orders", **options) as second:
            assert (first.poll(0.1), second.poll(0.1), second.assignment) == ([], [], ())
            first.commit()
            first.poll(0)
            eventually(lambda: len(second.assignment) == 1)
            assert second.poll(0.1) == []


def test_a_member_that_never_commits_gives_up_a_partition_in_time(log: FolderLog, orders: FolderTopic) -> None:
    put(orders, 1)
    put(orders, 2, partition=1)
    clock = Seconds()
    options = {"group": "g", "auto_commit": None, "session_timeout": "10s", "monotonic": clock}
    with log.consumer("orders", **options) as first:
        assert len(first.poll(0)) == 2
        with log.consumer("orders", **options) as second:
            eventually(lambda: is_asked_to_give_up(first))
            assert first.poll(0) == []
            pass_time(log, clock, 9.9)
            assert second.assignment == ()
            pass_time(log, clock, 0.2)
            eventually(lambda: len(second.assignment) == 1)
            assert len(values(second.poll(0))) == 1
            assert (first.stats.evictions, len(first.assignment)) == (0, 1)


def test_a_member_that_does_not_poll_loses_its_partitions(
    log: FolderLog, orders: FolderTopic, caplog: pytest.LogCaptureFixture
) -> None:
    put(orders, 1)
    clock = Seconds()
    options = {"group": "g", "session_timeout": "10s", "processing_timeout": "5s", "monotonic": clock}
    with log.consumer("orders", **options) as slow:
        assert values(slow.poll(0)) == [1]
        with log.consumer("orders", **options) as other:
            eventually(lambda: len(other.assignment) == 1)
            pass_time(log, clock, 4.9)
            assert other.poll(0) == []
            assert len(slow.assignment) == 1
            pass_time(log, clock, 0.2)
            assert eventually(lambda: values(other.poll(0))) == [1]
            other.commit()
            for _ in range(2):
                with pytest.raises(MemberEvicted, match="did not poll") as caught:
                    slow.commit()
            assert (caught.value.group, caught.value.lost) == ("g", ("orders/0",))
            assert not slow.assignment
            put(orders, 2)
            assert eventually(lambda: values([*slow.poll(0), *other.poll(0)])) == [2]
            assert slow.stats.evictions == 1
    assert "joins again" in caplog.text


def test_a_consumer_that_was_forgotten_frees_its_partitions(log: FolderLog, orders: FolderTopic) -> None:
    forgotten = log.consumer("orders", group="g", session_timeout="1h")
    with log.consumer("orders", group="g", session_timeout="1h") as other:
        eventually(lambda: len(other.assignment) == 1)
        del forgotten
        # Its own thread may hold it for a moment, just while the collector looks: so it looks again.
        eventually(lambda: gc.collect() >= 0 and len(other.assignment) == 2)
