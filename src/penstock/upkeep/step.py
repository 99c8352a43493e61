"""A step: takes views from one cut of the log to the next.

Every view has a keeper. A keeper is asked to `advance` and answers with the changes of its rows; on the way it yields
what it wants to have computed, so that the views of a step share their Spark jobs. Nothing is written here: a
step that dies leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from operator import getitem
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, TypeVar, runtime_checkable

import pyarrow as pa
from pyspark.errors import PySparkException

from penstock.errors import MergeOverflow, StepFailed, StepOverflow
from penstock.plans.collect import FrameFailed, begin
from penstock.upkeep.changes import Changes
from penstock.upkeep.kept_rows import KeptChange
from penstock.upkeep.slices import Place, Slice
from penstock.views.catalog import Layers
from penstock.views.stack import alike
from penstock.views.store import StoredTable, Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.private.prepared import Asked
    from penstock.upkeep.compiled import CompiledView

T = TypeVar("T")

Wanted = Sequence["Asked"]
Work: TypeAlias = Generator[Wanted, Sequence[pa.Table], T]
"""Yields plans over rows, and is sent what they give: by `finish` at once, or by whoever has something else to do.

Some of it may still be computed then: FrameFailed is raised where a table is taken.
"""
Advance = Work["Changes | Pending"]
"""Returns the changes of a view, or what they are to be found from."""

Aside: TypeAlias = "Mapping[str, Mapping[str, frozenset[Place]]]"
"""By view and topic, records that are set aside."""

OVERFLOW = "ARITHMETIC_OVERFLOW"
"""What Spark calls a number that does not fit its type, be it a sum or not."""


class Reader(Protocol):
    """Where stored rows are read: the database, or one snapshot of it."""

    def read(self, table: StoredTable, where: Where | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that are meant."""
        ...


class Pending(Protocol):
    """Changes of a view that are found quicker together with those of others: of all that have the same `likeness`."""

    @property
    def rows(self) -> int:
        """How many rows it is about."""
        ...

    @property
    def likeness(self) -> Hashable: ...

    def settle(self, pending: Sequence[Any]) -> list[Changes]:
        """The changes of each of them, itself included."""
        ...


class Keeper(Protocol):
    """How one view is kept."""

    def advance(self, step: Step) -> Advance:
        """The changes that this step makes to the view."""
        ...


@runtime_checkable
class Foreseeing(Keeper, Protocol):
    """A keeper that can tell, of a view over topics alone, what it will ask for before the step before is done."""

    def first(self, step: Step) -> list[Asked]:
        """What `advance` asks for first: the slices decide that."""
        ...


@dataclass
class Step:
    """What is new, and where everything else can be read."""

    spark: SparkSession
    store: Reader
    layers: Layers
    """Which tables: those of the generation, and of the one beneath it."""
    slices: Mapping[str, Slice]
    is_new: bool = False
    """Nothing is stored yet, so nothing needs to be read back."""
    is_big: bool = False
    """So much is new that computing everything again is cheaper than finding out what it touched."""
    in_one_task: bool = False
    """Others are computed at the same time: one core is enough, and saves an exchange."""
    changes: dict[str, Changes] = field(default_factory=dict)
    """By view, as far as they are known."""
    kept: list[KeptChange] = field(default_factory=list)
    """What is added to the rows kept for later redos."""
    unfit: Mapping[str, pa.Array] = field(default_factory=dict)
    """By view, keys of rows that the database turned out not to hold: they are left out before anybody reads them."""
    aside: Aside = field(default_factory=dict)
    """Records on which functions of views fail: those views are computed without them."""

    ready: Mapping[str, Future[list[pa.Table]]] = field(default_factory=dict)
    """By view, what its keeper asks for first, where somebody has begun to compute it already."""
    asked: dict[str, list[Asked]] = field(default_factory=dict)
    """By view, what its keeper has asked for so far."""

    @property
    def small(self) -> dict[str, bool]:
        """By view that has asked for rows, whether all of them were computed in the driver, none by a job of Spark."""
        return {view: all(each.was_small for each in asked) for view, asked in self.asked.items() if asked}

    def stored(self, table: StoredTable, where: Where | None = None) -> pa.Table:
        """Rows as they were before this step."""
        return table.schema.empty_table() if self.is_new else self.store.read(table, where)

    def run(self, views: Sequence[CompiledView]) -> dict[str, Changes]:
        """Advances all views, and gives the changes of each."""
        finish(run_together([(self, views)]))
        return {view.name: self.changes[view.name] for view in views}


