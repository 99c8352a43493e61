"""Which sealed segments make up a partition: one document, replaced whole.

The manifest is the truth. A Parquet file that it names is the segment; one that it does not name is left over from a
crash and is deleted by the next sealer. Everything from `sealed_end` on is in the hot segments. So at every instant
exactly one of the two files of a segment counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.log.files import read_document, write_document
from penstock.log.hours import Hours

FILE_NAME = "manifest.json"


@dataclass(frozen=True)
class RowGroup:
    """A part of a sealed segment that can be skipped or read by itself."""

    start: int
    stop: int
    rows: int
    bytes: int
    arrived_min: int
    arrived_max: int
    hours: Hours


@dataclass(frozen=True)
class SealedSegment:
    """A Parquet file and what is known of it without opening it."""

    file: str
    start: int
    stop: int
    rows: int
    """Fewer than `stop - start` once compaction removed some."""
    bytes: int
    crc32c: int
    """Of the whole file."""
    appended_us: int
    """When its newest record was written, by the wall clock: retention counts from here."""
    row_groups: tuple[RowGroup, ...]
    is_compacted: bool = False

    @property
    def arrived_min(self) -> int:
        return min((group.arrived_min for group in self.row_groups), default=0)

    @property
    def arrived_max(self) -> int:
        return max((group.arrived_max for group in self.row_groups), default=0)


@dataclass(frozen=True)
class Manifest:
    """The sealed part of a partition."""

    start_offset: int = 0
    """The first offset that retention has left."""
    sealed_end: int = 0
    """The first offset that is not sealed."""
    segments: tuple[SealedSegment, ...] = ()
    removed_hours: Hours = ()
    """Hours of event time of which retention removed something."""
    arrived_us: int = 0
    """The greatest arrival in the sealed part, also after it was removed."""
    superseded: tuple[tuple[str, int], ...] = field(default=())
    """Files that compaction replaced, and when; kept for a while for those who are still reading them."""


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a partition; an empty one if nothing was sealed yet."""
    try:
        document = read_document(directory / FILE_NAME)
    except FileNotFoundError:
        return Manifest()
    return Manifest(
        start_offset=document["start_offset"],
        sealed_end=document["sealed_end"],
        segments=tuple(_segment(entry) for entry in document["segments"]),
        removed_hours=_hours(document["removed_hours"]),
        arrived_us=document["arrived_us"],
        superseded=tuple((name, since) for name, since in document["superseded"]),
    )


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replaces the manifest, durably. Whoever calls this holds the partition's maintenance lock."""
    write_document(
        directory / FILE_NAME,
        {
            "start_offset": manifest.start_offset,
            "sealed_end": manifest.sealed_end,
            "segments": [_document(segment) for segment in manifest.segments],
            "removed_hours": manifest.removed_hours,
            "arrived_us": manifest.arrived_us,
            "superseded": manifest.superseded,
        },
    )


def _document(segment: SealedSegment) -> dict[str, Any]:
    groups = [
        [group.start, group.stop, group.rows, group.bytes, group.arrived_min, group.arrived_max, group.hours]
        for group in segment.row_groups
    ]
    return {**segment.__dict__, "row_groups": groups}


def _segment(entry: dict[str, Any]) -> SealedSegment:
    groups = tuple(
        RowGroup(start, stop, rows, size, arrived_min, arrived_max, _hours(hours))
        for start, stop, rows, size, arrived_min, arrived_max, hours in entry["row_groups"]
    )
    return SealedSegment(**{**entry, "row_groups": groups})


def _hours(spans: list[list[int]]) -> Hours:
    return tuple((first, last) for first, last in spans)
