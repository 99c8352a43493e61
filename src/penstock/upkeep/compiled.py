"""From definitions to keepers: every view of a pipeline, analysed and ready to be kept."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.errors import PenstockError, PipelineError, PipelineProblems
from penstock.events.schema import parse_ddl, to_spark
from penstock.log.definition import OWN_COLUMNS
from penstock.pipeline.definition import TopicSpec, ViewSpec
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.tables import LargeTable, large_table, read_table, table_fingerprint
from penstock.plans.building import line_with
from penstock.plans.decision import Analysis, Keeping, Problem
from penstock.plans.decision import Input as PlanInput
from penstock.plans.fingerprint import fingerprint, spark_parts
from penstock.plans.keeping import analyse
from penstock.spark.columns import column
from penstock.spark.private import surgery
from penstock.spark.private.prepared import Prepared
from penstock.spark.private.rows import arrow_schema
from penstock.spark.private.stand_in import stand_in
from penstock.upkeep.changing_table import as_view, is_table
from penstock.upkeep.fold import COUNT, ROWS, STATE, FoldGroups
from penstock.upkeep.fold_rows import DELETED, ORDER, FoldRows, FoldRowsOfViews
from penstock.upkeep.groups import Groups, common_kinds
from penstock.upkeep.inputs import Input, TopicInput, ViewInput
from penstock.upkeep.kept_rows import KeptRows
from penstock.upkeep.kept_windows import PLACE, KeptWindows
from penstock.upkeep.merge import RULES
from penstock.upkeep.redo import RedoGroups, RedoWindows
from penstock.upkeep.shape import Shape
from penstock.upkeep.states import finished_schema
from penstock.upkeep.step import Keeper
from penstock.upkeep.whole import Whole
from penstock.views.keys import KEY_FORMAT
from penstock.views.tables import kept_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

OWN_FIELDS = pa.schema(
    [
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_arrived", pa.timestamp("us", tz="UTC")),
        ("_late", pa.bool_()),
    ]
)

_HIDDEN = re.compile(r"_(key|group|time|rows|count_.*|state_.*|order_.*)|__.*", re.IGNORECASE | re.DOTALL)
"""Names of the columns that views and kept rows have beside their own, and of what plans carry along."""


@dataclass(frozen=True)
class CompiledView:
    """One view: what it is, how it is kept, and the keeper that does it."""

    spec: ViewSpec
    keeping: Keeping
    fingerprint: str
    """Of all its parts."""
    shape: Shape
    schema: StructType
    """What readers see, as Spark names it."""
    keeper: Keeper
    inputs: Mapping[str, Input]
    kept: tuple[KeptRows | KeptWindows, ...]
    frame: DataFrame
    """The user's function over stand-ins."""
    stand_ins: Mapping[str, DataFrame]
    large_tables: tuple[LargeTable, ...] = ()
    """The static tables it reads whose content must not change during a run."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """All that its answers depend on, by names that say what has changed: see `plans/fingerprint.py`."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def upstream(self) -> tuple[str, ...]:
        """The views it is made of."""
        return tuple(each.name for each in self.inputs.values() if isinstance(each, ViewInput))

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics it reads itself."""
        return tuple(each.topic for each in self.inputs.values() if isinstance(each, TopicInput))


def compile_pipeline(pipeline: Pipeline, spark: SparkSession) -> tuple[CompiledView, ...]:
    """All views in topological order. PipelineProblems names everything that is wrong with any of them."""
    compiled, problems = try_compile(pipeline, spark)
    if problems:
        raise PipelineProblems(pipeline.name, problems)
    return compiled


def try_compile(pipeline: Pipeline, spark: SparkSession) -> tuple[tuple[CompiledView, ...], tuple[Problem, ...]]:
    """All views that are in order, and all problems. A view over one with a problem is left out, without comment."""
    pipeline = as_views(pipeline)
    compiler = _Compiler(pipeline, spark)
    done: dict[str, CompiledView] = {}
    problems: list[Problem] = []
    for spec in pipeline.order():
        if any(name in pipeline.views and name not in done for name in spec.inputs):
            continue
        try:
            view, found = compiler.compile(spec, done)
        except PipelineError:
            raise
        except Exception as error:  # One view must not hide the problems of the others.
            view, found = None, (_unforeseen(spec, error),)
        problems += found
        if view is not None:
            done[spec.name] = view
    return tuple(done.values()), tuple(problems)


def as_views(pipeline: Pipeline) -> Pipeline:
    """The same pipeline, in which a topic of changes that is read as a table is a view like any other."""
    tables = {spec.name: as_view(spec, pipeline) for spec in pipeline.tables.values() if not spec.is_static}
    if not tables:
        return pipeline
    same = copy(pipeline)
    same.tables = {name: spec for name, spec in pipeline.tables.items() if spec.is_static}
    same.views = {**tables, **pipeline.views}
    return same


def _unforeseen(spec: ViewSpec, error: Exception) -> Problem:
    """A view whose analysis failed in a way nothing else handles."""
    _log.debug("view %r could not be analysed", spec.name, exc_info=error)
    first, *rest = str(error).splitlines() or [""]
    if isinstance(error, PenstockError):
        return Problem(spec.place, spec.name, first, "\n".join(map(str.strip, rest)))
    return Problem(
        spec.place,
        spec.name,
        f"its plan could not be analysed: {type(error).__name__}: {first}",
        "write it in another way, and please report this as an error of Penstock",
    )


class _Compiler:
    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self.pipeline = pipeline
        self.spark = spark
        self.topics = {spec.bound: spec for spec in pipeline.topics.values()}
        self.tables = {name: spec for name, spec in pipeline.tables.items() if spec.is_static}
        self._frames: dict[str, DataFrame] = {}
        self._large_tables: dict[str, LargeTable | None] = {}
        self._spark_parts = spark_parts(spark)

    def compile(
        self, spec: ViewSpec, done: Mapping[str, CompiledView]
    ) -> tuple[CompiledView | None, tuple[Problem, ...]]:
        schemas = {name: self._schema(name, done) for name in spec.inputs if name not in self.tables}
        stand_ins = {name: stand_in(self.spark, schema) for name, schema in schemas.items()}
        tables = {name: self._table(name) for name in spec.inputs if name in self.tables}
        analysis = analyse(
            spec,
            {
                **{name: self._input(name, schema, stand_ins[name], done) for name, schema in schemas.items()},
                **{name: PlanInput(name, "table", each.schema, None, each, ()) for name, each in tables.items()},
            },
            self.spark,
        )
        if analysis.problems or analysis.keeping is None:
            return None, analysis.problems
        inputs = {name: self._kept_input(name, spec, schemas[name], analysis, done) for name in schemas}
        build = partial(_build, spec, tables, analysis.schema.names)
        view = _View(spec, analysis, analysis.keeping, inputs, stand_ins, build)
        found = view.problems()
        if found:
            return None, found
        return self._finish(view, tables), ()

    def _finish(self, view: _View, tables: Mapping[str, DataFrame]) -> CompiledView:
        keeper, kept = view.keeper()
        parts = {
            **view.analysis.parts,
            **{f"static table {name}": f"#{table_fingerprint(self.tables[name])}" for name in tables},
            **{
                f"lateness of topic {self.topics[name].name}": str(self.topics[name].lateness)
                for name in view.inputs
                if name in self.topics
            },
            **self._spark_parts,
            "the format of keys": str(KEY_FORMAT),
        }
        return CompiledView(
            view.spec,
            view.keeping,
            fingerprint(parts),
            keeper.shape if not isinstance(keeper, RedoWindows | RedoGroups) else keeper.whole.shape,
            view.schema,
            keeper,
            view.inputs,
            kept,
            view.analysis.frame,
            view.stand_ins,
            tuple(found for name in tables if (found := self._large_tables[name]) is not None),
            parts,
        )

    def _schema(self, name: str, done: Mapping[str, CompiledView]) -> StructType:
        if name in self.topics:
            return nullable(to_spark(pa.schema([*parse_ddl(self.topics[name].ddl), *OWN_FIELDS])))
        return nullable(done[name].schema)

    def _table(self, name: str) -> DataFrame:
        if name not in self._frames:
            self._large_tables[name] = large_table(self.tables[name])
            self._frames[name] = read_table(self.tables[name], self.spark)
        return self._frames[name]

    def _input(self, name: str, schema: StructType, frame: DataFrame, done: Mapping[str, CompiledView]) -> PlanInput:
        if name in self.topics:
            return PlanInput(name, "topic", schema, self.topics[name].event_time, frame, self.topics[name].key)
        return PlanInput(name, "view", schema, None, frame, done[name].shape.key)

    def _kept_input(
        self, name: str, spec: ViewSpec, schema: StructType, analysis: Analysis, done: Mapping[str, CompiledView]
    ) -> Input:
        used = {*analysis.needed.get(name, schema.names)} - {*OWN_COLUMNS}
        if name in self.topics:
            topic: TopicSpec = self.topics[name]
            # A redo looks for rows by their time, also where the function does not.
            used |= {topic.event_time} if analysis.keeping and analysis.keeping.how == "redo" else set()
            needed = tuple(each for each in schema.names if each in used)
            return TopicInput(name, topic.name, schema, needed, spec.late, topic.event_time)
        needed = tuple(each for each in schema.names if each in used)
        return ViewInput(name, done[name].shape, schema, needed)


@dataclass(frozen=True)
class _View:
    """A view whose plan is in order, on its way to a keeper."""

    spec: ViewSpec
    analysis: Analysis
    keeping: Keeping
    inputs: Mapping[str, Input]
    stand_ins: Mapping[str, DataFrame]
    build: partial[DataFrame]

    @property
    def schema(self) -> StructType:
        finished: StructType = from_arrow_schema(finished_schema(arrow_schema(self.analysis.schema)))
        return finished

    @property
    def columns(self) -> pa.Schema:
        return pa.schema([each for each in arrow_schema(self.schema) if each.name != DELETED])

    @property
    def frame(self) -> DataFrame:
        """The user's function over stand-ins, less the log's own columns."""
        return self.analysis.frame.select(*map(column, self.analysis.schema.names))

    def problems(self) -> tuple[Problem, ...]:
        """What the plan allows and the engine does not."""
        hidden = [name for name in self.analysis.schema.names if is_hidden(name)]
        if hidden and not is_table(self.spec):
            return tuple(self._hidden(name) for name in hidden)
        is_rows = self.keeping.fold is not None and self.keeping.fold.kind == "rows"
        has_view = any(isinstance(each, ViewInput) for each in self.inputs.values())
        if self.spec.key is None and (has_view or not is_rows):
            return (
                Problem(
                    self.spec.place,
                    self.spec.name,
                    "it has no key",
                    "say which columns tell its rows apart, as in @app.view(key=[...]); key=[] for a view of one row",
                ),
            )
        return ()

    def _hidden(self, name: str) -> Problem:
        return Problem(
            line_with(self.spec, name, names_column=True) or self.spec.place,
            self.spec.name,
            f"the column {name!r} has the name of a hidden column, which Penstock keeps beside the rows of views",
            f"rename it, such as {name.lstrip('_') or 'value'!r}",
        )

    def keeper(
        self,
    ) -> tuple[
        FoldGroups | FoldRows | FoldRowsOfViews | RedoWindows | RedoGroups | Whole,
        tuple[KeptRows, ...] | tuple[KeptWindows, ...],
    ]:
        if self.keeping.fold is not None and self.keeping.how == "fold":
            return (self._fold_rows() if self.keeping.fold.kind == "rows" else self._fold_groups()), ()
        if self.keeping.redo is not None and self.keeping.how == "redo":
            return self._redo_windows() if self.keeping.redo.by == "window" else self._redo_groups()
        return Whole(self._shape(), self._prepared(), self.inputs), ()

    def _shape(self, hidden: pa.Schema | None = None, *, has_group: bool = False) -> Shape:
        return Shape(
            self.spec.name, self.spec.place, self.spec.key or (), self.columns, hidden or pa.schema([]), has_group
        )

    def _prepared(self, change: Callable[[DataFrame], DataFrame] | None = None) -> Prepared:
        """The plan, changed or as it is, ready to be run over rows."""
        if change is None:
            return Prepared(self.frame, self.stand_ins, self.build)
        return Prepared(change(self.frame), self.stand_ins, lambda frames: change(self.build(frames)))

    def _fold_rows(self) -> FoldRows | FoldRowsOfViews:
        if any(isinstance(each, ViewInput) for each in self.inputs.values()):
            return FoldRowsOfViews(self._shape(), self._prepared(), self.inputs)
        has_key = self.spec.key is not None
        # The frames differ from stand-ins to rows, but not in what they carry: a fallback builds the plan anew.
        prepared = Prepared(
            surgery.carry(self.frame, self.stand_ins),
            self.stand_ins,
            lambda frames: surgery.carry(self.build(frames), frames),
        )
        return FoldRows(self._shape(ORDER if has_key else None), prepared, self.inputs, has_key)

    def _fold_groups(self) -> FoldGroups:
        fold = self.keeping.fold
        assert fold is not None
        rules = {column.name: RULES[column.rule] for column in fold.columns}
        sums = tuple(column.name for column in fold.columns if column.rule == "sum") if fold.undo else ()
        states = [pa.field(STATE.format(name), rule.state_type) for name, rule in rules.items() if rule.has_state]
        counts = [pa.field(name, pa.int64()) for name in ([ROWS, *map(COUNT.format, sums)] if fold.undo else [])]
        prepared = self._prepared(partial(surgery.with_counts, sums=sums) if fold.undo else None)
        return FoldGroups(self._shape(pa.schema([*states, *counts])), prepared, self.inputs, rules, sums, fold.undo)

    def _redo_windows(self) -> tuple[RedoWindows, tuple[KeptWindows, ...]]:
        redo = self.keeping.redo
        assert redo is not None
        assert redo.window is not None
        assert redo.window_us is not None
        kept = {
            name: self._kept_windows(each, redo.times[name], redo.window_us)
            for name, each in self.inputs.items()
            if isinstance(each, TopicInput)
        }
        kind = self.columns.field(redo.window).type
        whole = Whole(self._shape(has_group=True), self._prepared(), self.inputs, Groups((redo.window,), (kind,)))
        return RedoWindows(whole, kept, redo.window_us[0]), tuple(kept.values())

    def _redo_groups(self) -> tuple[RedoGroups, tuple[KeptRows, ...]]:
        redo = self.keeping.redo
        assert redo is not None
        named, columns, kinds = {}, {}, {}
        for name, expressions in redo.groups.items():
            schema = arrow_schema(self.inputs[name].schema)
            if all(each in schema.names for each in expressions):
                columns[name], kinds[name] = tuple(expressions), [schema.field(each).type for each in expressions]
            else:
                change = partial(surgery.with_groups, expressions=tuple(expressions))
                frame = change(self.stand_ins[name])
                named[name] = Prepared(frame, {name: self.stand_ins[name]}, partial(_of_one, change, name))
                columns[name] = tuple(frame.columns)
                kinds[name] = list(arrow_schema(frame.schema).types)
        output = [self.columns.field(each).type for each in redo.output] if redo.output is not None else None
        common = common_kinds([*kinds.values(), *([output] if output is not None else [])])
        groups = {name: Groups(each, common) for name, each in columns.items()}
        kept = {name: self._kept_rows(name, each) for name, each in self.inputs.items()}
        own = Groups(tuple(redo.output), common) if redo.output is not None else None
        whole = Whole(self._shape(has_group=own is not None), self._prepared(), self.inputs, own)
        return RedoGroups(whole, groups, named, kept, self.spec.horizon), tuple(kept.values())

    def _kept_rows(self, name: str, each: Input) -> KeptRows:
        schema = arrow_schema(each.schema)
        columns = pa.schema([schema.field(column) for column in each.needed])
        time = each.event_time if isinstance(each, TopicInput) else None
        return KeptRows(kept_name(self.spec.name, name), columns, time, isinstance(each, ViewInput))

    def _kept_windows(self, each: TopicInput, time: str, window_us: tuple[int, int, int]) -> KeptWindows:
        _, slide, offset = window_us
        used = {*each.needed, *self.analysis.needed.get(each.name, ()), time, *PLACE}
        columns = pa.schema([column for column in arrow_schema(each.schema) if column.name in used])
        return KeptWindows(kept_name(self.spec.name, each.name), columns, time, slide, offset)


def is_hidden(name: str) -> bool:
    """Whether a column of this name may be one of ours: a name of the database is the same in any case."""
    return _HIDDEN.fullmatch(name) is not None


def nullable(schema: StructType) -> StructType:
    """The same columns, each of which may be NULL."""
    return StructType([StructField(each.name, each.dataType, True, each.metadata) for each in schema])


def _build(
    spec: ViewSpec, tables: Mapping[str, DataFrame], columns: Sequence[str], frames: Mapping[str, DataFrame]
) -> DataFrame:
    return spec.build({**tables, **frames}).select(*map(column, columns))


def _of_one(change: Callable[[DataFrame], DataFrame], name: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    return change(frames[name])
