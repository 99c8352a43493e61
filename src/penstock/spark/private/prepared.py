"""A view's plan, built once and run again and again over other rows.

Calling the user's function and resolving every name takes longer than running it over a small slice. A step therefore
takes the plan that was built over stand-ins and replaces only its leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from penstock.spark.private.canary import Build, uses_small_plans
from penstock.spark.private.jvm import Java, analyzed, catalyst, simple_name
from penstock.spark.private.physical import PhysicalPlan
from penstock.spark.private.rows import LocalRows, arrow_schema, local_rows
from penstock.spark.private.stand_in import mark_of, stand_in
from penstock.spark.private.task import Turn
from penstock.spark.private.together import run_together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.private.protocols import SmallPlans

_log = logging.getLogger(__name__)

ROWS_IN_ONE_TASK_MAX = 50_000
"""Up to so many rows of the driver are aggregated by one task: an exchange costs more than a second core gains."""

_OPAQUE = frozenset({"LogicalRDD", "ExternalRDD", "InMemoryRelation"})
"""Leaves that hold rows, or a plan, of the moment they were made: a stand-in may be hidden inside.

Rows in the driver (LocalRelation) are as suspect where an input was not found: a function may have collected it.
"""


class Prepared:
    """A frame built over stand-ins, and its copies over real rows.

    `over(frames)` gives the same rows as `build(frames)`. Where the leaves can be replaced the function is not called
    again (`is_swapped`); in every other case `build` is called, slower and never wrong. Any thread may call it.
    """

    def __init__(
        self,
        frame: DataFrame,
        stand_ins: Mapping[str, DataFrame],
        build: Callable[[Mapping[str, DataFrame]], DataFrame],
    ) -> None:
        self.frame = frame
        self._build = build
        self._maker = catalyst(frame.sparkSession)
        self._plan = analyzed(frame)
        self._schema = frame.schema
        self._leaves = self._find_leaves({mark_of(found): name for name, found in stand_ins.items()})
        self._wanted = {name: stand_ins[name].schema for name in {name for _, name in self._leaves}}
        self._physical = PhysicalPlan(self._maker, frame.schema)
        self.is_swapped = self._can_be_swapped(all_used=len(self._wanted) == len(stand_ins))

    def over(self, frames: Mapping[str, DataFrame], *, in_one_task: bool = False) -> DataFrame:
        """The frame over these rows, one frame for each stand-in by its name; read by one task each, if asked for.

        A frame's columns are those of its stand-in, by position. One that may hold NULL where the stand-in never does
        makes `build` necessary, for Spark has left out questions on the word of the stand-in.
        """
        if not self.is_swapped or not all(_fits(frames[name].schema, want) for name, want in self._wanted.items()):
            return self._build({name: each.coalesce(1) for name, each in frames.items()} if in_one_task else frames)
        plans = {name: analyzed(frames[name]) for name in self._wanted}
        if in_one_task:
            plans = {name: self._maker.in_one_task(each) for name, each in plans.items()}
        pairs = [(leaf, self._put_in(leaf, plans[name])) for leaf, name in self._leaves]
        return self._maker.frame(self._maker.replaced(self._plan, pairs), self._schema)

    def ask(self, frames: Mapping[str, DataFrame], *, in_one_task: bool = False) -> Asked:
        """The same, to be computed when its turn comes; see `collect`."""
        return Asked(self, frames, in_one_task=in_one_task)

    def ready_over(self, frames: Mapping[str, DataFrame]) -> tuple[PhysicalPlan, LocalRows] | None:
        """A plan that runs without planning, and the rows it runs over; None where that cannot be."""
        if not self.is_swapped or len(self._leaves) != 1:
            return None
        [(leaf, name)] = self._leaves
        rows = local_rows(frames[name])
        if rows is None or rows.count > ROWS_IN_ONE_TASK_MAX or not _fits(frames[name].schema, self._wanted[name]):
            return None

        def plan() -> Java:
            found = self._maker.in_one_task(leaf.copy(leaf.output(), rows.data, False, self._maker.none))
            return analyzed(self._maker.frame(self._maker.replaced(self._plan, [(leaf, found)]), self._schema))

        return (self._physical, rows) if self._physical.is_ready(rows, plan) else None

    def _put_in(self, leaf: Java, plan: Java) -> Java:
        """What replaces the leaf: the plan's rows under the ids of the leaf's attributes."""
        maker = self._maker
        if simple_name(plan) == "LocalRelation":
            rows = plan.data()
            found = leaf.copy(leaf.output(), rows, False, maker.none)
            # Without it Spark computes projections while it plans, including unused columns. A plan over files prunes
            # those, so a value could fail in one and not in the other.
            return found if rows.size() > ROWS_IN_ONE_TASK_MAX else maker.in_one_task(found)
        pairs = zip(maker.items(plan.output()), maker.items(leaf.output()), strict=True)
        return maker.project([maker.alias(given, wanted.name(), wanted.exprId()) for given, wanted in pairs], plan)

    def _find_leaves(self, names: Mapping[str, str]) -> list[tuple[Java, str]]:
        """Every leaf that stands for an input, also the copies of a self join and those in subqueries."""
        marked = [(leaf, self._maker.mark_of(leaf)) for leaf in self._maker.all_leaves(self._plan)]
        return [(leaf, names[mark]) for leaf, mark in marked if mark is not None and mark in names]

    def _can_be_swapped(self, *, all_used: bool) -> bool:
        """Whether nothing can hide an input, and after a trial no stand-in is left."""
        maker = self._maker
        others = {simple_name(leaf) for leaf in maker.all_leaves(self._plan) if maker.mark_of(leaf) is None}
        if others & _OPAQUE or ("LocalRelation" in others and not all_used):
            return False
        nothing = maker.logical.OneRowRelation()
        trial = maker.replaced(self._plan, [(leaf, nothing) for leaf, _ in self._leaves])
        return all(maker.mark_of(leaf) is None for leaf in maker.all_leaves(trial))


class Asked:
    """A plan over certain rows, not computed yet."""

    def __init__(self, prepared: Prepared, frames: Mapping[str, DataFrame], *, in_one_task: bool = False) -> None:
        self._prepared = prepared
        self._frames = frames
        self._in_one_task = in_one_task
        self.failure: Exception | None = None
        """Why it could not be computed without the scheduler, if that was tried."""
        self.was_small = False
        """Whether it was computed in the driver; else Spark's scheduler did, or nobody yet."""

    @cached_property
    def frame(self) -> DataFrame:
        """For Spark to plan and run."""
        return self._prepared.over(self._frames, in_one_task=self._in_one_task)

    def ready(self) -> tuple[PhysicalPlan, LocalRows] | None:
        """What can be computed without planning; None if that cannot be, or fails: Spark then says how."""
        if not uses_small_plans(self._prepared.frame.sparkSession, _try_out):
            return None
        try:
            return self._prepared.ready_over(self._frames)
        except Exception as error:
            self.failure = error
            return None

    def by_spark(self) -> pa.Table:
        """Its rows, computed by Spark's scheduler."""
        table = self.frame.toArrow().cast(arrow_schema(self.frame.schema))  # Settings may say that text comes as large.
        if self.failure is not None:  # Where Spark fails too, its error says all there is to say.
            _warn_of_fallback(str(getattr(self.failure, "java_exception", self.failure)))
        return table


