"""Sealing: a closed hot segment is rewritten as Parquet, with the same offsets.

The Parquet file is written under a temporary name, synced and named; then the manifest is replaced, and from that
instant the Parquet file counts; then the hot file is deleted. A crash at any point leaves a file that nothing refers
to, and `clean` deletes it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import require
from penstock.log.files import TEMPORARY_SUFFIX, locked, sync_directory
from penstock.log.frame import ALIGNMENT, RECORDS
from penstock.log.manifest import Manifest, SealedSegment, write_manifest
from penstock.log.partition import ARRIVED
from penstock.log.reading import read
from penstock.log.sealed import SUFFIX as PARQUET
from penstock.log.sealed import check_once, write_sealed
from penstock.log.segment import Segment, hot_bases, segment_path

if TYPE_CHECKING:
    from penstock.log.definition import TopicDefinition
    from penstock.log.folder_partition import FolderPartition


def seal(partition: FolderPartition, *, active: bool = False, wait: bool = True) -> list[SealedSegment]:
    """Seals all closed segments of a partition, with `active` also the one being written.

    Only one process at a time maintains a partition; without `wait` nothing is done while another does.
    """
    if active:
        partition.roll()
    with locked(partition.directory / "maintenance.lock", wait=wait) as is_mine:
        if is_mine:
            clean(partition)
            end = partition.end()
            closed = [hot for hot in partition.hot_segments(end) if hot.base_offset < end.segment_base]
            return [_seal(partition, segment) for segment in closed]
    return []


def _seal(partition: FolderPartition, segment: Segment) -> SealedSegment:
    frames = [frame for frame in segment.headers(ALIGNMENT, segment.size()) if frame.kind == RECORDS]
    start, stop = segment.base_offset, frames[-1].end_offset
    manifest = partition.manifest(is_fresh=True)
    require(manifest.sealed_end == start, f"{partition.directory}: sealed up to {manifest.sealed_end}, not to {start}")
    definition = partition.topic.definition
    entry = write_sealed(
        partition.directory / f"{start:020d}{PARQUET}",
        sealed_schema(definition),
        read(partition, start, stop),
        start=start,
        stop=stop,
        appended_us=max(frame.appended_us for frame in frames),
        event_time=definition.event_time,
    )
    whole = (entry.rows, entry.row_groups[-1].stop) == (stop - start, stop)
    require(whole, f"{partition.directory}/{entry.file} does not hold the offsets from {start} to {stop}")
    check_once(partition.directory / entry.file, entry.crc32c)
    write_manifest(
        partition.directory,
        replace(
            manifest,
            segments=(*manifest.segments, entry),
            sealed_end=stop,
            arrived_us=max(manifest.arrived_us, entry.arrived_max),
        ),
    )
    os.unlink(segment.path)
    sync_directory(partition.directory)
    return entry


def clean(partition: FolderPartition) -> list[str]:
    """Deletes what a crash left behind: files that the manifest does not name. The caller holds the lock."""
    manifest: Manifest = partition.manifest(is_fresh=True)
    named = {segment.file for segment in manifest.segments} | {name for name, _ in manifest.superseded}
    gone = [
        name
        for name in os.listdir(partition.directory)
        if (name.endswith(PARQUET) and name not in named) or name.endswith(PARQUET + TEMPORARY_SUFFIX)
    ]
    gone += [
        segment_path(partition.directory, base).name
        for base in hot_bases(partition.directory)
        if base < manifest.sealed_end
    ]
    if gone:  # Whoever wrote this manifest may have died before it was on disk for sure.
        sync_directory(partition.directory)
    for name in gone:
        with suppress(FileNotFoundError):
            os.unlink(partition.directory / name)
    return gone


def sealed_schema(definition: TopicDefinition) -> pa.Schema:
    """Columns of a sealed file: the topic's, and the log's own, so that Spark can read the file by itself."""
    return pa.schema(
        [
            *definition.schema,
            pa.field("_partition", pa.int32(), nullable=False),
            pa.field("_offset", pa.int64(), nullable=False),
            pa.field("_arrived", ARRIVED, nullable=False),
        ]
    )
