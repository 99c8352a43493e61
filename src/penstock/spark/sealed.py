"""Sealed segments as DataFrames: the files that hold what is asked for, read by Spark's own Parquet reader.

Files that are wanted whole are read as they are, without any filter. Those at a border are read in a frame of their own
with a condition on offsets, which Spark compares with each row group's statistics first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as sf

from penstock.events.schema import parse_ddl, to_spark
from penstock.log.sealed import check_once
from penstock.spark.columns import (
    any_of,
    column,
    late_column,
    nullable_type,
    spark_schema,
    within_arrival,
    within_event_time,
    within_offsets,
)
from penstock.spark.session_settings import settings_for_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.log.folder_partition import FolderPartition
    from penstock.log.hours import TimeRange
    from penstock.log.reading import FolderPiece
    from penstock.log.topic import Topic

Run = tuple[int, int]
"""Offsets from, until."""

RUNS_MAX = 64
"""More runs of offsets than this are joined across their smallest gaps: the conditions on time stay exact anyway."""

_OPTIONS = {
    # The path of a log may hold any character; none of them is a pattern here.
    "__globPaths__": "false",
    "recursiveFileLookup": "true",
    # A file that is gone or damaged is an error, whatever the session says; never fewer rows.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
    # Times are kept in one calendar, as Arrow counts them; the year 1 is no reason to fail.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
}
LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


@dataclass(frozen=True)
class SealedFile:
    """A sealed segment, and which of its records are wanted."""

    path: Path
    crc32c: int
    partition: int
    runs: tuple[Run, ...]
    is_whole: bool
    """Every record in it is wanted, as far as offsets and arrival go."""


def sealed_files(
    partition: FolderPartition,
    chosen: Sequence[FolderPiece],
    first: int,
    last: int,
    arrived: Sequence[TimeRange] | None,
) -> list[SealedFile]:
    """The files of the chosen row groups, each compared with its checksum. FileNotFoundError if one is gone by now."""
    known = {segment.file: segment for segment in partition.manifest().segments} if chosen else {}
    found = []
    for path, group in groupby(chosen, key=lambda piece: piece.path):
        wanted = list(group)
        segment = known.get(path.name)
        if segment is None:
            raise FileNotFoundError(path)
        check_once(path, segment.crc32c)
        runs = _runs([(max(piece.start, first), min(piece.stop, last)) for piece in wanted])
        is_whole = runs == [(segment.start, segment.stop)] and all(_is_inside(piece, arrived) for piece in wanted)
        found.append(SealedFile(path, segment.crc32c, partition.number, tuple(runs), is_whole))
    return found


def read_sealed(
    topic: Topic,
    spark: SparkSession,
    files: Sequence[SealedFile],
    names: Sequence[str],
    arrived: Sequence[TimeRange] | None,
    event_time: Sequence[TimeRange] | None,
) -> list[DataFrame]:
    """At most one frame of whole files and one of parts; one more each where numbers became decimals."""
    definition = topic.definition
    needed = list(dict.fromkeys([*names, *([definition.event_time] if definition.event_time else [])]))
    frames = []
    for schema, group in _by_schema(topic, files, needed):
        for is_whole in (True, False):
            mine = [file for file in group if file.is_whole == is_whole]
            if not mine:
                continue
            frame = _parquet(spark, schema, mine)
            if not is_whole:
                frame = frame.where(_within_runs(mine))
                frame = frame if arrived is None else frame.where(within_arrival(arrived))
            frame = _as_current(topic, frame, schema, needed)
            if event_time is not None:
                frame = frame.where(within_event_time(definition, event_time))
            own = ["_partition", "_offset", "_arrived", late_column(definition)]
            frames.append(frame.selectExpr(*map(column, names), *own))
    return frames


def _parquet(spark: SparkSession, schema: pa.Schema, files: Sequence[SealedFile]) -> DataFrame:
    # A scheme, for the session may have another file system as its default; the rest is taken as it stands.
    paths = [f"file:{file.path.absolute()}" for file in files]
    reader = spark.read.schema(to_spark(schema)).options(**_OPTIONS)
    if len(paths) <= int(spark.conf.get(LISTING) or 0):
        return reader.parquet(*paths)
    # Beyond so many files Spark would start a job to look them up, with a task for each.
    with settings_for_now(spark, {LISTING: str(len(paths))}):
        return reader.parquet(*paths)


def _within_runs(files: Sequence[SealedFile]) -> str:
    conditions = []
    for number, group in groupby(sorted(files, key=lambda file: file.partition), key=lambda file: file.partition):
        for start, stop in _at_most(_runs([run for file in group for run in file.runs]), RUNS_MAX):
            conditions.append(f"(_partition = {number} AND {within_offsets(start, stop)})")
    return any_of(conditions)


def _runs(parts: Sequence[Run]) -> list[Run]:
    joined: list[Run] = []
    for start, stop in sorted(parts):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def _at_most(runs: list[Run], count: int) -> list[Run]:
    """The same offsets in fewer runs, and some more between them: the smallest gaps are filled."""
    gaps = [after[0] - before[1] for before, after in pairwise(runs)]
    kept = sorted(sorted(range(len(gaps)), key=gaps.__getitem__)[max(len(gaps) - count + 1, 0) :])
    starts = [0, *(number + 1 for number in kept)]
    stops = [*kept, len(runs) - 1]
    return [(runs[start][0], runs[stop][1]) for start, stop in zip(starts, stops, strict=True)]


def _is_inside(piece: FolderPiece, arrived: Sequence[TimeRange] | None) -> bool:
    return arrived is None or any(
        (low is None or piece.arrived_min >= low) and (high is None or piece.arrived_max < high)
        for low, high in arrived
    )


# --- files that were sealed before the schema grew ---
# Spark's reader fills in columns that a file lacks and widens its numbers, with one exception: a small integer that
# became a decimal. Such a file is read as it is and cast.


def _by_schema(
    topic: Topic, files: Sequence[SealedFile], names: Sequence[str]
) -> list[tuple[pa.Schema, list[SealedFile]]]:
    wanted = pa.schema([field for field in topic.read_schema(names) if field.name != "_late"])
    wanted = pa.schema([pa.field(f.name, nullable_type(f.type), metadata=f.metadata) for f in wanted])
    versions = [parse_ddl(ddl) for ddl in topic.definition.schemas[:-1]]
    if all(readable_as(version, wanted) == wanted for version in versions):
        return [(wanted, list(files))] if files else []
    groups: list[tuple[pa.Schema, list[SealedFile]]] = []
    for file in files:
        schema = readable_as(_stored_schema(os.fspath(file.path), file.crc32c), wanted)
        for known, members in groups:
            if known == schema:
                members.append(file)
                break
        else:
            groups.append((schema, [file]))
    return groups


def readable_as(stored: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The wanted columns, in types that Spark can read from a file whose columns are `stored`."""
    return pa.schema(_readable_fields(list(stored), list(wanted)))


