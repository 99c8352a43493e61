"""penstock log: check, inspect, seal, retain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.log.folder_log import FolderLog
from tests.check.test_checking import filled, flip, hot, parquet
from tests.cli.commands import fails, run
from tests.log.rows import numbers_of, rows, small_topic


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderLog:
    monkeypatch.chdir(tmp_path)
    return FolderLog(tmp_path / "data" / "log", background=False)


def test_check_of_a_whole_log_says_so(log: FolderLog) -> None:
    filled(log)
    printed = run("log", "check")
    assert "events/0" in printed
    assert printed.endswith("1 checked, all whole\n")
    assert json.loads(run("log", "check", "events/0", "--json"))["damaged"] == 0


def test_check_of_a_damaged_log_names_file_offset_and_what_to_do(log: FolderLog) -> None:
    directory = filled(log)
    flip(hot(directory), 300)
    printed = run("log", "check", code=1)
    assert "DAMAGED" in printed
    assert "offset 600" in printed
    assert f"events/0/{hot(directory).name}\n" in printed
    assert "penstock log check events/0 --repair" in printed
    document = json.loads(run("log", "check", "--json", code=1))
    assert document["damaged"] == 1
    assert document["partitions"][0]["findings"][0]["offset"] == 600


def test_check_works_where_the_partition_cannot_be_opened(log: FolderLog) -> None:
    directory = filled(log)
    flip(hot(directory, 1), 300)
    (directory / "end").unlink()
    assert "--repair" in run("log", "check", "events", code=1)


def test_repair_mends_and_checks_again(log: FolderLog) -> None:
    directory = filled(log)
    (directory / "manifest.json").unlink()
    printed = run("log", "check", "--repair")
    assert "manifest.json: made again, with 2 sealed segments" in printed
    assert printed.endswith("1 checked, all whole\n")
    assert "nothing to repair" in run("log", "check", "--repair")
    assert numbers_of(log.topic("events")) == list(range(1200))


def test_repair_that_loses_something_asks_and_needs_a_terminal_for_it(
    log: FolderLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(hot(filled(log)), 300)
    assert "to go on all the same: --yes" in fails("log", "check", "--repair")
    monkeypatch.setattr("penstock.cli.log.is_terminal", lambda: True)
    run("log", "check", "--repair", given="n\n", code=1)
    assert "all whole" in run("log", "check", "--repair", given="y\n")
    assert numbers_of(log.topic("events")) == [*range(600), *range(700, 1200)]


def test_repair_can_be_told_not_to_ask(log: FolderLog) -> None:
    flip(parquet(filled(log)), 900)
    document = json.loads(run("log", "check", "--repair", "--yes", "--json"))
    assert document["damaged"] == 0
    assert any(each["lost"] for each in document["mended"])


def test_inspect_shows_segments_and_pieces(log: FolderLog) -> None:
    filled(log)
    printed = run("log", "inspect", "events/0")
    for word in ("00000000000000000300.parquet", "row group", "active", "closing", "2026-01-01T00"):
        assert word in printed
    document = json.loads(run("log", "inspect", "events/0", "--limit", "3", "--json"))
    assert (len(document["segments"]), len(document["pieces"])) == (4, 3)
    assert "more with --limit" in run("log", "inspect", "events/0", "--limit", "3")


def test_inspect_shows_records_around_an_offset(log: FolderLog) -> None:
    filled(log)
    document = json.loads(run("log", "inspect", "events/0", "--at", "750", "--limit", "2", "--json"))
    assert [event["n"] for event in document["records"]] == [750, 751]
    assert (document["piece"]["start"], document["piece"]["stop"]) == (700, 800)
    assert '"n": 750' in run("log", "inspect", "events/0", "--at", "750")
    assert "has no offset 5000" in fails("log", "inspect", "events/0", "--at", "5000")


def test_inspect_needs_a_partition_that_is_there(log: FolderLog) -> None:
    filled(log)
    assert "expected TOPIC/PARTITION" in fails("log", "inspect", "events", code=2)
    assert "there is no partition events/7" in fails("log", "inspect", "events/7")
    assert "no partition" in fails("log", "inspect", "events/x", code=2)
    assert "did you mean 'events'" in fails("log", "inspect", "event/0")


def test_seal_and_retain_happen_now(log: FolderLog) -> None:
    topic = small_topic(log, retention_bytes=1)
    topic.partitions[0].append(rows(range(100)))
    assert json.loads(run("log", "seal", "--json")) == [{"topic": "events", "sealed": 0}]
    assert json.loads(run("log", "seal", "events", "--active", "--json")) == [{"topic": "events", "sealed": 1}]
    (removed,) = json.loads(run("log", "retain", "events", "--json"))
    assert (removed["segments"], removed["records"], removed["start_offset"]) == (1, 100, 100)
    assert "events" in run("log", "retain")
    assert "events" in run("log", "seal", "--closed")


def test_retain_compacts_topics_that_are_tables(log: FolderLog) -> None:
    topic = small_topic(log, key="user", compact=True)
    for _ in range(2):
        topic.partitions[0].append(rows(range(100)))
        topic.seal(active=True)
    (line,) = json.loads(run("log", "retain", "--json"))
    assert line["compacted"] == 193
