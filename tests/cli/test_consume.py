"""penstock consume: what it prints, where it begins and ends, and what its group remembers."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.log.folder_log import FolderLog
from tests.cli.commands import fails, run
from tests.eventually import eventually
from tests.log.rows import rows

SCHEMA = "time timestamp, user string, n bigint"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderLog:
    monkeypatch.chdir(tmp_path)
    log = FolderLog(tmp_path / "data" / "log", background=False)
    topic = log.create("events", SCHEMA, partitions=2)
    topic.partitions[0].append(rows(range(10)))
    topic.partitions[1].append(rows(range(10, 15)))
    return log


def consume(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("consume", *words).splitlines()]


def numbers(*words: str) -> list[int]:
    return sorted(event["n"] for event in consume(*words))


def test_everything_up_to_now_is_printed(log: FolderLog) -> None:
    assert numbers("events") == list(range(15))
    assert consume("events")[0] == {"time": "2026-01-01T00:00:00Z", "user": "u0", "n": 0}


def test_own_columns_are_printed_on_demand(log: FolderLog) -> None:
    event = next(event for event in consume("events", "--meta") if event["n"] == 12)
    assert (event["_topic"], event["_partition"], event["_offset"], event["_late"]) == ("events", 1, 2, False)
    assert event["_arrived"].endswith("Z")


@pytest.mark.parametrize(
    ("start", "expected"),
    [("latest", []), ("3", [*range(3, 10), 13, 14]), ("2000-01-01", list(range(15))), ("2100-01-01T00:00:00Z", [])],
)
def test_reading_begins_where_it_is_told(log: FolderLog, start: str, expected: list[int]) -> None:
    assert numbers("events", "--from", start) == expected


def test_start_that_is_none_is_told_in_words(log: FolderLog) -> None:
    assert "cannot start at 'soon'" in fails("consume", "events", "--from", "soon")
    assert "cannot start at '9999" in fails("consume", "events", "--from", "9" * 5000)


def test_patterns_and_several_topics(log: FolderLog) -> None:
    log.create("orders.eu", SCHEMA).partitions[0].append(rows([100]))
    log.create("orders.us", SCHEMA).partitions[0].append(rows([200]))
    assert numbers("orders.*") == [100, 200]
    assert numbers("orders.eu", "events", "--from", "0", "--max", "100") == [*range(15), 100]


def test_group_goes_on_after_what_was_printed(log: FolderLog) -> None:
    first = numbers("events", "--group", "g", "--max", "4")
    second = numbers("events", "--group", "g", "--max", "7")
    rest = numbers("events", "--group", "g")
    assert [len(first), len(second), len(rest)] == [4, 7, 4]
    assert sorted(first + second + rest) == list(range(15))
    assert numbers("events", "--group", "g") == []
    assert numbers("events", "--group", "other") == list(range(15))


def test_records_that_come_meanwhile_are_left_for_the_next_run(log: FolderLog, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.cli import consume as module

    ends = module._ends

    def with_more(log: FolderLog, topics: list[str]) -> dict[tuple[str, int], int]:
        found = ends(log, topics)
        log.topic("events").partitions[0].append(rows([20, 21]))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(module, "_ends", with_more)
        assert numbers("events", "--group", "g") == list(range(15))
    assert numbers("events", "--group", "g") == [20, 21]


def test_table_is_for_people(log: FolderLog) -> None:
    printed = run("consume", "events", "--format", "table", "--max", "3", "--meta")
    assert printed.splitlines()[0].split() == [
        "time",
        "user",
        "n",
        "_partition",
        "_offset",
        "_arrived",
        "_late",
        "_topic",
    ]
    assert len(printed.splitlines()) == 5


def test_every_type_is_printed_so_that_produce_takes_it_again(log: FolderLog) -> None:
    schema = (
        "a decimal(10,2), b binary, c date, d timestamp, e timestamp_ntz, f map<string,int>, g array<double>, "
        "h struct<x: int, y: map<string,string>>, i boolean, j float, k string"
    )
    log.create("types", schema)
    log.create("copy", schema)
    given = {
        "a": "12.50", "b": "AAE=", "c": "2026-01-31", "d": "2026-01-31T12:00:00.000001Z", "e": "2026-01-31T12:00:00",
        "f": {"x": 1}, "g": [1.5, None], "h": {"x": 1, "y": {"z": "ä"}}, "i": True, "j": 0.5, "k": "\n",
    }  # fmt: skip
    run("produce", "types", given=json.dumps(given) + "\n" + json.dumps(dict.fromkeys(given)) + "\n")
    printed = run("consume", "types")
    assert [json.loads(line) for line in printed.splitlines()] == [given, dict.fromkeys(given)]
    run("produce", "copy", given=printed)
    assert log.topic("copy").slice(columns=list(given)).to_pylist()[0]["a"] == Decimal("12.50")
    assert run("consume", "copy") == printed


def test_dead_letters_are_readable_in_a_table(log: FolderLog) -> None:
    run("produce", "events", given='{"n": "x"}\n', code=1)
    assert '{"n": "x"}' in run("consume", "events.dead", "--format", "table")


def test_unknown_topic_is_told_in_words(log: FolderLog) -> None:
    assert "did you mean 'events'?" in fails("consume", "event")


def test_follow_prints_what_comes_and_ends_quietly_on_ctrl_c(log: FolderLog) -> None:
    words = ["consume", "events", "--follow", "--from", "latest", "--group", "g"]
    process = subprocess.Popen(
        # A suite in the background of a shell ignores Ctrl-C, and so would this process.
        ["env", "--default-signal=INT", sys.executable, "-m", "penstock.cli", "--log", str(log.root), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output = process.stdout
        assert output is not None

        def is_printed() -> object:
            log.topic("events").partitions[0].append(rows([100]))
            return select.select([output], [], [], 0.1)[0]

        eventually(is_printed)  # Not before the process has begun to follow.
        printed = output.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert json.loads(printed)["n"] == 100, errors
    assert process.returncode == 130
    assert b"Traceback" not in errors
