"""Every single bit of a segment flipped, one at a time: it is noticed, and never read as a wrong row."""

from __future__ import annotations

import logging
import mmap
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import CorruptionError
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.log.frame import Frame
from penstock.log.partition import Ranges
from penstock.log.producers import named_producer
from penstock.log.sealed import check_once, read_row_groups
from penstock.log.segment import BadSegmentHeader, Segment
from tests.faults.history import SCHEMA
from tests.faults.stored import FrameSeen, read_segment
from tests.faults.workers import events

SEGMENT_BYTES = 64 << 10
FRAMES = 2
HEADER_BYTES = 256
"""The header of a frame with its hours ends before."""
HOUR_US = 3_600_000_000
Row = tuple[int, int, str]
"""Offset, number, note."""


@contextmanager
def writable(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of a file, to be changed in place."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        yield content


def flips(content: mmap.mmap, bits: Iterable[int]) -> Iterator[int]:
    """Flips one bit after the other; each is set right before the next."""
    for bit in bits:
        content[bit >> 3] ^= 1 << (bit & 7)
        yield bit
        content[bit >> 3] ^= 1 << (bit & 7)


def bits_of(size: int, dice: Random, *, every: bool, sample: int) -> Iterable[int]:
    return range(8 * size) if every else sorted(dice.sample(range(8 * size), sample))


def every_or_some() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "every"])


def make_topic(root: Path, rows: int, frames: int) -> tuple[FolderTopic, Path]:
    """A topic with some frames in its only segment; each was sent by a producer, and holds some hours of event time."""
    topic = FolderLog(root, background=False, clock=iter(range(1_000_000, 1 << 40, 1_000_000)).__next__).create(
        "t", SCHEMA, event_time="time", segment_bytes=1 << 30
    )
    for turn in range(frames):
        batch = events("w", turn * rows, rows, topic.schema)
        sequences = np.arange(turn * rows, turn * rows + rows)
        topic.partitions[0].append(batch, producer=named_producer("w"), sequences=sequences)
    topic.log.close()
    return topic, topic.directory / "0" / f"{0:020d}.log"


@every_or_some()
def test_flipped_bit_of_a_hot_segment_is_noticed(memory_path: Path, dice: Random, every: bool) -> None:
    """At the level of the segment: read as usual, and scanned after a crash.

    Where headers are whole a reader has them in memory; so behind them one open segment serves for all bits. It is
    scanned with one bit of each byte, for a scan takes long.
    """
    _, path = make_topic(memory_path, 550, FRAMES)
    frames, _ = read_segment(path)
    end, size = frames[-1].base_offset + frames[-1].records, path.stat().st_size
    assert size >= SEGMENT_BYTES
    segment = Segment(path)
    known = segment.frames(0, end, size)
    missed = []
    with writable(path) as content:
        for bit in flips(content, bits_of(size, dice, every=every, sample=4000)):
            byte = bit >> 3
            number, bad = next(each for each in enumerate(frames) if byte < each[1].position + each[1].length)
            if byte < 64:
                is_noticed = not _opens(path)
            elif number == 0 or byte < bad.position + HEADER_BYTES:
                fresh = Segment(path)
                is_noticed = _scan_stops_at(fresh, bad, frames) and not (number and _reads(fresh, number, end, size))
            else:
                is_noticed = not _is_whole(segment, known[number - 1])
                if bit & 7 == byte % 8:
                    is_noticed &= _scan_stops_at(segment, bad, frames)
            if not is_noticed:
                missed.append(bit)
    assert not missed, f"{len(missed)} bits, such as {missed[:5]}"


def _opens(path: Path) -> bool:
    try:
        Segment(path)
    except BadSegmentHeader:
        return False
    return True


def _scan_stops_at(segment: Segment, bad: FrameSeen, frames: list[FrameSeen]) -> bool:
    """Whether the scan ends before the bad frame, and knows whether that is a torn tail or damage."""
    scan = segment.scan()
    return scan.position == bad.position and (scan.later_frame is None) == (bad is frames[-1])


def _reads(segment: Segment, number: int, end: int, size: int) -> bool:
    """Whether the records of a frame can be read by who knows nothing yet."""
    try:
        return _is_whole(segment, segment.frames(0, end, size)[number - 1])
    except CorruptionError:
        return False


def _is_whole(segment: Segment, frame: Frame) -> bool:
    try:
        return len(list(segment.payloads([frame]))) == 1
    except CorruptionError:
        return False


@dataclass(frozen=True)
class Question:
    """Something to ask of a partition; the answer must be right, or an error."""

    name: str
    ask: Callable[[FolderTopic], object]


def numbers(topic: FolderTopic, start: int = 0, *, arrived: Ranges = None, event_time: Ranges = None) -> list[Row]:
    """Reads as much as asked for, and nothing else."""
    batches = topic.partitions[0].read(start, arrived=arrived, event_time=event_time)
    table = pa.Table.from_batches(batches, topic.read_schema())
    return list(zip(*(table.column(name).to_pylist() for name in ("_offset", "number", "note")), strict=True))


