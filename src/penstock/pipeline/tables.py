"""Static tables: read into Spark when a run begins, and known again by what is in them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import TableChanged, TableUnreadable
from penstock.events.schema import parse_ddl, to_spark
from penstock.pipeline.database_rows import read_database
from penstock.pipeline.definition import TableSpec
from penstock.pipeline.table_options import FORMATS, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SNAPSHOT_BYTES_MAX = 16 << 20
"""Up to here a table travels with each job; it saves a scan in every step."""
_CHUNK_BYTES = 1 << 20
_hashes: dict[tuple[str, int, int], str] = {}


def read_table(spec: TableSpec, spark: SparkSession) -> DataFrame:
    """A static table as a DataFrame. TableUnreadable, with the user's line, if it is not there or cannot be read.

    CSV has a header and inferred types unless the options say otherwise, JSON one object per line; a row that does not
    fit is an error, never a NULL. Databases and small files are read once, here: later changes do not reach the frame.
    Files of more than SNAPSHOT_BYTES_MAX together stay where they are, and Spark reads them whenever a job needs them.
    """
    location = _location(spec)
    kind = kind_of(location, spec.options.get("format"))
    if kind == "database":
        return spark.createDataFrame(read_database(spec))
    path = _path(spec)
    files = _files(spec, path)
    format_name = spec.options.get("format") or _format_of(spec, path, files)
    reader = spark.read
    if "schema" in spec.options:
        reader = reader.schema(to_spark(parse_ddl(spec.options["schema"])))
    if format_name == "csv":
        delimiter = spec.options.get("delimiter", "\t" if files[0].name.lower().endswith(".tsv") else ",")
        reader = reader.options(
            header=spec.options.get("header", True),
            sep=delimiter,
            inferSchema="schema" not in spec.options,
            enforceSchema=False,
            mode="FAILFAST",
            escape='"',
            multiLine=True,
        )
    elif format_name == "json":
        reader = reader.options(mode="FAILFAST")
    from pyspark.errors import PySparkException

    from penstock.spark.private.context import JavaError

    try:
        frame = reader.format(format_name).load(str(path))
        if sum(file.stat().st_size for file in files) > SNAPSHOT_BYTES_MAX:
            return frame
        return spark.createDataFrame(frame.toArrow(), schema=frame.schema)
    except (PySparkException, JavaError) as error:
        raise TableUnreadable(spec.name, spec.place, str(path), _reason(error)) from error


@dataclass(frozen=True)
class LargeTable:
    """A static table whose files Spark reads again in every job, as they were when the run began."""

    spec: TableSpec
    seen: tuple[tuple[str, int, int, int], ...]

    def check(self) -> None:
        """TableChanged if any of them was written to since. To be asked after what was read of it was computed."""
        if _versions(self.spec) != self.seen:
            raise TableChanged(self.spec.name, self.spec.place, str(_path(self.spec)))


def large_table(spec: TableSpec) -> LargeTable | None:
    """To be called before the table is read; None if its rows are read only once."""
    location = _location(spec)
    if kind_of(location, spec.options.get("format")) == "database":
        return None
    seen = _versions(spec)
    return LargeTable(spec, seen) if sum(size for _, size, *_ in seen) > SNAPSHOT_BYTES_MAX else None


def _versions(spec: TableSpec) -> tuple[tuple[str, int, int, int], ...]:
    try:
        found = [(str(file), file.stat()) for file in _files(spec, _path(spec))]
    except FileNotFoundError:
        return ()  # It is being exchanged at this moment.
    return tuple((name, status.st_size, status.st_mtime_ns, status.st_ino) for name, status in found)


def table_fingerprint(spec: TableSpec) -> str:
    """A text that changes when the table's content, or how it is read, does. Needs no Spark.

    Neither a file's own name nor when it was written counts, but the folders it lies in do, since Spark reads
    columns out of names such as `country=DE`; the order of rows in a database does not.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr(sorted(spec.options.items())).encode())
    location = _location(spec)
    if kind_of(location, spec.options.get("format")) == "database":
        table = read_database(spec)
        digest.update(str(table.schema).encode())
        total = 0
        for batch in table.to_batches(max_chunksize=10_000):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                total += int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=16).digest(), "big")
        digest.update((total % (1 << 128)).to_bytes(16, "big") + table.num_rows.to_bytes(8, "big"))
    else:
        path = _path(spec)
        for content in sorted(_folder_in(path, file) + _file_hash(file) for file in _files(spec, path)):
            digest.update(content.encode())
    return digest.hexdigest()


def _reason(error: Exception) -> str:
    """The innermost cause that Spark names, in one line."""
    causes = [line.partition("Caused by: ")[2] for line in str(error).splitlines() if "Caused by: " in line]
    spoken = [cause for cause in causes if "Malformed" in cause or "[" in cause]
    return (spoken or [line for line in str(error).splitlines() if line.strip()])[-1 if spoken else 0].strip()


def _location(spec: TableSpec) -> str:
    assert spec.location is not None, f"table {spec.name!r} is a topic of changes, not a static table"
    return spec.location


def _path(spec: TableSpec) -> Path:
    """Relative paths count from the file that defines the pipeline, wherever it is run."""
    return Path(spec.base or os.getcwd(), os.path.expanduser(_location(spec)))


def _files(spec: TableSpec, path: Path) -> list[Path]:
    """The files of a table, in order; as in Spark, names that begin with '_' or '.' are not part of a folder."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        beside = sorted(each.name for each in path.parent.iterdir())[:10] if path.parent.is_dir() else []
        hint = f"beside it are: {', '.join(beside)}" if beside else f"there is no folder {path.parent} either"
        raise TableUnreadable(spec.name, spec.place, str(path), "there is no such file or folder", hint)
    found = sorted(
        each
        for each in path.rglob("*")
        if each.is_file() and not any(part.startswith(("_", ".")) for part in each.relative_to(path).parts)
    )
    if not found:
        raise TableUnreadable(spec.name, spec.place, str(path), "the folder holds no files")
    return found


def _folder_in(path: Path, file: Path) -> str:
    return "" if file == path else f"{file.parent.relative_to(path)}/"


def _format_of(spec: TableSpec, path: Path, files: list[Path]) -> str:
    kinds = sorted({kind_of(file.name) or file.suffix for file in files})
    if len(kinds) == 1 and kinds[0] in FORMATS.values():
        return kinds[0]
    raise TableUnreadable(
        spec.name,
        spec.place,
        str(path),
        f"its files are not of one known format, but {', '.join(kinds)}",
        'say which it is: format="csv"',
    )


def _file_hash(file: Path) -> str:
    """The hash of a file's content; a file that was not written to since is not read again."""
    status = file.stat()
    known = (str(file), status.st_size, status.st_mtime_ns)
    if known not in _hashes:
        digest = hashlib.blake2b(digest_size=16)
        with file.open("rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
        _hashes[known] = digest.hexdigest()
    return _hashes[known]
