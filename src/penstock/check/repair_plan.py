"""What a repair comes to: which offsets are whole, and where others may still be read. Changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.check.salvage import HotSalvage, in_order, sealed_batches
from penstock.check.sealed import check_sealed, rows_fault, sealed_fault
from penstock.errors import CorruptionError
from penstock.log.committed_end import End
from penstock.log.definition import TopicDefinition
from penstock.log.manifest import FILE_NAME as MANIFEST
from penstock.log.manifest import Manifest, SealedSegment, read_manifest
from penstock.log.sealed import SUFFIX as PARQUET
from penstock.log.sealed import describe_file
from penstock.log.segment import hot_bases, segment_path

NO_FILE = "they are in no file"


@dataclass(frozen=True)
class Stretch:
    """Offsets that are one sealed segment, or are to become one."""

    start: int
    stop: int
    segment: SealedSegment | None = None
    """Whole as it is; None: to be written from what can be read."""
    path: Path | None = None
    """The file it is in now, if there is one."""
    fault: str = ""
    """What is wrong with it; nothing for a whole hot segment that only must be sealed."""
    hot: HotSalvage | None = None

    def records(self, definition: TopicDefinition, partition: int) -> Iterable[pa.RecordBatch]:
        """What can be read of it."""
        if self.hot is not None:
            return in_order(self.hot.batches(definition, partition), self.start, self.stop)
        if self.path is not None:
            return in_order(sealed_batches(self.path, definition, partition), self.start, self.stop)
        return ()


class Plan:
    """The stretches that make up the sealed part after the repair, and the hot segments that stay behind it."""

    def __init__(self, directory: Path, definition: TopicDefinition, hint: End | None) -> None:
        self.hint = hint
        self._directory = directory
        self._definition = definition
        self._bases = hot_bases(directory)
        self.manifest, self.is_manifest_good = self._read_manifest()
        self.stretches = self._named() if self.is_manifest_good else self._found()
        reached = self.stretches[-1].stop if self.stretches else self.manifest.sealed_end
        self.hot = [HotSalvage(segment_path(directory, base), base, hint) for base in self._bases if base >= reached]
        if not self.stretches and not self.is_manifest_good and self.hot:
            reached = self.hot[0].base_offset
        first = self.stretches[0].start if self.stretches else reached
        self.start = self.manifest.start_offset if self.is_manifest_good else first
        """The first offset that retention has left, as far as anybody knows."""
        self.stretches += self._hot_stretches(reached)
        self.stop = self.stretches[-1].stop if self.stretches else reached
        """The first offset that is not sealed after the repair."""
        moved = {stretch.path for stretch in self.stretches}
        self.staying = [each for each in self.hot if each.base_offset >= self.stop and each.path not in moved]
        """Hot segments that stay as they are."""

    @property
    def is_rewritten(self) -> bool:
        """Whether a sealed segment must be written."""
        return any(stretch.segment is None for stretch in self.stretches)

    @property
    def is_end_bad(self) -> bool:
        """Whether the committed end is lost, or speaks of a segment that is not there."""
        if self.hint is None:
            return bool(self.hot or self.stretches)
        return self.hint.segment_base not in self._bases

    def _read_manifest(self) -> tuple[Manifest, bool]:
        """The manifest, and whether it can be trusted."""
        try:
            manifest = read_manifest(self._directory)
        except (CorruptionError, KeyError, TypeError, ValueError):
            return Manifest(), False
        checked = check_sealed("", self._directory, manifest, None)
        is_there = (self._directory / MANIFEST).exists()
        has_files = bool(self._bases) or any(self._directory.glob(f"*{PARQUET}"))
        is_missed = not is_there and has_files and self._bases[:1] != [0]
        return manifest, not is_missed and not any(finding.subject == "manifest" for finding in checked.findings)

    def _named(self) -> list[Stretch]:
        """The sealed segments that the manifest names."""
        found = []
        for segment in self.manifest.segments:
            path = self._directory / segment.file
            fault = sealed_fault(path, segment, self._definition)
            whole = segment if fault is None else None
            found.append(Stretch(segment.start, segment.stop, whole, path if path.exists() else None, fault or ""))
        return found

    def _found(self) -> list[Stretch]:
        """The sealed segments that lie in the folder; of several versions the newest that is whole."""
        versions: dict[int, list[tuple[int, Path]]] = {}
        for path in self._directory.glob(f"*{PARQUET}"):
            name = re.fullmatch(r"([0-9]{20})(?:-([0-9]+))?", path.name.removesuffix(PARQUET))
            if name is not None:
                versions.setdefault(int(name[1]), []).append((int(name[2] or 0), path))
        starts = sorted({*versions, *self._bases})
        found: list[Stretch] = []
        for base in sorted(versions):
            newest_first = [path for _, path in sorted(versions[base], reverse=True)]
            whole = next((segment for path in newest_first if (segment := self._whole(path, base))), None)
            if whole is None and base in self._bases:
                break  # Its hot segment is still there, and is read instead; nothing behind it can be sealed.
            if found and base > found[-1].stop:
                found.append(Stretch(found[-1].stop, base, fault=NO_FILE))
            if whole is not None:
                found.append(Stretch(base, whole.stop, whole))
            else:
                following = next((start for start in starts if start > base), None)
                stop = following if following is not None else self._stop_of(newest_first[0], base)
                found.append(Stretch(base, stop, None, newest_first[0], "it is not whole"))
        return found

    def _whole(self, path: Path, base: int) -> SealedSegment | None:
        try:
            segment = describe_file(path)
        except (pa.ArrowException, OSError, AssertionError, KeyError, TypeError, ValueError):
            return None
        is_whole = segment.start == base and rows_fault(path, segment, self._definition) is None
        return segment if is_whole else None

    def _stop_of(self, path: Path, base: int) -> int:
        """Where a damaged file that nothing follows ends: behind the last record that can be read, or was committed."""
        stops = [base, base if self.hint is None else self.hint.segment_base]
        readable = Stretch(base, 1 << 62, path=path).records(self._definition, int(self._directory.name))
        return max([*stops, *(int(batch.column("_offset")[-1].as_py()) + 1 for batch in readable)])

    def _hot_stretches(self, reached: int) -> list[Stretch]:
        """The hot segments up to the last that is damaged or missing: they must be sealed. Those behind stay."""
        found: list[Stretch] = []
        needed = 0
        for number, salvage in enumerate(self.hot):
            if salvage.base_offset > reached:
                found.append(Stretch(reached, salvage.base_offset, fault=NO_FILE))
                needed = len(found)
            if number < len(self.hot) - 1:
                stop = salvage.stop if salvage.is_closed else self.hot[number + 1].base_offset
                is_bad = salvage.is_damaged or not salvage.is_closed
            else:
                stop = max(salvage.stop, self._committed_in(salvage.base_offset))
                is_bad = salvage.is_damaged or stop > salvage.stop
            found.append(Stretch(salvage.base_offset, stop, None, salvage.path, "it is damaged" * is_bad, salvage))
            needed = len(found) if is_bad else needed
            reached = stop
        if self.hint is not None and self.hint.segment_base not in self._bases and self.hint.offset > reached:
            found.append(Stretch(reached, self.hint.offset, fault=NO_FILE))  # The active segment itself is gone.
            needed = len(found)
        return found[:needed]

    def _committed_in(self, base: int) -> int:
        """The end that writers were told of, if it is in this segment: offsets below it were given away."""
        return self.hint.offset if self.hint is not None and self.hint.segment_base == base else 0
