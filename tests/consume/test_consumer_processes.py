"""Members of a group in processes of their own: started, killed, frozen, thawed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.consume.groups import GroupStatus
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.consume.consumer_process import ConsumerProcess
from tests.eventually import eventually

PARTITIONS = 4
Start = Callable[..., ConsumerProcess]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path, background=False) as made:
        yield made


@pytest.fixture
def orders(log: FolderLog) -> FolderTopic:
    return log.create("orders", "n bigint", partitions=PARTITIONS)


@pytest.fixture
def start(log: FolderLog) -> Iterator[Start]:
    started: list[ConsumerProcess] = []

    def start_one(*arguments: str, topics: tuple[str, ...] = ("orders",), group: str = "g") -> ConsumerProcess:
        process = ConsumerProcess(log.root, f"{group}-{len(started)}", (*topics, "--group", group, *arguments))
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.stop()


def put(topic: FolderTopic, rows: int = 10) -> int:
    """So many records into each partition; returns how many in all."""
    for partition in topic.partitions:
        partition.append(pa.record_batch({"n": pa.array(range(rows), pa.int64())}))
    return rows * len(topic.partitions)


def shares(log: FolderLog, group: str = "g") -> list[int]:
    """How many partitions each member owns, once nothing is on the move."""
    status = log.groups.status(group) if (log.root / "groups" / group / "members").exists() else None
    if status is None or any(each.owner is None or each.moving_to for each in status.partitions):
        return []
    return sorted(member.partitions for member in status.members)


def committed(status: GroupStatus) -> dict[tuple[str, int], int]:
    return {(each.topic, each.partition): each.committed or 0 for each in status.partitions}


def all_records(topic: FolderTopic) -> set[tuple[str, int, int]]:
    return {(topic.name, number, offset) for number, end in topic.end().items() for offset in range(end)}


def test_each_group_gets_everything_and_its_members_share_it(log: FolderLog, orders: FolderTopic, start: Start) -> None:
    left, right, other = start(), start(), start(group="other")
    eventually(lambda: shares(log) == [2, 2] and shares(log, "other") == [4])
    for _ in range(10):
        put(orders)
    eventually(lambda: len(left.records() + right.records()) >= 400 and len(other.records()) >= 400)
    assert sorted(left.records() + right.records()) == sorted(other.records()) == sorted(all_records(orders))
    assert not {each[:2] for each in left.records()} & {each[:2] for each in right.records()}
    for process in (left, right, other):
        for partition in range(PARTITIONS):
            offsets = [offset for _, number, offset in process.records() if number == partition]
            assert offsets == sorted(offsets)


def test_living_members_hand_over_without_delivering_anything_twice(
    log: FolderLog, orders: FolderTopic, start: Start
) -> None:
    members: list[ConsumerProcess] = []
    for count in (1, 2, 3):
        members.append(start("--work-seconds", "0.01"))
        eventually(lambda: put(orders, 1) and len(shares(log)) == count)  # noqa: B023
    members[0].send(signal.SIGTERM)
    eventually(lambda: put(orders, 1) and shares(log) == [2, 2])
    everything = all_records(orders)
    eventually(lambda: len({each for member in members for each in member.records()}) >= len(everything))
    counted = Counter(each for member in members for each in member.records())
    assert set(counted) == everything
    assert {each: times for each, times in counted.items() if times > 1} == {}
    assert all(member.records() for member in members)


def test_a_killed_member_is_replaced_at_once_and_nothing_is_lost(
    log: FolderLog, orders: FolderTopic, start: Start
) -> None:
    """At once: the next heartbeat is due in 20 minutes."""
    options = ("--session-timeout", "1h", "--commit", "--work-seconds", "0.002")
    members = [start(*options) for _ in range(3)]
    eventually(lambda: shares(log) == [1, 1, 2])
    eventually(lambda: put(orders, 5) and all(len(member.records("done")) > 20 for member in members))
    members[0].send(signal.SIGKILL)
    before = committed(log.groups.status("g"))
    eventually(lambda: put(orders, 5) and shares(log) == [2, 2])
    assert_all_processed_once(orders, members)
    again = Counter(each for member in members for each in member.records())
    assert all(offset >= before[topic, number] for (topic, number, offset), times in again.items() if times > 1)


def test_a_frozen_member_is_replaced_and_comes_back_as_a_new_one(
    log: FolderLog, orders: FolderTopic, start: Start
) -> None:
    options = ("--session-timeout", "5s", "--commit", "--work-seconds", "0.002")
    frozen, other = members = [start(*options) for _ in range(2)]
    eventually(lambda: shares(log) == [2, 2])
    eventually(lambda: put(orders, 5) and all(len(member.records("done")) > 20 for member in members))
    frozen.send(signal.SIGSTOP)
    eventually(lambda: put(orders, 5) and shares(log) == [4])
    before = len(other.records("done"))
    eventually(lambda: put(orders, 5) and len(other.records("done")) > before + 20)
    done = len(frozen.records("done"))
    frozen.send(signal.SIGCONT)
    eventually(lambda: put(orders, 5) and shares(log) == [2, 2])
    eventually(lambda: put(orders, 5) and len(frozen.records("done")) > done + 20)
    assert_all_processed_once(orders, members)


def assert_all_processed_once(topic: FolderTopic, members: list[ConsumerProcess]) -> None:
    """Nothing is lost, and no poll that began after a commit gives what was committed.

    A process that was frozen in the middle of a poll may: it read that before. Nothing may be produced meanwhile.
    """
    ends = {(topic.name, number): end for number, end in topic.end().items()}
    eventually(lambda: committed(topic.log.groups.status("g")) == ends)
    assert {each for member in members for each in member.records()} == all_records(topic)
    # Killed between its commit and the next line, a member did its work all the same.
    killed = {each for member in members if member.process.poll() is not None for each in member.records()}
    eventually(lambda: {each for member in members for each in member.records("done")} | killed == all_records(topic))
    committed_at: dict[tuple[str, int, int], float] = {}
    told = sorted((line for member in members for line in member.told()), key=lambda line: line["at"])
    for line in told:
        for topic_name, partition, offsets in line.get("got", ()):
            for offset in offsets:
                record = (topic_name, partition, offset)
                assert record not in committed_at, f"{record} came again after its commit"
        for topic_name, partition, offsets in line.get("done", ()):
            committed_at.update(((topic_name, partition, offset), line["at"]) for offset in offsets)


def test_a_pattern_sees_a_topic_that_another_process_makes(log: FolderLog, start: Start) -> None:
    members = [start("--session-timeout", "1h", topics=("orders.*",)) for _ in range(2)]
    eventually(lambda: all(member.told() for member in members))
    topic = log.create("orders.eu", "n bigint", partitions=2)
    put(topic)
    eventually(lambda: len(members[0].records() + members[1].records()) == 20)
    assert sorted(members[0].records() + members[1].records()) == sorted(all_records(topic))


@pytest.mark.timing
def test_idle_processes_of_a_group_need_no_processor_time(log: FolderLog, orders: FolderTopic, start: Start) -> None:
    members = [start("--is-idle", "--session-timeout", "10s") for _ in range(2)]
    eventually(lambda: shares(log) == [2, 2])
    put(orders)
    eventually(lambda: all(member.records() for member in members))
    time.sleep(0.3)
    before = [processor_seconds(member) for member in members]
    time.sleep(3)
    spent = [processor_seconds(member) - earlier for member, earlier in zip(members, before, strict=True)]
    assert max(spent) <= 0.03, f"below 1 % each, but was {spent} s in 3 s"


def processor_seconds(member: ConsumerProcess) -> float:
    fields = Path(f"/proc/{member.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
@pytest.mark.parametrize("number", range(4))
def test_members_that_are_killed_and_frozen_at_random_lose_nothing(
    log: FolderLog, orders: FolderTopic, start: Start, seed: int, number: int
) -> None:
    """Fifty faults each, at any moment: in a poll, in a commit, in the middle of a change of the group."""
    choose = random.Random(f"{seed} {number}")
    options = ("--session-timeout", "1s", "--commit", "--work-seconds", "0.001")
    members = [start(*options) for _ in range(4)]
    running = list(members)
    stopped: list[ConsumerProcess] = []
    for _ in range(50):
        put(orders, 3)
        time.sleep(choose.uniform(0, 0.3))
        fault = choose.choice(("kill", "freeze", "thaw"))
        if fault == "kill":
            running.pop(choose.randrange(len(running))).send(signal.SIGKILL)
        elif fault == "freeze" and len(running) > 1:
            stopped.append(running.pop(choose.randrange(len(running))))
            stopped[-1].send(signal.SIGSTOP)
        elif fault == "thaw" and stopped:
            running.append(stopped.pop(choose.randrange(len(stopped))))
            running[-1].send(signal.SIGCONT)
        while len(running) < 3:
            members.append(start(*options))
            running.append(members[-1])
    for process in stopped:
        process.send(signal.SIGCONT)
    assert_all_processed_once(orders, members)
