"""What a crash leaves behind, and what becomes of it."""

from __future__ import annotations

import logging
import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import CorruptionError
from penstock.log.folder_log import FolderLog
from penstock.log.frame import ALIGNMENT, RECORDS, encode_frame
from penstock.log.segment import Segment, hot_bases, segment_path
from tests.log.rows import numbers_of, rows, small_topic


def make(root: Path, batches: int = 3) -> Path:
    """A closed log with one active segment of a few frames; returns the segment's path."""
    with FolderLog(root, background=False) as log:
        (partition,) = small_topic(log, segment_bytes=1 << 20).partitions
        for n in range(batches):
            partition.append(rows([3 * n, 3 * n + 1, 3 * n + 2]))
        return segment_path(partition.directory, 0)


def frames_of(path: Path) -> list[int]:
    """Positions where the frames of records end."""
    segment = Segment(path)
    return [frame.end_position for frame in segment.headers(ALIGNMENT, segment.size()) if frame.kind == RECORDS]


def test_a_torn_frame_is_cut_and_reported_and_appending_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = make(tmp_path)
    os.truncate(path, frames_of(path)[-1] - 10)
    (path.parent / "end").unlink()
    with caplog.at_level(logging.WARNING), FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        assert numbers_of(partition) == [0, 1, 2, 3, 4, 5]
        partition.append(rows([77]))
        assert numbers_of(partition) == [0, 1, 2, 3, 4, 5, 77]
    assert "bytes were cut off" in caplog.text
    assert "nothing acknowledged is lost" in caplog.text


def test_acknowledged_records_that_are_gone_are_counted_in_the_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = make(tmp_path)
    os.truncate(path, frames_of(path)[0] + 1)
    with FolderLog(tmp_path, background=False) as log:
        assert numbers_of(log.topic("events")) == [0, 1, 2]
    assert "6 records that had been acknowledged are gone" in caplog.text


def test_a_whole_frame_of_a_writer_that_died_before_committing_it_is_kept_once(tmp_path: Path) -> None:
    path = make(tmp_path, batches=1)
    end = (path.parent / "end").read_bytes()
    with FolderLog(tmp_path, background=False) as log:
        log.topic("events").partitions[0].append(rows([50]))
    (path.parent / "end").write_bytes(end)  # As if it had died between the sync and the new end.
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        partition.append(rows([51]))
        assert numbers_of(partition) == [0, 1, 2, 50, 51]


@pytest.mark.parametrize("garbage", [bytes(5000), b"\xff" * 333, b"PnFr" * 100], ids=["zeros", "ones", "magic"])
def test_garbage_behind_the_last_frame_is_cut(tmp_path: Path, garbage: bytes) -> None:
    path = make(tmp_path)
    with path.open("ab") as file:
        file.write(garbage)
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        partition.append(rows([9]))
        assert numbers_of(partition) == list(range(10))
    assert path.stat().st_size == frames_of(path)[-1]


def test_a_frame_of_another_place_or_segment_never_passes_for_ours(tmp_path: Path) -> None:
    path = make(tmp_path / "a")
    other = make(tmp_path / "b")
    whole = path.read_bytes()
    first, second, third = frames_of(path)
    foreign = other.read_bytes()[frames_of(other)[1] : frames_of(other)[2]]
    for tail in (whole[first:second], whole[second:third], foreign):
        path.write_bytes(whole + tail)
        (path.parent / "end").unlink(missing_ok=True)
        with FolderLog(tmp_path / "a", background=False) as log:
            assert numbers_of(log.topic("events")) == list(range(9))


def test_a_stale_frame_of_an_older_epoch_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    path = make(tmp_path, batches=1)
    segment = Segment(path)
    end = frames_of(path)[0]
    payload = rows([5]).serialize()
    new = b"".join(encode_frame(segment.segment_id, end, payload, kind=RECORDS, base_offset=3, epoch=4, records=1))
    old = encode_frame(segment.segment_id, end + len(new), payload, kind=RECORDS, base_offset=4, epoch=3, records=1)
    path.write_bytes(path.read_bytes() + new + b"".join(old))
    with FolderLog(tmp_path, background=False) as log:
        assert numbers_of(log.topic("events")) == [0, 1, 2, 5]


