"""Are the sealed segments whole? The file's checksum, every page, and every row against what the manifest says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.check.decoding import arrivals_of, row_group_records
from penstock.check.findings import Finding
from penstock.errors import CorruptionError
from penstock.log.definition import TopicDefinition
from penstock.log.hours import hours_of
from penstock.log.manifest import FILE_NAME as MANIFEST
from penstock.log.manifest import Manifest, SealedSegment, read_manifest
from penstock.log.sealed import describe_file


@dataclass
class SealedChecked:
    """What the check of the sealed segments found."""

    records: int = 0
    findings: list[Finding] = field(default_factory=list)


def check_sealed(place: str, directory: Path, manifest: Manifest, definition: TopicDefinition | None) -> SealedChecked:
    """Checks every sealed segment that the manifest names, and that they follow one another. Changes nothing."""
    checked = SealedChecked()
    reached, arrived_us = manifest.start_offset, None
    for segment in manifest.segments:
        if segment.start != reached:
            checked.findings.append(
                Finding(
                    place, directory / MANIFEST, "damage", "manifest",
                    f"offsets {reached} up to {segment.start} are in no sealed file",
                    f"to make it again from the sealed files: penstock log check {place} --repair", reached,
                )
            )  # fmt: skip
        reached = segment.stop
        path = directory / segment.file
        fault = sealed_fault(path, segment, definition)
        if fault is None and segment.row_groups:
            if arrived_us is not None and segment.arrived_min < arrived_us:
                fault = "arrival goes back behind the segment before it"
            arrived_us = segment.arrived_max
        if fault is None:
            checked.records += segment.rows
        elif is_current(directory, segment):
            advice = f"put back a copy of the file; to keep what is whole of it: penstock log check {place} --repair"
            checked.findings.append(Finding(place, path, "damage", "sealed", fault, advice, segment.start))
    if reached != manifest.sealed_end:
        found = f"its last segment ends at {reached}, but it says that {manifest.sealed_end} is sealed"
        advice = f"to make it again from the sealed files: penstock log check {place} --repair"
        checked.findings.append(Finding(place, directory / MANIFEST, "damage", "manifest", found, advice, reached))
    return checked


def sealed_fault(path: Path, expected: SealedSegment, definition: TopicDefinition | None) -> str | None:
    """What is wrong with a sealed file, or None. Without a definition its rows are not looked at."""
    try:
        described = describe_file(path)
    except FileNotFoundError:
        return "the file is gone"
    except (pa.ArrowException, OSError, AssertionError, KeyError, TypeError, ValueError) as error:
        return f"it cannot be read: {_first_line(error)}"
    if described.crc32c != expected.crc32c:
        return "the checksum of the file does not match"
    if described != expected:
        return "what the file says of itself is not what the manifest says of it"
    return None if definition is None else rows_fault(path, expected, definition)


def rows_fault(path: Path, expected: SealedSegment, definition: TopicDefinition) -> str | None:
    """What is wrong with the rows of a sealed file, or None."""
    reached, arrived_us = expected.start, None
    for number, group in enumerate(expected.row_groups):
        try:
            batch = row_group_records(path, number, definition, int(path.parent.name))
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            return f"row group {number} cannot be read: {_first_line(error)}"
        offsets, stamps = batch.column("_offset").to_numpy(), arrivals_of(batch)
        if group.start != reached or batch.num_rows != group.rows:
            expectation = f"expected {group.rows} from {reached}"
            return f"row group {number} holds {batch.num_rows} rows from offset {group.start}, {expectation}"
        if len(offsets) and (offsets[0] < group.start or offsets[-1] >= group.stop or (np.diff(offsets) <= 0).any()):
            return f"offsets of row group {number} are not in order"
        if not expected.is_compacted and group.rows != group.stop - group.start:
            return f"row group {number} lacks {group.stop - group.start - group.rows} offsets"
        if len(stamps):
            before = int(stamps[0]) if arrived_us is None else arrived_us
            if (np.diff(stamps, prepend=before) < 0).any():
                return f"arrival goes back in row group {number}"
            if (int(stamps[0]), int(stamps[-1])) != (group.arrived_min, group.arrived_max):
                return f"arrivals of row group {number} are not what the manifest says"
            arrived_us = int(stamps[-1])
        if definition.event_time is not None and hours_of(batch.column(definition.event_time)) != group.hours:
            return f"hours of event time in row group {number} are not what the manifest says"
        reached = group.stop
    return None if reached == expected.stop or not expected.row_groups else f"its rows end at offset {reached}"


def is_current(directory: Path, segment: SealedSegment) -> bool:
    """Whether the manifest still names the file: retention and compaction go on while we look."""
    try:
        return any(each.file == segment.file for each in read_manifest(directory).segments)
    except (CorruptionError, OSError, KeyError, TypeError, ValueError):
        return True


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
