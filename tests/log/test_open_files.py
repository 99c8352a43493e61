"""More partitions than the process may have files open, and a process that may open none."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import OutOfFiles, TopicDeleted
from penstock.log import open_files
from penstock.log.folder_log import FolderLog
from tests.log.rows import numbers_of, rows, small_topic

MANY = """
import os, resource, sys
from pathlib import Path
from penstock.errors import TopicDeleted
from penstock.log.folder_log import FolderLog
from tests.log.rows import numbers_of, rows

resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
count = int(sys.argv[2])
with FolderLog(Path(sys.argv[1]), background=False) as log:
    topic = log.create("many", "time timestamp, user string, n bigint", partitions=count, durability="os")
    for turn in range(2):
        for partition in topic.partitions:
            partition.append(rows([2 * partition.number + turn]))
            assert partition.end().offset == turn + 1
    assert sorted(numbers_of(topic)) == list(range(2 * count))
    assert len(os.listdir("/proc/self/fd")) < 700
    topic.partitions[0].sync()
    log.delete("many")
    try:
        topic.partitions[0].append(rows([1]))
    except TopicDeleted:
        print("all of it works")
"""


@pytest.mark.parametrize("count", [400, pytest.param(1000, marks=pytest.mark.long)])
def test_a_topic_has_more_partitions_than_the_process_may_have_files(tmp_path: Path, count: int) -> None:
    command = [sys.executable, "-c", MANY, str(tmp_path), str(count)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "all of it works\n"


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The process may open nothing more; what is open stays open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_partition_that_cannot_open_a_file_is_not_read_only(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        partition.append(rows([0]))
        stored, refused = [0], 0
        for n in range(1, 300):  # Segments are little, so every now and then a new file is needed.
            try:
                with no_descriptor_left():
                    partition.append(rows([n]))
            except OutOfFiles:
                refused += 1
                partition.append(rows([n]))
            stored.append(n)
        assert refused > 3
        assert numbers_of(partition) == stored
    with FolderLog(tmp_path, background=False) as log:
        assert numbers_of(log.topic("events")) == stored


def test_a_reader_without_descriptors_is_told_so_and_not_that_files_are_damaged(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log)
        topic.append(rows([1, 2]))
        topic.seal(active=True)
        assert numbers_of(topic) == [1, 2]  # The checksum is known from now on.
        for wanted in (lambda: numbers_of(topic), lambda: log.topic("events"), lambda: topic.partitions[0].pieces(0)):
            topic.partitions[0].manifest(is_fresh=True)
            with pytest.raises(OutOfFiles), no_descriptor_left():
                wanted()
        assert numbers_of(topic) == [1, 2]


def test_files_that_were_closed_are_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "_open_max", lambda: 2)
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log, partitions=3)
        for n in range(300):
            topic.partitions[n % 3].append(rows([n]))
        assert sorted(numbers_of(topic)) == list(range(300))
        reading = topic.partitions[0].read(0)
        first = next(reading)
        topic.seal(active=True)
        assert first.num_rows + sum(batch.num_rows for batch in reading) == 100


def test_a_topic_that_was_made_again_is_another_though_its_files_have_the_same_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "_open_max", lambda: 1)
    with FolderLog(tmp_path, background=False) as log, FolderLog(tmp_path, background=False) as other:
        old, beside = small_topic(log), small_topic(log, "beside")
        old.partitions[0].append(rows([1]))
        other.delete("events")
        new = small_topic(other)
        beside.append(rows([1]))
        for _ in range(2):
            with pytest.raises(TopicDeleted):
                old.partitions[0].append(rows([2]))
            with pytest.raises(TopicDeleted):
                old.partitions[0].end()
        assert numbers_of(new) == []


def test_commands_may_open_more_files() -> None:
    script = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "from penstock.cli import app\n"
        "app(['topic', 'list'], standalone_mode=False)\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "assert soft == min(hard, 65536), (soft, hard)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