def test_a_bad_frame_with_good_ones_behind_it_stops_with_its_place(tmp_path: Path) -> None:
    path = make(tmp_path)
    position = frames_of(path)[0] + 200
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    for hint in ("kept", "lost"):
        if hint == "lost":
            (path.parent / "end").unlink()
        with FolderLog(tmp_path, background=False) as log, pytest.raises(CorruptionError) as caught:
            numbers_of(log.topic("events"))
        assert caught.value.path == path
        assert (caught.value.offset, caught.value.position) == (3, frames_of(path)[0])
        assert "penstock log check events/0" in str(caught.value)
    assert path.read_bytes() == bytes(content), "nothing was changed"


def test_a_damaged_header_with_records_behind_it_is_not_thrown_away(tmp_path: Path) -> None:
    path = make(tmp_path)
    content = bytearray(path.read_bytes())
    content[20] ^= 4
    path.write_bytes(content)
    (path.parent / "end").unlink()
    with FolderLog(tmp_path, background=False) as log, pytest.raises(CorruptionError, match="header is damaged"):
        numbers_of(log.topic("events"))
    assert path.read_bytes() == bytes(content)


def test_a_segment_torn_while_it_was_made_is_made_again(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        while len(hot_bases(partition.directory)) < 3:
            partition.append(rows([1, 2, 3]))
        before = numbers_of(partition)
        newest = segment_path(partition.directory, hot_bases(partition.directory)[-1])
    kept = Segment(newest)
    opening = next(kept.headers(ALIGNMENT, kept.size()))
    whole = newest.read_bytes()[: opening.end_position]
    lost = len(before) - kept.base_offset
    for length in (0, 1, 63, 64, 65, len(whole) - 1):
        newest.write_bytes(whole[:length])
        (newest.parent / "end").unlink(missing_ok=True)
        with FolderLog(tmp_path, background=False) as log:
            (partition,) = log.topic("events").partitions
            assert numbers_of(partition) == before[: len(before) - lost]
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        assert partition.append(rows([9])).base_offset == len(before) - lost


def test_a_crash_between_closing_and_opening_a_segment_is_finished(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        partition.append(rows([1, 2]))
        partition.roll()
        newest = segment_path(partition.directory, 2)
    newest.unlink()
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        assert partition.append(rows([3])).base_offset == 2
        assert numbers_of(partition) == [1, 2, 3]


def test_a_missing_segment_in_the_middle_is_named(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        while len(hot_bases(partition.directory)) < 4:
            partition.append(rows([1, 2, 3]))
        bases = hot_bases(partition.directory)
    segment_path(partition.directory, bases[0]).unlink()
    with FolderLog(tmp_path, background=False) as log, pytest.raises((CorruptionError, FileNotFoundError)):
        numbers_of(log.topic("events"))
    (partition.directory / "end").unlink()
    with FolderLog(tmp_path, background=False) as log, pytest.raises(CorruptionError, match=f"0 up to {bases[1]}"):
        numbers_of(log.topic("events"))


def test_an_end_that_is_behind_missing_or_damaged_is_found_again(tmp_path: Path) -> None:
    path = make(tmp_path)
    end = path.parent / "end"
    whole = end.read_bytes()
    for content in [whole[:length] for length in range(len(whole))] + [bytes(len(whole)), b"\xff" * len(whole)]:
        end.write_bytes(content)
        with FolderLog(tmp_path, background=False) as log:
            assert log.topic("events").end() == {0: 9}
            assert numbers_of(log.topic("events")) == list(range(9))


def test_nested_values_survive_a_recovery(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = log.create("deep", "a struct<b: array<int>, m: map<string, decimal(10,2)>>, t timestamp_ntz, d date")
        value = {"a": {"b": [1, None], "m": [("x", Decimal("1.50"))]}, "t": None, "d": None}
        table = pa.Table.from_pylist([value, {"a": None}], topic.schema)
        topic.append(table)
    (tmp_path / "topics/deep/0/end").unlink()
    with FolderLog(tmp_path, background=False) as log:
        assert log.topic("deep").slice().select(["a", "t", "d"]).to_pylist() == table.to_pylist()