def finish(work: Work[T]) -> T:
    """Does all of it, right here."""
    try:
        wanted = next(work)
        while True:
            with begin(wanted) as tables:
                wanted = work.send(tables)
    except StopIteration as done:
        result: T = done.value
        return result


def run_together(steps: Sequence[tuple[Step, Sequence[CompiledView]]]) -> Work[None]:
    """Runs several steps side by side, each with its views: whatever is wanted at one time is computed in one go.

    A view begins when the views it is made of are done. The changes are left in each step.
    """
    waiting = [(step, view) for step, views in steps for view in views]
    running: list[_Run] = []
    while waiting or running:
        ready = [(step, view) for step, view in waiting if all(name in step.changes for name in view.upstream)]
        assert ready or running, [view.name for _, view in waiting]
        waiting = [each for each in waiting if each not in ready]
        running += [_Run(step, view, view.keeper.advance(step)) for step, view in ready]
        going = [run for run in running if run.wants()]
        settle([run for run in running if run.pending is not None])
        running = going
        asking = [run for run in running if not run.is_answered_ahead()]
        if asking:
            tables = yield [each for run in asking for each in run.wanted]
            for run, stop in zip(asking, accumulate(len(run.wanted) for run in asking), strict=True):
                run.answer = partial(getitem, tables, slice(stop - len(run.wanted), stop))


def settle(runs: Sequence[_Run]) -> None:
    """Finds what is pending: the changes of views that are alike in one go."""
    pending = [(run, run.pending) for run in runs if run.pending is not None]
    for group in alike(pending, lambda each: each[1].rows, lambda each: (type(each[1]), each[1].likeness)):
        [(first, together), *others] = group
        try:
            found = together.settle([each for _, each in group])
        except MergeOverflow as overflow:
            if not others:
                first.fail(overflow)
            for run, _ in group:  # Which of them it is shows when each is alone.
                settle([run])
            continue
        for (run, _), changes in zip(group, found, strict=True):
            run.found(changes)


@dataclass
class _Run:
    """One view on its way through a step."""

    step: Step
    view: CompiledView
    keeper: Advance
    wanted: list[Asked] = field(default_factory=list)
    answer: Callable[[], Sequence[pa.Table]] | None = None
    """Gives the tables that it wanted, as soon as they are there."""
    pending: Pending | None = None

    def wants(self) -> bool:
        """Goes on until the keeper wants rows. False when it is done: its changes are known, or pending."""
        try:
            self.wanted = list(next(self.keeper) if self.answer is None else self.keeper.send(self.answer()))
            self.step.asked.setdefault(self.view.name, []).extend(self.wanted)
        except StopIteration as finished:
            if isinstance(finished.value, Changes):
                self.found(finished.value)
            else:
                self.pending = finished.value
            return False
        except (MergeOverflow, FrameFailed) as error:
            self.fail(error)
        return True

    def found(self, changes: Changes) -> None:
        """These are the changes of the view, without rows that do not fit."""
        unfit = self.step.unfit.get(self.view.name)
        self.step.changes[self.view.name] = changes if unfit is None else changes.without(unfit)

    def fail(self, error: MergeOverflow | FrameFailed) -> NoReturn:
        """Says which view it is, and where that is defined."""
        cause = error.__cause__ if isinstance(error, FrameFailed) else error
        is_overflow = isinstance(cause, PySparkException) and cause.getCondition() == OVERFLOW
        if is_overflow or isinstance(error, MergeOverflow):
            raise StepOverflow(self.view.name, self.view.spec.place) from cause
        raise StepFailed(self.view.name, self.view.spec.place, reason_of(cause)) from cause

    def is_answered_ahead(self) -> bool:
        """Takes what was computed ahead, if this is the first that the keeper asks for. What failed is asked again."""
        ready = self.step.ready.get(self.view.name) if self.answer is None else None
        if ready is None or ready.exception() is not None:
            return False
        self.answer = ready.result
        return True


def reason_of(error: BaseException | None) -> str:
    """What Spark says, without its stack."""
    text = str(error).strip()
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "JVM stack"))]
    return "\n  ".join(lines[:6]) or type(error).__name__
