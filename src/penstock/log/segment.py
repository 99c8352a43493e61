"""A hot segment: consecutive records of one partition in one append-only file of frames."""

from __future__ import annotations

import errno
import os
import secrets
import struct
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import google_crc32c
import pyarrow as pa

from penstock.errors import CorruptionError
from penstock.log.files import create_file, read_exactly
from penstock.log.frame import (
    ALIGNMENT,
    CLOSING,
    HEADER_BYTES_MAX,
    MAGIC,
    OPENING,
    PREDECESSORS_DURABLE,
    RECORDS,
    Frame,
    decode_header,
    encode_frame,
    is_whole,
)
from penstock.log.open_files import PooledFile, with_descriptor
from penstock.log.producers import Producers

SUFFIX = ".log"
CHUNK_BYTES = 8 << 20
"""How much is read at once where frames follow one another."""

_HEADER = struct.Struct("<8sHHIqQq")
_MAGIC = b"PenstkS\x01"


class BadSegmentHeader(CorruptionError):
    """The first 64 bytes are not those of a segment: torn while it was made, or damaged."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "its header is not that of a segment", position=0)


@dataclass(frozen=True)
class Scan:
    """What `Segment.scan` found: the whole frames, and what comes after them."""

    position: int
    """Where the last whole frame ends."""
    offset: int
    arrived_us: int
    epoch: int
    is_closed: bool
    has_opening: bool
    later_frame: int | None
    """Position of a whole frame behind a bad one, which proves damage. None: the rest is only a torn tail."""


class Segment(PooledFile):
    """Consecutive records of one partition, kept in one file of frames.

    A crash may leave a torn last frame, zeros or old bytes behind the last whole frame; `scan` tells how far the
    file can be trusted. The index of frames is kept in memory only. One appender at a time, who holds the
    partition's lock; any number of readers, who stay below the committed end.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file. BadSegmentHeader if its first bytes are torn or damaged."""
        super().__init__(path)
        self._header = b""
        self.open()
        _, _, _, _, self.base_offset, self.segment_id, self.created_us = _HEADER.unpack_from(self._header)
        self._frames: list[Frame] = []
        self._bases: list[int] = []
        self._indexed = ALIGNMENT
        self._index_lock = threading.Lock()

    @staticmethod
    def create(
        path: Path, partition: int, *, offset: int, now_us: int, arrived_us: int, epoch: int, producers: Producers
    ) -> Segment:
        """Makes a new durable segment that begins at `offset`, with its opening frame."""
        segment_id = secrets.randbits(64)
        header = _HEADER.pack(_MAGIC, 1, 0, partition, offset, segment_id, now_us).ljust(ALIGNMENT - 4, b"\0")
        opening = encode_frame(
            segment_id,
            ALIGNMENT,
            pa.py_buffer(producers.to_bytes()),
            kind=OPENING,
            base_offset=offset,
            epoch=epoch,
            appended_us=now_us,
            arrived_min=arrived_us,
            arrived_max=arrived_us,
        )
        create_file(path, b"".join([header, _checksum(header), *opening]))
        return Segment(path)

    def _check(self, file: FileIO) -> None:
        header = os.pread(file.fileno(), ALIGNMENT, 0)
        if len(header) < ALIGNMENT or _checksum(header[:-4]) != header[-4:] or header[:8] != _MAGIC:
            raise BadSegmentHeader(self.path)
        if self._header not in (b"", header):  # Sealed or deleted, and another one has its name.
            raise FileNotFoundError(errno.ENOENT, "the segment is gone", str(self.path))
        self._header = header

    def size(self) -> int:
        file = self.open()
        return os.fstat(file.fileno()).st_size

    # --- what is in it ---

    def frames(self, start: int, stop: int, position: int) -> list[Frame]:
        """The record frames that hold offsets from `start` up to `stop`, among those before `position`."""
        with self._index_lock:
            self._extend_index(position)
            first = max(bisect_right(self._bases, start) - 1, 0)
            last = bisect_right(self._bases, stop - 1)
            found = self._frames[first:last]
        if found and found[0].end_offset <= start:
            found = found[1:]
        return found

    def headers(self, start: int, stop: int) -> Iterator[Frame]:
        """All frames between two positions, by their headers alone. CorruptionError where one is damaged or missing."""
        file = self.open()
        position = start
        chunk, chunk_start = b"", 0
        while position < stop:
            at = position - chunk_start
            if at < 0 or at + HEADER_BYTES_MAX > len(chunk):
                chunk_start, at = position, 0
                chunk = os.pread(file.fileno(), 64 * HEADER_BYTES_MAX, position)
            frame = decode_header(self.segment_id, chunk, at, position)
            if frame is None or frame.end_position > stop:
                raise CorruptionError(self.path, "no whole header of a frame where one must be", position=position)
            yield frame
            position = frame.end_position

    def payloads(self, frames: Iterable[Frame]) -> Iterator[tuple[Frame, pa.Buffer]]:
        """The records of each frame, read in large chunks. CorruptionError at the first frame that is not whole."""
        file = self.open()
        for run in _runs(frames):
            start = run[0].position
            content = pa.py_buffer(read_exactly(file.fileno(), run[-1].end_position - start, start))
            for frame in run:
                at = frame.position - start
                body = content.slice(at, min(frame.length, max(content.size - at, 0)))
                if not is_whole(self.segment_id, frame, body):
                    raise CorruptionError(
                        self.path,
                        "the checksum of a frame does not match",
                        offset=frame.base_offset,
                        position=frame.position,
                    )
                yield frame, body.slice(frame.payload_start, frame.payload_length)

    def _extend_index(self, position: int) -> None:
        if position <= self._indexed:
            return
        for frame in self.headers(self._indexed, position):
            if frame.kind == RECORDS:
                if self._frames and frame.hours == self._frames[-1].hours:
                    frame = frame._replace(hours=self._frames[-1].hours)  # One tuple for all: memory.
                self._frames.append(frame)
                self._bases.append(frame.base_offset)
            self._indexed = frame.end_position

    # --- how far it can be trusted ---

    def scan(self) -> Scan:
        """Checks every frame from the beginning. Changes nothing."""
        position, offset, arrived_us, epoch = ALIGNMENT, self.base_offset, 0, 0
        is_closed = has_opening = False
        for frame in self._whole_frames(ALIGNMENT):
            if is_closed or frame.base_offset != offset or frame.epoch < epoch:
                break
            if (frame.kind == OPENING) == has_opening:
                break
            has_opening = True
            position, offset, epoch = frame.end_position, frame.end_offset, frame.epoch
            arrived_us = max(arrived_us, frame.arrived_max)
            is_closed = frame.kind == CLOSING
        later = None if is_closed else self._later_frame(position, offset, epoch)
        return Scan(position, offset, arrived_us, epoch, is_closed, has_opening, later)

    def _whole_frames(self, position: int) -> Iterator[Frame]:
        file = self.open()
        chunk, chunk_start = b"", position
        while True:
            at = position - chunk_start
            frame = decode_header(self.segment_id, chunk, at, position)
            if frame is None or at + frame.length > len(chunk):
                wanted = max(CHUNK_BYTES, frame.length if frame else 0)
                chunk, chunk_start, at = read_exactly(file.fileno(), wanted, position), position, 0
                frame = decode_header(self.segment_id, chunk, 0, position)
                if frame is not None and frame.length > len(chunk) and frame.length > wanted:
                    chunk = read_exactly(file.fileno(), frame.length, position)
            if frame is None or at + frame.length > len(chunk):
                return
            if not is_whole(self.segment_id, frame, pa.py_buffer(chunk).slice(at, frame.length)):
                return
            yield frame
            position = frame.end_position

    def _later_frame(self, position: int, offset: int, epoch: int) -> int | None:
        """A whole frame behind the first bad place that vouches for what stood before it."""
        file = self.open()
        tail = read_exactly(file.fileno(), max(self.size() - position, 0), position)
        found = tail.find(MAGIC)
        while found >= 0:
            frame = decode_header(self.segment_id, tail, found, position + found) if found % ALIGNMENT == 0 else None
            if (
                frame is not None
                and frame.flags & PREDECESSORS_DURABLE
                and frame.base_offset >= offset
                and frame.epoch >= epoch
                and found + frame.length <= len(tail)
                and is_whole(self.segment_id, frame, pa.py_buffer(tail).slice(found, frame.length))
            ):
                return frame.position
            found = tail.find(MAGIC, found + 1)
        return None


def has_frames(path: Path) -> bool:
    """Whether a file with a bad header may hold records all the same: then it is damaged, not torn."""
    content = path.read_bytes()
    return any(content[at : at + 4] == MAGIC for at in range(2 * ALIGNMENT, len(content), ALIGNMENT))


def segment_path(directory: Path, base_offset: int) -> Path:
    """Where the hot segment that begins at this offset is kept."""
    return directory / f"{base_offset:020d}{SUFFIX}"


def hot_bases(directory: Path) -> list[int]:
    """Base offsets of the hot segments in a directory, in order."""
    names = with_descriptor(directory, lambda: os.listdir(directory))
    return sorted(int(name[: -len(SUFFIX)]) for name in names if name.endswith(SUFFIX))


def _runs(frames: Iterable[Frame]) -> Iterator[list[Frame]]:
    """Neighbouring frames, gathered so that one read serves many."""
    run: list[Frame] = []
    for frame in frames:
        if run and (frame.position != run[-1].end_position or frame.end_position - run[0].position > CHUNK_BYTES):
            yield run
            run = []
        run.append(frame)
    if run:
        yield run


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", google_crc32c.value(content))
