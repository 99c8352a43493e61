"""Files that end too early: after every prefix of every file, what was whole is read, or the error says what is not."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from penstock.consume.assignment import TopicPartition
from penstock.consume.group import Group
from penstock.consume.membership import Member
from penstock.errors import CorruptionError
from penstock.log.folder_log import FolderLog
from tests.faults.history import SCHEMA, note_of
from tests.faults.stored import OPENING, RECORDS, read_segment
from tests.faults.workers import events

SAMPLE = 60


def lengths(size: int, interesting: list[int], dice: Random, *, every: bool) -> Iterator[int]:
    """All lengths of a file below its own; or those around interesting places, and some more."""
    near = {place + step for place in (0, *interesting, size) for step in (-1, 0, 1)}
    chosen = set(range(size)) if every else near | set(dice.sample(range(size), min(SAMPLE, size)))
    yield from sorted(length for length in chosen if 0 <= length < size)


def every_or_some() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "every"])


class Original:
    """A topic with one partition whose active segment holds three frames of four records; and copies of it."""

    def __init__(self, directory: Path, *, sealed: int = 0) -> None:
        self.directory = directory
        self.root = directory / "log"
        with FolderLog(self.root, background=False) as log:
            topic = log.create("t", SCHEMA, event_time="time", segment_bytes=1 << 20)
            for turn in range(sealed):
                topic.partitions[0].append(events("w", 4 * turn, 4, topic.schema))
            topic.seal(active=True)
            for turn in range(sealed, sealed + 3):
                topic.partitions[0].append(events("w", 4 * turn, 4, topic.schema))
        self.base = 4 * sealed
        self.end = 4 * (sealed + 3)
        self.segment = Path("topics/t/0") / f"{self.base:020d}.log"
        self.frames, _ = read_segment(self.root / self.segment)

    def copied(self, file: Path, content: bytes) -> Path:
        """A copy of the log in which one file has other bytes."""
        copy = self.directory / "copy"
        if not copy.exists():
            shutil.copytree(self.root, copy)
        for path in (copy / "topics/t/0").iterdir():  # Nothing else changes in the tests that come here.
            original = self.root / path.relative_to(copy)
            if not original.exists():
                path.unlink()
        for original in (self.root / "topics/t/0").iterdir():
            (copy / original.relative_to(self.root)).write_bytes(original.read_bytes())
        (copy / file).write_bytes(content)
        return copy

    def whole_in(self, length: int) -> int:
        """The end offset if the segment ends after so many bytes."""
        ends = [f.base_offset + f.records for f in self.frames if f.position + f.length <= length and f.kind == RECORDS]
        return max(ends, default=self.base)


def rows_of(root: Path, *, end: int) -> None:
    """Reads everything with penstock: exactly the records below `end`, each as it was written."""
    with FolderLog(root, background=False) as log:
        rows = log.topic("t").slice().select(["number", "note", "_offset"]).to_pylist()
    assert [row["_offset"] for row in rows] == list(range(end))
    assert [row["note"] for row in rows] == [note_of("w", number) for number in range(end)]


@every_or_some()
@pytest.mark.parametrize(("sealed", "has_hint"), [(2, True), (0, False)], ids=["with-end", "without-end"])
def test_active_segment_that_ends_early_is_cut_at_its_last_whole_frame(
    memory_path: Path, caplog: pytest.LogCaptureFixture, dice: Random, sealed: int, has_hint: bool, every: bool
) -> None:
    original = Original(memory_path, sealed=sealed)
    content = (original.root / original.segment).read_bytes()
    boundaries = [frame.position for frame in original.frames]
    for length in lengths(len(content), boundaries, dice, every=every):
        root = original.copied(original.segment, content[:length])
        if not has_hint:
            (root / "topics/t/0/end").unlink()
        whole = original.whole_in(length)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="penstock.log"), FolderLog(root, background=False) as log:
            partition = log.topic("t").partitions[0]
            assert partition.end().offset == whole, length
            appended = partition.append(events("w", whole, 5, log.topic("t").schema))
            assert appended.base_offset == whole
        is_torn = length not in boundaries or length == boundaries[0]
        is_shortened = has_hint and whole < original.end
        if (is_torn and length > 0) or is_shortened:
            assert f"the next offset is {whole}" in caplog.text, length
        if is_shortened:
            assert f"{original.end - whole} records that had been acknowledged are gone" in caplog.text
        rows_of(root, end=whole + 5)


@every_or_some()
def test_file_end_that_ends_early_is_rebuilt(memory_path: Path, dice: Random, every: bool) -> None:
    original = Original(memory_path, sealed=1)
    file = Path("topics/t/0/end")
    content = (original.root / file).read_bytes()
    for length in lengths(len(content), [], dice, every=True):
        rows_of(original.copied(file, content[:length]), end=original.end)
    for length in range(1, 200 if every else 70):
        rows_of(original.copied(file, bytes(length)), end=original.end)
    for bit in range(8 * len(content)) if every else range(0, 8 * len(content), 7):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        rows_of(original.copied(file, bytes(flipped)), end=original.end)


@every_or_some()
@pytest.mark.parametrize("file", ["topics/t/topic.json", "topics/t/0/manifest.json"])
def test_document_that_ends_early_is_damage(memory_path: Path, dice: Random, file: str, every: bool) -> None:
    original = Original(memory_path, sealed=2)
    content = (original.root / file).read_bytes()
    root = original.copied(Path(file), content)
    rows_of(root, end=original.end)
    for length in lengths(len(content), [content.rindex(b"crc32c")], dice, every=every):
        (root / file).write_bytes(content[:length])
        with pytest.raises(CorruptionError) as raised:
            rows_of(root, end=original.end)
        assert raised.value.path == root / file
        assert "penstock log check" in str(raised.value)


@every_or_some()
def test_document_with_a_flipped_bit_is_damage(memory_path: Path, every: bool) -> None:
    original = Original(memory_path, sealed=2)
    for file in ("topics/t/topic.json", "topics/t/0/manifest.json"):
        content = (original.root / file).read_bytes()
        root = original.copied(Path(file), content)
        for bit in range(0, 8 * len(content), 1 if every else 61):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            (root / file).write_bytes(flipped)
            with pytest.raises(CorruptionError):
                rows_of(root, end=original.end)


@every_or_some()
@pytest.mark.parametrize("document", ["offsets", "members"])
def test_document_of_a_group_that_ends_early_is_damage(
    memory_path: Path, dice: Random, document: str, every: bool
) -> None:
    key = TopicPartition("t", 0, "0123")
    group = Group(memory_path, "g", lambda _: frozenset([key]))
    group.reset({key: 17})
    group.reset({key: 18})
    group.change(lambda membership: membership.joined(Member("m", 1, "host", ("t",), 1_000_000, 1)))
    (path,) = (memory_path / "groups/g" / document).glob("*.json")
    content = path.read_bytes()

    def read() -> object:
        group = Group(memory_path, "g", lambda _: frozenset([key]))
        return group.committed()[key].offset if document == "offsets" else list(group.membership().members)

    answer = read()
    assert answer == (18 if document == "offsets" else ["m"])
    for length in lengths(len(content), [], dice, every=every):
        path.write_bytes(content[:length])
        with pytest.raises(CorruptionError) as raised:
            read()
        assert raised.value.path == path
    for bit in range(0, 8 * len(content), 1 if every else 13):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(CorruptionError):
            read()
    path.write_bytes(content)
    assert read() == answer


@every_or_some()
def test_sealed_file_that_ends_early_is_damage(memory_path: Path, dice: Random, every: bool) -> None:
    original = Original(memory_path, sealed=3)
    file = Path("topics/t/0") / f"{0:020d}.parquet"
    content = (original.root / file).read_bytes()
    root = original.copied(file, content)
    for length in lengths(len(content), [], dice, every=every):
        os.truncate(root / file, 0)
        (root / file).write_bytes(content[:length])
        with pytest.raises(CorruptionError) as raised:
            rows_of(root, end=original.end)
        assert raised.value.path == root / file


def test_closed_segment_that_ends_early_is_damage(memory_path: Path, dice: Random) -> None:
    """A segment that is not the newest was closed and synced: nothing may be missing from it."""
    original = Original(memory_path)
    with FolderLog(original.root, background=False) as log:
        topic = log.topic("t")
        assert topic.partitions[0].roll()
        topic.partitions[0].append(events("w", original.end, 4, topic.schema))
    content = (original.root / original.segment).read_bytes()
    frames, _ = read_segment(original.root / original.segment)
    assert frames[0].kind == OPENING
    root = original.copied(original.segment, content)
    rows_of(root, end=original.end + 4)
    for length in lengths(len(content), [frame.position for frame in frames], dice, every=False):
        (root / original.segment).write_bytes(content[:length])
        if length == frames[-1].position:  # Only the closing frame is gone: all records are there.
            rows_of(root, end=original.end + 4)
            continue
        with pytest.raises(CorruptionError):
            rows_of(root, end=original.end + 4)
