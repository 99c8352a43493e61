"""Writes that take only some of the bytes, locks that stay, and handles that a fork would share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.errors import ForkedHandle, PenstockError
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.faults.checker import judge
from tests.faults.history import SCHEMA, Entry
from tests.faults.workers import events


def append(topic: FolderTopic, first: int, count: int) -> list[Entry]:
    """Appends some records, and what a history would say of it."""
    appended = topic.partitions[0].append(events("w", first, count, topic.schema))
    fields = {"topic": topic.name, "writer": "w", "partition": 0, "first": first, "count": count}
    return [{"do": "send", **fields}, {"do": "ack", **fields, "base": appended.base_offset}]


@pytest.mark.parametrize("bytes_max", [1, 7, 100, 1000])
def test_short_writes_are_continued(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, dice: Random, bytes_max: int
) -> None:
    """Every write takes at most a few bytes, whatever is written: frames, segments, documents, the committed end."""
    short = {"writes": 0}
    pwritev, pwrite, write = os.pwritev, os.pwrite, os.write

    def some(data: Any) -> memoryview:
        short["writes"] += 1
        return memoryview(data).cast("B")[: dice.randint(1, bytes_max)]

    def short_pwritev(fd: int, chunks: Sequence[Any], position: int, *flags: int) -> int:
        return pwritev(fd, [some(b"".join(bytes(chunk) for chunk in chunks))], position, *flags)

    monkeypatch.setattr(os, "pwritev", short_pwritev)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, some(data), position))
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, some(data)))
    entries: list[Entry] = []
    with FolderLog(memory_path, background=False) as log:
        topic = log.create("t", SCHEMA, event_time="time", segment_bytes=8192)
        for turn in range(12):
            entries += append(topic, 10 * turn, 10)
        topic.seal()
        topic.alter(lateness="1 hour")
        assert topic.partitions[0].end().offset == 120
    monkeypatch.undo()
    assert short["writes"] > 50
    verdict = judge(memory_path, entries)
    assert verdict.is_clean, str(verdict)
    assert verdict.partitions["t", 0].hint_offset == 120
    assert verdict.acknowledged == 120


def in_child(action: Callable[[], object]) -> str:
    """Forks, and says what came of the action in the child."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = repr(action())
        except BaseException as error:
            result = type(error).__name__
        os.write(sending, result.encode())
        os._exit(0)
    os.close(sending)
    os.waitpid(child, 0)
    with os.fdopen(receiving) as answer:
        return answer.read()


def test_child_of_a_fork_cannot_use_the_handle_of_its_parent(memory_path: Path) -> None:
    with FolderLog(memory_path, background=False) as log:
        topic = log.create("t", SCHEMA)
        entries = append(topic, 0, 10)
        for action in (
            lambda: append(topic, 10, 10),
            topic.end,
            topic.slice,
            lambda: list(topic.partitions[0].read(0)),
            lambda: topic.seal(active=True),
            topic.partitions[0].roll,
            topic.partitions[0].sync,
        ):
            assert in_child(action) == ForkedHandle.__name__
        assert in_child(lambda: FolderLog(memory_path, background=False).topic("t").slice().num_rows) == "10"
        assert in_child(log.close) == "None"
        entries += append(topic, 10, 10)
    verdict = judge(memory_path, entries)
    assert verdict.is_clean, str(verdict)
    assert issubclass(ForkedHandle, PenstockError)


def test_lock_of_the_parent_outlives_its_child(memory_path: Path) -> None:
    """A child that ends lets go of nothing that its parent holds."""
    with FolderLog(memory_path, background=False) as log, FolderLog(memory_path, background=False) as other:
        topic = log.create("t", SCHEMA)
        append(topic, 0, 10)
        other.topic("t").end()
        with topic.partitions[0]._tail.exclusive() as end:
            assert in_child(log.close) == "None"
            waiting = os.fork()
            if waiting == 0:
                try:
                    append(FolderLog(memory_path, background=False).topic("t"), 10, 10)
                finally:
                    os._exit(0)
            time.sleep(0.2)
            assert os.waitpid(waiting, os.WNOHANG) == (0, 0), "another process took the lock"
            assert end.offset == 10
        os.waitpid(waiting, 0)
        assert topic.end() == {0: 20}


def test_lock_files_are_never_deleted(memory_path: Path) -> None:
    with FolderLog(memory_path, background=False) as log:
        topic = log.create("t", SCHEMA, key="writer", compact=True, segment_bytes=4096, retention_bytes=1)
        append(topic, 0, 10)
        topic.seal(active=True)

        def locks() -> dict[Path, int]:
            return {path: path.stat().st_ino for path in memory_path.rglob("*lock")}

        before = locks()
        assert {path.relative_to(memory_path).as_posix() for path in before} >= {
            "lock", "topics/t/0/lock", "topics/t/0/maintenance.lock",
        }  # fmt: skip
        for turn in range(1, 20):
            append(topic, 10 * turn, 10)
        topic.alter(lateness="1 hour")
        topic.seal(active=True)
        topic.compact()
        topic.retain()
    with FolderLog(memory_path, background=False) as log:
        append(log.topic("t"), 1000, 10)
    assert {path: inode for path, inode in locks().items() if path in before} == before
