"""The power goes while everybody works: everything acknowledged is there when it comes back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import CorruptionError
from penstock.log import keys, tail
from penstock.log.folder_log import FolderLog
from penstock.log.segment import hot_bases
from tests.faults.checker import Verdict
from tests.faults.history import SCHEMA, History, read_history
from tests.faults.opened import judge_opened
from tests.faults.power import FLUSH_NOTHING, Disk, NoPowerCut, power_cuts
from tests.faults.workers import append
from tests.log.rows import small_topic
from tests.log.test_keys import post

pytestmark = pytest.mark.system
LOST = "ACKNOWLEDGED AND LOST"


@pytest.fixture
def disk(memory_path: Path) -> Iterator[Disk]:
    try:
        disk = Disk(memory_path)
    except NoPowerCut as error:
        pytest.skip(str(error))
    yield disk
    disk.close()


@pytest.mark.parametrize("cuts", [5, pytest.param(100, marks=pytest.mark.long)])
def test_everything_acknowledged_survives_power_cuts(memory_path: Path, cuts: int, seed: int) -> None:
    """Appends, sealing, retention, compaction, topics created and altered, commits of a consumer group: all at once."""
    try:
        verdicts, unexpected = power_cuts(memory_path, cuts=cuts, seed=seed)
    except NoPowerCut as error:
        pytest.skip(str(error))
    assert not unexpected, "\n".join(unexpected)
    assert all(verdict.is_clean for verdict in verdicts), str(verdicts[-1])
    assert len(verdicts) == cuts
    assert verdicts[-1].acknowledged > 100
    assert any(stored.sealed_end > 0 for stored in verdicts[-1].partitions.values()), "nothing was sealed"


def cut_while_writing(disk: Disk, histories: Path, write: Callable[[FolderLog, History], None]) -> Verdict:
    """Writes, cuts the power, opens the log again, judges."""
    root = disk.place / "log"
    history = History(histories / "history.jsonl")
    log = FolderLog(root, background=False)
    write(log, history)
    disk_is_off_at_once(disk, log)
    return judge_opened(root, list(read_history(history.path)))


def disk_is_off_at_once(disk: Disk, log: FolderLog) -> None:
    """Nothing is synced any more, not even by closing the log."""
    for name in log.topics():
        for partition in log.topic(name).partitions:
            partition._tail.close()
    log._topics.clear()
    disk.cut(FLUSH_NOTHING)


def write_some(log: FolderLog, history: History, **options: object) -> None:
    topic = log.create("t", SCHEMA, **options)
    for turn in range(20):
        append(history, topic, "w", 0, 10 * turn, 10)


def test_records_on_disk_survive_a_cut_right_after_the_last_one(disk: Disk, tmp_path: Path) -> None:
    verdict = cut_while_writing(disk, tmp_path, write_some)
    assert verdict.is_clean, str(verdict)
    assert verdict.records == verdict.acknowledged == 200


def test_records_left_to_the_system_are_lost_and_the_judge_says_so(disk: Disk, tmp_path: Path) -> None:
    """With durability="os" a cut takes the last second. What is left is whole; this also shows that cuts are real."""
    verdict = cut_while_writing(disk, tmp_path, lambda log, history: write_some(log, history, durability="os"))
    assert verdict.faults
    assert all(LOST in fault for fault in verdict.faults), str(verdict)


def test_log_that_forgets_to_sync_is_found_out(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "sync_data", lambda fd: None)
    verdict = cut_while_writing(disk, tmp_path, write_some)
    assert LOST in str(verdict)


def test_log_that_forgets_to_sync_documents_and_folders_is_found_out(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without fsync the definition of a topic is an empty file after a cut, or not there."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        try:
            found = cut_while_writing(disk, tmp_path, write_some).faults
        except CorruptionError as error:
            found = [str(error)]
    assert found


def keys_known_after_a_cut(disk: Disk, count: int) -> list[bool]:
    """Stores records under idempotency keys, cuts the power, and sends all of them again."""
    log = FolderLog(disk.place / "log", background=False)
    (partition,) = small_topic(log).partitions
    for number in range(count):
        assert post(partition, number) == 0
    assert len(hot_bases(partition.directory)) > 5
    del partition
    disk_is_off_at_once(disk, log)
    with FolderLog(disk.place / "log", background=False) as log:
        (partition,) = log.topic("events").partitions
        return [post(partition, number) == 1 for number in range(count)]


def test_idempotency_keys_survive_a_cut(disk: Disk) -> None:
    assert all(keys_known_after_a_cut(disk, 100))


def test_log_that_forgets_to_sync_idempotency_keys_is_found_out(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "sync_data", lambda fd: None)
    monkeypatch.setattr(keys, "create_file", lambda path, content: path.write_bytes(content))
    try:
        known = keys_known_after_a_cut(disk, 100)
    except CorruptionError:
        known = []
    assert not known or not all(known)
