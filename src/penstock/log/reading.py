"""Reading a partition: which pieces hold what is asked for, and their records as Arrow batches.

A piece is a frame of a hot segment or a row group of a sealed one. Each knows its offsets, its least and greatest
arrival and its hours of event time, so a slice of either clock reads little.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CorruptionError, OffsetOutOfRange, PenstockError, TopicDeleted
from penstock.events.schema import upgrade
from penstock.log.frame import Frame
from penstock.log.hours import TimeRange, hours_meet
from penstock.log.manifest import SealedSegment
from penstock.log.partition import ARRIVED, Piece, Ranges
from penstock.log.sealed import read_row_groups
from penstock.log.segment import Segment, segment_path

if TYPE_CHECKING:
    from penstock.log.definition import TopicDefinition
    from penstock.log.folder_partition import FolderPartition

RETRIES = 20
"""How often a reader looks again when the segment it wanted was sealed under its hands."""


@dataclass(frozen=True)
class FolderPiece(Piece):
    """A frame of a hot segment, or a row group of a sealed one."""

    path: Path
    home: Segment | SealedSegment
    """The segment it lies in."""
    place: Frame | int
    """Its frame, or the number of its row group."""

    @property
    def is_sealed(self) -> bool:
        return isinstance(self.home, SealedSegment)


def pieces(partition: FolderPartition, start: int, stop: int | None = None) -> list[FolderPiece]:
    """All pieces that hold offsets from `start` up to `stop`, in order. Reads no records."""
    for attempt in range(RETRIES):
        try:
            return _pieces(partition, start, stop)
        except FileNotFoundError as error:  # Sealed just now.
            if attempt == RETRIES - 1:
                raise _missing(partition, error) from error
            partition.manifest(is_fresh=True)
    raise AssertionError("unreachable")


def _missing(partition: FolderPartition, error: FileNotFoundError) -> PenstockError:
    """What it means that a file is still not there after many looks."""
    if not partition.directory.is_dir():
        return TopicDeleted(partition.topic.name)
    return CorruptionError(Path(error.filename or error.args[0]), "the file is missing, and no other holds its records")


def _pieces(partition: FolderPartition, start: int, stop: int | None) -> list[FolderPiece]:
    end = partition.end()
    hot = partition.hot_segments(end)
    manifest = partition.manifest()
    hot = [segment for segment in hot if segment.base_offset >= manifest.sealed_end]  # Sealed between the two looks.
    stop = end.offset if stop is None else min(stop, end.offset)
    if start < manifest.start_offset or start > end.offset:
        raise OffsetOutOfRange(partition.place, start, manifest.start_offset, end.offset)
    found: list[FolderPiece] = []
    if start >= stop:
        return found
    for sealed in manifest.segments[bisect_right(manifest.segments, start, key=lambda each: each.stop) :]:
        if sealed.start >= stop:
            break
        path = partition.directory / sealed.file
        found += [
            FolderPiece(g.start, g.stop, g.rows, g.bytes, g.arrived_min, g.arrived_max, g.hours, path, sealed, number)
            for number, g in enumerate(sealed.row_groups)
            if g.start < stop and g.stop > start
        ]
    reached = manifest.sealed_end
    for number, segment in enumerate(hot):
        if segment.base_offset > reached and reached < stop:
            raise FileNotFoundError(segment_path(partition.directory, reached))  # The sealer was between our looks.
        position = end.position if segment.base_offset == end.segment_base else segment.size()
        last = hot[number + 1].base_offset if number + 1 < len(hot) else end.offset
        if segment.base_offset < stop and last > start:
            frames = segment.frames(start, stop, position)
            _check_gapless(segment, frames, max(start, segment.base_offset), min(stop, last))
            found += [
                FolderPiece(
                    f.base_offset,
                    f.end_offset,
                    f.records,
                    f.length,
                    f.arrived_min,
                    f.arrived_max,
                    f.hours,
                    segment.path,
                    segment,
                    f,
                )
                for f in frames
            ]
        reached = last
    if reached < stop:
        raise FileNotFoundError(segment_path(partition.directory, reached))
    return found


def _check_gapless(segment: Segment, frames: list[Frame], start: int, stop: int) -> None:
    reached = frames[0].base_offset if frames and frames[0].base_offset <= start else start
    for frame in frames:
        if frame.base_offset != reached:
            break
        reached = frame.end_offset
    if reached < stop:
        raise CorruptionError(segment.path, f"offsets {reached} up to {stop} are missing", offset=reached)


def read(
    partition: FolderPartition,
    start: int,
    stop: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    arrived: Ranges = None,
    event_time: Ranges = None,
) -> Iterator[pa.RecordBatch]:
    """The records from `start` up to `stop`: the columns asked for, then _partition, _offset, _arrived and _late.

    Ranges of arrival and event time choose pieces first and rows then. Records that are sealed or compacted while we
    read are found again where they went.
    """
    wanted = partition.topic.definition.schema.names if columns is None else list(columns)
    arrived_ranges, event_ranges = as_ranges(arrived), as_ranges(event_time)
    stop = partition.end().offset if stop is None else stop
    for attempt in range(RETRIES):
        try:
            plan = pieces(partition, start, stop)
            definition = partition.topic.definition_with(_newest_schema(plan))
            chosen = [piece for piece in plan if may_hold(piece, arrived_ranges, event_ranges)]
            for path, group in groupby(chosen, key=lambda piece: piece.path):
                for batch in _read_file(partition, path, list(group), wanted):
                    last: int = batch.column("_offset")[-1].as_py()
                    batch = _between(batch, start, stop)
                    batch = within(batch, "_arrived", arrived_ranges)
                    if event_ranges is not None:
                        batch = within(batch, definition.event_time or "", event_ranges)
                    if batch.num_rows:
                        yield batch.select([*wanted, "_partition", "_offset", "_arrived", "_late"])
                    start = max(start, last + 1)
            return
        except FileNotFoundError as error:
            if attempt == RETRIES - 1:
                raise _missing(partition, error) from error


def _newest_schema(plan: list[FolderPiece]) -> int:
    """The newest version that a frame was written in: whoever reads it has to know it before the first is read."""
    return max((piece.place.schema_version for piece in plan if isinstance(piece.place, Frame)), default=0)


def _read_file(
    partition: FolderPartition, path: Path, group: list[FolderPiece], wanted: list[str]
) -> Iterator[pa.RecordBatch]:
    definition = partition.topic.definition
    needed = list(dict.fromkeys([*wanted, *([definition.event_time] if definition.event_time else [])]))
    home = group[0].home
    if isinstance(home, SealedSegment):
        numbers = [piece.place for piece in group if isinstance(piece.place, int)]
        for batch in read_row_groups(path, home.crc32c, numbers, needed):
            yield _finished(partition, _as_current(batch, definition, needed), batch)
    else:
        frames = [piece.place for piece in group if isinstance(piece.place, Frame)]
        yield from _hot_batches(partition, home, frames, needed)


def _hot_batches(
    partition: FolderPartition, segment: Segment, frames: list[Frame], needed: list[str]
) -> Iterator[pa.RecordBatch]:
    """Decodes frames and joins small ones, so that many little appends do not make many little batches."""
    topic = partition.topic
    gathered: list[tuple[Frame, pa.RecordBatch]] = []
    size = 0
    for frame, payload in segment.payloads(frames):
        definition = topic.definition_with(frame.schema_version)
        schema = definition.schema_of(frame.schema_version)
        if frame.arrived_min != frame.arrived_max:
            schema = schema.append(pa.field("_arrived", ARRIVED))
        batch = pa.ipc.read_record_batch(payload, schema)
        extra = ["_arrived"] if frame.arrived_min != frame.arrived_max else []
        current = _as_current(batch, definition, needed)
        if extra:
            current = current.append_column("_arrived", batch.column("_arrived"))
        gathered.append((frame, current))
        size += frame.length
        if size >= JOIN_BYTES:
            yield _joined(partition, gathered)
            gathered, size = [], 0
    if gathered:
        yield _joined(partition, gathered)


JOIN_BYTES = 4 << 20
"""Frames are joined into batches of about this size."""


def _joined(partition: FolderPartition, gathered: list[tuple[Frame, pa.RecordBatch]]) -> pa.RecordBatch:
    offsets = np.concatenate([np.arange(frame.base_offset, frame.end_offset) for frame, _ in gathered])
    stamps = [
        batch.column("_arrived")
        if "_arrived" in batch.schema.names
        else pa.array(np.full(frame.records, frame.arrived_min), pa.int64()).view(ARRIVED)
        for frame, batch in gathered
    ]
    plain = [b.drop_columns(["_arrived"]) if "_arrived" in b.schema.names else b for _, b in gathered]
    batch = plain[0] if len(plain) == 1 else pa.concat_batches(plain)
    own = pa.RecordBatch.from_arrays([pa.array(offsets), pa.concat_arrays(stamps)], ["_offset", "_arrived"])
    return _finished(partition, batch, own)


def _as_current(batch: pa.RecordBatch, definition: TopicDefinition, needed: list[str]) -> pa.RecordBatch:
    """The needed columns in the topic's current schema, whatever version they were written in."""
    current = definition.schema
    target = pa.schema([current.field(name) for name in needed])
    present = batch.select([name for name in needed if name in batch.schema.names])
    return present if present.schema.equals(target) else upgrade(present, target)


