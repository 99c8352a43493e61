"""A view as a file: CSV, Parquet or JSON lines, as of one moment. The file appears whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import ExportFormatError
from penstock.views.csv_rows import csv_rows
from penstock.views.find import StoredView
from penstock.views.store import Snapshot

ROWS_AT_ONCE = 50_000
FORMATS = (".csv", ".parquet", ".jsonl")


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    rows: int
    bytes: int


def export(snapshot: Snapshot, view: StoredView, path: Path, *, raw: bool = False) -> Exported:
    """Writes all rows of a view, a piece at a time, so it may be larger than memory. ExportFormatError.

    A file that is there is replaced when the new one is complete and on disk. `raw` leaves texts in CSV as they are
    that a spreadsheet would compute.
    """
    writers: dict[str, Callable[[Path, StoredView, Iterable[pa.Table]], int]] = {
        ".csv": partial(_write_csv, raw=raw),
        ".parquet": _write_parquet,
        ".jsonl": _write_json_lines,
    }
    write = writers.get(path.suffix.lower())
    if write is None:
        raise ExportFormatError(str(path), FORMATS)
    table = view.table
    pieces = snapshot.batches(table, rows=ROWS_AT_ONCE, columns=view.known.schema.names)
    with _whole_file(path) as unfinished:
        rows = write(unfinished, view, pieces)
        size = unfinished.stat().st_size
    return Exported(path, rows, size)


def _write_parquet(path: Path, view: StoredView, pieces: Iterable[pa.Table]) -> int:
    import pyarrow.parquet as pq

    return _written(pq.ParquetWriter(path, view.known.schema, compression="zstd"), pieces, lambda piece: piece)


def _write_csv(path: Path, view: StoredView, pieces: Iterable[pa.Table], *, raw: bool) -> int:
    import pyarrow.csv as csv

    columns = [each for each in view.table.columns if each.logical != "_key"]
    flat = partial(csv_rows, columns, raw=raw)
    empty = flat(view.known.schema.empty_table())
    return _written(csv.CSVWriter(path, empty.schema), pieces, flat)


def _write_json_lines(path: Path, view: StoredView, pieces: Iterable[pa.Table]) -> int:  # noqa: ARG001
    rows = 0
    with path.open("w", encoding="utf-8") as file:
        for piece in pieces:
            for row in piece.to_pylist(maps_as_pydicts="lossy"):
                file.write(json.dumps(_plain(row), ensure_ascii=False, default=_in_json) + "\n")
            rows += piece.num_rows
    return rows


def _written(writer: Any, pieces: Iterable[pa.Table], shaped: Callable[[pa.Table], pa.Table]) -> int:
    rows = 0
    with writer:
        for piece in pieces:
            writer.write_table(shaped(piece))
            rows += piece.num_rows
    return rows


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """A file beside the wanted one, which takes its place once it is complete and on disk."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """A value whose names are texts, and in which NaN and infinity are texts too: JSON has no words for them."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_in_json(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _in_json(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat().replace("+00:00", "Z")
    return value.hex() if isinstance(value, bytes) else str(value)
