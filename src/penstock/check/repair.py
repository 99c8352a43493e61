"""Repair: a damaged partition becomes one that opens again, with everything that is still whole.

What is whole is never touched. The manifest is made again from the sealed files, each of which carries all it needs.
Of a damaged segment the whole records are written to a new sealed file, in which the offsets of the others are missing,
and the damaged file is set aside. Nothing that loses records or bytes is done without asking.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.access import make_file
from penstock.check.checking import SET_ASIDE, keys_end_of
from penstock.check.repair_plan import Plan, Stretch
from penstock.check.salvage_keys import SalvagedKeys, salvage_keys
from penstock.clock import HOUR_US, Clock, now_us
from penstock.log.committed_end import CommittedEnd
from penstock.log.definition import TopicDefinition
from penstock.log.files import locked, replace_file, sync_directory
from penstock.log.hours import Hours
from penstock.log.keys import files_to, keep_keys, keys_path
from penstock.log.manifest import FILE_NAME as MANIFEST
from penstock.log.manifest import Manifest, SealedSegment, write_manifest
from penstock.log.producers import Producers
from penstock.log.recovery import recover
from penstock.log.sealed import SUFFIX as PARQUET
from penstock.log.sealed import write_sealed
from penstock.log.sealing import sealed_schema
from penstock.log.segment import BadSegmentHeader, Segment, hot_bases, segment_path

Confirm = Callable[[str], bool]
"""Asks a question that begins with what would be lost. False: leave it as it is."""

FIRST_HOUR = -17_259_888
"""The year 1."""


@dataclass(frozen=True)
class Mended:
    """One thing that a repair did."""

    place: str
    path: Path
    what: str
    lost: int = 0
    """Offsets whose records are gone."""


def repair_partition(
    directory: Path, definition: TopicDefinition, confirm: Confirm, *, clock: Clock = now_us
) -> list[Mended]:
    """Repairs one partition, if `confirm` allows what must be lost, and says what was done. Writers wait meanwhile.

    A crash in the middle leaves a partition that can be repaired again.
    """
    with locked(directory / "maintenance.lock"), locked(directory / "lock"):
        repair = _Repair(directory, definition, confirm, clock)
        repair.run()
        return repair.done


@dataclass
class _Repair:
    directory: Path
    definition: TopicDefinition
    confirm: Confirm
    clock: Clock
    done: list[Mended] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place = f"{self.directory.parent.name}/{self.directory.name}"
        self.number = int(self.directory.name)
        committed = CommittedEnd(self.directory / "end")
        self.plan = Plan(self.directory, self.definition, committed.read())
        committed.close()

    def run(self) -> None:
        self._mend_segments()
        self._mend_keys()

    def _mend_segments(self) -> None:
        plan = self.plan
        if not all(self._may_lose(stretch) for stretch in plan.stretches) or not self._may_cut():
            return
        if plan.is_rewritten or not plan.is_manifest_good:
            segments = [segment for stretch in plan.stretches if (segment := self._sealed(stretch))]
            self._replace_manifest(tuple(segments))
        if plan.is_rewritten or plan.is_end_bad:
            self._mend_end()

    def _may_lose(self, stretch: Stretch) -> bool:
        if stretch.segment is not None or not stretch.fault:
            return True
        kept = sum(batch.num_rows for batch in stretch.records(self.definition, self.number))
        lost = stretch.stop - stretch.start - kept
        name = stretch.path.name if stretch.path is not None else f"offsets {stretch.start} up to {stretch.stop}"
        aside = f", and set it aside as {name}{SET_ASIDE}" if stretch.path is not None else ""
        return self.confirm(
            f"{self.place}: {name}: {stretch.fault}; {lost:,} records of offsets {stretch.start} up to {stretch.stop} "
            f"are lost, {kept:,} can be read\n  go on with those that can be read{aside}?"
        )

    def _may_cut(self) -> bool:
        """Whether a torn tail may be cut off, which happens where the committed end is made again."""
        plan = self.plan
        if not (plan.is_rewritten or plan.is_end_bad) or not plan.staying or not plan.staying[-1].tail_bytes:
            return True
        last = plan.staying[-1]
        return self.confirm(
            f"{self.place}: {last.path.name}: {last.tail_bytes} bytes behind the last whole record were never completed"
            "\n  cut them off?"
        )

    def _sealed(self, stretch: Stretch) -> SealedSegment | None:
        """The stretch as a sealed segment; None if there is nothing in it."""
        if stretch.segment is not None or stretch.stop == stretch.start:
            return stretch.segment
        rows = sum(batch.num_rows for batch in stretch.records(self.definition, self.number))
        frames = stretch.hot.frames if stretch.hot is not None else []
        lost = stretch.stop - stretch.start - rows
        segment = write_sealed(
            self._new_name(stretch.start),
            sealed_schema(self.definition),
            stretch.records(self.definition, self.number),
            start=stretch.start,
            stop=stretch.stop,
            appended_us=max((frame.appended_us for frame in frames), default=self.clock()),
            event_time=self.definition.event_time,
            is_compacted=lost > 0,
        )
        self._report(self.directory / segment.file, f"written with {rows:,} whole records", lost)
        return segment

    def _new_name(self, start: int) -> Path:
        stem = f"{start:020d}"
        names = [f"{stem}{PARQUET}", *(f"{stem}-{number}{PARQUET}" for number in range(1, 1000))]
        taken = {path.name.removesuffix(SET_ASIDE) for path in self.directory.iterdir()}
        return self.directory / next(name for name in names if name not in taken)

    def _replace_manifest(self, segments: tuple[SealedSegment, ...]) -> None:
        """The new manifest, from which instant on the new files count; then the old ones go or are set aside."""
        plan = self.plan
        before = [each.frames[0].arrived_min for each in plan.staying if each.frames][:1]
        arrived_us = max([plan.manifest.arrived_us, *(segment.arrived_max for segment in segments), *before])
        removed = plan.manifest.removed_hours
        manifest = Manifest(
            start_offset=plan.start,
            sealed_end=plan.stop,
            segments=segments,
            removed_hours=removed if plan.is_manifest_good else _may_be_removed(plan.start, segments, arrived_us),
            arrived_us=arrived_us,
            superseded=plan.manifest.superseded,
        )
        if not segment_path(self.directory, plan.stop).exists():
            self._make_active(arrived_us)
        write_manifest(self.directory, manifest)
        self._report(self.directory / MANIFEST, f"made again, with {len(segments)} sealed segments")
        for stretch in plan.stretches:
            if stretch.segment is None and stretch.path is not None:
                if stretch.fault:
                    stretch.path.rename(stretch.path.with_name(stretch.path.name + SET_ASIDE))
                    self._report(stretch.path, f"set aside as {stretch.path.name}{SET_ASIDE}")
                else:
                    stretch.path.unlink()  # Sealed just now, whole.
        sync_directory(self.directory)
        if not segment_path(self.directory, plan.stop).exists():
            self._make_active(arrived_us)

    def _make_active(self, arrived_us: int) -> None:
        """A segment to go on with, which remembers the producers of the one before it."""
        plan = self.plan
        path = segment_path(self.directory, plan.stop)
        now = self.clock()
        base, producers = next(
            ((each.base_offset, each.producers) for each in reversed(plan.hot) if each.frames), (plan.stop, Producers())
        )
        Segment.create(
            path,
            self.number,
            offset=plan.stop,
            now_us=now,
            arrived_us=arrived_us,
            epoch=max((frame.epoch for each in plan.hot for frame in each.frames), default=0) + 1,
            producers=keep_keys(self.directory, base, producers, now),
        )
        self._report(path, "made, to go on with")

    def _mend_end(self) -> None:
        hint = self.plan.hint
        is_there = hint is not None and segment_path(self.directory, hint.segment_base).exists()
        recovered = recover(self.directory, self.number, hint if is_there else None, self.clock())
        committed = CommittedEnd(self.directory / "end")
        committed.write(recovered.end)
        committed.close()
        self._report(committed.path, f"made again: the next offset is {recovered.end.offset}")

    def _mend_keys(self) -> None:
        """Files of idempotency keys: what is whole stays where it is, so that heads which name a place stay true."""
        bases = hot_bases(self.directory)
        try:
            newest = Segment(segment_path(self.directory, bases[-1])) if bases else None
        except BadSegmentHeader:
            newest = None
        if newest is None:
            return
        for base, stop in files_to(self.directory, keys_end_of(newest, newest.size())):
            path = keys_path(self.directory, base)
            salvaged = salvage_keys(path, stop, self.clock())
            if salvaged.is_whole or (salvaged.lost_bytes and not self._may_forget(path, salvaged)):
                continue
            aside = path.with_name(path.name + SET_ASIDE)
            if path.exists():
                make_file(aside)
                shutil.copyfile(path, aside)
            replace_file(path, salvaged.content)
            self._report(path, f"made again, with {salvaged.keys:,} idempotency keys")

    def _may_forget(self, path: Path, salvaged: SalvagedKeys) -> bool:
        aside = f", and set the file aside as {path.name}{SET_ASIDE}" if path.exists() else ""
        return self.confirm(
            f"{self.place}: {path.name}: {salvaged.lost_bytes:,} bytes of idempotency keys are damaged, "
            f"{salvaged.keys:,} keys can be read; a post that is repeated with one of the others is stored again\n"
            f"  go on with those that can be read{aside}?"
        )

    def _report(self, path: Path, what: str, lost: int = 0) -> None:
        self.done.append(Mended(self.place, path, what, lost))


def _may_be_removed(start: int, segments: tuple[SealedSegment, ...], arrived_us: int) -> Hours:
    """Which hours retention may have removed, when nobody remembers: all before the first arrival that is left."""
    first_us = next((segment.arrived_min for segment in segments if segment.row_groups), arrived_us)
    return () if start == 0 else ((FIRST_HOUR, first_us // HOUR_US),)
