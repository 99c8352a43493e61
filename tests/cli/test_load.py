"""penstock load: what it says, and that it hands everything on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.log.folder_log import FolderLog
from tests.cli.commands import fails, run
from tests.log.rows import rows


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderLog:
    monkeypatch.chdir(tmp_path)
    log = FolderLog(tmp_path / "data" / "log", background=False)
    log.create("events", "time timestamp, user string, n bigint", partitions=2)
    Path("a.csv").write_text("time,n\n2026-01-01T00:00:00Z,1\n2026-01-01T00:00:01Z,x\n2026-01-01T00:00:02Z,3\n")
    return log


def test_load_says_what_became_of_the_rows(log: FolderLog) -> None:
    printed = run("load", "a.csv", "--topic", "events")
    assert printed.startswith("2 of 3 rows of a.csv are stored in events, in ")
    assert printed.endswith("1 do not fit and are in events.dead\n")
    assert run("load", "a.csv", "--topic", "events").startswith("already loaded: 0 stored, 3 duplicates")


def test_load_of_which_nothing_fits_fails(log: FolderLog) -> None:
    Path("b.csv").write_text("time,n\n2026-01-01T00:00:00Z,x\nyesterday,2\n")
    assert "none of these events fits events\n  to see why: penstock consume events.dead" in fails(
        "load", "b.csv", "--topic", "events"
    )
    assert json.loads(run("load", "b.csv", "--topic", "events", "--json"))["was_loaded"]


def test_load_answers_programs(log: FolderLog) -> None:
    first = json.loads(run("load", "a.csv", "--topic", "events", "--arrived", "time", "--json"))
    assert (first["rows"], first["stored"], first["rejected"], first["was_loaded"]) == (3, 2, 1, False)
    assert json.loads(run("load", "a.csv", "--topic", "events", "--arrived", "time", "--json"))["was_loaded"]


def test_format_can_be_named(log: FolderLog) -> None:
    Path("a.csv").rename("a.data")
    assert "--format csv|jsonl|parquet" in fails("load", "a.data", "--topic", "events")
    assert "2 of 3 rows" in run("load", "a.data", "--topic", "events", "--format", "csv")


def test_history_behind_later_arrivals_is_refused(log: FolderLog) -> None:
    log.topic("events").partitions[1].append(rows([1]))
    assert "holds later arrivals already" in fails("load", "a.csv", "--topic", "events", "--arrived", "time")


def test_missing_file_is_wrong_usage(log: FolderLog) -> None:
    assert "there is no file b.csv" in fails("load", "b.csv", "--topic", "events", code=2)
