"""What the first opener of a partition does after a crash: find the last whole frame, cut off the rest, go on.

A torn tail is what a killed writer leaves; it was never acknowledged. A bad frame with good ones behind it is
something else: damage to records that were safe once. That stops everything, with the place in the message.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.errors import CorruptionError
from penstock.log.committed_end import End
from penstock.log.files import read_exactly, sync_data, sync_directory, write_all
from penstock.log.frame import ALIGNMENT, OPENING
from penstock.log.keys import keep_keys
from penstock.log.manifest import FILE_NAME as MANIFEST
from penstock.log.manifest import Manifest, read_manifest
from penstock.log.producers import Producers
from penstock.log.segment import BadSegmentHeader, Scan, Segment, has_frames, hot_bases, segment_path


@dataclass(frozen=True)
class CutReport:
    """What was cut off a segment, for people."""

    path: Path
    position: int
    cut_bytes: int
    offset: int
    """The next record will get this offset."""
    acknowledged: int
    """Records that had been acknowledged and are not there any more: only bad hardware or hands do this."""

    def text(self, place: str) -> str:
        lost = (
            f"{self.acknowledged} records that had been acknowledged are gone: a power cut does this to a topic with "
            "durability='os'; to any other only the disk, or somebody who shortened the file"
            if self.acknowledged
            else "nothing acknowledged is lost: a writer died before it was done"
        )
        return (
            f"log: {place}: {self.path.name} ended inside a frame; {self.cut_bytes} bytes were cut off "
            f"at byte {self.position}\n  {lost}; the next offset is {self.offset}"
        )


@dataclass(frozen=True)
class Recovered:
    """The active segment, ready for the next record."""

    segment: Segment
    end: End
    report: CutReport | None


def recover(directory: Path, partition: int, hint: End | None, now_us: int) -> Recovered:
    """Makes the partition's tail whole and says where it ends. The caller holds the partition's lock."""
    listed = hot_bases(directory)  # Before the manifest: what is sealed in between is then left out below.
    manifest = read_manifest(directory)
    bases = [base for base in listed if base >= manifest.sealed_end]
    if bases and bases[0] != manifest.sealed_end:
        raise CorruptionError(
            directory / MANIFEST,
            f"offsets {manifest.sealed_end} up to {bases[0]} are in no file",
            offset=manifest.sealed_end,
        )
    if not bases:
        producers = keep_keys(directory, manifest.sealed_end, Producers(), now_us)
        return _opened(directory, partition, manifest.sealed_end, manifest.arrived_us, 0, producers, now_us, None)
    newest = segment_path(directory, bases[-1])
    try:
        segment = Segment(newest)
        scan = segment.scan()
    except BadSegmentHeader:
        segment, scan = None, None
    if segment is None or scan is None or not scan.has_opening:
        if has_frames(newest):
            raise CorruptionError(newest, "its header is damaged, but frames follow it", offset=bases[-1], position=0)
        return _made_again(directory, partition, bases, manifest, hint, now_us)
    if scan.later_frame is not None:
        raise CorruptionError(
            newest,
            f"a bad frame, with a good one behind it at byte {scan.later_frame}",
            offset=scan.offset,
            position=scan.position,
        )
    report = _cut(segment, scan, hint)
    epoch = scan.epoch + (1 if report is not None else 0)
    if scan.is_closed:
        producers = _producers_of(segment, scan.position, now_us)
        return _opened(directory, partition, scan.offset, scan.arrived_us, epoch, producers, now_us, report)
    end = End(
        segment.base_offset,
        segment.segment_id,
        scan.position,
        scan.position,
        scan.offset,
        max(scan.arrived_us, manifest.arrived_us),
        epoch,
    )
    return Recovered(segment, end, report)


def _cut(segment: Segment, scan: Scan, hint: End | None) -> CutReport | None:
    """Cuts off what is not whole, and makes sure that what is whole is on disk."""
    file = segment.open()
    size = segment.size()
    is_ours = hint is not None and hint.segment_id == segment.segment_id
    if is_ours and hint is not None:
        known = hint.durable_position
    else:  # Nobody ever said that the segment was there. Without records it may have been left by a failed roll.
        known = 0 if scan.offset == segment.base_offset else scan.position
    if known < scan.position:
        # Whole, but perhaps only in memory: an fsync that failed once reports success the next time. Write it again.
        write_all(file.fileno(), [read_exactly(file.fileno(), scan.position - known, known)], known)
    if size > scan.position:
        os.ftruncate(file.fileno(), scan.position)
    sync_data(file.fileno())
    sync_directory(segment.path.parent)
    lost = max(hint.offset - scan.offset, 0) if is_ours and hint is not None else 0
    if size <= scan.position and not lost:
        return None
    return CutReport(segment.path, scan.position, size - scan.position, scan.offset, lost)


def _made_again(
    directory: Path, partition: int, bases: list[int], manifest: Manifest, hint: End | None, now_us: int
) -> Recovered:
    """The newest segment was torn while it was being made: make it again behind the one before it."""
    newest = segment_path(directory, bases[-1])
    size = newest.stat().st_size
    lost = max(hint.offset - bases[-1], 0) if hint is not None and hint.segment_base == bases[-1] else 0
    report = CutReport(newest, 0, size, bases[-1], lost) if size or lost else None
    arrived_us, epoch = manifest.arrived_us, 0
    if len(bases) == 1:
        producers = keep_keys(directory, bases[-1], Producers(), now_us)
    else:
        before = Segment(segment_path(directory, bases[-2]))
        scan = before.scan()
        if not scan.is_closed or scan.offset != bases[-1]:
            raise CorruptionError(
                before.path, "it does not reach the segment that follows it", offset=scan.offset, position=scan.position
            )
        arrived_us, epoch, producers = scan.arrived_us, scan.epoch + 1, _producers_of(before, scan.position, now_us)
    return _opened(directory, partition, bases[-1], arrived_us, epoch, producers, now_us, report)


def _opened(
    directory: Path,
    partition: int,
    offset: int,
    arrived_us: int,
    epoch: int,
    producers: Producers,
    now_us: int,
    report: CutReport | None,
) -> Recovered:
    segment = Segment.create(
        segment_path(directory, offset),
        partition,
        offset=offset,
        now_us=now_us,
        arrived_us=arrived_us,
        epoch=epoch,
        producers=producers,
    )
    size = segment.size()
    return Recovered(segment, End(offset, segment.segment_id, size, size, offset, arrived_us, epoch), report)


def _producers_of(segment: Segment, position: int, now_us: int) -> Producers:
    """What the head of the segment after this closed one shall say."""
    producers = Producers()
    for frame in segment.headers(ALIGNMENT, position):
        payload = pa.py_buffer(b"")
        if frame.kind == OPENING:
            ((_, payload),) = segment.payloads([frame])
        producers.observe(frame, payload.to_pybytes())
    return keep_keys(segment.path.parent, segment.base_offset, producers, now_us)
