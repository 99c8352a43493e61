"""Sealed segments: Parquet files, checked against the checksum of the whole file before anything trusts them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.access import make_file
from penstock.errors import CorruptionError, require
from penstock.log.files import TEMPORARY_SUFFIX, publish_file
from penstock.log.hours import hours_of
from penstock.log.manifest import RowGroup, SealedSegment
from penstock.log.open_files import with_descriptor

SUFFIX = ".parquet"
ROW_GROUP_ROWS = 128 * 1024
"""Small enough that a slice of event time reads little, large enough that Spark reads at full speed."""
CHECK_BYTES = 4 << 20

_checked: dict[str, tuple[int, int, int, int]] = {}
_checked_lock = threading.Lock()


def write_sealed(
    path: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    start: int,
    stop: int,
    appended_us: int,
    event_time: str | None,
    is_compacted: bool = False,
) -> SealedSegment:
    """Writes the records as a durable Parquet file. A crash leaves at most a temporary file, an error nothing."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    groups: list[RowGroup] = []
    reached = start
    make_file(temporary)
    with (
        _deleted_on_error(temporary),
        pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            compression_level=1,
            version="2.6",
            write_page_checksum=True,
            write_page_index=True,
            store_decimal_as_integer=True,
            # A dictionary of values that are nearly all different is read at half the speed, and no smaller.
            use_dictionary=[f.name for f in schema if not _is_growing(f) and not pa.types.is_floating(f.type)],
            column_encoding={f.name: "DELTA_BINARY_PACKED" for f in schema if _is_growing(f)},
        ) as writer,
    ):
        for table in _row_groups(batches, schema):
            group = _describe(table, reached, event_time)
            writer.write_table(table, row_group_size=table.num_rows)
            groups.append(group)
            reached = group.stop
        if groups:  # Offsets that compaction removed at the end still belong to the last group.
            groups[-1] = RowGroup(**{**groups[-1].__dict__, "stop": stop})
        about = {
            "start": start,
            "stop": stop,
            "appended_us": appended_us,
            "is_compacted": is_compacted,
            "row_groups": [[g.start, g.stop, g.rows, g.arrived_min, g.arrived_max, g.hours] for g in groups],
        }
        writer.add_key_value_metadata({"penstock": json.dumps(about)})
    publish_file(temporary, path)
    return describe_file(path)


def _is_growing(field: pa.Field) -> bool:
    """Whether a column's values differ little from one record to the next."""
    return bool(field.name == "_offset" or pa.types.is_timestamp(field.type))


@contextmanager
def _deleted_on_error(temporary: Path) -> Iterator[None]:
    """On a full disk the half of a file would take the room that is needed to go on."""
    try:
        yield
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def describe_file(path: Path) -> SealedSegment:
    """What a sealed file says of itself, with its checksum as it is now."""
    with with_descriptor(path, lambda: path.open("rb", buffering=0)) as file:
        metadata = pq.read_metadata(file)
        about = json.loads(metadata.metadata[b"penstock"])
        groups = tuple(
            RowGroup(
                first,
                last,
                rows,
                metadata.row_group(number).total_byte_size,
                low,
                high,
                tuple((a, b) for a, b in hours),
            )
            for number, (first, last, rows, low, high, hours) in enumerate(about["row_groups"])
        )
        rows = sum(group.rows for group in groups)
        require(rows == metadata.num_rows, f"{path} holds {metadata.num_rows} records and speaks of {rows}")
        return SealedSegment(
            path.name,
            about["start"],
            about["stop"],
            rows,
            path.stat().st_size,
            _checksum(file.fileno()),
            about["appended_us"],
            groups,
            about["is_compacted"],
        )


def read_row_groups(
    path: Path, crc32c: int, numbers: Sequence[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The columns of some row groups, with _offset and _arrived. Columns that the file lacks are left out.

    FileNotFoundError if the file is gone, CorruptionError if it is damaged, also since it was checked.
    """
    check_once(path, crc32c)
    try:
        with with_descriptor(path, lambda: pq.ParquetFile(path, page_checksum_verification=True)) as file:
            present = set(file.schema_arrow.names)
            wanted = [*(name for name in columns if name in present), "_offset", "_arrived"]
            yield from file.iter_batches(ROW_GROUP_ROWS, row_groups=list(numbers), columns=wanted)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise CorruptionError(path, f"it was whole before, and cannot be read now: {error}") from error


@dataclass(frozen=True)
class EventTimes:
    """Of one row group, in microseconds."""

    least: int
    greatest: int
    missing: int
    """How many records have none."""


@lru_cache(maxsize=1024)
def event_times(path: Path, crc32c: int, column: str) -> tuple[EventTimes | None, ...]:
    """The least and the greatest event time of each row group, as Parquet knows them; None where it does not.

    FileNotFoundError if the file is gone, CorruptionError if it is damaged.
    """
    check_once(path, crc32c)
    with with_descriptor(path, lambda: path.open("rb", buffering=0)) as file:
        metadata = pq.read_metadata(file)
    schema = metadata.schema.to_arrow_schema()
    kind = schema.field(column).type if column in schema.names else None
    is_known = kind is not None and pa.types.is_timestamp(kind) and kind.unit == "us"
    return tuple(
        _event_times(metadata.row_group(number), column) if is_known else None
        for number in range(metadata.num_row_groups)
    )


def _event_times(group: pq.RowGroupMetaData, column: str) -> EventTimes | None:
    chunks = (group.column(number) for number in range(group.num_columns))
    known = next((each.statistics for each in chunks if each.path_in_schema == column), None)
    if known is None or not known.has_min_max or not known.has_null_count:
        return None
    return EventTimes(known.min_raw, known.max_raw, known.null_count)


def check_once(path: Path, crc32c: int) -> None:
    """Compares the whole file with its checksum, once per process and version of the file.

    FileNotFoundError if it is gone, CorruptionError if a single bit differs.
    """
    status = path.stat()
    version = (status.st_ino, status.st_size, status.st_mtime_ns, crc32c)
    with _checked_lock:
        if _checked.get(str(path)) == version:
            return
    with with_descriptor(path, lambda: path.open("rb", buffering=0)) as file:
        if _checksum(file.fileno()) != crc32c:
            raise CorruptionError(path, "the checksum of the file does not match")
    with _checked_lock:
        _checked[str(path)] = version


def _checksum(fd: int) -> int:
    crc, position = 0, 0
    while chunk := os.pread(fd, CHECK_BYTES, position):
        crc = google_crc32c.extend(crc, chunk)
        position += len(chunk)
    return crc


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch.select(schema.names))
        rows += batch.num_rows
        while rows >= ROW_GROUP_ROWS:
            table = pa.Table.from_batches(gathered)
            yield table.slice(0, ROW_GROUP_ROWS).cast(schema)
            gathered = table.slice(ROW_GROUP_ROWS).to_batches()
            rows -= ROW_GROUP_ROWS
    if rows:
        yield pa.Table.from_batches(gathered).cast(schema)


def _describe(table: pa.Table, start: int, event_time: str | None) -> RowGroup:
    arrived = np.asarray(table.column("_arrived").combine_chunks().view(pa.int64()))
    times = table.column(event_time).combine_chunks() if event_time else None
    stop = table.column("_offset")[-1].as_py() + 1
    return RowGroup(start, stop, table.num_rows, table.nbytes, int(arrived.min()), int(arrived.max()), hours_of(times))
