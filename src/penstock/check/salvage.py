"""What can still be read of a damaged segment: whole frames of a hot one, whole row groups of a sealed one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa

from penstock.check.decoding import arrivals_of, frame_records, row_group_records, row_groups_of
from penstock.log.committed_end import End
from penstock.log.definition import TopicDefinition
from penstock.log.frame import (
    ALIGNMENT,
    CLOSING,
    HEADER_BYTES_MAX,
    MAGIC,
    OPENING,
    RECORDS,
    Frame,
    decode_header,
    is_whole,
)
from penstock.log.producers import Producers
from penstock.log.segment import BadSegmentHeader, Segment


class HotSalvage:
    """The whole frames of a hot segment, in order, whatever lies between them. Changes nothing."""

    def __init__(self, path: Path, base_offset: int, hint: End | None) -> None:
        self.path = path
        self.base_offset = base_offset
        self.frames: list[Frame] = []
        self.producers = Producers()
        self._content = pa.py_buffer(path.read_bytes())  # Not mapped: a writer may cut a torn tail off under our eyes.
        self.bytes = self._content.size
        self._is_header_whole, segment_id = _segment_id(path, base_offset, hint)
        if segment_id is not None:
            self._find(segment_id)

    @property
    def stop(self) -> int:
        """The offset behind the last whole frame."""
        return self.frames[-1].end_offset if self.frames else self.base_offset

    @property
    def is_closed(self) -> bool:
        """Whether its last frame says that another segment follows."""
        return bool(self.frames) and self.frames[-1].kind == CLOSING

    def gap_before(self, number: int) -> int:
        """Bytes between this whole frame and the one before it that are no whole frame."""
        before = self.frames[number - 1].end_position if number else ALIGNMENT
        return self.frames[number].position - before

    def records_of(self, frame: Frame, definition: TopicDefinition, partition: int) -> pa.RecordBatch:
        """The records of one of its whole frames, as `frame_records` gives them."""
        return frame_records(frame, self._payload(frame), definition, partition)

    @property
    def tail_bytes(self) -> int:
        """Bytes behind the last whole frame."""
        return int(self.bytes) - (self.frames[-1].end_position if self.frames else 0)

    @property
    def is_damaged(self) -> bool:
        """Whether something before the last whole frame is not whole: no writer that died leaves that behind."""
        if not self._is_header_whole:
            return bool(self.frames)
        position, offset = ALIGNMENT, self.base_offset
        for number, frame in enumerate(self.frames):
            if (frame.position, frame.base_offset, frame.kind == OPENING) != (position, offset, number == 0):
                return True
            position, offset = frame.end_position, frame.end_offset
        return False

    def batches(self, definition: TopicDefinition, partition: int) -> Iterator[pa.RecordBatch]:
        """The records of the whole frames."""
        for frame in self.frames:
            if frame.kind == RECORDS:
                try:
                    yield self.records_of(frame, definition, partition)
                except (pa.ArrowException, IndexError, ValueError):
                    continue

    def _find(self, segment_id: int) -> None:
        content = memoryview(self._content)
        offset, epoch, position = self.base_offset, 0, ALIGNMENT
        while position < len(content):
            frame = decode_header(segment_id, bytes(content[position : position + HEADER_BYTES_MAX]), 0, position)
            if (
                frame is not None
                and frame.base_offset >= offset
                and frame.epoch >= epoch
                and is_whole(segment_id, frame, self._content.slice(position, min(frame.length, self.bytes - position)))
            ):
                self.frames.append(frame)
                self.producers.observe(frame, self._payload(frame).to_pybytes() if frame.kind == OPENING else b"")
                offset, epoch, position = frame.end_offset, frame.epoch, frame.end_position
            else:
                position += ALIGNMENT
                while position < len(content) and content[position : position + 4] != MAGIC:
                    position += ALIGNMENT

    def _payload(self, frame: Frame) -> pa.Buffer:
        return self._content.slice(frame.position + frame.payload_start, frame.payload_length)


def sealed_batches(path: Path, definition: TopicDefinition, partition: int) -> Iterator[pa.RecordBatch]:
    """The records of the row groups that can be read, each page compared with its checksum. Changes nothing."""
    try:
        numbers = list(row_groups_of(path))
    except (pa.ArrowException, OSError):
        return
    for number in numbers:
        try:
            yield row_group_records(path, number, definition, partition)
        except (pa.ArrowException, OSError, KeyError, ValueError):
            continue


def in_order(batches: Iterable[pa.RecordBatch], start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Those batches whose offsets lie between two offsets and go up, and whose arrivals never go down."""
    arrived_us = None
    for batch in batches:
        if not batch.num_rows:
            continue
        offsets, stamps = batch.column("_offset").to_numpy(), arrivals_of(batch)
        before = stamps[0] if arrived_us is None else arrived_us
        if (
            start <= offsets[0]
            and offsets[-1] < stop
            and (np.diff(offsets) > 0).all()
            and (np.diff(stamps, prepend=before) >= 0).all()
        ):
            yield batch
            start, arrived_us = int(offsets[-1]) + 1, stamps[-1]


def _segment_id(path: Path, base_offset: int, hint: End | None) -> tuple[bool, int | None]:
    """Whether the header is whole, and the id that every frame's checksum counts in, if it can be had.

    From a damaged header it is had by turning one bit back, or else from the hint.
    """
    try:
        return True, Segment(path).segment_id
    except BadSegmentHeader:
        pass
    with path.open("rb") as file:
        header = bytearray(file.read(ALIGNMENT).ljust(ALIGNMENT, b"\0"))
    for bit in range(8 * ALIGNMENT):
        header[bit // 8] ^= 1 << bit % 8
        if google_crc32c.value(bytes(header[:-4])).to_bytes(4, "little") == bytes(header[-4:]):
            return False, int.from_bytes(header[24:32], "little")
        header[bit // 8] ^= 1 << bit % 8
    return False, hint.segment_id if hint is not None and hint.segment_base == base_offset else None
