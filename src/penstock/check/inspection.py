"""Looking into a partition: its files, their frames and row groups, and the records around an offset.

Nothing is opened for writing and nothing is mended, so that a damaged partition can be looked at as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.check.decoding import row_group_records
from penstock.check.salvage import HotSalvage
from penstock.errors import CorruptionError, OffsetOutOfRange
from penstock.log.committed_end import CommittedEnd
from penstock.log.definition import TopicDefinition
from penstock.log.frame import CLOSING, NO_PRODUCER, OPENING, RECORDS, Frame
from penstock.log.hours import Hours
from penstock.log.manifest import Manifest, SealedSegment, read_manifest
from penstock.log.segment import hot_bases, segment_path

KINDS = {RECORDS: "records", OPENING: "opening", CLOSING: "closing"}


@dataclass(frozen=True)
class SegmentSeen:
    """One file of a partition."""

    path: Path
    kind: str
    """sealed, compacted, hot, active or damaged."""
    start: int
    stop: int
    records: int
    bytes: int
    pieces: int
    """Frames or row groups."""
    arrived_us: tuple[int, int] | None


@dataclass(frozen=True)
class PieceSeen:
    """One frame or row group."""

    path: Path
    kind: str
    """row group; in a hot segment records, opening, closing, damaged (bytes between frames) or torn (behind them)."""
    start: int
    stop: int
    records: int
    bytes: int
    position: int
    """The byte of the file where a frame begins; the number of a row group."""
    arrived_us: tuple[int, int]
    hours: Hours
    producer: str | None = None
    producer_epoch: int | None = None
    sequences: tuple[int, int] | None = None
    epoch: int | None = None
    schema_version: int | None = None
    appended_us: int | None = None


class Inspection:
    """A partition as its files show it. CorruptionError where the manifest cannot be read."""

    def __init__(self, directory: Path, definition: TopicDefinition) -> None:
        self.directory = directory
        self.definition = definition
        self.place = f"{directory.parent.name}/{directory.name}"
        bases = hot_bases(directory)  # Before the manifest: what is sealed in between is then left out below.
        self.manifest: Manifest = read_manifest(directory)
        self.bases = [base for base in bases if base >= self.manifest.sealed_end]

    def segments(self) -> list[SegmentSeen]:
        """All files, in order of offsets."""
        return [*map(self._sealed, self.manifest.segments), *map(self._hot, self.bases)]

    def pieces(self, start: int | None = None) -> Iterator[PieceSeen]:
        """Frames and row groups in order: all of them, or from the one that holds `start` on."""
        for segment in self.manifest.segments:
            for number, group in enumerate(segment.row_groups):
                if start is None or group.stop > start:
                    yield PieceSeen(
                        self.directory / segment.file, "row group", group.start, group.stop, group.rows, group.bytes,
                        number, (group.arrived_min, group.arrived_max), group.hours, appended_us=segment.appended_us,
                    )  # fmt: skip
        for number, base in enumerate(self.bases):
            following = self.bases[number + 1] if number + 1 < len(self.bases) else None
            if start is None or following is None or following > start:
                for piece in _pieces(self._salvage(base)):
                    if start is None or piece.stop > start:
                        yield piece

    def piece_at(self, offset: int) -> PieceSeen:
        """The frame, row group or damaged place that holds an offset. OffsetOutOfRange if there is none."""
        for piece in self.pieces(offset):
            if piece.start <= offset < piece.stop:
                return piece
        end = self._hot(self.bases[-1]).stop if self.bases else self.manifest.sealed_end
        raise OffsetOutOfRange(self.place, offset, self.manifest.start_offset, end)

    def records_of(self, piece: PieceSeen) -> pa.RecordBatch:
        """The records of a piece, with _partition, _offset and _arrived. CorruptionError if it is not whole."""
        number = int(self.directory.name)
        if piece.kind == "row group":
            try:
                return row_group_records(piece.path, piece.position, self.definition, number)
            except (pa.ArrowException, OSError, KeyError, ValueError) as error:
                found = f"row group {piece.position} cannot be read: {error}"
                raise CorruptionError(piece.path, found, offset=piece.start) from error
        salvage = self._salvage(int(piece.path.stem))
        frame = next((frame for frame in salvage.frames if frame.position == piece.position), None)
        if frame is None:
            raise CorruptionError(piece.path, "no whole frame is here", offset=piece.start, position=piece.position)
        return salvage.records_of(frame, self.definition, number)

    def _salvage(self, base: int) -> HotSalvage:
        committed = CommittedEnd(self.directory / "end")
        try:
            return HotSalvage(segment_path(self.directory, base), base, committed.read())
        finally:
            committed.close()

    def _sealed(self, segment: SealedSegment) -> SegmentSeen:
        return SegmentSeen(
            self.directory / segment.file, "compacted" if segment.is_compacted else "sealed",
            segment.start, segment.stop, segment.rows, segment.bytes, len(segment.row_groups),
            (segment.arrived_min, segment.arrived_max) if segment.row_groups else None,
        )  # fmt: skip

    def _hot(self, base: int) -> SegmentSeen:
        salvage = self._salvage(base)
        frames = [frame for frame in salvage.frames if frame.kind == RECORDS]
        kind = "damaged" if salvage.is_damaged else "active" if base == self.bases[-1] else "hot"
        arrived_us = (frames[0].arrived_min, frames[-1].arrived_max) if frames else None
        records = sum(frame.records for frame in frames)
        return SegmentSeen(salvage.path, kind, base, salvage.stop, records, salvage.bytes, len(frames), arrived_us)


def _pieces(salvage: HotSalvage) -> Iterator[PieceSeen]:
    reached, position = salvage.base_offset, 0
    for number, frame in enumerate(salvage.frames):
        gap = salvage.gap_before(number)
        if gap or frame.base_offset != reached:
            yield _unreadable(salvage.path, "damaged", reached, frame.base_offset, frame.position - gap, gap)
        yield _piece(salvage.path, frame)
        reached, position = frame.end_offset, frame.end_position
    if salvage.tail_bytes:
        yield _unreadable(salvage.path, "torn", reached, reached, position, salvage.tail_bytes)


def _unreadable(path: Path, kind: str, start: int, stop: int, position: int, size: int) -> PieceSeen:
    return PieceSeen(path, kind, start, stop, 0, size, position, (0, 0), ())


def _piece(path: Path, frame: Frame) -> PieceSeen:
    is_sequenced = frame.producer != NO_PRODUCER
    return PieceSeen(
        path,
        KINDS.get(frame.kind, f"kind {frame.kind}"),
        frame.base_offset,
        frame.end_offset,
        frame.records,
        frame.length,
        frame.position,
        (frame.arrived_min, frame.arrived_max),
        frame.hours,
        frame.producer.hex() if is_sequenced else None,
        frame.producer_epoch if is_sequenced else None,
        (frame.first_sequence, frame.last_sequence) if is_sequenced else None,
        frame.epoch,
        frame.schema_version,
        frame.appended_us,
    )