class InDriver:
    """See `SmallPlans`."""

    def __init__(self) -> None:
        self._turn = Turn()

    def compute(self, asked: Sequence[Asked]) -> list[pa.Table | None]:
        return quickly(asked, self._turn)

    def end(self) -> None:
        self._turn.end()


def small_plans() -> SmallPlans:
    """For the thread that asks."""
    return InDriver()


def quickly(asked: Sequence[Asked], turn: Turn) -> list[pa.Table | None]:
    """The rows of each, computed right here; None where that cannot be, or fails: Spark then says how."""
    found: list[pa.Table | None] = [None] * len(asked)
    by_rows: dict[int, list[tuple[int, PhysicalPlan, LocalRows]]] = {}
    for place, each in enumerate(asked):
        ready = each.ready()
        if ready is not None:
            by_rows.setdefault(id(ready[1]), []).append((place, *ready))
    for group in by_rows.values():
        for (place, *_), outcome in zip(group, _run([each[1:] for each in group], turn), strict=True):
            if isinstance(outcome, pa.Table):
                found[place] = outcome
            else:
                asked[place].failure = outcome
    return found


def _try_out(rows: DataFrame, build: Build) -> pa.Table | None:
    """What a plan over these rows gives when it runs right here."""
    leaf = stand_in(rows.sparkSession, rows.schema)
    prepared = Prepared(build(leaf), {"rows": leaf}, lambda frames: build(frames["rows"]))
    ready = prepared.ready_over({"rows": rows})
    if ready is None:
        return None
    with Turn() as turn:
        return run_together([ready[0]], ready[1], turn)[0]


def _run(ready: Sequence[tuple[PhysicalPlan, LocalRows]], turn: Turn) -> list[pa.Table | Exception]:
    """All by one call; if that fails, one after the other, to see which of them it is."""
    [*plans], [rows, *_] = zip(*ready, strict=True)
    try:
        return [*run_together(plans, rows, turn)]
    except Exception as error:
        return [error] if len(ready) == 1 else [outcome for each in ready for outcome in _run([each], turn)]


@lru_cache(maxsize=64)
def _warn_of_fallback(why: str) -> None:
    """Once for each reason."""
    _log.warning("spark: a small plan failed in the driver, so Spark's scheduler ran it, more slowly: %s", why)


def _fits(given: DataType, wanted: DataType) -> bool:
    """Whether every value of the one is a value of the other: the same types, NULL only where it may be."""
    if given == wanted:
        return True
    if isinstance(given, StructType) and isinstance(wanted, StructType) and len(given.fields) == len(wanted.fields):
        pairs = zip(given.fields, wanted.fields, strict=True)
        return all(_fits(a.dataType, b.dataType) and (b.nullable or not a.nullable) for a, b in pairs)
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _fits(given.elementType, wanted.elementType) and (wanted.containsNull or not given.containsNull)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        parts = _fits(given.keyType, wanted.keyType) and _fits(given.valueType, wanted.valueType)
        return parts and (wanted.valueContainsNull or not given.valueContainsNull)
    return False
