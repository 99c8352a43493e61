"""A partition in a folder: an append-only sequence of records, written by any number of processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.log import cut, reading
from penstock.log.committed_end import End
from penstock.log.frame import FRAME_BYTES_MAX, NO_PRODUCER
from penstock.log.hours import hours_of
from penstock.log.manifest import FILE_NAME as MANIFEST
from penstock.log.manifest import Manifest, read_manifest
from penstock.log.partition import ARRIVED, Appended, Described, Partition, Ranges, Sequences
from penstock.log.producers import Remembered, is_remembered
from penstock.log.row_sizes import pieces_of
from penstock.log.segment import Segment, hot_bases, segment_path
from penstock.log.tail import Tail

if TYPE_CHECKING:
    from penstock.log.folder_topic import FolderTopic


class FolderPartition(Partition):
    """One ordered part of a topic, in a folder of its own.

    `append` returns once the records are on disk (with durability="disk"); only then can readers see them. A killed
    process leaves at most a torn tail, which the next one cuts off. Any number of threads and processes may use a
    partition at once, but a handle does not survive a fork.
    """

    topic: FolderTopic

    def __init__(self, topic: FolderTopic, number: int, directory: Path, clock: Clock) -> None:
        super().__init__(topic, number)
        self.directory = directory
        self._clock = clock
        self._tail = Tail(topic.name, number, directory, clock, topic.refresh)
        self._lock = threading.Lock()
        self._hot: dict[int, Segment] = {}
        self._manifest: tuple[tuple[int, int, int], Manifest] | None = None

    # --- writing ---

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        arrived: pa.Array | None = None,
        producer: bytes | None = None,
        producer_epoch: int = 0,
        sequences: Sequences | None = None,
    ) -> Appended:
        """Stores the batch behind everything there is, and returns when it is safe.

        `arrived` brings arrival times along instead of taking them from the clock; they may not decrease, nor go back
        before what is there. With a `producer`, records whose sequence was stored before are left out.
        """
        batch, definition = self.topic.fit(batch)
        self.topic.check_sizes(self.place, batch)
        self.topic.check_clock()
        given = batch.num_rows
        with self._tail.exclusive() as end:
            self._tail.check_writable()
            if producer is not None and sequences is not None:
                assert len(sequences) == given, (len(sequences), given)
                skip = self._tail.stored_before(end, producer, producer_epoch, sequences)
                batch, sequences = batch.slice(skip), sequences[skip:]
                arrived = None if arrived is None else arrived.slice(skip)
            first = end.offset
            now_us = max(self._clock(), end.arrived_us)
            for start, part in pieces_of(batch, FRAME_BYTES_MAX):
                rows, stamps = part.num_rows, (now_us, now_us)
                hours = hours_of(part.column(definition.event_time) if definition.event_time else None)
                if arrived is not None:
                    part, stamps = self._with_arrival(part, arrived.slice(start, rows), end.arrived_us)
                payload = part.serialize()
                if end.offset > end.segment_base and end.position + payload.size > definition.segment_bytes:
                    end = self._tail.roll(end)
                    self.topic.log.seal_soon(self)
                end = self._tail.add(
                    end,
                    payload,
                    records=rows,
                    is_synced=definition.durability == "disk",
                    schema_version=definition.schema_version,
                    arrived_min=stamps[0],
                    arrived_max=stamps[1],
                    hours=hours,
                    producer=producer or NO_PRODUCER,
                    producer_epoch=producer_epoch,
                    first_sequence=0 if sequences is None else int(sequences[start]),
                    last_sequence=0 if sequences is None else int(sequences[start + rows - 1]),
                )
        if end.durable_position < end.position:
            self.topic.log.sync_soon(self)
        return Appended(first, batch.num_rows, given - batch.num_rows, end.arrived_us)

    def roll(self) -> bool:
        """Closes the active segment, so that it can be sealed. False if it holds nothing."""
        with self._tail.exclusive() as end:
            self._tail.check_writable()
            if end.offset == end.segment_base:
                return False
            self._tail.roll(end)
            return True

    def sync(self) -> None:
        """With durability="os": makes everything appended so far safe. Otherwise there is nothing to do."""
        with self._tail.exclusive() as end:
            if end.durable_position < end.position:
                self._tail.check_writable()
                self._tail.sync(end)

    def close(self) -> None:
        """Lets go of all files. With durability="os" everything is synced first."""
        if self.topic.definition.durability == "os":
            with suppress(PenstockError, OSError):
                self.sync()
        self._tail.close()
        with self._lock:
            self._hot.clear()

    # --- where it begins and ends ---

    @property
    def signal(self) -> Path:
        """Its committed end: a file that changes with every commit."""
        return self._tail.end_path

    def end(self) -> End:
        """The committed end: offsets below `end().offset` can be read. Cheap."""
        return self._tail.end()

    def last_sequence(self, producer: bytes) -> int | None:
        """The last sequence that this producer has stored here, sealed and removed records included; None if none."""
        with self._tail.exclusive() as end:
            return self._tail.last_sequence(end, producer)

    def remembered(self) -> dict[bytes, Remembered]:
        """What is known of the producers that had a name, or an idempotency key."""
        with self._tail.exclusive() as end:
            return {each: found for each, found in self._tail.producers(end).items() if is_remembered(each)}

    def start_offset(self) -> int:
        """The first offset that retention has left."""
        return self.manifest().start_offset

    def manifest(self, *, is_fresh: bool = False) -> Manifest:
        """What is sealed, as of now. Read again only when it changed.

        Whoever is going to change or delete something reads it again (`is_fresh`): where a file system counts time in
        coarse steps, a new file may look like an old one.
        """
        try:
            status = os.stat(self.directory / MANIFEST)
        except FileNotFoundError:
            return Manifest()
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if is_fresh or self._manifest is None or self._manifest[0] != version:
            self._manifest = (version, read_manifest(self.directory))
        return self._manifest[1]

    def hot_segments(self, end: End) -> list[Segment]:
        """The segments that are not sealed, in order; the last is active.

        FileNotFoundError if one was sealed at this moment: ask again.
        """
        bases = hot_bases(self.directory)  # Before the manifest: what is sealed in between is then left out below.
        sealed_end = self.manifest().sealed_end
        with self._lock:
            found = []
            for base in bases:
                if sealed_end <= base <= end.segment_base:
                    if base not in self._hot:
                        self._hot[base] = Segment(segment_path(self.directory, base))
                    found.append(self._hot[base])
            for base in [base for base in self._hot if base < sealed_end]:
                del self._hot[base]  # A reader may still be in it; the last reference closes the file.
            return found

    # --- reading ---

    def read(
        self,
        start: int,
        stop: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        arrived: Ranges = None,
        event_time: Ranges = None,
    ) -> Iterator[pa.RecordBatch]:
        """Records from `start` up to `stop` as Arrow batches; see `penstock.log.reading.read`."""
        return reading.read(self, start, stop, columns=columns, arrived=arrived, event_time=event_time)

    def pieces(self, start: int, stop: int | None = None) -> list[reading.FolderPiece]:
        """The frames and row groups that hold these offsets. Reads no records."""
        return reading.pieces(self, start, stop)

    def describe(self) -> Described:
        end, manifest = self.end(), self.manifest()
        hot = self.hot_segments(end)
        first = self.pieces(manifest.start_offset, manifest.start_offset + 1) if end.offset else []
        return Described(
            start=manifest.start_offset,
            end=end.offset,
            records=sum(segment.rows for segment in manifest.segments) + end.offset - manifest.sealed_end,
            bytes=sum(segment.bytes for segment in manifest.segments) + sum(segment.size() for segment in hot),
            sealed=len(manifest.segments),
            hot=len(hot),
            arrived_us=(first[0].arrived_min, end.arrived_us) if first else (None, None),
        )

    def offset_at(self, arrived_us: int) -> int:
        """The first offset that arrived at this moment or later; the end if none did."""
        return cut.offset_at(self, arrived_us)

    # --- helpers ---

    def _with_arrival(
        self, batch: pa.RecordBatch, arrived: pa.Array, after_us: int
    ) -> tuple[pa.RecordBatch, tuple[int, int]]:
        """The batch, with its arrivals as a column unless they are all the same."""
        arrived = arrived.cast(ARRIVED)
        stamps = np.asarray(arrived.view(pa.int64()))
        self._check_stamps(stamps, after_us)
        low, high = int(stamps[0]), int(stamps[-1])
        return (batch if low == high else batch.append_column("_arrived", arrived)), (low, high)
