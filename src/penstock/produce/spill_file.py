"""A file of spilled events: frames, one behind the other, each with its checksums.

A frame is a header (96 bytes) and an Arrow stream of one record batch, whose last column holds the sequences.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.access import open_file
from penstock.errors import SpillDamaged
from penstock.log.files import read_exactly, write_all

logger = logging.getLogger("penstock.log")

DAMAGED_SUFFIX = ".damaged"

_MAGIC = b"PnSp"
_HEADER = struct.Struct("<4sIII16s16sIIqqQB15x")
_SEQUENCE = "_sequence"

Sequences = npt.NDArray[np.int64]


class Content(NamedTuple):
    """Some events of one producer, ready for the log."""

    batch: pa.RecordBatch
    sequences: Sequences
    producer: bytes
    epoch: int


class Header(NamedTuple):
    """What the header of a frame says."""

    crc: int
    content_crc: int
    topic_id: bytes
    producer: bytes
    epoch: int
    rows: int
    first_sequence: int
    last_sequence: int
    length: int
    """Bytes of the content, which follows the header."""
    is_repeated: bool
    """Whether its producer has a name, and so repeats by itself what was not acknowledged."""
    is_done: bool
    """Whether the log has it: not part of the checksum, for it is written later."""


class SpillFile:
    """One file of frames, locked by the process that writes it or sends what it holds."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.size = os.fstat(fd).st_size
        self.unfinished = 0
        """Frames that the log does not have yet."""
        self._fd = fd
        self._is_damaged = False

    @classmethod
    def create(cls, path: Path) -> SpillFile | None:
        """A new file with our lock on it. None if somebody took it, still empty, for a dead producer's: try again."""
        return cls._locked(path, open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))

    @classmethod
    def adopt(cls, path: Path) -> SpillFile | None:
        """The file of a dead producer. None if its owner lives, or somebody else was quicker."""
        try:
            return cls._locked(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except FileNotFoundError:
            return None

    @classmethod
    def _locked(cls, path: Path, fd: int) -> SpillFile | None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        if os.fstat(fd).st_nlink == 0:  # It was sent and deleted between our open and our lock.
            os.close(fd)
            return None
        return cls(path, fd)

    def write(self, content: Content, topic_id: bytes, *, is_repeated: bool) -> Header:
        """Adds a frame. OSError if the disk did not take all of it; the file is as before then."""
        stream = _to_stream(content)
        rest = _HEADER.pack(
            _MAGIC, 0, 0, google_crc32c.value(stream), topic_id, content.producer, content.epoch,
            content.batch.num_rows, int(content.sequences[0]), int(content.sequences[-1]), stream.size,
            is_repeated,
        )[12:]  # fmt: skip
        head = _MAGIC + struct.pack("<II", 0, google_crc32c.value(rest)) + rest
        try:
            end = write_all(self._fd, [head, memoryview(stream)], self.size)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size = end
        header = decode_header(head)
        assert header is not None
        return header

    def read(self, position: int, header: Header) -> Content:
        """The events of a frame, checked against its checksum."""
        stream = pa.py_buffer(read_exactly(self._fd, header.length, position + _HEADER.size))
        if stream.size != header.length or google_crc32c.value(stream) != header.content_crc:
            self._is_damaged = True
            raise SpillDamaged(self.path, position, "its checksum does not match")
        batch, sequences = _from_stream(stream)
        assert (len(sequences), sequences[0], sequences[-1]) == header[5:8], header
        return Content(batch, sequences, header.producer, header.epoch)

    def scan(self) -> Iterator[tuple[int, Header]]:
        """The frames, by their headers. A torn tail is left out; so is damage, but then the file is kept for people."""
        position = 0
        while position < self.size:
            header = decode_header(os.pread(self._fd, _HEADER.size, position))
            if header is not None and position + _HEADER.size + header.length <= self.size:
                yield position, header
                position += _HEADER.size + header.length
                continue
            following = self._next_header(position + 1)
            if following is None:
                return
            self._is_damaged = True
            position = following

    def mark_done(self, position: int, header: Header) -> None:
        """Notes that the log has a frame, so that nobody sends it again. Only spares work: the log would notice."""
        with suppress(OSError):
            os.pwrite(self._fd, struct.pack("<I", header.crc ^ 0xFFFFFFFF), position + 4)

    def remove(self) -> None:
        """Deletes the file; one that is damaged is kept under another name."""
        with suppress(OSError):
            if self._is_damaged:
                kept = self.path.with_suffix(DAMAGED_SUFFIX)
                os.rename(self.path, kept)
                logger.error("spill: %s is damaged; what could be read was sent, look at the rest", kept)
            else:
                os.unlink(self.path)
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _next_header(self, position: int) -> int | None:
        content = read_exactly(self._fd, self.size - position, position)
        found = content.find(_MAGIC)
        while found >= 0:
            if decode_header(content[found : found + _HEADER.size]) is not None:
                return position + found
            found = content.find(_MAGIC, found + 1)
        return None


def decode_header(chunk: bytes) -> Header | None:
    """None if these bytes are not a header as it was written."""
    if len(chunk) < _HEADER.size or chunk[:4] != _MAGIC:
        return None
    done, crc, *fields = _HEADER.unpack(chunk)[1:]
    return Header._make([crc, *fields, done == crc ^ 0xFFFFFFFF]) if google_crc32c.value(chunk[12:]) == crc else None


def _to_stream(content: Content) -> pa.Buffer:
    batch = content.batch.append_column(_SEQUENCE, pa.array(content.sequences))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _from_stream(stream: pa.Buffer) -> tuple[pa.RecordBatch, Sequences]:
    with pa.ipc.open_stream(stream) as reader:
        batch = reader.read_next_batch()
    sequences = batch.column(batch.num_columns - 1).to_numpy()
    return batch.select(batch.schema.names[:-1]), sequences