def _readable_fields(stored: Sequence[pa.Field], wanted: Sequence[pa.Field]) -> list[pa.Field]:
    known = {field.name: field.type for field in stored}
    return [
        field.with_type(_readable(known[field.name], field.type)) if field.name in known else field for field in wanted
    ]


def _readable(stored: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_decimal(wanted) and types.is_integer(stored):
        return stored
    if types.is_struct(wanted) and types.is_struct(stored):
        return pa.struct(_readable_fields(list(stored), list(wanted)))
    if types.is_map(wanted) and types.is_map(stored):
        return pa.map_(_readable(stored.key_type, wanted.key_type), _readable(stored.item_type, wanted.item_type))
    if types.is_list(wanted) and types.is_list(stored):
        return pa.list_(_readable(stored.value_type, wanted.value_type))
    return wanted


def _as_current(topic: Topic, frame: DataFrame, schema: pa.Schema, names: Sequence[str]) -> DataFrame:
    current = spark_schema(topic, names)
    read = to_spark(schema)
    casts = {
        field.name: sf.col(column(field.name)).cast(current[field.name].dataType)
        for field in read
        if field.dataType != current[field.name].dataType
    }
    return frame.withColumns(casts) if casts else frame


@lru_cache(maxsize=4096)
def _stored_schema(path: str, crc32c: int) -> pa.Schema:  # noqa: ARG001 (another checksum is another file)
    return pq.read_schema(path)
