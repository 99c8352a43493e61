"""The inputs of a view in a step: what is new in them, and all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.spark.private.rows import BYTES_MAX, arrow_schema, from_arrow
from penstock.upkeep.changes import Changes
from penstock.upkeep.shape import Shape
from penstock.upkeep.slices import Late, with_all_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.upkeep.step import Step

Side = Literal["before", "after"]


@dataclass(frozen=True)
class TopicInput:
    """A topic that a view reads."""

    name: str
    """By which the view's function knows it."""
    topic: str
    schema: StructType
    """With the log's own columns."""
    needed: tuple[str, ...]
    """The columns of the topic that the view uses."""
    late: Late
    event_time: str | None

    def new(self, step: Step, view: str) -> DataFrame:
        """The records of the step's slice that count for a view."""
        without = step.aside.get(view, {}).get(self.topic, frozenset())
        return step.slices[self.topic].frame(step.spark, self.schema, self.late, self.needed, without)

    def new_rows(self, step: Step) -> pa.Table:
        """The same as Arrow: the columns that are needed, and the log's own."""
        part = step.slices[self.topic]
        return part.as_known(part.kept(self.late, self.needed), arrow_schema(self.schema))

    def everything(self, step: Step) -> DataFrame:
        """All records up to the step's end that count."""
        part = step.slices[self.topic]
        frame = part.topic.read(step.spark, until=part.stop, columns=self.needed)
        return with_all_columns(frame if self.late == "correct" else frame.filter("NOT _late"), self.schema)

    def frame(self, step: Step, rows: pa.Table) -> DataFrame:
        """Rows that were kept, as the view's function expects them."""
        return _frame(step.spark, rows, self.schema)


@dataclass(frozen=True)
class ViewInput:
    """Another view that a view reads."""

    name: str
    shape: Shape
    schema: StructType
    needed: tuple[str, ...]

    def changes(self, step: Step) -> Changes:
        """What the step does to that view."""
        return step.changes[self.name]

    def side(self, step: Step, side: Side) -> DataFrame:
        """Its changed rows, as they were or as they will be."""
        changes = self.changes(step)
        return self.frame(step, changes.before if side == "before" else changes.after)

    def everything(self, step: Step) -> DataFrame:
        """All its rows after the step."""
        return self.frame(step, self.all_rows(step))

    def all_rows(self, step: Step) -> pa.Table:
        """All its rows after the step, as stored."""
        changes = self.changes(step)
        return changes.after if step.is_new else changes.applied_to(step.stored(self.shape.table(step.layers)))

    def frame(self, step: Step, rows: pa.Table) -> DataFrame:
        """Rows of the view as the function of another expects them."""
        return _frame(step.spark, rows, self.schema)


Input = TopicInput | ViewInput
Inputs = Mapping[str, Input]


def _frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Rows with the columns of `schema`: NULL where they have none of that name."""
    if rows.nbytes > BYTES_MAX:  # Columns of NULLs would have to be carried over as well.
        there = StructType([each for each in schema if each.name in rows.schema.names])
        return with_all_columns(from_arrow(spark, with_columns(rows, there), there), schema)
    return from_arrow(spark, with_columns(rows, schema), schema)


def with_columns(rows: pa.Table, schema: StructType) -> pa.Table:
    """The same as Arrow."""
    return pa.table(
        {
            each.name: rows.column(each.name).cast(each.type)
            if each.name in rows.schema.names
            else pa.nulls(rows.num_rows, each.type)
            for each in arrow_schema(schema)
        }
    )
