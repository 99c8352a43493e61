"""A check finds every kind of damage, says where it is, and finds nothing where nothing is wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.check.checking import check_log
from penstock.check.findings import Finding, PartitionReport
from penstock.errors import UnknownTopic
from penstock.log.committed_end import CommittedEnd
from penstock.log.folder_log import FolderLog
from tests.log.rows import rows, small_topic


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path, background=False) as opened:
        yield opened


def filled(log: FolderLog, *, sealed: int = 2, hot: int = 2) -> Path:
    """A partition with sealed segments, and hot ones of three frames each. Returns its folder."""
    partition = small_topic(log, segment_bytes=1 << 20).partitions[0]
    for number in range(sealed + hot):
        for part in range(3):
            first = 300 * number + 100 * part
            partition.append(rows(range(first, first + 100)))
        if number == sealed - 1:
            partition.roll()
            partition.topic.seal()
        elif number < sealed + hot - 1:
            partition.roll()
    log.close()
    return partition.directory


def check(directory: Path) -> PartitionReport:
    with FolderLog(directory.parent.parent.parent, background=False) as log:
        (report,) = check_log(log)
        return report


def damage(directory: Path) -> Finding:
    """The one damaged thing."""
    (found,) = (finding for finding in check(directory).findings if finding.is_damage)
    return found


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(bytes(content))


def parquet(directory: Path, number: int = 0) -> Path:
    return sorted(directory.glob("*.parquet"))[number]


def hot(directory: Path, number: int = 0) -> Path:
    return sorted(directory.glob("*.log"))[number]


def test_whole_partition_is_found_whole(log: FolderLog) -> None:
    report = check(filled(log))
    assert report.is_whole
    assert report.findings == ()
    assert (report.start, report.end, report.records, report.sealed, report.hot) == (0, 1200, 1200, 2, 2)


def test_check_changes_nothing(log: FolderLog) -> None:
    directory = filled(log)
    hot(directory, 1).open("ab").write(b"torn tail")
    before = {path: path.read_bytes() for path in directory.iterdir()}
    check(directory)
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


def test_empty_topic_is_whole(log: FolderLog) -> None:
    small_topic(log, partitions=3)
    assert [(report.place, report.findings) for report in check_log(log)] == [(f"events/{n}", ()) for n in range(3)]


def test_one_partition_can_be_checked(log: FolderLog) -> None:
    small_topic(log, partitions=3)
    assert [report.place for report in check_log(log, "events", 2)] == ["events/2"]
    with pytest.raises(UnknownTopic):
        list(check_log(log, "nothing"))


@pytest.mark.parametrize("where", ["first frame", "last frame", "header"])
def test_flipped_bit_in_a_hot_segment_is_found(log: FolderLog, where: str) -> None:
    directory = filled(log)
    path = hot(directory)
    flip(path, {"first frame": 300, "last frame": path.stat().st_size - 500, "header": 20}[where])
    found = damage(directory)
    assert (found.path, found.subject) == (path, "hot")
    assert found.offset == {"first frame": 600, "last frame": 800, "header": 600}[where]
    assert "--repair" in found.advice


def test_flipped_bit_in_the_middle_of_the_active_segment_is_found(log: FolderLog) -> None:
    directory = filled(log)
    flip(hot(directory, 1), 400)
    found = damage(directory)
    assert (found.offset, found.subject) == (900, "hot")


def test_flipped_bit_in_the_last_committed_frame_is_damage_not_a_torn_tail(log: FolderLog) -> None:
    directory = filled(log)
    path = hot(directory, 1)
    flip(path, path.stat().st_size - 300)
    found = damage(directory)
    assert (found.offset, found.subject) == (1100, "hot")


def test_torn_tail_is_only_a_note(log: FolderLog) -> None:
    directory = filled(log)
    with hot(directory, 1).open("ab") as file:
        file.write(b"PnFr" + bytes(60))
    report = check(directory)
    assert report.is_whole
    (note,) = report.findings
    assert (note.subject, note.offset, note.position) == ("hot", 1200, hot(directory, 1).stat().st_size - 64)
    assert "nothing acknowledged is lost" in note.advice


@pytest.mark.parametrize("position", [4, 900, -30])
def test_flipped_bit_in_a_sealed_file_is_found(log: FolderLog, position: int) -> None:
    directory = filled(log)
    path = parquet(directory, 1)
    flip(path, position if position > 0 else path.stat().st_size + position)
    found = damage(directory)
    assert (found.path, found.subject, found.offset) == (path, "sealed", 300)


def test_missing_sealed_file_is_found(log: FolderLog) -> None:
    directory = filled(log)
    parquet(directory).unlink()
    assert damage(directory).found == "the file is gone"


def test_missing_hot_segment_is_found(log: FolderLog) -> None:
    directory = filled(log, hot=3)
    hot(directory, 1).unlink()
    found = damage(directory)
    assert found.found == "offsets 900 up to 1200 are in no file"


def test_missing_active_segment_is_found(log: FolderLog) -> None:
    directory = filled(log)
    hot(directory, 1).unlink()
    found = damage(directory)
    assert (found.subject, found.offset) == ("end", 900)


def test_shortened_active_segment_is_found(log: FolderLog) -> None:
    directory = filled(log)
    whole = hot(directory, 1).read_bytes()
    committed = CommittedEnd(directory / "end")
    end = committed.read()
    committed.close()
    assert end is not None
    second = whole.rfind(b"PnFr", 0, len(whole) - 200)
    hot(directory, 1).write_bytes(whole[:second])
    found = damage(directory)
    assert (found.subject, found.offset, found.found) == (
        "end", 1100, "100 acknowledged records are gone: the segment ends at offset 1100",
    )  # fmt: skip


@pytest.mark.parametrize("content", [None, b"", b"{}\n", b'{"segments": []}'])
def test_missing_or_damaged_manifest_is_found(log: FolderLog, content: bytes | None) -> None:
    directory = filled(log)
    manifest = directory / "manifest.json"
    manifest.unlink() if content is None else manifest.write_bytes(content)
    found = damage(directory)
    assert (found.subject, found.path) == ("manifest", manifest)


def test_damaged_definition_is_found_and_frames_are_still_checked(log: FolderLog) -> None:
    directory = filled(log)
    flip(directory.parent / "topic.json", 20)
    flip(hot(directory), 300)
    assert [finding.subject for finding in check(directory).findings if finding.is_damage] == ["definition", "hot"]


def test_missing_partition_folder_is_found(log: FolderLog) -> None:
    directory = small_topic(log).directory
    (directory / "0").rmdir()
    (report,) = check_log(log)
    assert [finding.subject for finding in report.findings] == ["folder"]


def test_missing_or_damaged_end_is_only_a_note(log: FolderLog) -> None:
    directory = filled(log)
    (directory / "end").write_bytes(b"nonsense")
    report = check(directory)
    assert report.is_whole
    assert [note.subject for note in report.findings] == ["end"]


def test_leftover_files_are_notes(log: FolderLog) -> None:
    directory = filled(log)
    for name in (
        "00000000000000000000-7.parquet",
        "00000000000000000000.log",
        "x.parquet.tmp",
        "notes.txt",
        "a.damaged",
    ):
        (directory / name).write_bytes(b"")
    report = check(directory)
    assert report.is_whole
    assert {note.path.name for note in report.findings} == {
        "00000000000000000000-7.parquet", "00000000000000000000.log", "x.parquet.tmp", "notes.txt", "a.damaged",
    }  # fmt: skip


def test_compacted_partition_is_whole(log: FolderLog) -> None:
    topic = small_topic(log, key="user", compact=True)
    for _ in range(3):
        topic.partitions[0].append(rows(range(100)))
        topic.seal(active=True)
    topic.compact()
    report = check(topic.directory / "0")
    assert report.is_whole
    assert report.records == 7
    assert [note.subject for note in report.findings] == []


def test_retained_partition_is_whole(log: FolderLog) -> None:
    topic = small_topic(log, retention_bytes=8000)
    for _ in range(5):
        topic.partitions[0].append(rows(range(100)))
        topic.seal(active=True)
    topic.retain()
    report = check(topic.directory / "0")
    assert report.findings == ()
    assert 0 < report.start < report.end == 500


def test_records_of_old_schema_versions_are_read(log: FolderLog) -> None:
    topic = small_topic(log)
    topic.partitions[0].append(rows(range(10)))
    topic.alter(schema="time timestamp, user string, n bigint, more int")
    topic.seal(active=True)
    assert check(topic.directory / "0").findings == ()


@pytest.mark.parametrize("checks", [3, pytest.param(25, marks=pytest.mark.long)])
def test_check_beside_a_busy_writer_finds_nothing_wrong(log: FolderLog, checks: int) -> None:
    topic = small_topic(log, segment_bytes=20_000)
    is_done = threading.Event()

    def write() -> None:
        number = 0
        with FolderLog(log.root) as other:
            partition = other.topic("events").partitions[0]
            while not is_done.is_set():
                partition.append(rows(range(number, number + 50)))
                number += 50

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(checks):
            (report,) = check_log(log, topic.name)
            assert report.findings == ()
    finally:
        is_done.set()
        writer.join()
