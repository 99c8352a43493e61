"""A frame: some consecutive records of one partition, with everything needed to know that they are whole.

    segment   header (64 bytes), then frames
    frame     header (104 bytes), hours of event time, padding, Arrow record batch, padding

Everything begins at a multiple of 64 bytes. The checksum (CRC32C) covers the frame and, though they are not stored
in it, the segment's random id and the frame's own position: a frame copied from elsewhere, or left over from an
earlier life of the same disk blocks, never passes for a frame of this place. The header with its hours has a checksum
of its own, over the same: headers are read by themselves to skip frames and to know producers.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c
import pyarrow as pa

from penstock.log.hours import Hours

ALIGNMENT = 64
MAGIC = b"PnFr"
FRAME_BYTES_MAX = 64 << 20
"""Larger batches are split. Only a single record may make a larger frame."""
LENGTH_MAX = 1 << 30
"""No frame is longer than this. A length above it is damage."""

RECORDS = 1
"""Kind of frame: records."""
OPENING = 2
"""Kind of frame: the first of each segment; holds what the log remembers of its producers."""
CLOSING = 3
"""Kind of frame: the last of a full segment; the next segment goes on at its offset."""

PREDECESSORS_DURABLE = 1
"""Flag: everything before this frame was on disk when it was written, so a bad frame before it is damage."""

_HEADER = struct.Struct("<4sIIBBHIIqqqq16sIH2xqqII")
"""Magic, then the fields of `Frame` from `crc` to `header_crc`, in that order."""
_UNCHECKED = 8
"""Magic and `crc`: no checksum covers them. `header_crc` covers the header from here on, but for itself."""
_SEED = struct.Struct("<QQ")
_HOURS = struct.Struct("<ii")
HEADER_BYTES = _HEADER.size

NO_PRODUCER = bytes(16)


class Frame(NamedTuple):
    """What a frame's header says, and where the frame lies."""

    crc: int
    length: int
    kind: int
    flags: int
    schema_version: int
    epoch: int
    records: int
    base_offset: int
    appended_us: int
    arrived_min: int
    arrived_max: int
    producer: bytes
    producer_epoch: int
    hours_count: int
    first_sequence: int
    last_sequence: int
    payload_length: int
    header_crc: int
    position: int
    """Where the frame begins in the file."""
    hours: Hours

    @property
    def payload_start(self) -> int:
        """Counted from the frame's position."""
        return _aligned(HEADER_BYTES + _HOURS.size * self.hours_count)

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.records

    @property
    def end_position(self) -> int:
        return self.position + self.length


def encode_frame(
    segment_id: int,
    position: int,
    payload: pa.Buffer,
    *,
    kind: int,
    base_offset: int,
    epoch: int,
    records: int = 0,
    flags: int = 0,
    schema_version: int = 0,
    appended_us: int = 0,
    arrived_min: int = 0,
    arrived_max: int = 0,
    producer: bytes = NO_PRODUCER,
    producer_epoch: int = 0,
    first_sequence: int = 0,
    last_sequence: int = 0,
    hours: Hours = (),
) -> list[bytes | memoryview]:
    """The chunks of bytes to write at `position`, in order."""
    payload_start = _aligned(HEADER_BYTES + _HOURS.size * len(hours))
    length = _aligned(payload_start + payload.size)
    assert length <= LENGTH_MAX, (length, LENGTH_MAX, records)
    times = (appended_us, arrived_min, arrived_max)
    sequences = (first_sequence, last_sequence)
    header = _HEADER.pack(
        *(MAGIC, 0, length, kind, flags, schema_version, epoch, records, base_offset),
        *(*times, producer, producer_epoch, len(hours), *sequences, payload.size, 0),
    )[_UNCHECKED:-4]
    spans = b"".join(_HOURS.pack(*span) for span in hours)
    crc = google_crc32c.value(_SEED.pack(segment_id, position))
    header_crc = struct.pack("<I", google_crc32c.extend(crc, header + spans))
    covered = (header + header_crc + spans).ljust(payload_start - _UNCHECKED, b"\0")
    padding = bytes(length - payload_start - payload.size)
    for chunk in (covered, payload, padding):
        crc = google_crc32c.extend(crc, chunk)
    return [MAGIC + struct.pack("<I", crc) + covered, memoryview(payload), padding]


def decode_header(segment_id: int, chunk: bytes, at: int, position: int) -> Frame | None:
    """The header at `at` in the chunk, which lies at `position` in the file. None if it is not one of this place.

    What it says is what was written; only `is_whole` says whether the records are too. The chunk must hold the whole
    header with its hours; None too if it is too short for that.
    """
    if at + HEADER_BYTES > len(chunk) or chunk[at : at + 4] != MAGIC:
        return None
    frame = Frame._make((*_HEADER.unpack_from(chunk, at)[1:], position, ()))
    hours_end = at + HEADER_BYTES + _HOURS.size * frame.hours_count
    length = _aligned(frame.payload_start + frame.payload_length)
    if frame.length > LENGTH_MAX or frame.length != length or hours_end > len(chunk):
        return None
    header = chunk[at + _UNCHECKED : at + HEADER_BYTES - 4] + chunk[at + HEADER_BYTES : hours_end]
    if google_crc32c.extend(google_crc32c.value(_SEED.pack(segment_id, position)), header) != frame.header_crc:
        return None
    if frame.hours_count:
        frame = frame._replace(hours=tuple(_HOURS.iter_unpack(chunk[at + HEADER_BYTES : hours_end])))
    return frame


HEADER_BYTES_MAX = 4096
"""A header with its hours never needs more."""


def is_whole(segment_id: int, frame: Frame, content: pa.Buffer) -> bool:
    """Whether `content`, the frame's bytes, are those that were written at this very place."""
    if content.size != frame.length:
        return False
    seed = google_crc32c.value(_SEED.pack(segment_id, frame.position))
    return bool(google_crc32c.extend(seed, content.slice(_UNCHECKED)) == frame.crc)


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
