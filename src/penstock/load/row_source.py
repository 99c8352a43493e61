"""Rows of a file, a bounded piece at a time: CSV, JSON lines or Parquet."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Literal, cast, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import FileColumnsError, FileFormatError
from penstock.events.csv_lines import encode_csv, end_of_records, read_header
from penstock.events.encode import Encoded, encode

Format = Literal["csv", "jsonl", "parquet"]
CHUNK_BYTES = 4 << 20
CHUNK_ROWS = 1 << 16
RECORD_BYTES_MAX = 64 << 20
"""A record that has not ended by then is none: the file is something else."""
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}

Advance = Callable[[int, int], None]
"""Is told how many bytes of how many are done."""


def format_of(path: Path) -> Format:
    """The format that the name of a file tells. FileFormatError if it tells none."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix not in _SUFFIXES:
        raise FileFormatError(
            path,
            f"a name that ends with {', '.join(_SUFFIXES)}, perhaps with .gz behind it",
            f"{path.name!r}",
            f"say what it is: --format {'|'.join(get_args(Format))}",
        )
    return _SUFFIXES[suffix]


def fingerprint(path: Path, advance: Advance) -> str:
    """A text that only this content has."""
    digest = hashlib.blake2b(digest_size=16)
    size, done = path.stat().st_size, 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            advance(done, size)
    return digest.hexdigest()


class RowSource:
    """The rows of one file, fitted to a schema. Reading needs memory for a few chunks, however large the file is."""

    def __init__(self, path: Path, kind: Format, topic: str, schema: pa.Schema, *, extra: tuple[str, ...] = ()) -> None:
        """`extra` names columns that the file may have although the topic does not; they are in `schema` too."""
        self.path = path
        self.kind = kind
        self.schema = schema
        self._topic = topic
        self._extra = extra

    def pieces(self, advance: Advance) -> Iterator[Encoded]:
        """Piece after piece. FileFormatError or FileColumnsError if the file is not what it should be."""
        try:
            if self.kind == "parquet":
                yield from self._parquet(advance)
            else:
                yield from self._text(advance)
        except (pa.ArrowException, gzip.BadGzipFile, EOFError) as error:
            raise FileFormatError(
                self.path, f"{self.kind}", str(error), "nothing behind this place was stored"
            ) from error

    def _parquet(self, advance: Advance) -> Iterator[Encoded]:
        size = self.path.stat().st_size
        with pq.ParquetFile(self.path) as file:
            self._check_columns(file.schema_arrow.names)
            total, done = file.metadata.num_rows, 0
            for batch in file.iter_batches(CHUNK_ROWS):
                yield encode(batch, self.schema)
                done += batch.num_rows
                advance(size * done // max(total, 1), size)

    def _text(self, advance: Advance) -> Iterator[Encoded]:
        size = self.path.stat().st_size
        with self.path.open("rb") as raw:
            file = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if self.path.name.endswith(".gz") else raw
            lines = TextPieces(self.kind == "csv", str(self.path))
            columns: list[str] | None = None
            while True:
                chunk = file.read(CHUNK_BYTES)
                for piece in lines.add(chunk) if chunk else lines.finish():
                    if self.kind == "csv":
                        if columns is None:
                            columns, piece = csv_header(piece, self.path, self._topic, self.schema, self._extra)
                        encoded = encode_csv(piece, columns, self.schema)
                    else:
                        if lines.is_first and piece.lstrip()[:1] == b"[":
                            raise FileFormatError(
                                self.path,
                                "one JSON object a line",
                                "a JSON array",
                                f"to convert it: jq -c '.[]' {self.path}",
                            )
                        encoded = encode(piece, self.schema)
                    lines.is_first = False
                    yield encoded
                    advance(raw.tell(), size)
                if not chunk:
                    break
        if self.kind == "csv" and columns is None:
            raise FileFormatError(
                self.path, "CSV whose first line names the columns", "an empty file", "write the names into it"
            )

    def _check_columns(self, found: list[str]) -> None:
        check_columns(self.path, self._topic, found, self.schema, self._extra)


def csv_header(
    piece: bytes, path: Path, topic: str, schema: pa.Schema, extra: tuple[str, ...] = ()
) -> tuple[list[str], bytes]:
    """The columns that the first record names, checked against the topic, and the records behind it."""
    line = piece.find(b"\n") + 1 or len(piece)
    try:
        columns = read_header(piece[:line])
    except ValueError as error:
        raise FileFormatError(
            path, "CSV whose first line names the columns", str(error), "save it as UTF-8, with a header"
        ) from error
    check_columns(path, topic, columns, schema, extra)
    return columns, piece[line:]


def check_columns(path: Path, topic: str, found: list[str], schema: pa.Schema, extra: tuple[str, ...] = ()) -> None:
    """FileColumnsError if no row under these names could fit: one is unknown or there twice, or one is missing."""
    known = [name for name in schema.names if name not in extra]
    for name in found:
        if name not in schema.names:
            hint = f"add it: penstock topic alter {topic} --add-column '{name} string'; or leave it out of the file"
            raise FileColumnsError(path, topic, name, f"it has a column {name!r}", known, hint)
        if found.count(name) > 1:
            raise FileColumnsError(path, topic, name, f"it has column {name!r} twice", known, "name each column once")
    for field in schema:
        if not field.nullable and field.name not in found:
            hint = "add the column to the file"
            raise FileColumnsError(path, topic, field.name, f"it lacks {field.name!r}, which is NOT NULL", known, hint)


class TextPieces:
    """Cuts bytes that come bit by bit into pieces of whole records."""

    def __init__(self, is_csv: bool, name: str) -> None:
        self.is_first = True
        self._is_csv = is_csv
        self._name = name
        self._rest = b""

    def add(self, chunk: bytes) -> Iterator[bytes]:
        """The whole records that are there now."""
        data = self._rest + chunk
        end = end_of_records(data) if self._is_csv else data.rfind(b"\n") + 1
        if end == 0 and len(data) > RECORD_BYTES_MAX:
            raise FileFormatError(
                Path(self._name),
                f"records of at most {RECORD_BYTES_MAX >> 20} MiB",
                "a longer one, or a quote that is never closed",
                "is it CSV or JSON lines at all?",
            )
        self._rest = data[end:]
        if end:
            yield data[:end]

    def finish(self) -> Iterator[bytes]:
        """What is left at the end: a last record without a line break."""
        rest, self._rest = self._rest, b""
        if rest.strip():
            yield rest


def state_of(path: Path) -> tuple[int, int, int]:
    """Changes when the file does."""
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns
