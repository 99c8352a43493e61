"""What tests of consumers put in, take out and wait for."""

from __future__ import annotations

import pyarrow as pa

from penstock.consume.attendance import Attendance
from penstock.consume.consumer import Consumer
from penstock.consume.group import Group
from penstock.consume.position import Records
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.eventually import eventually


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


class Seconds:
    """A clock for `Consumer(monotonic=...)`: it stands still until `pass_time` moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pass_time(log: FolderLog, clock: Seconds, seconds: float, group: str = "g") -> None:
    """Move the clock in small steps, so that no member of the group misses a heartbeat."""
    found = Group(log.root, group, lambda _: frozenset(), monotonic=clock)

    def have_all_beaten() -> bool:
        return all((found.heartbeat(member) or 0.0) > clock.now - 0.001 for member in found.membership().members)

    for _ in range(8):
        clock.now += seconds / 8
        knock = found.members_directory / "knock"  # A name that comes and goes wakes every member.
        knock.touch()
        knock.unlink()
        eventually(have_all_beaten)


def is_asked_to_give_up(consumer: Consumer) -> bool:
    """Whether the consumer knows that another member waits for one of its partitions."""
    with consumer._intake.mutex:
        return any(position.is_wanted_elsewhere for position in consumer._intake.positions.values())
