"""What may lie behind the last record: zeros, half a frame, old bytes, frames of another place. None of it is read."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from penstock.errors import CorruptionError
from penstock.log.folder_log import FolderLog
from tests.faults.history import SCHEMA, note_of
from tests.faults.stored import read_segment
from tests.faults.workers import events

RECORDS = 10


def make_log(root: Path, frames: int = 5) -> Path:
    """A log with one topic of one segment, and the path of the segment."""
    with FolderLog(root, background=False) as log:
        topic = log.create("t", SCHEMA)
        for turn in range(frames):
            topic.partitions[0].append(events("w", RECORDS * turn, RECORDS, topic.schema))
        return topic.directory / "0" / f"{0:020d}.log"


def frame_bytes(path: Path, number: int) -> bytes:
    frame = read_segment(path)[0][number]
    return path.read_bytes()[frame.position : frame.position + frame.length]


def assert_cut_and_goes_on(root: Path, caplog: pytest.LogCaptureFixture, *, end: int, cut_bytes: int) -> None:
    """The tail is cut off and reported, what was whole can be read, and appending goes on."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="penstock.log"), FolderLog(root, background=False) as log:
        topic = log.topic("t")
        assert topic.end() == {0: end}
        assert f"{cut_bytes} bytes were cut off" in caplog.text
        assert "nothing acknowledged is lost" in caplog.text
        topic.partitions[0].append(events("w", end, RECORDS, topic.schema))
    with FolderLog(root, background=False) as log:
        rows = log.topic("t").slice().to_pylist()
    assert [row["note"] for row in rows] == [note_of("w", number) for number in range(end + RECORDS)]


@pytest.mark.parametrize("has_end", [True, False], ids=["with-end", "without-end"])
@pytest.mark.parametrize("length", [1, 63, 64, 100, 104, 4096, 1 << 20])
def test_zeros_behind_the_last_frame_are_cut(
    memory_path: Path, caplog: pytest.LogCaptureFixture, length: int, has_end: bool
) -> None:
    path = make_log(memory_path)
    with path.open("ab") as file:
        file.write(bytes(length))
    if not has_end:
        (path.parent / "end").unlink()
    assert_cut_and_goes_on(memory_path, caplog, end=50, cut_bytes=length)


@pytest.mark.parametrize("has_end", [True, False], ids=["with-end", "without-end"])
@pytest.mark.parametrize("number", [0, 1, 4])
@pytest.mark.parametrize("part", [0.3, 0.5, 1.0])
def test_foreign_frames_behind_the_last_one_are_cut(
    memory_path: Path, caplog: pytest.LogCaptureFixture, part: float, number: int, has_end: bool
) -> None:
    """Frames of another segment, whole or half, even where their offsets would fit."""
    path = make_log(memory_path / "log")
    foreign = frame_bytes(make_log(memory_path / "other", frames=6), -1 if number == 4 else number)
    with path.open("ab") as file:
        file.write(foreign[: int(len(foreign) * part)])
    if not has_end:
        (path.parent / "end").unlink()
    assert_cut_and_goes_on(memory_path / "log", caplog, end=50, cut_bytes=int(len(foreign) * part))


