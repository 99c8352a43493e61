"""Are the hot segments whole? Every frame's checksum, offsets without a gap, arrivals that never go back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from struct import error as struct_error

import numpy as np
import pyarrow as pa

from penstock.check.decoding import arrivals_of, frame_records
from penstock.check.findings import Finding, Severity
from penstock.errors import CorruptionError
from penstock.log.committed_end import End
from penstock.log.definition import TopicDefinition
from penstock.log.frame import ALIGNMENT, CLOSING, OPENING, RECORDS, Frame
from penstock.log.hours import hours_of
from penstock.log.manifest import Manifest
from penstock.log.producers import Producers
from penstock.log.segment import BadSegmentHeader, Segment, has_frames

WINDOW_FRAMES = 4096
"""So many headers are kept in memory at once."""


@dataclass
class HotChecked:
    """What the check of the hot segments found."""

    end: int
    """The offset behind the last whole frame."""
    records: int = 0
    is_readable: bool = True
    """Whether the last segment could be read to its end, so that `end` means something."""
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class Opened:
    """A hot segment, open, and how much of it is to be looked at."""

    path: Path
    segment: Segment | None
    """None if its header is torn or damaged."""
    size: int

    @staticmethod
    def at(path: Path) -> Opened:
        """FileNotFoundError if it was sealed just now."""
        size = path.stat().st_size
        try:
            segment = Segment(path)
        except BadSegmentHeader:
            return Opened(path, None, size)
        segment.pins += 1  # It may be sealed, and its file deleted, before we come to it.
        return Opened(path, segment, size)


def check_hot(
    place: str,
    opened: Mapping[int, Opened],
    manifest: Manifest,
    end: End | None,
    definition: TopicDefinition | None,
) -> HotChecked:
    """Checks the segments, which are given by their base offsets. Changes nothing."""
    checked = HotChecked(manifest.sealed_end)
    arrived_us = manifest.arrived_us
    for base, each in sorted(opened.items()):
        if base != checked.end and checked.is_readable:
            checked.findings.append(
                Finding(
                    place, each.path, "damage", "hot", f"offsets {checked.end} up to {base} are in no file",
                    f"put back a copy of the missing file, or: penstock log check {place} --repair", checked.end,
                )
            )  # fmt: skip
        is_last = base == max(opened)
        if each.segment is None:
            _bad_header(checked, place, each.path, base, is_last=is_last)
            continue
        one = _SegmentCheck(place, each.segment, each.size, is_last, end, definition, arrived_us)
        one.run()
        checked.findings += one.findings
        checked.end, checked.is_readable = one.offset, not any(f.is_damage for f in one.findings)
        checked.records += one.offset - base
        arrived_us = one.arrived_us
    return checked


def _bad_header(checked: HotChecked, place: str, path: Path, base: int, *, is_last: bool) -> None:
    if is_last and not has_frames(path):
        found, advice = (
            "it was torn while it was being made",
            "nothing to do: the next process that opens it makes it again",
        )
        severity: Severity = "note"
    else:
        found, advice, severity = "its header is damaged", _repair(place), "damage"
    checked.findings.append(Finding(place, path, severity, "hot", found, advice, base, 0))
    checked.end, checked.is_readable = base, False


def _repair(place: str) -> str:
    return (
        f"put back a copy of the file; to keep what is whole of it: penstock log check {place} --repair; "
        f"to look first: penstock log inspect {place}"
    )


@dataclass
class _SegmentCheck:
    place: str
    segment: Segment
    size: int
    is_last: bool
    committed: End | None
    definition: TopicDefinition | None
    arrived_us: int
    findings: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.offset = self.segment.base_offset
        self.position = ALIGNMENT
        self._epoch = 0
        self._last_kind: int | None = None
        self._producers = Producers()

    def run(self) -> None:
        try:
            for window in _windows(self.segment, self.size):
                for frame, payload in self.segment.payloads(window):
                    fault = self._fault_of(frame, payload)
                    if fault is not None:
                        self._damaged(fault, frame.base_offset, frame.position)
                        return
                    self.position, self.offset = frame.end_position, frame.end_offset
                    self._epoch, self._last_kind = frame.epoch, frame.kind
                    self.arrived_us = max(self.arrived_us, frame.arrived_max)
        except CorruptionError as error:
            self._not_whole(error.found)
            return
        if self._last_kind != CLOSING and not self.is_last:
            self._damaged("it is not closed, though another segment follows", self.offset, self.position)

    def _fault_of(self, frame: Frame, payload: pa.Buffer) -> str | None:
        """What is wrong with a frame whose checksum is right."""
        if (frame.kind == OPENING) != (self._last_kind is None) or self._last_kind == CLOSING:
            return "a frame is not where its kind belongs"
        if frame.base_offset != self.offset:
            return f"a frame begins at offset {frame.base_offset}, expected {self.offset}"
        if frame.epoch < self._epoch:
            return f"a frame of epoch {frame.epoch} follows one of epoch {self._epoch}"
        if frame.kind != RECORDS:
            try:
                self._producers.observe(frame, payload.to_pybytes())
            except struct_error as error:
                return f"what it remembers of producers cannot be read: {error}"
            return None
        if frame.arrived_min < self.arrived_us or frame.arrived_max < frame.arrived_min:
            return f"arrival goes back, from {self.arrived_us} to {frame.arrived_min} (microseconds)"
        return self._fault_of_records(frame, payload)

    def _fault_of_records(self, frame: Frame, payload: pa.Buffer) -> str | None:
        if self.definition is None:
            return None
        try:
            batch = frame_records(frame, payload, self.definition, int(self.segment.path.parent.name))
        except (pa.ArrowException, IndexError, ValueError) as error:
            return f"its checksum is right, but its records cannot be read: {error}"
        stamps = arrivals_of(batch)
        if (np.diff(stamps) < 0).any() or (stamps[0], stamps[-1]) != (frame.arrived_min, frame.arrived_max):
            return "arrivals of its records are not what the header says"
        event_time = self.definition.event_time
        if event_time is not None and frame.hours != hours_of(batch.column(event_time)):
            return "hours of event time are not what the header says"
        return None

    def _not_whole(self, found: str) -> None:
        """Bytes that are no whole frame: a torn tail in the last segment, if nobody was told that they are safe."""
        end = self.committed
        is_committed = end is not None and end.segment_id == self.segment.segment_id and end.position > self.position
        if not self.is_last or is_committed or self.segment.scan().later_frame is not None:
            self._damaged(found, self.offset, self.position)
        else:
            advice = (
                "nothing acknowledged is lost; the tail will be cut off by the next process that opens the partition"
            )
            found = f"it ends inside a frame: {self.size - self.position} bytes of a writer that died"
            path = self.segment.path
            self.findings.append(Finding(self.place, path, "note", "hot", found, advice, self.offset, self.position))

    def _damaged(self, found: str, offset: int, position: int) -> None:
        advice = _repair(self.place)
        self.findings.append(Finding(self.place, self.segment.path, "damage", "hot", found, advice, offset, position))


def _windows(segment: Segment, stop: int) -> Iterator[list[Frame]]:
    """The frames by their headers, some at a time; those before a bad header come before its CorruptionError."""
    headers = segment.headers(ALIGNMENT, stop)
    while True:
        window: list[Frame] = []
        try:
            for frame in headers:
                window.append(frame)
                if len(window) == WINDOW_FRAMES:
                    break
        except CorruptionError:
            yield window
            raise
        if not window:
            return
        yield window
