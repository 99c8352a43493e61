"""However a log is cut, every record is in exactly one step."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from penstock.log.folder_log import FolderLog
from penstock.verify.cuts import Cut, Recorded


@pytest.fixture
def log(tmp_path: Path) -> FolderLog:
    made = FolderLog(tmp_path / "log", background=False)
    for name, partitions in (("orders", 2), ("payments", 1), ("idle", 1)):
        made.create(name, "id bigint", partitions=partitions)
    for start in range(0, 20, 5):
        for name in ("orders", "payments"):
            made.topic(name).append(pa.table({"id": list(range(start, start + 5))}))
    return made


def recorded(log: FolderLog, rows: int | None = None) -> Recorded:
    return Recorded.of({name: log.topic(name) for name in log.topics()}, rows)


def sizes(found: Recorded, cuts: list[Cut]) -> list[int]:
    """Records of each step; each cut lies beyond the one before."""
    for before, after in pairwise([found.start, *cuts]):
        assert before != after
        assert all(after[name][n] >= offset for name, offsets in before.items() for n, offset in offsets.items())
    assert cuts[-1] == found.end
    totals = [sum(sum(each.values()) for each in cut.values()) for cut in [found.start, *cuts]]
    return [after - before for before, after in pairwise(totals)]


def test_every_plan_of_steps_takes_each_record_once(log: FolderLog) -> None:
    found = recorded(log)
    assert found.records == {"idle": 0, "orders": 20, "payments": 20}
    assert sizes(found, found.evenly(10)) == [4] * 10
    assert sizes(found, list(found.one_by_one(40))) == [1] * 40
    for seed in range(20):
        assert sum(sizes(found, found.by_chance(Random(seed), 6))) == 40


def test_chosen_records_are_alone_and_in_order_of_arrival(log: FolderLog) -> None:
    found = recorded(log)
    arriving = list(found.arriving(40))
    assert [each.place for each in arriving] == list(range(40))
    cuts = found.alone([arriving[0], arriving[7], arriving[8], arriving[39]])
    assert sizes(found, cuts) == [1, 6, 1, 1, 30, 1]
    assert found.alone([]) == []


def test_the_same_seed_gives_the_same_cuts(log: FolderLog) -> None:
    found = recorded(log)
    assert found.by_chance(Random(7), 5) == found.by_chance(Random(7), 5)
    assert found.by_chance(Random(7), 5) != found.by_chance(Random(8), 5)


def test_the_first_rows_are_those_that_arrived_first(log: FolderLog) -> None:
    found = recorded(log, rows=7)
    assert found.total == 7
    assert found.records == {"idle": 0, "orders": 5, "payments": 2}
    assert recorded(log, rows=1000).total == 40


def test_an_empty_log_is_one_step(tmp_path: Path) -> None:
    log = FolderLog(tmp_path / "empty", background=False)
    log.create("orders", "id bigint")
    found = recorded(log)
    assert found.evenly(10) == found.by_chance(Random(1), 3) == [found.end]
    assert list(found.one_by_one(5)) == []
