"""Compaction: of all records with one key, the newest stays. For topics that are read as tables.

Only sealed segments are compacted, each into a new file under a new name; the old file stays for a while for those
who are reading it. Offsets never change: a compacted segment has gaps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.clock import SECOND_US
from penstock.log.files import locked
from penstock.log.manifest import SealedSegment, write_manifest
from penstock.log.reading import read
from penstock.log.sealed import SUFFIX as PARQUET
from penstock.log.sealed import write_sealed
from penstock.log.sealing import clean, sealed_schema

if TYPE_CHECKING:
    from penstock.log.folder_partition import FolderPartition

READERS_GRACE_US = 600 * SECOND_US
"""A file that was replaced is deleted this much later: a Spark job planned before may still read it."""


@dataclass(frozen=True)
class Compacted:
    """What compaction did to a partition."""

    partition: int
    before: int
    after: int


def compact(partition: FolderPartition, now_us: int) -> Compacted:
    """Rewrites the sealed segments that hold outdated records. The newest record of each key is never touched."""
    with locked(partition.directory / "maintenance.lock"):
        clean(partition)
        manifest = partition.manifest(is_fresh=True)
        kept_files = [(name, since) for name, since in manifest.superseded if now_us - since < READERS_GRACE_US]
        expired = [name for name, since in manifest.superseded if now_us - since >= READERS_GRACE_US]
        newest = _newest_offsets(partition)
        segments, superseded = [], []
        for segment in manifest.segments:
            first, last = np.searchsorted(newest, (segment.start, segment.stop))
            if last - first == segment.rows:
                segments.append(segment)
            else:
                segments.append(_rewrite(partition, segment, newest[first:last]))
                superseded.append((segment.file, now_us))
        if superseded or expired:
            write_manifest(
                partition.directory,
                replace(manifest, segments=tuple(segments), superseded=(*kept_files, *superseded)),
            )
        for name in expired:
            with suppress(FileNotFoundError):
                os.unlink(partition.directory / name)
        return Compacted(partition.number, sum(s.rows for s in manifest.segments), sum(s.rows for s in segments))


def _newest_offsets(partition: FolderPartition) -> npt.NDArray[np.int64]:
    """Sorted offsets of the records that are the newest of their key, over the sealed and the hot part."""
    newest: dict[tuple[object, ...], int] = {}
    key = partition.topic.definition.key
    for batch in read(partition, partition.start_offset(), columns=key):
        columns = [batch.column(name).to_pylist() for name in key]
        newest.update(
            zip(map(_comparable, zip(*columns, strict=True)), batch.column("_offset").to_pylist(), strict=True)
        )
    return np.sort(np.fromiter(newest.values(), np.int64, len(newest)))


def _comparable(values: tuple[object, ...]) -> tuple[object, ...]:
    """NaN is one key, although it does not equal itself."""
    return tuple("NaN" if value != value else value for value in values)


def _rewrite(partition: FolderPartition, segment: SealedSegment, keep: npt.NDArray[np.int64]) -> SealedSegment:
    definition = partition.topic.definition
    stem, _, number = segment.file.removesuffix(PARQUET).partition("-")
    return write_sealed(
        partition.directory / f"{stem}-{int(number or 0) + 1}{PARQUET}",
        sealed_schema(definition),
        _only(read(partition, segment.start, segment.stop), keep),
        start=segment.start,
        stop=segment.stop,
        appended_us=segment.appended_us,
        event_time=definition.event_time,
        is_compacted=True,
    )


def _only(batches: Iterator[pa.RecordBatch], keep: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        chosen = np.isin(batch.column("_offset").to_numpy(), keep, assume_unique=True)
        if chosen.any():
            yield batch.filter(pa.array(chosen))
