"""An alert whose condition was analysed: it can be asked of the rows of each step, at the price of a small plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from penstock.errors import AlertConditionError, did_you_mean
from penstock.pipeline.definition import AlertSpec
from penstock.plans.tree import plan_of
from penstock.spark.private.analysis import plan_analysis
from penstock.spark.private.prepared import Prepared
from penstock.spark.private.stand_in import stand_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.upkeep.compiled import CompiledView
    from penstock.upkeep.shape import Shape

BEFORE = "before"
"""How a condition calls the row as it was before the step."""
ROW = "_penstock_row"
"""The number of a row among those that a step changed."""
_INPUT = "rows"


@dataclass(frozen=True)
class Condition:
    """The `when=` of an alert, ready to be asked."""

    prepared: Prepared
    schema: StructType
    """What it is asked of: the columns that it names, perhaps `before`, and the number of the row."""


@dataclass(frozen=True)
class CompiledAlert:
    """An alert, the shape of its view's rows, and its condition, if it has one."""

    spec: AlertSpec
    shape: Shape
    condition: Condition | None

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass
class Alerts:
    """All alerts of a pipeline by the view they watch, and who wants to know when somebody has to be told."""

    by_view: Mapping[str, Sequence[CompiledAlert]] = field(default_factory=dict)
    on_told: Callable[[], None] = lambda: None


def compile_alerts(
    specs: Iterable[AlertSpec], views: Sequence[CompiledView], spark: SparkSession
) -> tuple[Alerts, tuple[AlertConditionError, ...]]:
    """The alerts of views that are there, ready to be asked, and what is wrong with the others."""
    shapes = {view.name: view.shape for view in views}
    found: dict[str, list[CompiledAlert]] = {}
    problems: list[AlertConditionError] = []
    for spec in specs:
        shape = shapes.get(spec.view)
        if shape is None:
            continue
        try:
            condition = None if spec.when is None else _condition(spec, spec.when, shape, spark)
        except AlertConditionError as error:
            problems.append(error)
        else:
            found.setdefault(spec.view, []).append(CompiledAlert(spec, shape, condition))
    return Alerts(found), tuple(problems)


def _condition(spec: AlertSpec, when: str, shape: Shape, spark: SparkSession) -> Condition:
    """AlertConditionError says what Spark said, and names the nearest column."""

    def refused(found: str, hint: str = "") -> AlertConditionError:
        return AlertConditionError(spec.name, spec.view, spec.place, when, found, hint)

    columns: StructType = from_arrow_schema(shape.columns)
    if BEFORE in {each.casefold() for each in columns.names}:
        raise refused(
            f"view {spec.view!r} has a column named {BEFORE!r}, which in an alert is the row before the step",
            "give the column another name",
        )
    everything = StructType([*columns, StructField(BEFORE, columns), StructField(ROW, LongType())])
    try:
        frame = _filtered(stand_in(spark, everything), when)
    except PySparkException as error:
        raise refused(*_reason(error, shape.columns)) from error
    plan = plan_of(frame)
    if sum(not node.children for node in plan.everywhere()) != 1:
        raise refused("it reads another table, which would take a job in every step", "make it a column of the view")
    if any(plan_analysis.nondeterministic(frame)):
        raise refused("its answer is another one each time it is asked", "leave out what is random")
    # Spark gives a reference the letters that the condition has, which may be others than the column's.
    used = {each.name.casefold() for asked in plan.expressions() for each in asked.attributes()} | {ROW}
    schema = StructType([each for each in everything if each.name.casefold() in used])
    # Only what it names: the less is brought to Spark in every step, the less it costs.
    rows = stand_in(spark, schema)
    try:
        prepared = Prepared(_filtered(rows, when), {_INPUT: rows}, lambda frames: _filtered(frames[_INPUT], when))
    except PySparkException as error:
        raise refused(*_reason(error, shape.columns)) from error
    return Condition(prepared, schema)


def _filtered(rows: DataFrame, when: str) -> DataFrame:
    return rows.filter(when)


def _reason(error: PySparkException, columns: pa.Schema) -> tuple[str, str]:
    """What Spark says in its first line, and what could be done."""
    text = (error.getMessage() or str(error)).strip()
    parameters = error.getMessageParameters() or {}
    if error.getCondition() and str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
        name = str(parameters.get("objectName", "")).replace("`", "")
        shown = [each for each in columns.names if not each.startswith("_")]
        near = did_you_mean(name.rpartition(".")[2], shown).strip()
        hint = f"its columns: {', '.join(shown)}, and {BEFORE}"
        return f"the view has no column {name!r}", f"{hint}\n{near}" if near else hint
    first = text.splitlines()[0] if text else type(error).__name__
    return first.partition("] ")[2] or first, "expected: SQL that is true or false of one row, such as errors > 20"
