"""penstock produce: JSON lines and CSV, from files and streams."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log.folder_log import FolderLog
from tests.cli.commands import fails, run
from tests.eventually import eventually

SCHEMA = "time timestamp, user string, n bigint"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderLog:
    monkeypatch.chdir(tmp_path)
    log = FolderLog(tmp_path / "data" / "log", background=False)
    log.create("events", SCHEMA, key="user", partitions=2)
    return log


def numbers(log: FolderLog, topic: str = "events") -> list[int]:
    return sorted(log.topic(topic).slice().column("n").to_pylist())


def lines(*found: int) -> str:
    return "".join(json.dumps({"user": f"u{n}", "n": n}) + "\n" for n in found)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_record_that_is_too_large_is_rejected_and_the_others_are_stored(
    log: FolderLog, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG_RECORD_BYTES_MAX", "1024")
    users = ["a", "b" * 2000, "c"]
    given = "".join(
        [json.dumps({"user": user, "n": n}) + "\n" for n, user in enumerate(users)]
        if kind == "jsonl"
        else ["user,n\n", *(f"{user},{n}\n" for n, user in enumerate(users))]
    )
    printed = run("produce", "events", "--format", kind, given=given)
    assert printed.startswith("3 sent, 3 acknowledged, 1 rejected (to events.dead), ")
    assert numbers(log) == [0, 2]
    [letter] = log.topic("events.dead").slice().to_pylist()
    assert letter["reason"].startswith("expected at most 1,024 bytes, found 2,")


def test_json_lines_from_the_standard_input(log: FolderLog) -> None:
    printed = run("produce", "events", given=lines(1, 2, 3))
    assert printed.startswith("3 sent, 3 acknowledged, 0 rejected, ")
    assert printed.endswith("/s\n")
    assert numbers(log) == [1, 2, 3]


def test_json_lines_from_a_file(log: FolderLog) -> None:
    Path("a.jsonl").write_text(lines(*range(5000)).rstrip("\n"))
    counts = json.loads(run("produce", "events", "a.jsonl", "--json"))
    assert (counts["sent"], counts["acknowledged"], counts["rejected"]) == (5000, 5000, 0)
    assert numbers(log) == list(range(5000))


def test_csv_is_read_by_the_schema(log: FolderLog) -> None:
    run("produce", "events", "-", "--format", "csv", given='user,n,time\n"a, b",1,2026-01-01T00:00:00Z\nc,2,\n')
    assert numbers(log) == [1, 2]


@pytest.mark.parametrize(
    ("kind", "given"), [("jsonl", lines(1) + '{"n": "x"}\n' + lines(2)), ("csv", "user,n\nu1,1\nu2,x\nu3,2\n")]
)
def test_what_does_not_fit_is_counted_and_kept(log: FolderLog, kind: str, given: str) -> None:
    assert "3 sent, 3 acknowledged, 1 rejected (to events.dead)" in run(
        "produce", "events", "--format", kind, given=given
    )
    assert numbers(log) == [1, 2]
    assert log.topic("events.dead").end() == {0: 1}


@pytest.mark.parametrize(("kind", "given"), [("jsonl", '{"n": "x"}\n{'), ("csv", "user,n\nu2,x\n")])
def test_produce_of_which_nothing_fits_fails(log: FolderLog, kind: str, given: str) -> None:
    assert "none of these events fits events" in fails("produce", "events", "--format", kind, given=given)
    run("produce", "events", "--format", kind, given="")


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("jsonl", lines(*range(100)) + "nonsense\n" + lines(100)),
        ("csv", "n\n" + "\n".join(map(str, range(50))) + "\nx\n50\n"),
    ],
)
def test_named_producer_leaves_out_what_it_sent_before(log: FolderLog, kind: str, given: str) -> None:
    run("produce", "events", "--name", "shop", "--format", kind, given=given)
    once = numbers(log)
    assert "stored before" in run("produce", "events", "--name", "shop", "--format", kind, given=given)
    assert numbers(log) == once
    assert log.topic("events.dead").end() == {0: 1}
    more = "{}\n" if kind == "jsonl" else "51\n"
    run("produce", "events", "--name", "shop", "--format", kind, given=given + more)
    assert len(log.topic("events").slice()) == len(once) + 1


def test_unknown_csv_column_is_refused_before_anything_is_sent(log: FolderLog) -> None:
    assert "did you mean 'user'?" in fails("produce", "events", "--format", "csv", given="usr,n\na,1\n")
    assert numbers(log) == []


def test_missing_file_and_unknown_topic_are_told_in_words(log: FolderLog) -> None:
    assert fails("produce", "events", "nothing.jsonl") == "penstock: nothing.jsonl: No such file or directory\n"
    assert "did you mean 'events'?" in fails("produce", "event", given="")


def test_stream_arrives_while_it_goes_on(log: FolderLog) -> None:
    command = [sys.executable, "-m", "penstock.cli", "--log", str(log.root), "produce", "events"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(lines(1) + '{"user": "u2", ')
        process.stdin.flush()
        eventually(lambda: numbers(log) == [1])
        output, _ = process.communicate('"n": 2}\n')
    assert output.startswith("2 sent, 2 acknowledged")
    assert numbers(log) == [1, 2]