def _finished(partition: FolderPartition, batch: pa.RecordBatch, own: pa.RecordBatch) -> pa.RecordBatch:
    """Adds the log's own columns."""
    definition = partition.topic.definition
    arrived = own.column("_arrived")
    columns = {
        **dict(zip(batch.schema.names, batch.columns, strict=True)),
        "_partition": pa.array(np.full(len(arrived), partition.number, np.int32)),
        "_offset": own.column("_offset"),
        "_arrived": arrived,
        "_late": late(arrived, batch.column(definition.event_time) if definition.event_time else None, definition),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def late(arrived: pa.Array, event_time: pa.Array | None, definition: TopicDefinition) -> pa.Array:
    """Whether each record came more than the allowed lateness after its event time. Never where that is NULL."""
    if event_time is None:
        return pa.repeat(pa.scalar(False), len(arrived))
    delay = pc.subtract(arrived.view(pa.int64()), event_time.view(pa.int64()))
    limit = definition.lateness.days * 86_400_000_000 + definition.lateness.seconds * 1_000_000
    is_late = pc.greater(delay, pa.scalar(limit + definition.lateness.microseconds, pa.int64()))
    return pc.fill_null(is_late, False)


def may_hold(piece: Piece, arrived: list[TimeRange] | None, event_time: list[TimeRange] | None) -> bool:
    """Whether a piece may hold a record in these ranges. Never says no wrongly."""
    if arrived is not None and not any(
        (low is None or piece.arrived_max >= low) and (high is None or piece.arrived_min < high)
        for low, high in arrived
    ):
        return False
    return event_time is None or hours_meet(piece.hours, event_time)


def _between(batch: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    offsets = batch.column("_offset").to_numpy()
    first, last = np.searchsorted(offsets, (start, stop))
    return batch if last - first == len(offsets) else batch.slice(first, last - first)


def within(batch: pa.RecordBatch, column: str, ranges: list[TimeRange] | None) -> pa.RecordBatch:
    """The rows whose time is in one of the ranges; all of them without ranges."""
    if ranges is None or batch.num_rows == 0:
        return batch
    times = batch.column(column).view(pa.int64())
    keep = pa.repeat(pa.scalar(False), len(times))
    for low, high in ranges:
        inside = pa.repeat(pa.scalar(True), len(times))
        if low is not None:
            inside = pc.and_(inside, pc.greater_equal(times, pa.scalar(low, pa.int64())))
        if high is not None:
            inside = pc.and_(inside, pc.less(times, pa.scalar(high, pa.int64())))
        keep = pc.or_(keep, pc.fill_null(inside, False))
    return batch.filter(keep)


def as_ranges(ranges: Ranges) -> list[TimeRange] | None:
    """One range or several as a list; None for no limit."""
    if ranges is None:
        return None
    if len(ranges) == 2 and not isinstance(ranges[0], tuple):
        return [ranges]  # type: ignore[list-item]
    return list(ranges)  # type: ignore[arg-type]
