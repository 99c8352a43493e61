"""What a step brings of one topic: the records between two cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SchemaOutgrown
from penstock.events.schema import format_ddl
from penstock.log.definition import OWN_COLUMNS
from penstock.log.partition import Offsets
from penstock.spark.columns import column
from penstock.spark.late_counts import LateCounts
from penstock.spark.private.analysis import plan_analysis
from penstock.spark.private.rows import arrow_schema, from_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from penstock.log.topic import Topic

Late = Literal["correct", "drop"]

Place = tuple[int, int]
"""The partition and the offset of a record."""

SMALL_ROWS = 20_000
"""So few records are read here and handed to Spark as rows of the plan; more are read by Spark."""


@dataclass(frozen=True)
class Slice:
    """The records of one topic from `start` up to `stop`. Frames over it are made once and shared by all views."""

    topic: Topic
    start: Offsets
    stop: Offsets
    _frames: dict[tuple[object, ...], DataFrame] = field(default_factory=dict, repr=False, compare=False)
    _late_counts: list[LateCounts] = field(default_factory=list, repr=False, compare=False)

    @cached_property
    def rows(self) -> int:
        """How many records there are (fewer, where a topic was compacted)."""
        return sum(stop - self.start.get(number, 0) for number, stop in self.stop.items())

    @cached_property
    def table(self) -> pa.Table:
        """The records as Arrow, with the log's own columns."""
        return self.topic.slice(self.start, self.stop)

    @cached_property
    def late(self) -> int:
        """How many of them came late. Those who read them may have counted: ask when the step has run."""
        if self.is_small:
            return int(pc.sum(self.table.column("_late")).as_py() or 0)
        known = [total for each in self._late_counts if (total := each.total) is not None]
        return known[0] if known else self.topic.count_late(self.start, self.stop)

    @cached_property
    def arrived_us(self) -> dict[int, int]:
        """Partition -> greatest arrival. Partitions without a record are left out."""
        if not self.is_small:
            return self.topic.latest_arrivals(self.start, self.stop)
        # Partition after partition, and arrivals never decrease within one: its last record has the greatest.
        partitions = self.table.column("_partition").to_numpy()
        last = np.flatnonzero(np.append(np.diff(partitions), 1)) if len(partitions) else partitions
        arrived = self.table.column("_arrived")
        return {int(partitions[row]): arrived[int(row)].value for row in last}

    @property
    def clock_us(self) -> int:
        """The greatest arrival; 0 if there is no record."""
        return max(self.arrived_us.values(), default=0)

    def measure(self) -> None:
        """Asks the log now for what the commit will want to know, and remembers it."""
        _ = self.late, self.arrived_us

    @property
    def is_small(self) -> bool:
        return self.rows <= SMALL_ROWS

    def kept(self, late: Late, columns: Sequence[str]) -> pa.Table:
        """The named columns of the records that count, and the log's own."""
        table = (
            self.table.select([*columns, "_partition", "_offset", "_arrived", "_late"])
            if self.is_small
            else (self.topic.slice(self.start, self.stop, columns=columns))
        )
        return table if late == "correct" else table.filter(pc.invert(table.column("_late")))

    def as_known(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """The rows with the types of `schema`: another process may have made whole numbers of the topic wider since.

        SchemaOutgrown if one of them needs that room.
        """
        wanted = pa.schema([schema.field(name) for name in rows.schema.names])
        if rows.schema.types == wanted.types:
            return rows
        self.check_known(wanted)
        try:
            return rows.cast(wanted)
        except pa.ArrowInvalid as error:
            known, found = format_ddl(own_less(wanted)), format_ddl(self.topic.schema)
            raise SchemaOutgrown(self.topic.name, known, found, str(error)) from None

    def check_known(self, known: pa.Schema) -> None:
        """SchemaOutgrown if the topic has other types than these, unless they are wider whole numbers.

        Those fit or they do not. A double made a float, or digits of a decimal cut off, would be another value.
        """
        now = self.topic.schema
        for each in own_less(known):
            found = now.field(each.name).type
            if pa.types.is_integer(each.type) and pa.types.is_integer(found):
                continue
            before, after = (format_ddl(pa.schema([pa.field("column", kind)])) for kind in (each.type, found))
            if before != after:
                why = f"column {each.name!r} was {before.partition(' ')[2]}, and is {after.partition(' ')[2]} now"
                raise SchemaOutgrown(self.topic.name, format_ddl(own_less(known)), format_ddl(now), why)

    def frame(
        self,
        spark: SparkSession,
        schema: StructType,
        late: Late,
        needed: Sequence[str],
        without: frozenset[Place] = frozenset(),
    ) -> DataFrame:
        """The records that count as a DataFrame with the columns of `schema`; those not needed may be NULL."""
        what = (late, None if self.is_small else tuple(needed), without)
        if what not in self._frames:
            self._frames[what] = self._make_frame(spark, schema, late, needed, without)
        return self._frames[what]

    def part(self, start: Offsets, stop: Offsets) -> Slice:
        """The records of this slice from `start` up to `stop`; if it is small, they are not read again."""
        found = Slice(self.topic, start, stop)
        if self.is_small:
            partitions, offsets = (self.table.column(name).to_numpy() for name in ("_partition", "_offset"))
            is_in = np.zeros(len(offsets), np.bool_)
            for number, end in stop.items():
                is_in |= (partitions == number) & (offsets >= start.get(number, 0)) & (offsets < end)
            vars(found)["table"] = self.table.filter(pa.array(is_in))
        return found

    def _make_frame(
        self, spark: SparkSession, schema: StructType, late: Late, needed: Sequence[str], without: frozenset[Place]
    ) -> DataFrame:
        if self.is_small:
            names = [name for name in schema.names if name not in OWN_COLUMNS]
            rows = _without(self.kept(late, names), without)
            return from_arrow(spark, self.as_known(rows, arrow_schema(schema)), schema)
        self.check_known(arrow_schema(schema))
        counts = LateCounts()
        self._late_counts.append(counts)
        frame = self.topic.read(spark, start=self.start, until=self.stop, columns=needed, late_counts=counts)
        frame = filtered(frame, without)
        return with_all_columns(frame if late == "correct" else frame.filter("NOT _late"), schema)


def filtered(frame: DataFrame, without: frozenset[Place]) -> DataFrame:
    """The records of a topic but for these."""
    for number in sorted({partition for partition, _ in without}):
        offsets = ", ".join(str(offset) for partition, offset in sorted(without) if partition == number)
        frame = frame.filter(f"NOT (_partition = {number} AND _offset IN ({offsets}))")
    return frame


def _without(rows: pa.Table, places: frozenset[Place]) -> pa.Table:
    if not places:
        return rows
    pairs = zip(rows.column("_partition").to_pylist(), rows.column("_offset").to_pylist(), strict=True)
    return rows.filter(pa.array([pair not in places for pair in pairs]))


def own_less(schema: pa.Schema) -> pa.Schema:
    """Without the log's own columns."""
    return pa.schema([each for each in schema if each.name not in OWN_COLUMNS])


def with_all_columns(frame: DataFrame, schema: StructType) -> DataFrame:
    """The frame with the columns and types of `schema`: NULL where it has none of that name."""
    known = {each.name: each.dataType for each in frame.schema}
    nulls = plan_analysis.nulls(frame.sparkSession, schema)

    def source(name: str, kind: DataType) -> str:
        if name not in known:
            return f"{nulls[name]} AS {column(name)}"
        if known[name].simpleString() == kind.simpleString():
            return column(name)
        return f"CAST({column(name)} AS {kind.simpleString()}) AS {column(name)}"

    return frame.selectExpr(*(source(each.name, each.dataType) for each in schema))
