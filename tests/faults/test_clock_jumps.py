"""A clock that is set back, set forward, and stands still: arrival never decreases, and nothing else breaks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from penstock.log.folder_log import FolderLog
from penstock.log.producers import new_producer
from tests.faults.checker import judge
from tests.faults.history import SCHEMA, Entry
from tests.faults.workers import events

HOUR_US = 3_600_000_000
YEAR_US = 365 * 24 * HOUR_US
NOW_US = 57 * YEAR_US
JUMPS = [0, 1, -1, 1_000, -1_000, HOUR_US, -HOUR_US, 30 * 24 * HOUR_US, -30 * 24 * HOUR_US, 40 * YEAR_US, -50 * YEAR_US]


class Jumping:
    """A clock that jumps by chance, also in the middle of an append."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.now_us = NOW_US
        self.greatest = 0

    def __call__(self) -> int:
        if self.dice.random() < 0.3:
            self.now_us = max(self.now_us + self.dice.choice(JUMPS), 0)
        self.greatest = max(self.greatest, self.now_us)
        return self.now_us


@pytest.mark.parametrize("rounds", [1, pytest.param(100, marks=pytest.mark.long)])
def test_arrival_never_decreases_whatever_the_clock_does(memory_path: Path, rounds: int, seed: int) -> None:
    """Two processes with clocks of their own write in turns; segments are rolled, sealed, and opened again."""
    for number in range(rounds):
        write_while_clocks_jump(memory_path / str(number), seed + number)


def write_while_clocks_jump(folder: Path, seed: int) -> None:
    clocks = [Jumping(seed), Jumping(seed + 1000)]
    dice = Random(seed)
    producer = new_producer()
    entries: list[Entry] = []
    FolderLog(folder, background=False).create("t", SCHEMA, event_time="time", segment_bytes=8192)
    logs = [FolderLog(folder, background=False, clock=clock) for clock in clocks]
    arrivals = []
    for turn in range(80):
        topic = logs[dice.randrange(2)].topic("t")
        first = 10 * turn
        fields = {"topic": "t", "writer": "w", "partition": 0, "first": first, "count": 10}
        entries.append({"do": "send", **fields})
        sequences = np.arange(first, first + 10)
        appended = topic.partitions[0].append(
            events("w", first, 10, topic.schema), producer=producer, sequences=sequences
        )
        entries.append({"do": "ack", **fields, "base": appended.base_offset})
        arrivals.append(appended.arrived_us)
        assert appended.count == 10
        if dice.random() < 0.1:
            topic.seal(active=dice.random() < 0.5)
        if dice.random() < 0.1:
            which = dice.randrange(2)
            logs[which].close()
            logs[which] = FolderLog(folder, background=False, clock=clocks[which])
        if dice.random() < 0.05:  # A power cut forgets it, and the next one has to find out.
            (folder / "topics/t/0/end").write_bytes(b"")
            logs = [FolderLog(folder, background=False, clock=clock) for clock in clocks]
    assert all(before <= after for before, after in pairwise(arrivals))
    assert max(arrivals) <= max(clock.greatest for clock in clocks)
    topic = logs[0].topic("t")
    table = topic.slice()
    assert table.num_rows == 800
    stamps = table.column("_arrived").combine_chunks().view(pa.int64()).to_numpy()
    for arrived_us in (0, arrivals[0], arrivals[40], arrivals[-1], arrivals[-1] + 1):
        assert topic.partitions[0].offset_at(arrived_us) == np.searchsorted(stamps, arrived_us)
    verdict = judge(folder, entries)
    assert verdict.is_clean, str(verdict)


def test_records_of_a_clock_ahead_are_kept_until_they_are_old(memory_path: Path) -> None:
    """Age counts from the append as the clock showed it: a clock that was ahead drops nothing too early."""
    clock = [NOW_US]
    log = FolderLog(memory_path, background=False, clock=lambda: clock[0])
    topic = log.create("t", SCHEMA, retention_age="1 hour")
    topic.partitions[0].append(events("w", 0, 10, topic.schema))
    clock[0] += 10 * HOUR_US
    topic.partitions[0].append(events("w", 10, 10, topic.schema))
    topic.seal(active=True)
    clock[0] -= 10 * HOUR_US
    topic.partitions[0].append(events("w", 20, 10, topic.schema))
    topic.retain()
    assert topic.start() == {0: 0}
    assert topic.slice().num_rows == 30
    clock[0] += 12 * HOUR_US
    topic.retain()
    assert topic.start() == {0: 30}
    assert topic.end() == {0: 30}
    topic.partitions[0].append(events("w", 30, 10, topic.schema))
    assert topic.slice(topic.start()).column("_offset").to_pylist() == list(range(30, 40))


def test_producer_is_known_after_the_clock_was_set_back(memory_path: Path) -> None:
    clock = [NOW_US]
    log = FolderLog(memory_path, background=False, clock=lambda: clock[0])
    topic = log.create("t", SCHEMA, segment_bytes=4096)
    producer = new_producer()
    for turn in range(30):
        clock[0] += -HOUR_US if turn % 2 else 2 * HOUR_US
        batch, sequences = events("w", 10 * turn, 10, topic.schema), np.arange(10 * turn, 10 * turn + 10)
        assert topic.partitions[0].append(batch, producer=producer, sequences=sequences).count == 10
        assert topic.partitions[0].append(batch, producer=producer, sequences=sequences).duplicates == 10
    assert topic.end() == {0: 300}
