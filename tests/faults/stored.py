"""Reads a log from its files, by the written format alone: nothing of penstock is imported, so no bug is shared.

    <log>/topics/<topic>/topic.json                 a document: JSON, then a line with its CRC32C
                        /<partition>/manifest.json  a document: the sealed segments, in order
                                    /<base>.log     a segment: 64 bytes of header, then frames
                                    /<base>*.parquet
                                    /end            where the committed part ends, 64 bytes, only a hint
    <log>/groups/<group>/offsets/offsets-<version>.json   a document; the newest version counts

Every rule of the format that can be checked is checked here, and a breach is `NotWhole`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

SEGMENT_HEADER = struct.Struct("<8sHHIqQq")
FRAME_HEADER = struct.Struct("<4sIIBBHIIqqqq16sIHHqqII")
COMMITTED_END = struct.Struct("<8sqQqqqqI")
RECORDS, OPENING, CLOSING = 1, 2, 3
ARRIVED = pa.timestamp("us", tz="UTC")
TYPES = {"string": pa.string(), "bigint": pa.int64(), "timestamp": ARRIVED, "binary": pa.binary()}
"""The types that the tests of faults use."""
JUDGED = ("writer", "number", "note")

Longs = npt.NDArray[np.int64]


class NotWhole(Exception):
    """The files break a rule of the format."""


class FrameSeen(NamedTuple):
    """A whole frame."""

    position: int
    length: int
    kind: int
    schema_version: int
    epoch: int
    records: int
    base_offset: int
    arrived_min: int
    arrived_max: int
    payload: bytes


@dataclass(frozen=True)
class StoredPartition:
    """Everything a partition holds, in the order of offsets."""

    start_offset: int
    sealed_end: int
    """Everything below is in Parquet files, or gone by retention."""
    end_offset: int
    records: pa.Table
    """Columns writer, number, note, _offset and _arrived (int64)."""
    torn_bytes: int
    """What follows the last whole frame of the newest segment."""
    hint_offset: int | None
    """The offset in the file `end`; None if that is missing or damaged."""
    is_compacted: bool


def read_document(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    body, mark, tail = content.rpartition(b"\ncrc32c ")
    if not mark or tail != b"%08x\n" % google_crc32c.value(body):
        raise NotWhole(f"{path}: the checksum of the document does not match")
    document: dict[str, Any] = json.loads(body)
    return document


def read_topic(root: Path, topic: str) -> dict[str, Any]:
    """The definition of a topic."""
    return read_document(root / "topics" / topic / "topic.json")


def arrow_schema(ddl: str) -> pa.Schema:
    return pa.schema([(name, TYPES[kind]) for name, kind in (column.split() for column in ddl.split(", "))])


def read_partition(root: Path, topic: str, number: int) -> StoredPartition:
    """Reads sealed and hot segments. NotWhole where something is damaged, missing or does not fit together."""
    definition = read_topic(root, topic)
    directory = root / "topics" / topic / str(number)
    manifest: dict[str, Any] = {"start_offset": 0, "sealed_end": 0, "segments": [], "arrived_us": 0}
    if (directory / "manifest.json").exists():
        manifest = read_document(directory / "manifest.json")
    tables = []
    reached = manifest["start_offset"]
    for entry in manifest["segments"]:
        if entry["start"] != reached:
            raise NotWhole(f"{directory}: sealed offsets {reached} up to {entry['start']} are in no file")
        tables.append(_sealed(directory / entry["file"], entry))
        reached = entry["stop"]
    if reached != manifest["sealed_end"]:
        raise NotWhole(f"{directory}: sealed up to {reached}, the manifest says {manifest['sealed_end']}")
    schemas = [arrow_schema(ddl) for ddl in definition["schemas"]]
    hot = sorted(path for path in directory.glob("*.log") if int(path.stem) >= manifest["sealed_end"])
    torn_bytes = 0
    for path in hot:
        if int(path.stem) != reached:
            raise NotWhole(f"{path}: expected a segment that begins at offset {reached}")
        frames, torn_bytes = read_segment(path, number)
        is_newest = path is hot[-1]
        if not is_newest and (torn_bytes or frames[-1].kind != CLOSING):
            raise NotWhole(f"{path}: it is not the newest segment, and yet not closed ({torn_bytes} bytes behind it)")
        tables += [_decoded(frame, schemas) for frame in frames if frame.kind == RECORDS]
        reached = frames[-1].base_offset + frames[-1].records if frames else reached
    empty = pa.table({"writer": [], "number": [], "note": [], "_offset": [], "_arrived": []}, schema=_table_schema())
    return StoredPartition(
        manifest["start_offset"],
        manifest["sealed_end"],
        reached,
        pa.concat_tables([empty, *tables]),
        torn_bytes,
        read_hint(directory / "end"),
        any(entry["is_compacted"] for entry in manifest["segments"]),
    )


def read_segment(path: Path, partition: int | None = None) -> tuple[list[FrameSeen], int]:
    """The whole frames from the beginning of a hot segment, and how many bytes follow the last of them."""
    content = path.read_bytes()
    header = content[:64]
    if len(header) < 64 or struct.pack("<I", google_crc32c.value(header[:60])) != header[60:]:
        return [], len(content)
    magic, version, _, number, base_offset, segment_id, _ = SEGMENT_HEADER.unpack_from(header)
    if magic != b"PenstkS\x01" or version != 1 or base_offset != int(path.stem) or partition not in (None, number):
        raise NotWhole(f"{path}: the header is that of another segment")
    frames: list[FrameSeen] = []
    position, offset, epoch, arrived = 64, base_offset, 0, 0
    for frame in _frames(content, segment_id):
        is_first = not frames
        if frame.base_offset != offset or frame.epoch < epoch or (frame.kind == OPENING) != is_first:
            raise NotWhole(f"{path}: a frame at byte {position} that does not follow the one before it: {frame[:9]}")
        if frames and frames[-1].kind == CLOSING:
            raise NotWhole(f"{path}: a frame at byte {position}, behind the end of the closed segment")
        if not arrived <= frame.arrived_min <= frame.arrived_max:
            raise NotWhole(f"{path}: the frame at byte {position} arrived before the one before it")
        frames.append(frame)
        position, offset, epoch = position + frame.length, offset + frame.records, frame.epoch
        arrived = frame.arrived_max
    return frames, len(content) - position


def read_hint(path: Path) -> int | None:
    """The offset in the file `end`, or None."""
    content = path.read_bytes() if path.exists() else b""
    body, crc = content[: COMMITTED_END.size], content[COMMITTED_END.size :]
    if len(content) != COMMITTED_END.size + 4 or crc != struct.pack("<I", google_crc32c.value(body)):
        return None
    return int(COMMITTED_END.unpack(body)[5])


def read_commits(root: Path, group: str) -> dict[tuple[str, int], int]:
    """The committed offsets of a consumer group, by topic and partition."""
    versions = sorted((root / "groups" / group / "offsets").glob("offsets-*.json"))
    document = read_document(versions[-1]) if versions else {}
    found = {}
    for key, (offset, *_) in document.items():
        topic, _, number = key.partition("@")[0].rpartition("/")
        found[topic, int(number)] = offset
    return found


def _frames(content: bytes, segment_id: int) -> Iterator[FrameSeen]:
    """Frames up to the first that is not whole."""
    position = 64
    while position + FRAME_HEADER.size <= len(content):
        (
            magic, crc, length, kind, _, schema_version, epoch, records, base_offset, _, arrived_min, arrived_max,
            _, _, hours, _, _, _, payload_length, header_crc,
        ) = FRAME_HEADER.unpack_from(content, position)  # fmt: skip
        payload_start = -(-(FRAME_HEADER.size + 8 * hours) // 64) * 64
        header = content[position + 8 : position + 100] + content[position + 104 : position + 104 + 8 * hours]
        body = content[position + 8 : position + length]
        seed = google_crc32c.value(struct.pack("<QQ", segment_id, position))
        if magic != b"PnFr" or len(body) != length - 8 or google_crc32c.extend(seed, body) != crc:
            return
        if google_crc32c.extend(seed, header) != header_crc:
            raise NotWhole(f"the frame at byte {position} is whole, but its header's own checksum does not match")
        payload = content[position + payload_start : position + payload_start + payload_length]
        yield FrameSeen(
            position, length, kind, schema_version, epoch, records, base_offset, arrived_min, arrived_max, payload
        )
        position += length


def _decoded(frame: FrameSeen, schemas: list[pa.Schema]) -> pa.Table:
    schema = schemas[frame.schema_version]
    has_stamps = frame.arrived_min != frame.arrived_max
    if has_stamps:
        schema = schema.append(pa.field("_arrived", ARRIVED))
    batch = pa.ipc.read_record_batch(pa.py_buffer(frame.payload), schema)
    batch.validate(full=True)
    if batch.num_rows != frame.records:
        raise NotWhole(f"the frame of offset {frame.base_offset} has {batch.num_rows} records, not {frame.records}")
    stamps = batch.column("_arrived").view(pa.int64()) if has_stamps else pa.array([frame.arrived_min] * frame.records)
    if has_stamps and (stamps[0].as_py(), stamps[-1].as_py()) != (frame.arrived_min, frame.arrived_max):
        raise NotWhole(f"the frame of offset {frame.base_offset} does not say when its records arrived")
    offsets = pa.array(np.arange(frame.base_offset, frame.base_offset + frame.records))
    return pa.Table.from_arrays([*(batch.column(n) for n in JUDGED), offsets, stamps], schema=_table_schema())


def _sealed(path: Path, entry: dict[str, Any]) -> pa.Table:
    if not path.exists():
        raise NotWhole(f"{path}: the manifest names it, but it is not there")
    content = path.read_bytes()
    if (len(content), google_crc32c.value(content)) != (entry["bytes"], entry["crc32c"]):
        raise NotWhole(f"{path}: it is not the file that was sealed")
    table = pq.read_table(pa.BufferReader(content), columns=[*JUDGED, "_offset", "_arrived"])
    offsets = table.column("_offset").to_numpy()
    expected = entry["stop"] - entry["start"]
    if table.num_rows != entry["rows"] or (expected != entry["rows"] and not entry["is_compacted"]):
        raise NotWhole(f"{path}: {table.num_rows} records for offsets {entry['start']} up to {entry['stop']}")
    if len(offsets) and not entry["start"] <= offsets.min() <= offsets.max() < entry["stop"]:
        raise NotWhole(f"{path}: offsets outside of its range")
    stamps = table.column("_arrived").combine_chunks().view(pa.int64())
    columns = [*(table.column(name) for name in JUDGED), table.column("_offset"), stamps]
    return pa.Table.from_arrays(columns, schema=_table_schema())


def _table_schema() -> pa.Schema:
    return pa.schema(
        [("writer", pa.string()), ("number", pa.int64()), ("note", pa.string()), ("_offset", pa.int64()),
         ("_arrived", pa.int64())]
    )  # fmt: skip
