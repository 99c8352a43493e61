"""A shared document survives crashes, frozen writers and everybody at once."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.consume import versioned
from penstock.consume.versioned import Document, VersionedDocument
from penstock.errors import CorruptionError

ADD_TOKENS = """
import sys
from pathlib import Path
from penstock.consume.versioned import VersionedDocument

folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
document = VersionedDocument(folder / "docs", "doc", workshop=folder)
for number in range(count):
    document.update(lambda found: {**found, f"{name}-{number}": 1})
    print(number, flush=True)
"""


@pytest.fixture
def document(tmp_path: Path) -> VersionedDocument:
    return another(tmp_path)


def another(folder: Path, **options: Any) -> VersionedDocument:
    (folder / "docs").mkdir(exist_ok=True)
    return VersionedDocument(folder / "docs", "doc", workshop=folder, **options)


class Sleeper:
    """A clock that only `sleep` moves."""

    slept = 0.0

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def setting(**fields: object) -> Callable[[Document], Document]:
    return lambda found: {**found, **fields}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_there_is_nothing_at_first(document: VersionedDocument) -> None:
    assert document.read() == (0, {})
    assert document.version() == 0


def test_an_update_makes_the_next_version(document: VersionedDocument, tmp_path: Path) -> None:
    assert document.update(setting(a=1)) == (1, {"a": 1})
    assert document.update(setting(b=2)) == (2, {"a": 1, "b": 2})
    assert another(tmp_path).read() == (2, {"a": 1, "b": 2})
    assert files(tmp_path / "docs") == ["doc-000000000002.json"]
    assert files(tmp_path) == ["doc.lock", "docs"]


def test_an_update_that_changes_nothing_writes_nothing(document: VersionedDocument) -> None:
    document.update(setting(a=1))
    assert document.update(lambda found: found) == (1, {"a": 1})


def test_an_error_changes_nothing(document: VersionedDocument) -> None:
    document.update(setting(a=1))
    with pytest.raises(ZeroDivisionError):
        document.update(lambda _: {"a": 1 // 0})
    assert document.read() == (1, {"a": 1})


def test_every_damaged_prefix_is_noticed(document: VersionedDocument, tmp_path: Path) -> None:
    document.update(setting(a=1, b=["c", None]))
    path = tmp_path / "docs" / "doc-000000000001.json"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptionError):
            document.read()
        with pytest.raises(CorruptionError):
            document.update(setting(a=2))
    path.write_bytes(whole)
    assert document.read() == (1, {"a": 1, "b": ["c", None]})


@pytest.mark.parametrize("versions_made_meanwhile", [1, 2, 5])
def test_a_frozen_writer_delays_others_once_and_overwrites_nothing(
    tmp_path: Path, versions_made_meanwhile: int
) -> None:
    is_frozen, thaw = threading.Event(), threading.Event()
    seen: list[Document] = []

    def freeze(found: Document) -> Document:
        seen.append(found)
        is_frozen.set()
        thaw.wait()
        return {**found, "slow": 1}

    another(tmp_path).update(setting(first=0))
    slow = threading.Thread(target=another(tmp_path).update, args=(freeze,))
    slow.start()
    is_frozen.wait()
    clock = Sleeper()
    quick = another(tmp_path, monotonic=clock.monotonic, sleep=clock.sleep)
    try:
        for number in range(versions_made_meanwhile):
            quick.update(setting(**{f"quick{number}": 1}))
    finally:
        thaw.set()
        slow.join()
    assert versioned.TURN_SECONDS <= clock.slept < versioned.TURN_SECONDS + 0.02 * versions_made_meanwhile
    version, found = another(tmp_path).read()
    assert found == {"first": 0, "slow": 1, **{f"quick{number}": 1 for number in range(versions_made_meanwhile)}}
    assert len(seen) == 2, "it was applied again, to what the others had made of it"
    assert files(tmp_path / "docs") == [f"doc-{version:012d}.json"]


def test_a_draft_that_was_swept_away_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = another(tmp_path)
    link = os.link
    attempts: list[Path] = []

    def sweep_then_link(source: Path, target: Path) -> None:
        attempts.append(source)
        if len(attempts) == 1:
            source.unlink()
        link(source, target)

    monkeypatch.setattr(os, "link", sweep_then_link)
    assert document.update(setting(a=1)) == (1, {"a": 1})
    assert len(attempts) == 2


def test_old_drafts_are_swept_and_young_ones_are_not(tmp_path: Path) -> None:
    document = another(tmp_path)
    for name, age in (
        ("doc.1-a.draft", 1000),
        ("doc.1-b.draft.tmp", 1000),
        ("doc.1-c.draft", 0),
        ("other.draft", 1000),
    ):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (time.time() - age, time.time() - age))
    document.sweep()
    assert files(tmp_path) == ["doc.1-c.draft", "docs", "other.draft"]


def test_a_document_that_was_deleted_by_hand_begins_anew(document: VersionedDocument, tmp_path: Path) -> None:
    document.update(setting(a=1))
    document.update(setting(a=2))
    (tmp_path / "docs" / "doc-000000000002.json").unlink()
    assert document.read() == (0, {})
    assert document.update(setting(b=1)) == (1, {"b": 1})


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", ADD_TOKENS, str(tmp_path), name, "30"], stdout=subprocess.DEVNULL)
        for name in "abcd"
    ]
    (tmp_path / "docs").mkdir(exist_ok=True)
    reader = VersionedDocument(tmp_path / "docs", "doc", workshop=tmp_path)
    versions = []
    while any(writer.poll() is None for writer in writers):
        versions.append(reader.read()[0])
        time.sleep(0.002)
    assert [writer.returncode for writer in writers] == [0] * 4
    assert versions == sorted(versions), "a reader never goes back"
    assert reader.read()[1] == {f"{name}-{number}": 1 for name in "abcd" for number in range(30)}


def test_a_killed_writer_leaves_a_whole_document(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for attempt in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", ADD_TOKENS, str(tmp_path), f"w{attempt}", "100000"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        for _ in range(3 + attempt):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        done = [*range(3 + attempt), *map(int, writer.communicate()[0].split())]
        found = another(tmp_path).read()[1]
        assert {f"w{attempt}-{number}" for number in done} <= set(found), "what update returned for is on disk"
    another(tmp_path).update(setting(after=1))
