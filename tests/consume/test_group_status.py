"""People can see what a group is doing, and set it back when it is at rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.consume.folder_groups import FolderGroups
from penstock.errors import GroupActive, StartError, UnknownGroup, UnknownTopic
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path, background=False) as made:
        yield made


@pytest.fixture
def orders(log: FolderLog) -> FolderTopic:
    topic = log.create("orders", "n bigint", partitions=2)
    topic.partitions[0].append(pa.record_batch({"n": pa.array(range(10), pa.int64())}))
    return topic


def test_there_are_no_groups_at_first(log: FolderLog) -> None:
    assert log.groups.names() == []
    with pytest.raises(UnknownGroup, match="none yet"):
        log.groups.status("g")


def test_an_unknown_group_is_told_with_the_nearest(log: FolderLog, orders: FolderTopic) -> None:
    log.consumer("orders", group="billing").close()
    for attempt in (lambda: log.groups.status("biling"), lambda: log.groups.forget("biling")):
        with pytest.raises(UnknownGroup, match="did you mean 'billing'") as caught:
            attempt()
        assert caught.value.known == ("billing",)


def test_a_group_at_work_shows_members_owners_and_lag(log: FolderLog, orders: FolderTopic) -> None:
    with log.consumer("orders", "click*", group="g", max_rows=4) as consumer:
        consumer.poll(0)
        consumer.commit()
        status = log.groups.status("g")
        (member,) = status.members
        assert (member.pid, member.subscriptions, member.partitions) == (os.getpid(), ("click*", "orders"), 2)
        assert member.why_dead is None
        first, second = status.partitions
        assert (first.topic, first.partition, first.owner, first.moving_to) == ("orders", 0, member.id, None)
        assert (first.committed, first.start, first.end, first.lag) == (4, 0, 10, 6)
        assert (second.committed, second.end, second.lag) == (0, 0, 0)
        assert status.lag == 6
        assert log.groups.names() == ["g"]


def test_status_shows_how_long_a_member_has_been_silent(log: FolderLog, orders: FolderTopic) -> None:
    with log.consumer("orders", group="g", monotonic=lambda: 1000.0):
        (member,) = FolderGroups(log, monotonic=lambda: 1003.5).status("g").members
        assert member.silent_seconds == 3.5


def test_a_partition_on_the_move_shows_where_to(log: FolderLog, orders: FolderTopic) -> None:
    with log.consumer("orders", group="g", start="latest") as first:
        orders.append(pa.table({"n": pa.array(range(100), pa.int64())}))
        first.poll()
        while sum(first.lag().values()) > 0:
            first.poll(0)
        orders.append(pa.table({"n": pa.array(range(100), pa.int64())}))
        assert sum(len(each) for each in first.poll(0)) == 100
        with log.consumer("orders", group="g"):
            status = log.groups.status("g")
            (moving,) = [each for each in status.partitions if each.moving_to]
            assert {moving.owner, moving.moving_to} == {member.id for member in status.members}


def test_a_group_at_rest_keeps_its_progress_and_can_be_reset(log: FolderLog, orders: FolderTopic) -> None:
    with log.consumer("orders", group="g") as consumer:
        assert sum(map(len, consumer.poll(0))) == 10
        with pytest.raises(GroupActive):
            log.groups.reset("g", ["orders"], "earliest")
    status = log.groups.status("g")
    assert (status.members, status.lag) == ((), 0)
    assert [each.owner or each.moving_to for each in status.partitions] == [None, None]
    assert log.groups.reset("g", ["orders"], 3) == {("orders", 0): 3, ("orders", 1): 0}
    assert log.groups.status("g").lag == 7
    with log.consumer("orders", group="g") as consumer:
        assert [event["n"] for event in consumer.events(timeout=0)] == list(range(3, 10))
    log.groups.forget("g")
    with log.consumer("orders", group="g") as consumer:
        assert len(list(consumer.events(timeout=0))) == 10


def test_a_group_can_be_set_before_it_exists(log: FolderLog, orders: FolderTopic) -> None:
    log.groups.reset("new", ["ord*"], "latest")
    with log.consumer("orders", group="new") as consumer:
        assert consumer.poll(0) == []
    with pytest.raises(StartError):
        log.groups.reset("new", ["orders"], "whenever")
    with pytest.raises(UnknownTopic):
        log.groups.reset("new", ["order"], "latest")


def test_a_deleted_topic_is_not_shown(log: FolderLog, orders: FolderTopic) -> None:
    log.create("clicks", "n bigint")
    log.consumer("orders", "clicks", group="g").close()
    log.delete("clicks")
    assert {each.topic for each in log.groups.status("g").partitions} == {"orders"}
