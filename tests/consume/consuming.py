"""What tests of consumers put in, take out and wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from penstock.consume.attendance import Attendance
from penstock.consume.consumer import Consumer
from penstock.consume.position import Records
from penstock.log.folder_topic import FolderTopic


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
