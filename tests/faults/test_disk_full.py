"""A disk that is full, a file that may not grow: a clear error, nothing acknowledged lost, and on it goes with room."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PartitionReadOnly
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.conftest import ROOT
from tests.faults.checker import judge
from tests.faults.history import SCHEMA, History, read_history
from tests.faults.workers import events

BALLAST_BYTES = 200_000


@pytest.fixture
def small_disk(root_user: None, tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine mounts no tmpfs (in a container, run it privileged): {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def append(history: History, topic: FolderTopic, first: int, count: int = 50) -> None:
    fields = {"topic": topic.name, "writer": "w", "partition": 0, "first": first, "count": count}
    history.add("send", **fields)
    appended = topic.partitions[0].append(events("w", first, count, topic.schema))
    history.add("ack", **fields, base=appended.base_offset)


def fill(history: History, topic: FolderTopic, first: int) -> tuple[int, PartitionReadOnly]:
    """Appends until the disk refuses. How far it came, and the error."""
    while True:
        try:
            append(history, topic, first)
        except PartitionReadOnly as error:
            return first, error
        first += 50


def assert_clean(root: Path, history: History, *, is_recovered: bool = True) -> int:
    verdict = judge(root, read_history(history.path), is_recovered=is_recovered)
    assert verdict.is_clean, str(verdict)
    return verdict.acknowledged


@pytest.mark.system
@pytest.mark.parametrize("segment_bytes", [4096, 1 << 20], ids=["rolling", "one-segment"])
def test_full_disk_makes_the_partition_read_only_in_this_process(
    small_disk: Path, tmp_path: Path, segment_bytes: int
) -> None:
    history = History(tmp_path / "history.jsonl")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    root = small_disk / "log"
    first = 0
    for _ in range(3):  # Each time a new process would see: here, a new log.
        with FolderLog(root, background=False) as log:
            topic = log.create("t", SCHEMA, segment_bytes=segment_bytes, exist_ok=True)
            first, error = fill(history, topic, first)
            assert error.cause.errno == errno.ENOSPC
            assert "everything acknowledged is safe" in str(error)
            for _ in range(2):
                with pytest.raises(PartitionReadOnly):
                    append(history, topic, first, 1)
            assert topic.slice().num_rows == topic.end()[0]
        assert assert_clean(root, history, is_recovered=False) >= 50
    with FolderLog(root, background=False) as log, pytest.raises(PartitionReadOnly):
        append(history, log.topic("t"), first)
    ballast.unlink()
    with FolderLog(root, background=False) as log:
        before = log.topic("t").end()[0]
        append(history, log.topic("t"), 1_000_000)
        assert log.topic("t").end()[0] == before + 50
    assert_clean(root, history)


@pytest.mark.system
def test_full_disk_does_not_disturb_what_is_there_when_sealing(small_disk: Path, tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    root = small_disk / "log"
    with FolderLog(root, background=False) as log:
        topic = log.create("t", SCHEMA, segment_bytes=64 << 10)
        for turn in range(100):
            append(history, topic, 50 * turn)
        (small_disk / "ballast").write_bytes(bytes(4096 * (shutil.disk_usage(small_disk).free // 4096)))
        with pytest.raises(OSError, match="No space left on device"):
            topic.seal()
        leftover = [path.name for path in (topic.directory / "0").iterdir() if path.suffix == ".tmp"]
        assert leftover == [], "what could not be finished takes room on a full disk"
        assert topic.slice().num_rows == 5000
        assert_clean(root, history, is_recovered=False)
        (small_disk / "ballast").unlink()
    with FolderLog(root, background=False) as log:
        assert log.topic("t").seal(active=True) > 0
        assert log.topic("t").slice().num_rows == 5000
    assert_clean(root, history)


@pytest.mark.system
def test_topic_that_does_not_fit_on_the_disk_is_not_there(small_disk: Path) -> None:
    root = small_disk / "log"
    with FolderLog(root, background=False) as log:
        log.create("fits", SCHEMA)
        (small_disk / "ballast").write_bytes(bytes(4096 * (shutil.disk_usage(small_disk).free // 4096)))
        with pytest.raises(OSError, match="No space left on device"):
            log.create("large", SCHEMA, partitions=8)
        assert log.topics() == ["fits"]
        (small_disk / "ballast").unlink()
        assert log.create("large", SCHEMA, partitions=8).end() == dict.fromkeys(range(8), 0)


LIMITED = """
import json, resource, signal, sys
from pathlib import Path
from penstock.log.folder_log import FolderLog
from tests.faults.history import History
from tests.faults.test_disk_full import append, fill
root, history = Path(sys.argv[1]), History(Path(sys.argv[2]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with FolderLog(root, background=False) as log:
    topic = log.topic("t")
    append(history, topic, 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    first, error = fill(history, topic, 50)
    again = fill(history, topic, first)
    print(json.dumps([first, error.cause.errno, again[0], topic.slice().num_rows]))
"""


def test_file_that_may_not_grow_makes_the_partition_read_only(tmp_path: Path) -> None:
    """RLIMIT_FSIZE: the write is short first, then fails. Another process without the limit goes on."""
    root, history = tmp_path / "log", History(tmp_path / "history.jsonl")
    with FolderLog(root, background=False) as log:
        log.create("t", SCHEMA)
    limited = subprocess.run(
        [sys.executable, "-c", LIMITED, str(root), str(history.path)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    first, number, again, rows = json.loads(limited.stdout)
    assert (number, again, rows) == (errno.EFBIG, first, first)
    with FolderLog(root, background=False) as log:
        assert log.topic("t").end() == {0: first}
        append(history, log.topic("t"), 1_000_000)
    assert assert_clean(root, history) == first + 50
    assert os.stat(root / "topics" / "t" / "0" / f"{0:020d}.log").st_size > 20_000
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 20_000
    assert signal.getsignal(signal.SIGXFSZ) is not None
