"""Retention: the oldest segments go, by age and by size, and the partition remembers what went."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.clock import SECOND_US
from penstock.log.files import locked, sync_directory
from penstock.log.hours import join_hours
from penstock.log.manifest import SealedSegment, write_manifest
from penstock.log.sealing import seal

if TYPE_CHECKING:
    from penstock.log.folder_partition import FolderPartition


@dataclass(frozen=True)
class Removed:
    """What retention removed from a partition."""

    partition: int
    segments: int
    records: int
    bytes: int
    start_offset: int
    """The first offset that is left."""


def retain(partition: FolderPartition, now_us: int) -> Removed:
    """Drops sealed segments that are too old or too many. Age counts from the append, whatever arrival a load brought.

    The manifest forgets a segment first, durably; only then its file is deleted.
    """
    _seal_if_old(partition, now_us)
    with locked(partition.directory / "maintenance.lock"):
        manifest = partition.manifest(is_fresh=True)
        gone = _to_remove(partition, manifest.segments, now_us)
        if gone:
            manifest = replace(
                manifest,
                segments=manifest.segments[len(gone) :],
                start_offset=gone[-1].stop,
                removed_hours=join_hours(
                    [manifest.removed_hours, *(group.hours for segment in gone for group in segment.row_groups)]
                ),
            )
            write_manifest(partition.directory, manifest)
            for segment in gone:
                with suppress(FileNotFoundError):
                    os.unlink(partition.directory / segment.file)
            sync_directory(partition.directory)
        return Removed(
            partition.number, len(gone), sum(s.rows for s in gone), sum(s.bytes for s in gone), manifest.start_offset
        )


def _to_remove(partition: FolderPartition, segments: tuple[SealedSegment, ...], now_us: int) -> list[SealedSegment]:
    """The oldest segments, up to the first that must stay."""
    definition = partition.topic.definition
    total = sum(segment.bytes for segment in segments)
    end = partition.end()
    total += sum(segment.size() for segment in partition.hot_segments(end))
    gone: list[SealedSegment] = []
    for segment in segments:
        age_us = now_us - segment.appended_us
        is_old = definition.retention_age is not None and age_us > definition.retention_age.total_seconds() * SECOND_US
        is_too_much = definition.retention_bytes is not None and total > definition.retention_bytes
        if not (is_old or is_too_much):
            break
        gone.append(segment)
        total -= segment.bytes
    return gone


def _seal_if_old(partition: FolderPartition, now_us: int) -> None:
    """A segment that nobody writes to any more would never be closed, and its records never dropped."""
    age = partition.topic.definition.retention_age
    end = partition.end()
    if age is not None and end.offset > end.segment_base:
        with suppress(FileNotFoundError):  # Sealed at this moment: so is a segment that is not listed.
            for active in partition.hot_segments(end)[-1:]:
                (last,) = active.frames(end.offset - 1, end.offset, end.position)
                if now_us - last.appended_us > age.total_seconds() * SECOND_US:
                    partition.roll()
    seal(partition)
