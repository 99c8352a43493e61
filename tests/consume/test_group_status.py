"""People can see what a group is doing, and set it back when it is at rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.consume.group_status import forget_group, group_names, group_status, reset_group
from penstock.errors import GroupActive, StartError, UnknownGroup, UnknownTopic
from penstock.log.log import Log
from penstock.log.topic import Topic


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path, background=False) as made:
        yield made


@pytest.fixture
def orders(log: Log) -> Topic:
    topic = log.create("orders", "n bigint", partitions=2)
    topic.partitions[0].append(pa.record_batch({"n": pa.array(range(10), pa.int64())}))
    return topic


def test_there_are_no_groups_at_first(log: Log) -> None:
    assert group_names(log) == []
    with pytest.raises(UnknownGroup, match="none yet"):
        group_status(log, "g")


def test_an_unknown_group_is_told_with_the_nearest(log: Log, orders: Topic) -> None:
    log.consumer("orders", group="billing").close()
    for attempt in (lambda: group_status(log, "biling"), lambda: forget_group(log, "biling")):
        with pytest.raises(UnknownGroup, match="did you mean 'billing'") as caught:
            attempt()
        assert caught.value.known == ("billing",)


def test_a_group_at_work_shows_members_owners_and_lag(log: Log, orders: Topic) -> None:
    with log.consumer("orders", "click*", group="g", max_rows=4) as consumer:
        consumer.poll(0)
        consumer.commit()
        status = group_status(log, "g")
        (member,) = status.members
        assert (member.pid, member.subscriptions, member.partitions) == (os.getpid(), ("click*", "orders"), 2)
        assert member.why_dead is None
        assert member.silent_seconds is not None
        assert member.silent_seconds < 5
        first, second = status.partitions
        assert (first.topic, first.partition, first.owner, first.moving_to) == ("orders", 0, member.id, None)
        assert (first.committed, first.start, first.end, first.lag) == (4, 0, 10, 6)
        assert (second.committed, second.end, second.lag) == (0, 0, 0)
        assert status.lag == 6
        assert group_names(log) == ["g"]


def test_a_partition_on_the_move_shows_where_to(log: Log, orders: Topic) -> None:
    with log.consumer("orders", group="g", start="latest") as first:
        orders.append(pa.table({"n": pa.array(range(100), pa.int64())}))
        first.poll(5)
        while sum(first.lag().values()) > 0:
            first.poll(0)
        orders.append(pa.table({"n": pa.array(range(100), pa.int64())}))
        assert sum(len(each) for each in first.poll(0)) == 100
        with log.consumer("orders", group="g"):
            status = group_status(log, "g")
            (moving,) = [each for each in status.partitions if each.moving_to]
            assert {moving.owner, moving.moving_to} == {member.id for member in status.members}


def test_a_group_at_rest_keeps_its_progress_and_can_be_reset(log: Log, orders: Topic) -> None:
    with log.consumer("orders", group="g") as consumer:
        assert sum(map(len, consumer.poll(0))) == 10
        with pytest.raises(GroupActive):
            reset_group(log, "g", ["orders"], "earliest")
    status = group_status(log, "g")
    assert (status.members, status.lag) == ((), 0)
    assert [each.owner or each.moving_to for each in status.partitions] == [None, None]
    assert reset_group(log, "g", ["orders"], 3) == {("orders", 0): 3, ("orders", 1): 0}
    assert group_status(log, "g").lag == 7
    with log.consumer("orders", group="g") as consumer:
        assert [event["n"] for event in consumer.events(timeout=0)] == list(range(3, 10))
    forget_group(log, "g")
    with log.consumer("orders", group="g") as consumer:
        assert len(list(consumer.events(timeout=0))) == 10


def test_a_group_can_be_set_before_it_exists(log: Log, orders: Topic) -> None:
    reset_group(log, "new", ["ord*"], "latest")
    with log.consumer("orders", group="new") as consumer:
        assert consumer.poll(0) == []
    with pytest.raises(StartError):
        reset_group(log, "new", ["orders"], "whenever")
    with pytest.raises(UnknownTopic):
        reset_group(log, "new", ["order"], "latest")


def test_a_deleted_topic_is_not_shown(log: Log, orders: Topic) -> None:
    log.create("clicks", "n bigint")
    log.consumer("orders", "clicks", group="g").close()
    log.delete("clicks")
    assert {each.topic for each in group_status(log, "g").partitions} == {"orders"}