def test_foreign_frame_at_the_very_position_it_was_written_for_is_cut(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Same position, same offset, same everything, but of another segment: only the segment's id tells."""
    path, other = make_log(memory_path / "log", 5), make_log(memory_path / "other", 6)
    foreign = frame_bytes(other, -1)
    assert read_segment(other)[0][-1].position == path.stat().st_size
    with path.open("ab") as file:
        file.write(foreign)
    assert_cut_and_goes_on(memory_path / "log", caplog, end=50, cut_bytes=len(foreign))


@pytest.mark.parametrize("number", [1, 3, 5])
def test_own_frame_at_another_position_is_cut(memory_path: Path, caplog: pytest.LogCaptureFixture, number: int) -> None:
    path = make_log(memory_path)
    again = frame_bytes(path, number)
    with path.open("ab") as file:
        file.write(again)
    (path.parent / "end").unlink()
    assert_cut_and_goes_on(memory_path, caplog, end=50, cut_bytes=len(again))


@pytest.mark.parametrize("has_end", [True, False], ids=["with-end", "without-end"])
def test_frame_of_an_earlier_life_is_cut(memory_path: Path, caplog: pytest.LogCaptureFixture, has_end: bool) -> None:
    """A frame that a crash cut off comes back from its old disk blocks, behind a newer frame of the same length."""
    path = make_log(memory_path)
    frames, _ = read_segment(path)
    stale = frame_bytes(path, -1)
    os.truncate(path, frames[-2].position + 10)
    with FolderLog(memory_path, background=False) as log:
        topic = log.topic("t")
        topic.partitions[0].append(events("w", 30, RECORDS, topic.schema))
    assert path.stat().st_size == frames[-1].position
    with path.open("ab") as file:
        file.write(stale)
    if not has_end:
        (path.parent / "end").unlink()
    assert_cut_and_goes_on(memory_path, caplog, end=40, cut_bytes=len(stale))


def test_bad_frame_with_a_good_one_behind_it_stops_everything(memory_path: Path) -> None:
    path = make_log(memory_path)
    frames, _ = read_segment(path)
    content = bytearray(path.read_bytes())
    content[frames[3].position + 300] ^= 1
    path.write_bytes(content)
    (path.parent / "end").unlink()
    with FolderLog(memory_path, background=False) as log:
        topic = log.topic("t")
        with pytest.raises(CorruptionError) as raised:
            topic.partitions[0].append(events("w", 50, RECORDS, topic.schema))
        with pytest.raises(CorruptionError):
            topic.end()
    assert (raised.value.path, raised.value.offset, raised.value.position) == (path, 20, frames[3].position)
    assert "penstock log check t/0" in str(raised.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize("has_end", [True, False], ids=["with-end", "without-end"])
def test_newest_segment_that_was_never_finished_is_made_again(
    memory_path: Path, caplog: pytest.LogCaptureFixture, has_end: bool
) -> None:
    """A writer was killed while it made the next segment: empty, half, or with old bytes instead of a header."""
    path = make_log(memory_path)
    with FolderLog(memory_path, background=False) as log:
        assert log.topic("t").partitions[0].roll()
    newest = path.with_name(f"{50:020d}.log")
    content = newest.read_bytes()
    end = (path.parent / "end").read_bytes()
    for torn in (b"", content[:10], content[:64], content[:-1], bytes(len(content)), os.urandom(64) + content[64:]):
        newest.write_bytes(torn)
        (path.parent / "end").write_bytes(end if has_end else b"")
        with caplog.at_level(logging.WARNING, logger="penstock.log"), FolderLog(memory_path, background=False) as log:
            topic = log.topic("t")
            assert topic.end() == {0: 50}
            assert topic.slice().num_rows == 50


def test_missing_segment_is_damage(memory_path: Path) -> None:
    """A hot segment that is gone is not skipped in silence."""
    path = make_log(memory_path)
    with FolderLog(memory_path, background=False) as log:
        topic = log.topic("t")
        for turn in range(2):
            assert topic.partitions[0].roll()
            topic.partitions[0].append(events("w", 50 + RECORDS * turn, RECORDS, topic.schema))
    for base in (0, 50, 60):
        gone = path.with_name(f"{base:020d}.log")
        content = gone.read_bytes()
        with FolderLog(memory_path, background=False) as log:
            topic = log.topic("t")
            topic.end()
            gone.unlink()
            with pytest.raises(CorruptionError) as raised:
                topic.slice()
        assert f"{base:020d}" in str(raised.value) or f"offsets {base} up to {base + RECORDS}" in str(raised.value)
        gone.write_bytes(content)


def test_missing_sealed_file_is_damage(memory_path: Path) -> None:
    path = make_log(memory_path)
    with FolderLog(memory_path, background=False) as log:
        log.topic("t").seal(active=True)
        path.with_suffix(".parquet").unlink()
        with pytest.raises(CorruptionError):
            log.topic("t").slice()
