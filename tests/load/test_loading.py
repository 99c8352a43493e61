"""Loading a file: each row once, whatever happens; arrivals as the file has them; what does not fit is kept."""

from __future__ import annotations

import gzip
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import (
    ArrivalColumnError,
    ArrivalRefused,
    FileChanged,
    FileColumnsError,
    FileFormatError,
)
from penstock.load import loading as load_module
from penstock.load import row_source
from penstock.load.loading import Loaded, load
from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.folder_topic import FolderTopic
from penstock.log.partition import Appended
from tests.log.rows import rows

SCHEMA = "time timestamp, user string, n bigint"
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False) as opened:
        yield opened


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the tests are small, and must come in several pieces all the same."""
    monkeypatch.setattr(row_source, "CHUNK_BYTES", 4000)
    monkeypatch.setattr(row_source, "CHUNK_ROWS", 70)
    monkeypatch.setattr(load_module, "TURN_ROWS", 16)


def events(count: int = 1000) -> list[dict[str, Any]]:
    """Times go up, but every tenth is an hour behind."""
    return [
        {"time": START + timedelta(seconds=n) - timedelta(hours=n % 10 == 9), "user": f"u{n % 7}", "n": n}
        for n in range(count)
    ]


def write(path: Path, found: list[dict[str, Any]]) -> Path:
    plain = [{**event, "time": event["time"] and event["time"].isoformat()} for event in found]
    if ".parquet" in path.name:
        pq.write_table(pa.Table.from_pylist(found), path)
    elif ".csv" in path.name:
        names = list(plain[0])
        lines = [",".join("" if event[name] is None else str(event[name]) for name in names) for event in plain]
        _write_text(path, "\n".join([",".join(names), *lines]) + "\n")
    else:
        _write_text(path, "".join(json.dumps(event) + "\n" for event in plain))
    return path


def _write_text(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())


def stored(topic: FolderTopic) -> list[dict[str, Any]]:
    """What is in the topic, by number."""
    return sorted(topic.slice().to_pylist(), key=lambda event: event["n"])


def numbers(topic: FolderTopic) -> list[int]:
    return [event["n"] for event in stored(topic)]


def arrivals(topic: FolderTopic) -> dict[int, datetime]:
    return {event["n"]: event["_arrived"] for event in stored(topic)}


def running_maximum(found: list[dict[str, Any]]) -> dict[int, datetime]:
    greatest = datetime.min.replace(tzinfo=UTC)
    expected = {}
    for event in found:
        greatest = max(greatest, event["time"] or greatest)
        expected[event["n"]] = greatest
    return expected


def counts(loaded: Loaded) -> tuple[int, int, int, int]:
    return loaded.rows, loaded.stored, loaded.duplicates, loaded.rejected


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.ndjson.gz", "a.csv.gz"])
def test_every_format_gives_the_same_records(log: FolderLog, tmp_path: Path, name: str) -> None:
    topic = log.create("events", SCHEMA, key="user", partitions=3)
    loaded = load(topic, write(tmp_path / name, events()))
    assert counts(loaded) == (1000, 1000, 0, 0)
    assert [{key: event[key] for key in ("time", "user", "n")} for event in stored(topic)] == events()


def test_last_line_needs_no_line_break(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA)
    (tmp_path / "a.csv").write_text("n,user\n1,a\n2,b")
    (tmp_path / "a.jsonl").write_text('{"n": 3}\n\n{"n": 4}')
    assert load(topic, tmp_path / "a.csv").stored == load(topic, tmp_path / "a.jsonl").stored == 2
    assert numbers(topic) == [1, 2, 3, 4]


@pytest.mark.parametrize("key", ["user", None])
@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_second_load_stores_nothing(log: FolderLog, tmp_path: Path, name: str, key: str | None) -> None:
    topic = log.create("events", SCHEMA, key=key, partitions=4)
    path = write(tmp_path / name, events())
    load(topic, path)
    again = load(topic, path)
    assert counts(again) == (1000, 0, 1000, 0)
    assert again.was_loaded
    assert numbers(topic) == list(range(1000))


def test_file_is_known_by_name_and_content(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA)
    path = write(tmp_path / "a.csv", events(10))
    (tmp_path / "elsewhere").mkdir()
    load(topic, path)
    assert load(topic, write(tmp_path / "elsewhere" / "a.csv", events(10))).was_loaded
    assert load(topic, write(tmp_path / "b.csv", events(10))).stored == 10
    assert load(topic, write(path, events(11))).stored == 11


def test_topic_that_is_made_again_is_loaded_again(log: FolderLog, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", events(10))
    load(log.create("events", SCHEMA), path)
    log.delete("events")
    assert load(log.create("events", SCHEMA), path).stored == 10


@pytest.mark.parametrize("arrived", ["time", None])
@pytest.mark.parametrize("key", ["user", None])
@pytest.mark.parametrize("appends", [0, 1, 5, 9, 20])
def test_load_that_died_is_finished_by_the_next(
    log: FolderLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None, appends: int, arrived: str | None
) -> None:
    topic = log.create("events", SCHEMA, key=key, partitions=4)
    found = events()
    path = write(tmp_path / "a.csv", found)
    path.write_text(path.read_text().replace(",u3,31\n", ",u3,x\n"))
    append, calls = FolderPartition.append, iter(range(1000))

    def dying(self: FolderPartition, *given: Any, **named: Any) -> Appended:
        if next(calls) >= appends:
            raise OSError(5, "killed")
        return append(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(FolderPartition, "append", dying)
        with pytest.raises(OSError, match="killed"):
            load(topic, path, arrived=arrived)
    monkeypatch.setattr(row_source, "CHUNK_BYTES", 3000)  # As another version of the program might read it.
    loaded = load(topic, path, arrived=arrived)
    assert loaded.stored + loaded.duplicates + loaded.rejected == 1000
    assert numbers(topic) == [n for n in range(1000) if n != 31]
    assert log.topic("events.dead").end() == {0: 1}
    if arrived:
        without = [event for event in found if event["n"] != 31]
        assert arrivals(topic) == running_maximum(without)


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("key", ["user", None])
def test_arrival_is_the_running_maximum_whatever_the_partitions(
    log: FolderLog, tmp_path: Path, partitions: int, key: str | None
) -> None:
    topic = log.create("events", SCHEMA, key=key, partitions=partitions, event_time="time", lateness="10 minutes")
    load(topic, write(tmp_path / "a.csv", events()), arrived="time")
    assert arrivals(topic) == running_maximum(events())
    assert [event["n"] for event in stored(topic) if event["_late"]] == list(range(9, 1000, 10))


def test_arrival_may_be_a_column_that_the_topic_does_not_have(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA)
    found = [{**event, "received": START + timedelta(days=event["n"])} for event in events(100)]
    for event in found:
        event["time"] = START
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(found), path)
    load(topic, path, arrived="received")
    assert arrivals(topic) == {n: START + timedelta(days=n) for n in range(100)}


def test_retention_counts_from_the_load_not_from_arrival(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA, retention_age="1 day")
    load(topic, write(tmp_path / "a.csv", events(100)), arrived="time")
    topic.seal(active=True)
    topic.retain()
    assert len(numbers(topic)) == 100
    topic.retain(now_us=log.clock() + 2 * 86_400_000_000)
    assert numbers(topic) == []


def test_null_takes_the_arrival_of_the_rows_before_it(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA)
    found = events(10)
    found[0]["time"] = found[1]["time"] = found[5]["time"] = None
    loaded = load(topic, write(tmp_path / "a.csv", found), arrived="time")
    assert counts(loaded) == (10, 8, 0, 2)
    assert arrivals(topic)[5] == arrivals(topic)[4]
    dead = log.topic("events.dead").slice().to_pylist()
    assert [json.loads(letter["raw"])["n"] for letter in dead] == [0, 1]
    assert "time of arrival" in dead[0]["reason"]


def test_load_is_refused_where_the_topic_holds_later_arrivals(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA, key="user", partitions=4)
    topic.partitions[2].append(rows([5000]))
    path = write(tmp_path / "a.csv", events())
    with pytest.raises(ArrivalRefused) as refused:
        load(topic, path, arrived="time")
    assert refused.value.place == "events/2"
    assert numbers(topic) == [5000]


def test_history_can_be_loaded_file_after_file(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA, partitions=2)
    found = events()
    first, second = write(tmp_path / "1.csv", found[:500]), write(tmp_path / "2.csv", found[500:])
    load(topic, first, arrived="time")
    load(topic, second, arrived="time")
    assert load(topic, first, arrived="time").was_loaded
    assert numbers(topic) == list(range(1000))


def test_finished_load_is_known_although_later_records_came(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA, partitions=2)
    path = write(tmp_path / "a.csv", events())
    load(topic, path, arrived="time")
    topic.partitions[0].append(rows([5000]))
    topic.partitions[1].append(rows([5001]))
    assert load(topic, path, arrived="time").was_loaded


def test_load_that_died_is_refused_once_later_records_came(
    log: FolderLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.create("events", SCHEMA, partitions=2)
    path = write(tmp_path / "a.csv", events())
    append, calls = FolderPartition.append, iter(range(1000))

    def dying(self: FolderPartition, *given: Any, **named: Any) -> Appended:
        if next(calls) >= 5:
            raise OSError(5, "killed")
        return append(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(FolderPartition, "append", dying)
        with pytest.raises(OSError, match="killed"):
            load(topic, path, arrived="time")
    topic.partitions[1].append(rows([5000]))
    before = topic.end()
    with pytest.raises(ArrivalRefused):
        load(topic, path, arrived="time")
    assert topic.end() == before


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_rows_that_do_not_fit_go_to_the_dead_letters_once(log: FolderLog, tmp_path: Path, name: str) -> None:
    topic = log.create("events", SCHEMA, partitions=2)
    path = write(tmp_path / name, events(100))
    text = path.read_text()
    path.write_text(text.replace(",u0,7\n", ",u0,seven\n").replace('"n": 7}', '"n": "seven"}'))
    assert counts(load(topic, path)) == (100, 99, 0, 1)
    assert counts(load(topic, path)) == (100, 0, 100, 0)
    (letter,) = log.topic("events.dead").slice().to_pylist()
    assert letter["column"] == "n"
    assert b"seven" in letter["raw"]
    assert letter["producer"] == f"load {name}"


def test_unknown_column_is_refused_before_anything_is_stored(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA)
    for name in ("a.csv", "a.parquet"):
        path = write(tmp_path / name, [{**event, "usr": "x"} for event in events(10)])
        with pytest.raises(FileColumnsError, match="did you mean 'user'") as refused:
            load(topic, path)
        assert refused.value.column == "usr"
    assert topic.end() == {0: 0}


def test_missing_not_null_column_is_refused(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA + ", id int NOT NULL")
    with pytest.raises(FileColumnsError, match="lacks 'id'"):
        load(topic, write(tmp_path / "a.csv", events(10)))


@pytest.mark.parametrize(("column", "found"), [("user", "type string"), ("nothing", "no value in the first")])
def test_column_that_is_no_arrival_is_refused(log: FolderLog, tmp_path: Path, column: str, found: str) -> None:
    topic = log.create("events", SCHEMA)
    with pytest.raises(ArrivalColumnError, match=found):
        load(topic, write(tmp_path / "a.jsonl", events(10)), arrived=column)
    assert topic.end() == {0: 0}


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.txt", b"", "a.txt"),
        ("a.csv", b"", "an empty file"),
        ("a.csv", b"\xff\xfe,b\n", "utf-8"),
        ("a.json", b'[{"n": 1}]', "a JSON array"),
        ("a.parquet", b"PAR1 no", "arquet"),
        ("a.jsonl.gz", b"not gzip", "gzip"),
    ],
)
def test_file_that_is_something_else_is_refused(
    log: FolderLog, tmp_path: Path, name: str, content: bytes, found: str
) -> None:
    topic = log.create("events", SCHEMA)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileFormatError) as refused:
        load(topic, tmp_path / name)
    assert found in str(refused.value)


def test_empty_json_lines_are_no_rows(log: FolderLog, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n\n")
    loaded = load(log.create("events", SCHEMA), tmp_path / "a.jsonl")
    assert counts(loaded) == (0, 0, 0, 0)
    assert not loaded.was_loaded


def test_file_that_changes_meanwhile_is_noticed(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA)
    path = write(tmp_path / "a.csv", events())
    rest = path.read_text()

    def progress(stage: str, done: int, total: int, rows: int) -> None:
        if stage == "storing":
            path.write_text(rest + "2026-01-01T00:00:00Z,u1,9999\n")

    with pytest.raises(FileChanged):
        load(topic, path, progress=progress)


def test_progress_reaches_the_end(log: FolderLog, tmp_path: Path) -> None:
    for name in ("a.csv", "a.jsonl.gz", "a.parquet"):
        seen: list[tuple[str, int, int, int]] = []
        path = write(tmp_path / name, events())
        load(log.create(f"events.{name}", SCHEMA), path, progress=lambda *told, seen=seen: seen.append(told))
        assert {stage for stage, *_ in seen} == {"reading", "storing"}
        size = path.stat().st_size
        assert seen[-1] == ("storing", size, size, 1000)
        assert [done for stage, done, *_ in seen if stage == "storing"] == sorted(
            done for stage, done, *_ in seen if stage == "storing"
        )


def test_schema_that_grew_since_changes_nothing_for_a_second_run(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA, key="user", partitions=2)
    path = write(tmp_path / "a.csv", events(100))
    load(topic, path)
    topic.alter(schema=SCHEMA + ", more string")
    assert load(topic, path).was_loaded


LOADER = """
import signal, sys
from penstock.cli import main
from penstock.load import row_source
from penstock.log.folder_partition import FolderPartition