def duplicates(topic: FolderTopic) -> int:
    """Sends again what was sent last, and one record more: how much of it is known?"""
    end = topic.partitions[0].end().offset
    batch = events("w", end - 1, 2, topic.schema)
    producer = named_producer("w")
    return topic.partitions[0].append(batch, producer=producer, sequences=np.arange(end - 1, end + 1)).duplicates


QUESTIONS = [
    Question("all", numbers),
    Question("from the middle", lambda topic: numbers(topic, 35)),
    Question("an hour", lambda topic: numbers(topic, event_time=(0, HOUR_US))),
    Question("later hours", lambda topic: numbers(topic, event_time=(HOUR_US, 1 << 60))),
    Question("early arrivals", lambda topic: numbers(topic, arrived=(0, 6_000_000))),
    Question("late arrivals", lambda topic: numbers(topic, arrived=(6_000_000, 1 << 60))),
    Question("offset at a time", lambda topic: topic.partitions[0].offset_at(6_000_000)),
    Question("cut by rows", lambda topic: topic.cut({0: 0}, max_rows=25)),
    Question("duplicates", duplicates),
]


@every_or_some()
@pytest.mark.parametrize("has_hint", [True, False], ids=["with-end", "without-end"])
def test_flipped_bit_of_a_header_never_gives_a_wrong_answer(
    memory_path: Path, caplog: pytest.LogCaptureFixture, dice: Random, has_hint: bool, every: bool
) -> None:
    """At the level of the partition: the answer is right, or an error, or a cut is reported."""
    caplog.set_level(logging.WARNING, logger="penstock.log")
    topic, path = make_topic(memory_path, 30, 3)
    frames, _ = read_segment(path)
    original = memory_path / "original"
    shutil.copytree(topic.directory / "0", original)
    answers = {question.name: question.ask(_opened(memory_path, original, has_hint)) for question in QUESTIONS}
    assert all(answers.values())
    wrong = []
    for bit in _header_bits(frames, dice, every=every):
        first = bit % len(QUESTIONS)
        for asked in QUESTIONS[first : first + (3 if every else 1)]:
            caplog.clear()
            topic = _opened(memory_path, original, has_hint, flipped=bit)
            try:
                answer = asked.ask(topic)
            except CorruptionError:
                continue
            finally:
                topic.log.close()
            is_cut = bit >= 8 * frames[-1].position and "the next offset is 60" in caplog.text
            if answer != answers[asked.name] and not is_cut:
                wrong.append((bit, asked.name, answer))
    assert not wrong, f"{len(wrong)} wrong answers, such as {wrong[:5]}"


def _header_bits(frames: list[FrameSeen], dice: Random, *, every: bool) -> list[int]:
    """The bits of the segment's header and of all frames' headers with their hours."""
    places = [*range(64), *(frame.position + at for frame in frames for at in range(128))]
    bits = [8 * place + bit for place in places for bit in range(8)]
    return bits if every else dice.sample(bits, 300)


def _opened(directory: Path, original: Path, has_hint: bool, flipped: int | None = None) -> FolderTopic:
    partition = directory / "topics" / "t" / "0"
    for path in partition.iterdir():
        path.unlink()
    for path in original.iterdir():
        content = bytearray(path.read_bytes())
        if path.suffix == ".log" and flipped is not None:
            content[flipped >> 3] ^= 1 << (flipped & 7)
        if path.name != "end" or has_hint:
            (partition / path.name).write_bytes(content)
    return FolderLog(directory, background=False).topic("t")


@every_or_some()
def test_flipped_bit_of_a_sealed_segment_is_noticed(memory_path: Path, dice: Random, every: bool) -> None:
    make_topic(memory_path, 4200, 2)
    topic = FolderLog(memory_path, background=False).topic("t")
    topic.seal(active=True)
    path = topic.directory / "0" / f"{0:020d}.parquet"
    crc, size = google_crc32c.value(path.read_bytes()), path.stat().st_size
    assert size >= SEGMENT_BYTES
    assert sum(batch.num_rows for batch in read_row_groups(path, crc, [0], ["note"])) == 8400
    copy = memory_path / "copy.parquet"
    shutil.copy(path, copy)
    missed = []
    with writable(copy) as content:
        for bit in flips(content, bits_of(size, dice, every=every, sample=1000)):
            try:
                check_once(copy, crc)  # What every reader does first.
                missed.append(bit)
            except CorruptionError:
                pass
    assert not missed, f"{len(missed)} bits, such as {missed[:5]}"


def test_flipped_bit_of_a_sealed_segment_stops_a_reader(memory_path: Path) -> None:
    """The same through a partition: the error names the file, and the rest of the partition can be read."""
    make_topic(memory_path, 20, 4)
    topic = FolderLog(memory_path, background=False).topic("t")
    topic.seal(active=True)
    topic.partitions[0].append(events("w", 80, 20, topic.schema))
    path = topic.directory / "0" / f"{0:020d}.parquet"
    with writable(path) as content:
        content[100] ^= 1
        with pytest.raises(CorruptionError) as raised:
            topic.slice()
        assert raised.value.path == path
        assert len(numbers(topic, 80)) == 20
        content[100] ^= 1
    assert topic.slice().num_rows == 100
