"""How many records came late, and when the last one arrived, without reading what need not be read."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.folder_topic import FolderTopic
from penstock.log.late import count_late, latest_arrivals
from penstock.testing import ManualClock

HOUR_US = 3_600_000_000
START_US = 1_767_225_600_000_000
DELAYS_US = {
    "on time": [0, 1_000_000],
    "late": [HOUR_US, 5 * HOUR_US],
    "mixed": [0, 59_999_999, 60_000_000, 60_000_001, HOUR_US],
    "far": [-30 * 365 * 24 * HOUR_US, 0, 55 * 365 * 24 * HOUR_US],
}


def filled(log: FolderLog, clock: ManualClock, seed: int) -> FolderTopic:
    """Many frames over two partitions, each on time, late, mixed or far off; some times are NULL, half is sealed."""
    random.seed(seed)
    topic = log.create(
        "events", "time timestamp, n int", event_time="time", partitions=2, lateness=timedelta(minutes=1)
    )
    for number in range(40):
        clock.now_us = START_US + number * 10_000_000
        delays = DELAYS_US[random.choice([*DELAYS_US])]
        times = [None if random.random() < 0.2 else clock.now_us - random.choice(delays) for _ in range(5)]
        column = pa.array(times, pa.int64()).view(pa.timestamp("us", tz="UTC"))
        topic.partitions[number % 2].append(
            pa.record_batch({"time": column, "n": pa.array(np.arange(5, dtype=np.int32))})
        )
        if number in (5, 9, 20):
            topic.seal(active=True)
    return topic


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_both_are_what_reading_everything_gives(tmp_path: Path, seed: int) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        topic = filled(log, clock, seed)
        end = topic.end()
        for _ in range(30):
            until = {number: random.randint(0, offset) for number, offset in end.items()}
            start = {number: random.randint(0, offset) for number, offset in until.items()}
            table = topic.slice(start, until)
            assert count_late(topic, start, until) == (pc.sum(table.column("_late")).as_py() or 0)
            latest: dict[int, int] = {}
            stamps = table.column("_arrived").cast(pa.int64()).to_pylist()
            for number, stamp in zip(table.column("_partition").to_pylist(), stamps, strict=True):
                latest[number] = max(stamp, latest.get(number, 0))
            assert latest_arrivals(topic, start, until) == latest


def test_a_topic_whose_records_are_all_on_time_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        topic = log.create("events", "time timestamp", event_time="time", lateness=timedelta(minutes=1))
        for number in range(4):
            clock.now_us = START_US + 59 * 60_000_000 + number
            times = pa.array([clock.now_us - 60_000_000], pa.int64()).view(pa.timestamp("us", tz="UTC"))
            topic.partitions[0].append(pa.record_batch({"time": times}))
            topic.seal(active=True)

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("it was read")

        monkeypatch.setattr(FolderPartition, "read", refuse)
        assert count_late(topic, {0: 0}, topic.end()) == 0
        assert latest_arrivals(topic, {0: 0}, topic.end()) == {0: clock.now_us}