row_source.CHUNK_BYTES = 10_000
append, appends, is_paused = FolderPartition.append, int(sys.argv.pop(1)), sys.argv.pop(1) == "pause"

def counted(self, *given, **named):
    global appends
    appends -= 1
    if appends == 0:
        print("now", flush=True)
        if is_paused:
            signal.pause()
    return append(self, *given, **named)

FolderPartition.append = counted
sys.argv[0] = "penstock"
main()
"""


def test_one_arrival_in_the_future_is_rejected_and_does_not_move_the_others(log: FolderLog, tmp_path: Path) -> None:
    topic = log.create("events", SCHEMA, key="user", partitions=3, event_time="time")
    given = events(200)
    given[50]["time"] = datetime.now(UTC) + timedelta(days=72 * 365)
    loaded = load(topic, write(tmp_path / "a.csv", given), arrived="time")
    assert (loaded.stored, loaded.rejected) == (199, 1)
    assert arrivals(topic) == running_maximum([each for each in given if each["n"] != 50])
    [letter] = log.topic("events.dead").slice().to_pylist()
    assert (letter["column"], letter["reason"]) == (
        "time",
        "expected a time of arrival that has come, found one in the future",
    )


@pytest.mark.parametrize("arrived", [None, "time"])
def test_a_row_that_is_too_large_is_rejected_and_the_others_are_stored(
    log: FolderLog, tmp_path: Path, arrived: str | None
) -> None:
    log.record_bytes_max = 1024
    topic = log.create("events", SCHEMA, key="user", partitions=3)
    given = events(200)
    given[7]["user"] = given[150]["user"] = "u" * 2000
    path = write(tmp_path / "a.csv", given)
    for number in range(2):
        loaded = load(topic, path, arrived=arrived)
        assert (loaded.rows, loaded.stored, loaded.rejected) == ((200, 198, 2) if number == 0 else (200, 0, 0))
    assert numbers(topic) == [n for n in range(200) if n not in (7, 150)]
    reasons = log.topic("events.dead").slice().column("reason").to_pylist()
    assert all(each.startswith("expected at most 1,024 bytes, found 2,") for each in reasons)


@pytest.mark.parametrize(("count", "kills"), [(4_000, 1), pytest.param(20_000, 12, marks=pytest.mark.long)])
def test_load_survives_real_kills(tmp_path: Path, dice: random.Random, count: int, kills: int) -> None:
    """Killed before an append while it stands still there, or at any moment after it."""
    path = write(tmp_path / "a.csv", events(count))
    loading = ["--log", str(tmp_path / "log"), "load", str(path), "--topic", "events", "--arrived", "time"]
    with FolderLog(tmp_path / "log", background=False) as log:
        topic = log.create("events", SCHEMA, key="user", partitions=4)
        for kill in range(kills):
            is_paused = kill % 2 == 0
            appends = str(dice.randint(5, 20 + 10 * kill))
            command = [sys.executable, "-c", LOADER, appends, "pause" if is_paused else "go on", *loading]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process, ExitStack() as stack:
                stack.callback(process.kill)  # Whatever happens: leaving the block waits for the process.
                assert process.stdout is not None
                is_told = process.stdout.readline() == b"now\n"
                time.sleep(0 if is_paused else dice.uniform(0, 0.2))
                process.kill()
            assert is_told or kill > 0, "a load that goes on after a kill may need fewer appends"
            assert process.returncode == -signal.SIGKILL or not (is_told and is_paused)
        subprocess.run([sys.executable, "-m", "penstock.cli", *loading], stdout=subprocess.DEVNULL, check=True)
        assert numbers(topic) == list(range(count))
        assert arrivals(topic) == running_maximum(events(count))
