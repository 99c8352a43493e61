"""The demo, and whether its count can be trusted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.demo.count import Count, count
from penstock.demo.workers import BATCH, TOPIC, History
from penstock.log.log import Log


@pytest.mark.long
def test_the_demo_loses_nothing_though_two_processes_are_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.demo", "--seconds", "4", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout.splitlines()[-1])
    assert counted["acknowledged"] > 1000
    assert (counted["lost"], counted["stored_twice"]) == (0, 0)
    assert all(group["received"] == counted["stored"] for group in counted["groups"].values())


def counted(root: Path, stored: Sequence[int], received: list[tuple[int, int]]) -> Count:
    """One producer that was answered for its first hundred events; what is stored and received is given."""
    history, reader = History(root / "ada.jsonl"), History(root / "reader.jsonl")
    history.add(do="sent", first=0)
    history.add(do="acknowledged", first=0)
    for start, stop in received:
        reader.add(do="received", partition=0, start=start, stop=stop)
    with Log(root / "log", background=False) as log:
        topic = log.create(TOPIC, "producer string, number bigint")
        topic.append(pa.Table.from_pylist([{"producer": "ada", "number": n} for n in stored], topic.schema))
        return count(log, [root / "ada.jsonl"], {"readers": [root / "reader.jsonl"]})


def test_a_clean_run_is_clean(tmp_path: Path) -> None:
    assert counted(tmp_path, range(BATCH), [(0, 60), (40, BATCH)]).is_clean


def test_a_lost_event_is_noticed(tmp_path: Path) -> None:
    found = counted(tmp_path, range(BATCH - 1), [(0, BATCH - 1)])
    assert (found.lost, found.is_clean) == (1, False)


def test_an_event_stored_twice_is_noticed(tmp_path: Path) -> None:
    found = counted(tmp_path, [*range(BATCH), 5], [(0, BATCH + 1)])
    assert (found.stored_twice, found.is_clean) == (1, False)


def test_an_event_that_a_group_missed_or_got_twice_is_noticed(tmp_path: Path) -> None:
    found = counted(tmp_path, range(BATCH), [(0, 50), (30, 60), (70, BATCH)])
    assert (found.groups["readers"].missed, found.groups["readers"].redelivered) == (10, 20)
    assert not found.is_clean
