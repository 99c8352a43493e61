"""The tail of a partition: where records are added, by one process at a time."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.clock import Clock
from penstock.errors import ForkedHandle, OutOfFiles, PartitionReadOnly, ProducerFenced, TopicDeleted
from penstock.log.committed_end import CommittedEnd, End
from penstock.log.files import sync_data, write_all
from penstock.log.frame import ALIGNMENT, CLOSING, OPENING, PREDECESSORS_DURABLE, RECORDS, encode_frame
from penstock.log.keys import Keys, keep_keys
from penstock.log.open_files import EXHAUSTED, PooledFile
from penstock.log.partition import Sequences
from penstock.log.producers import Producers, Remembered, is_shared
from penstock.log.recovery import recover
from penstock.log.segment import BadSegmentHeader, Segment, hot_bases, segment_path

logger = logging.getLogger("penstock.log")


class Tail:
    """The lock, the committed end and the active segment of one partition, in one process.

    Everything that writes happens inside `exclusive()`. A frame is written, synced, and only then made visible by a
    new committed end. After a failed write or fsync this process writes no more: whether the bytes reached the disk
    cannot be known. What a killed process left half written is mended by the next one that takes the lock.
    """

    def __init__(
        self, topic: str, number: int, directory: Path, clock: Clock, check_topic: Callable[[], object]
    ) -> None:
        """`check_topic` raises TopicDeleted if the folder belongs to another topic by now."""
        self.end_path = directory / "end"
        self._topic = topic
        self._number = number
        self._place = f"{topic}/{number}"
        self._directory = directory
        self._clock = clock
        self._pid = os.getpid()
        self._thread_lock = threading.RLock()
        self._lock = PooledFile(directory / "lock", is_made=True, on_open=lambda _: check_topic())
        self._committed = CommittedEnd(self.end_path, on_open=lambda _: check_topic())
        self._active: Segment | None = None
        self._failure: OSError | None = None
        self._producers = Producers()
        self._producers_known_to = (-1, 0)
        self._keys = Keys(directory, clock)

    @contextmanager
    def exclusive(self) -> Iterator[End]:
        """Holds the partition against all other writers, and says where it ends."""
        self._check_process()
        with self._thread_lock:
            try:
                lock = self._lock.open()
            except FileNotFoundError:
                raise TopicDeleted(self._topic) from None
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._committed.pins += 1  # A frame that is written can be committed.
            try:
                if self._is_deleted(lock):
                    raise TopicDeleted(self._topic)
                yield self._current_end()
            except FileNotFoundError:
                if self._is_deleted(lock):
                    raise TopicDeleted(self._topic) from None
                raise
            finally:
                self._committed.pins -= 1
                fcntl.flock(lock, fcntl.LOCK_UN)

    def end(self) -> End:
        """The committed end. Cheap: one small read, no lock."""
        self._check_process()
        if self._active is not None:
            try:
                end = self._committed.read()
            except FileNotFoundError:
                raise TopicDeleted(self._topic) from None
            if end is not None:
                return end
        with self.exclusive() as end:
            return end

    def close(self) -> None:
        """Lets go of all files."""
        with self._thread_lock:
            self._lock.close()
            self._committed.close()
            self._active = None

    # --- inside `exclusive()` ---

    def check_writable(self) -> None:
        """PartitionReadOnly if a write failed in this process before."""
        if self._failure is not None:
            raise PartitionReadOnly(self._place, self._failure)

    def add(self, end: End, payload: pa.Buffer, *, records: int, is_synced: bool, **header: Any) -> End:
        """Adds one frame of records and makes it visible. Returns the new end."""
        after = self._write(end, payload, RECORDS, records=records, is_synced=is_synced, **header)
        self._commit(after)
        return after

    def roll(self, end: End) -> End:
        """Closes the active segment and opens the next. A crash in between is finished by the next writer."""
        self._know_producers(end)
        if self._producers.keys and end.durable_position < end.position:
            end = self.sync(end)
        with self._failing():
            producers = keep_keys(self._directory, end.segment_base, self._producers, self._clock())
        arrived_us = end.arrived_us
        closed = self._write(
            end, pa.py_buffer(b""), CLOSING, records=0, is_synced=True, arrived_min=arrived_us, arrived_max=arrived_us
        )
        path = segment_path(self._directory, end.offset)
        with self._failing():
            self._active = Segment.create(
                path,
                self._number,
                offset=end.offset,
                now_us=self._clock(),
                arrived_us=arrived_us,
                epoch=closed.epoch,
                producers=producers,
            )
        self._producers = producers
        size = self._active.size()
        opened = End(end.offset, self._active.segment_id, size, size, end.offset, arrived_us, closed.epoch)
        self._commit(opened)
        self._producers_known_to = (end.offset, size)
        return opened

    def sync(self, end: End) -> End:
        """Makes everything up to the end safe, where it was left to the operating system."""
        assert self._active is not None
        file = self._active.open()
        with self._failing():
            sync_data(file.fileno())
        end = end._replace(durable_position=end.position)
        self._commit(end)
        return end

    def stored_before(self, end: End, producer: bytes, epoch: int, sequences: Sequences) -> int:
        """How many of these sequences, from the first on, the producer has stored already."""
        seen = self._remembered(end, producer)
        if seen is None:
            if is_shared(producer):
                self._keys.check_room(self._place, len(self._producers.keys), self._producers.keys_end)
            return 0
        if epoch < seen.epoch:
            raise ProducerFenced(self._place, epoch, seen.epoch)
        return int(np.searchsorted(sequences, seen.last_sequence, side="right"))

    def last_sequence(self, end: End, producer: bytes) -> int | None:
        """The last sequence that the producer has stored; None if it never did."""
        seen = self._remembered(end, producer)
        return None if seen is None else seen.last_sequence

    def producers(self, end: End) -> dict[bytes, Remembered]:
        """All that is known of producers."""
        self._know_producers(end)
        return {**self._keys.all(self._producers.keys_end), **self._producers.all()}

    # --- helpers ---

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedHandle(self._place, self._pid, os.getpid())

    def _is_deleted(self, lock: FileIO) -> bool:
        """Whether the folder is gone, or has another name by now because somebody is deleting it, or died doing so."""
        try:
            return not os.path.samestat(os.stat(self._lock.path), os.fstat(lock.fileno()))
        except FileNotFoundError:
            return True

    def _current_end(self) -> End:
        """The end, checked against the segment file; what a dead process left behind is mended first."""
        end = self._committed.read()
        if end is not None and (self._failure is not None or self._is_active(end) or self._open_active(end)):
            return end
        self.check_writable()
        written = os.stat(self.end_path)
        with self._failing():
            recovered = recover(self._directory, self._number, end, self._clock())
        if recovered.report is not None:
            logger.warning("%s", recovered.report.text(self._place))
        self._active = recovered.segment
        self._producers_known_to = (-1, 0)
        self._commit(recovered.end)
        # Mended, not appended to: `check_clock` goes by when that was.
        os.utime(self.end_path, ns=(written.st_atime_ns, written.st_mtime_ns))
        return recovered.end

    def _is_active(self, end: End) -> bool:
        """Whether the segment we have open ends where the committed end says."""
        active = self._active
        return active is not None and active.segment_id == end.segment_id and active.size() == end.position

    def _open_active(self, end: End) -> bool:
        """Opens the active segment without a scan, if nothing can be wrong with its tail."""
        bases = hot_bases(self._directory)
        if not bases or bases[-1] != end.segment_base:
            return False
        # Seen alive by this process: no power cut can be in between. Otherwise only what was synced is trusted.
        if self._active is None and end.durable_position != end.position:
            return False
        try:
            segment = Segment(segment_path(self._directory, end.segment_base))
        except BadSegmentHeader:
            return False
        if segment.segment_id != end.segment_id or segment.size() != end.position:
            return False
        self._active = segment
        return True

    def _write(self, end: End, payload: pa.Buffer, kind: int, *, records: int, is_synced: bool, **header: Any) -> End:
        """Writes one frame at the end. If that fails, what was written is taken back and this process stops writing."""
        assert self._active is not None
        frame = encode_frame(
            end.segment_id,
            end.position,
            payload,
            kind=kind,
            base_offset=end.offset,
            epoch=end.epoch,
            records=records,
            flags=PREDECESSORS_DURABLE if end.durable_position == end.position else 0,
            appended_us=self._clock(),
            **header,
        )
        file = self._active.open()
        with self._failing(end.position):
            position = write_all(file.fileno(), frame, end.position)
            if is_synced:
                sync_data(file.fileno())
        return end._replace(
            position=position,
            durable_position=position if is_synced else end.durable_position,
            offset=end.offset + records,
            arrived_us=max(end.arrived_us, header["arrived_max"]),
        )

    def _commit(self, end: End) -> None:
        with self._failing():
            self._committed.write(end)

    @contextmanager
    def _failing(self, position: int | None = None) -> Iterator[None]:
        """An I/O error inside makes the partition read-only in this process; it is never tried again."""
        try:
            yield
        except FileNotFoundError:  # Sealed or deleted at this moment: nothing was written.
            raise
        except OSError as error:
            if error.errno in EXHAUSTED:  # A file could not be opened, so nothing was written to it.
                raise OutOfFiles(self._directory) from error
            self._failure = error
            if position is not None and self._active is not None:
                with suppress(OSError, OutOfFiles):  # Best effort: so that nobody takes the bytes for committed.
                    file = self._active.open()
                    os.ftruncate(file.fileno(), position)
            raise PartitionReadOnly(self._place, error) from error

    def _remembered(self, end: End, producer: bytes) -> Remembered | None:
        self._know_producers(end)
        found = self._producers.get(producer)
        if found is None and is_shared(producer):
            found = self._keys.find(producer, self._producers.keys_end)
        return found

    def _know_producers(self, end: End) -> None:
        """Takes in the frames that others wrote since we last looked."""
        assert self._active is not None
        base, position = self._producers_known_to
        if base != end.segment_base:
            position = ALIGNMENT
        for frame in self._active.headers(position, end.position):
            payload = b""
            if frame.kind == OPENING:
                ((_, content),) = self._active.payloads([frame])
                payload = content.to_pybytes()
            self._producers.observe(frame, payload)
        self._producers_known_to = (end.segment_base, end.position)
