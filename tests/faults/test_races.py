"""Two processes at the same place at the same time. Each test forces the one order of events that could do harm."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import PartitionReadOnly, TopicDeleted
from penstock.log import files, recovery
from penstock.log.committed_end import End
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.log.segment import Segment
from tests.faults.history import SCHEMA
from tests.faults.workers import events

HOUR_US = 3_600_000_000


@pytest.fixture
def two(memory_path: Path) -> Iterator[tuple[FolderTopic, FolderTopic]]:
    """The same topic in the hands of two processes (here: two logs), with two closed segments and an active one."""
    clock = [HOUR_US]
    with (
        FolderLog(memory_path, background=False, clock=lambda: clock[0]) as log,
        FolderLog(memory_path, background=False, clock=lambda: clock[0]) as other,
    ):
        topic = log.create("t", SCHEMA, retention_age="1 hour", key="writer", compact=True)
        for turn in range(3):
            append(topic, 10 * turn)
            if turn < 2:
                topic.partitions[0].roll()
        yield topic, other.topic("t")


def append(topic: FolderTopic, first: int) -> None:
    topic.partitions[0].append(events("w", first, 10, topic.schema))


def offsets(topic: FolderTopic) -> list[int]:
    found: list[int] = topic.slice(topic.start()).column("_offset").to_pylist()
    return found


def test_segment_sealed_while_pieces_are_listed_is_listed_once(
    two: tuple[FolderTopic, FolderTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = two
    look = topic.partitions[0].hot_segments

    def look_just_before_sealing(end: End) -> list[Segment]:
        found = look(end)
        other.seal(active=True)
        return found

    monkeypatch.setattr(topic.partitions[0], "hot_segments", look_just_before_sealing)
    pieces = topic.partitions[0].pieces(0)
    assert [(piece.start, piece.stop, piece.is_sealed) for piece in pieces] == [
        (0, 10, True), (10, 20, True), (20, 30, True),
    ]  # fmt: skip
    assert offsets(topic) == list(range(30))


def test_segment_sealed_while_retention_reads_its_age_is_kept(
    two: tuple[FolderTopic, FolderTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = two
    look = topic.partitions[0].hot_segments

    def sealed_just_before_the_look(end: End) -> list[Segment]:
        monkeypatch.undo()
        other.seal(active=True)
        append(other, 30)
        return look(end)

    monkeypatch.setattr(topic.partitions[0], "hot_segments", sealed_just_before_the_look)
    (removed,) = topic.retain(now_us=HOUR_US + 1)
    assert removed.records == 0
    assert offsets(topic) == list(range(40))


def coarse_stat(file: Path) -> Callable[..., os.stat_result]:
    """A stat that does not notice when this file is replaced."""
    stat = os.stat
    before = stat(file)
    return lambda path, **options: before if str(path) == str(file) else stat(path, **options)


@pytest.mark.parametrize("chore", ["seal", "retain", "compact"])
def test_maintenance_does_not_trust_a_cached_manifest(
    two: tuple[FolderTopic, FolderTopic], monkeypatch: pytest.MonkeyPatch, chore: str
) -> None:
    """Where the file system counts time in coarse steps, a new manifest may have the inode and time of an old one."""
    topic, other = two
    topic.seal()
    topic.start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", coarse_stat(topic.directory / "0" / "manifest.json"))
        other.partitions[0]._manifest = None
        other.seal(active=True)
        getattr(topic, chore)()
    kept = 1 if chore == "compact" else 30
    with FolderLog(topic.log.root, background=False) as log:
        assert len(offsets(log.topic("t"))) == kept


def test_two_processes_that_alter_a_topic_keep_each_others_changes(
    two: tuple[FolderTopic, FolderTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = two
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", coarse_stat(topic.directory / "topic.json"))
        other.alter(schema=f"{SCHEMA}, first string")
        topic.alter(lateness="2 hours")
        assert topic.alter(schema=f"{SCHEMA}, first string, second string").schema_version == 2
    with FolderLog(topic.log.root, background=False) as log:
        definition = log.topic("t").definition
    assert definition.schema.names[-2:] == ["first", "second"]
    assert definition.lateness.total_seconds() == 7200


def test_manifest_is_synced_before_what_it_replaces_is_deleted(
    two: tuple[FolderTopic, FolderTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sealer was killed between renaming the manifest and syncing the folder; the next one deletes the hot file."""
    topic, other = two
    synced: list[Path] = []
    hot = topic.directory / "0" / f"{0:020d}.log"
    content = hot.read_bytes()
    topic.seal()
    hot.write_bytes(content)
    sync, unlink = files.sync_directory, os.unlink

    def checked_unlink(path: Path) -> None:
        assert hot.parent in synced, f"{path} is deleted, and nobody knows whether the manifest is on disk"
        unlink(path)

    def noted_sync(path: Path) -> None:
        sync(path)
        synced.append(path)

    monkeypatch.setattr("penstock.log.sealing.sync_directory", noted_sync)
    monkeypatch.setattr("penstock.log.sealing.os.unlink", checked_unlink)
    other.seal()
    assert not hot.exists()
    assert offsets(other) == list(range(30))


def failing_sync(fd: int) -> None:
    raise OSError(5, "Input/output error")


def test_new_segment_whose_sync_failed_is_rewritten_before_use(
    two: tuple[FolderTopic, FolderTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync the next one succeeds without writing anything: the kernel takes the pages for clean."""
    topic, other = two
    monkeypatch.setattr(files, "sync_data", failing_sync)
    with pytest.raises(PartitionReadOnly):
        topic.partitions[0].roll()
    monkeypatch.undo()
    written: list[tuple[int, int]] = []
    write_all = files.write_all

    def noted(fd: int, chunks: list[bytes], position: int) -> int:
        written.append((position, sum(map(len, chunks))))
        return write_all(fd, chunks, position)

    monkeypatch.setattr(recovery, "write_all", noted)
    newest = topic.directory / "0" / f"{30:020d}.log"
    size = newest.stat().st_size
    append(other, 30)
    assert written == [(0, size)]
    assert offsets(other) == list(range(40))


def test_writer_is_refused_after_a_half_finished_deletion(
    two: tuple[FolderTopic, FolderTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has another name, its files are still there: a writer that has them open must not go on in them."""
    topic, other = two
    append(other, 30)
    with monkeypatch.context() as patch:
        patch.setattr("penstock.log.folder_log.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            topic.log.delete("t")
    with pytest.raises(TopicDeleted):
        append(other, 40)
    assert topic.log.topics() == []


def test_next_process_finishes_a_half_finished_deletion(
    two: tuple[FolderTopic, FolderTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = two
    with monkeypatch.context() as patch:
        patch.setattr("penstock.log.folder_log.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            topic.log.delete("t")
    assert list(topic.log.root.glob("deleted-*"))
    other.log.create("t", SCHEMA)
    assert not list(topic.log.root.glob("deleted-*"))
    assert other.log.topic("t").slice().num_rows == 0


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
