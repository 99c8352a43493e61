"""Is the log whole? Every checksum, every row count, every offset and every arrival, compared with each other.

A check changes nothing, needs no partition to open, and may run while others write: it looks at what was committed when
it began.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from struct import error as struct_error
from typing import TYPE_CHECKING

from penstock.check.findings import Finding, PartitionReport, Severity, Subject
from penstock.check.hot import HotChecked, Opened, check_hot
from penstock.check.sealed import check_sealed
from penstock.clock import moment, now_us
from penstock.errors import CorruptionError, PenstockError, UnknownTopic
from penstock.log.committed_end import CommittedEnd, End
from penstock.log.definition import FILE_NAME as DEFINITION
from penstock.log.definition import TopicDefinition, read_definition
from penstock.log.files import TEMPORARY_SUFFIX
from penstock.log.frame import ALIGNMENT
from penstock.log.keys import Keys
from penstock.log.manifest import FILE_NAME as MANIFEST
from penstock.log.manifest import Manifest, read_manifest
from penstock.log.partition import AHEAD_MAX_US
from penstock.log.producers import NO_KEYS, KeysEnd, Producers
from penstock.log.sealed import SUFFIX as PARQUET
from penstock.log.segment import SUFFIX as HOT
from penstock.log.segment import Segment, segment_path

if TYPE_CHECKING:
    from penstock.log.folder_log import FolderLog

LOCK_SECONDS = 2.0
"""So long a writer may keep us waiting; then only what is committed is looked at."""
ATTEMPTS = 100
SET_ASIDE = ".damaged"
"""A file that a repair replaced ends so. Nothing reads it; people may delete it."""
_FIXED = {"lock", "maintenance.lock", "end", MANIFEST}


def check_log(log: FolderLog, topic: str | None = None, partition: int | None = None) -> Iterator[PartitionReport]:
    """Checks all partitions, or those of one topic, or one of them; a report at a time."""
    known = sorted(path.name for path in log.topics_directory.glob("*") if _is_topic(path))
    if topic is not None and topic not in known:
        raise UnknownTopic(topic, known, log.url)
    for name in known if topic is None else [topic]:
        directory = log.topics_directory / name
        definition, findings = _definition(directory)
        numbers = range(definition.partitions) if definition else sorted(int(n) for n in _numbered(directory))
        for number in numbers if partition is None else [partition]:
            yield check_partition(directory / str(number), definition, findings)
            findings = ()
        if findings:
            yield PartitionReport(name, directory, 0, 0, 0, 0, 0, 0, findings)


def check_partition(
    directory: Path, definition: TopicDefinition | None, findings: tuple[Finding, ...] = ()
) -> PartitionReport:
    """Checks one partition. Without a definition the records themselves cannot be read, only their checksums."""
    place = f"{directory.parent.name}/{directory.name}"
    if not directory.is_dir():
        gone = Finding(
            place, directory, "damage", "folder", "the folder of the partition is gone", "put back a copy of it"
        )
        return PartitionReport(place, directory, 0, 0, 0, 0, 0, 0, (*findings, gone))
    return _Check(place, directory, definition, list(findings)).report()


@dataclass
class _Check:
    place: str
    directory: Path
    definition: TopicDefinition | None
    findings: list[Finding]

    def report(self) -> PartitionReport:
        manifest, end, opened = self._snapshot()
        bases = sorted(opened)
        sealed = check_sealed(self.place, self.directory, manifest, self.definition)
        self.findings += sealed.findings
        hot = check_hot(self.place, opened, manifest, end, self.definition)
        self.findings += hot.findings
        self._check_keys(opened)
        self._check_end(end, bases, hot)
        self._check_leftovers()
        return PartitionReport(
            self.place,
            self.directory,
            manifest.start_offset,
            max(hot.end, manifest.sealed_end),
            sealed.records + hot.records,
            sum(segment.bytes for segment in manifest.segments) + sum(each.size for each in opened.values()),
            len(manifest.segments),
            len(bases),
            tuple(self.findings),
        )

    def _snapshot(self) -> tuple[Manifest, End | None, dict[int, Opened]]:
        """The partition at one moment, its hot segments open: what is sealed from now on can still be read."""
        for attempt in range(ATTEMPTS):
            before = list(self.findings)
            try:
                with _undisturbed(self.directory) as is_quiet:
                    # The names first: what is sealed between the two looks is left out below.
                    names = sorted(os.listdir(self.directory))
                    bases = [int(name.removesuffix(HOT)) for name in names if re.fullmatch(r"[0-9]{20}\.log", name)]
                    manifest = self._manifest(names, bases)
                    end = _read_end(self.directory)
                    opened = {
                        base: Opened.at(segment_path(self.directory, base))
                        for base in bases
                        if base >= manifest.sealed_end
                    }
                if end is not None and not is_quiet and end.segment_base in opened:
                    opened[end.segment_base] = replace(opened[end.segment_base], size=end.position)
                return manifest, end, opened
            except FileNotFoundError:  # Sealed between two looks: look again.
                self.findings = before
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _note(self, file: str, severity: Severity, subject: Subject, found: str, advice: str, **where: int) -> None:
        self.findings.append(
            Finding(self.place, self.directory / file, severity, subject, found, advice, where.get("offset"))
        )

    def _manifest(self, names: list[str], bases: list[int]) -> Manifest:
        """The manifest; an empty one that begins where the files do, if it cannot be read."""
        repair = f"to make it again from the sealed files: penstock log check {self.place} --repair"
        parquet = [name for name in names if name.endswith(PARQUET)]
        try:
            manifest = read_manifest(self.directory)
        except (CorruptionError, KeyError, TypeError, ValueError) as error:
            found = error.found if isinstance(error, CorruptionError) else f"it is not a manifest: {error}"
            self._note(MANIFEST, "damage", "manifest", found, repair)
        else:
            if MANIFEST in names or not (bases[:1] or parquet) or bases[:1] == [0]:
                return manifest
            self._note(
                MANIFEST, "damage", "manifest", f"it is gone, though {len(parquet)} sealed files are there", repair
            )
        first = bases[0] if bases else 0
        return Manifest(start_offset=first, sealed_end=first)

    def _check_end(self, end: End | None, bases: list[int], hot: HotChecked) -> None:
        """The hint against the files."""
        if end is not None and end.arrived_us > now_us() + AHEAD_MAX_US:
            self._note(
                "end", "note", "end", f"its last record arrived in the future, at {moment(end.arrived_us)}",
                "until then every record arrives at that time, and may count as late: look at the clock, or go on "
                "with another topic",
            )  # fmt: skip
        mended = "nothing to do: the next process that opens the partition mends it"
        if end is None:
            if bases:
                self._note("end", "note", "end", "it is missing or damaged", mended)
            return
        if bases and end.segment_base < bases[-1]:
            self._note("end", "note", "end", "a writer died while it began a new segment", mended)
        elif not bases or end.segment_base > bases[-1]:
            self._note(
                "end", "damage", "end", f"the active segment, which begins at offset {end.segment_base}, is gone",
                "put back a copy of it, or go on without it: the next process that opens the partition does so",
                offset=end.segment_base,
            )  # fmt: skip
        elif hot.is_readable and end.offset > hot.end:
            may_lose = self.definition is not None and self.definition.durability == "os"
            self._note(
                "end", "note" if may_lose else "damage", "end",
                f"{end.offset - hot.end} acknowledged records are gone: the segment ends at offset {hot.end}",
                "a power cut may do this with durability 'os'" if may_lose
                else "look at the disk; if there is a copy of the segment, put it back before anything is written",
                offset=hot.end,
            )  # fmt: skip
        elif hot.is_readable and end.offset < hot.end:
            self._note("end", "note", "end", f"it is {hot.end - end.offset} records behind", mended)

    def _check_keys(self, opened: Mapping[int, Opened]) -> None:
        """The idempotency keys of closed segments, as far as the head of the last segment says there are any."""
        newest = opened[max(opened)] if opened else None
        if newest is None or newest.segment is None:
            return
        try:
            Keys(self.directory, now_us).read_to(keys_end_of(newest.segment, newest.size))
        except FileNotFoundError:  # Its keys were forgotten just now.
            return
        except CorruptionError as error:
            advice = (
                "put back a copy of the file; to keep what is whole of it: "
                f"penstock log check {self.place} --repair\n"
                "  a post that is repeated with one of the other keys is stored again then"
            )
            self._note(error.path.name, "damage", "keys", error.found, advice)

    def _check_leftovers(self) -> None:
        """Files that nothing refers to. Looked up anew, while no sealer works: otherwise files come and go."""
        is_known = not any(finding.subject == "manifest" for finding in self.findings)
        with _probe(self.directory / "maintenance.lock") as is_free:
            if not is_free or not is_known:
                return
            names = sorted(os.listdir(self.directory))
            manifest = read_manifest(self.directory)
        named = {segment.file for segment in manifest.segments} | {name for name, _ in manifest.superseded}
        seal = f"the next sealing deletes it: penstock log seal {self.place.partition('/')[0]}"
        for name in names:
            if name in _FIXED or name in named:
                continue
            if name.endswith(TEMPORARY_SUFFIX):
                self._note(name, "note", "leftover", "it was being written when a process died", seal)
            elif name.endswith(PARQUET):
                self._note(name, "note", "leftover", "the manifest does not name it: a process died", seal)
            elif re.fullmatch(r"[0-9]{20}\.log", name):
                if int(name.removesuffix(HOT)) < manifest.sealed_end:
                    self._note(name, "note", "leftover", "it is sealed, and a process died before deleting it", seal)
            elif re.fullmatch(r"[0-9]{20}\.keys", name):
                continue
            elif name.endswith(SET_ASIDE):
                self._note(name, "note", "leftover", "a repair set it aside", "delete it when nobody needs it any more")
            else:
                self._note(name, "note", "leftover", "it does not belong to the log", "move it elsewhere")


def keys_end_of(segment: Segment, size: int) -> KeysEnd:
    """Where the idempotency keys of the segments before this one end, as far as its head can be read."""
    producers = Producers()
    try:
        for frame in segment.headers(ALIGNMENT, size):
            ((_, payload),) = segment.payloads([frame])
            producers.observe(frame, payload.to_pybytes())
            break
    except (CorruptionError, struct_error):  # That of the segment is told elsewhere.
        return NO_KEYS
    return producers.keys_end


def _is_topic(directory: Path) -> bool:
    """Whether it is one, or was one before its definition got lost."""
    return (directory / DEFINITION).exists() or any(directory.glob(f"*/*{HOT}")) or any(directory.glob(f"*/*{PARQUET}"))


def _definition(directory: Path) -> tuple[TopicDefinition | None, tuple[Finding, ...]]:
    try:
        return read_definition(directory), ()
    except (PenstockError, FileNotFoundError, KeyError, TypeError, ValueError) as error:
        found = "it is gone" if isinstance(error, FileNotFoundError) else f"it is not a definition: {error}"
        if isinstance(error, CorruptionError):
            found = error.found
        advice = "put back a copy of it; without it records can be neither written nor read"
        return None, (Finding(directory.name, directory / DEFINITION, "damage", "definition", found, advice),)


def _numbered(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir() if entry.is_dir() and re.fullmatch(r"[0-9]+", entry.name)]


def _read_end(directory: Path) -> End | None:
    if not (directory / "end").exists():
        return None
    committed = CommittedEnd(directory / "end")
    try:
        return committed.read()
    finally:
        committed.close()


@contextmanager
def _undisturbed(directory: Path) -> Iterator[bool]:
    """Keeps writers out for a moment. False if one of them holds the partition all the time."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        with _probe(directory / "lock") as is_free:
            if is_free or time.monotonic() >= deadline:
                yield is_free
                return
        time.sleep(0.01)


@contextmanager
def _probe(path: Path) -> Iterator[bool]:
    """Takes a lock if it is free, without making its file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(fd)
