"""One run of a pipeline over a recorded log, in a database of its own that is thrown away afterwards.

The log is only read: nothing is published, no topic is made. The user's database is not touched, so a live run of the
same pipeline may go on meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.log.log import Log
from penstock.modes.engine import Engine, open_engine
from penstock.modes.rounds import make_pair
from penstock.modes.running import RunningSet
from penstock.pipeline.pipeline import Pipeline
from penstock.spark.private.canary import without_small_plans
from penstock.upkeep.changes import KEY
from penstock.upkeep.compiled import CompiledView, as_views
from penstock.upkeep.step import finish
from penstock.verify.cuts import Cut, Recorded
from penstock.verify.plain import PlainSpark
from penstock.views.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ERROR_LINES = 8
"""So many lines are shown of an error that is not Penstock's own."""
Mode = Literal["batch", "plain", "stream", "lambda", "kappa"]
Advance = Callable[[Engine, Sequence[CompiledView]], RunningSet]
"""Takes one set of views to the end of what is compared."""


@dataclass
class Run:
    """What one run gave: the rows of each view, or why there are none."""

    name: str
    mode: Mode
    note: str = ""
    """What people should know of it: how many steps, where it was stopped."""
    rows: dict[str, pa.Table] = field(default_factory=dict)
    """By view: what readers see, and the stored key."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By view: what it took, together with the views it is connected with."""
    errors: dict[str, Exception] = field(default_factory=dict)
    """By view: what stopped it."""


@dataclass(frozen=True)
class Runner:
    """Runs one pipeline over one recorded log, as often as one likes."""

    pipeline: Pipeline
    log: Log
    spark: SparkSession
    recorded: Recorded
    folder: Path
    compiled: Sequence[CompiledView]

    def batch(self, name: str, *, is_new: bool = False) -> Run:
        """Everything as a batch; `is_new` builds every view's plan anew, as another process would."""
        left_out: Counter[str] = Counter()

        def build(engine: Engine, views: Sequence[CompiledView]) -> RunningSet:
            *_, running = engine.build(views, self.recorded.end)
            engine.switch(running)
            left_out.update(running.left_out)
            return running

        run = self._run(Run(name, "batch"), build, is_new=is_new)
        run.note = "; ".join(
            f"view {view!r} leaves out {count:,}, on which its function fails or which no database holds"
            for view, count in left_out.items()
            if count
        )
        return run

    def plain(self, name: str, batch: Run) -> Run:
        """Every view by plain Spark; `batch` is what it will be compared with."""
        run = Run(name, "plain")
        spark = PlainSpark(as_views(self.pipeline), self.recorded.topics, self.recorded.end, self.spark)
        for view in self.compiled:
            if view.name not in batch.rows or any(name in run.errors for name in view.upstream):
                continue  # The batch failed: there is nothing to compare with.
            began = time.monotonic()
            try:
                run.rows[view.name] = spark.rows(view, batch.rows[view.name])
            except Exception as error:
                run.errors[view.name] = error
            run.seconds[view.name] = time.monotonic() - began
        return run

    def stream(self, name: str, cuts: Sequence[Cut] | Callable[[Sequence[CompiledView]], Sequence[Cut]]) -> Run:
        """A stream whose steps end at these cuts, which may be others for each set of views."""
        run = Run(name, "stream")
        taken: list[int] = []
        few: list[str] = []

        def steps(engine: Engine, views: Sequence[CompiledView]) -> RunningSet:
            chosen = cuts(views) if callable(cuts) else cuts
            running = engine.open(views)
            taken.append(take_steps(running, chosen))
            if self._moves(running.topics, chosen) == 1 < sum(self.recorded.records[each] for each in running.topics):
                few.extend(view.name for view in views)
            return running

        self._run(run, steps)
        run.note = _steps(taken)
        if few and (callable(cuts) or len(cuts) > 1):
            run.note += f"; all records in one step, so nothing met what was there before: {', '.join(few)}"
        return run

    def _moves(self, topics: Collection[str], cuts: Sequence[Cut]) -> int:
        """How many of the steps bring new records of these topics."""
        places = [[cut[name] for name in topics] for cut in [self.recorded.start, *cuts]]
        return sum(before != after for before, after in pairwise(places))

    def scheduled(self, name: str, cuts: Sequence[Cut]) -> Run:
        """A stream whose steps are all computed by Spark's scheduler, as with `spark.small_plans = "off"`."""
        with without_small_plans(self.spark):
            run = self._run(Run(name, "stream"), _taking(cuts))
        run.note = f'every step by Spark\'s scheduler, as with small_plans = "off": {_steps([len(cuts)])}'
        return run

    def stopped(self, name: str, cuts: Sequence[Cut], at: int) -> Run:
        """A stream that ends after `at` steps, and is continued from its fence by a new engine."""
        database = self.folder / f"{_file_name(name)}.db"
        before = self._run(Run(name, "stream"), _taking(cuts[:at]), database, is_read=False)
        run = self._run(Run(name, "stream"), _taking(cuts[at:]), database, is_new=True)
        run.errors |= before.errors
        run.rows = {view: rows for view, rows in run.rows.items() if view not in before.errors}
        run.seconds = {view: before.seconds.get(view, 0.0) + each for view, each in run.seconds.items()}
        run.note = f"stopped after {at} of {len(cuts)} steps"
        return run

    def paired(self, name: str, cuts: Sequence[Cut], rounds: Collection[int]) -> Run:
        """As lambda: a batch part to the first cut, speed parts from there on, a new batch part at some of the cuts."""

        def advance(engine: Engine, views: Sequence[CompiledView]) -> RunningSet:
            pair = _pair(engine, views, cuts[0])
            engine.switch(pair)
            for number, cut in enumerate(cuts[1:], start=1):
                if number in rounds:
                    pair = _pair(engine, views, cuts[number - 1])
                    engine.switch(pair, is_same_code=True)
                take_steps(pair, [cut])
            return pair

        run = self._run(Run(name, "lambda"), advance)
        run.note = f"{_steps([len(cuts) - 1])} on top of batch parts, {1 + len(rounds)} of which were computed"
        return run

    def replayed(self, name: str, cuts: Sequence[Cut], at: int) -> Run:
        """As kappa: after `at` steps the log is replayed to there, in two steps, and the new rows are gone on with."""

        def advance(engine: Engine, views: Sequence[CompiledView]) -> RunningSet:
            take_steps(engine.open(views), cuts[:at])
            replay = engine.new(views)
            take_steps(replay, [cuts[(at - 1) // 2], cuts[at - 1]])
            engine.switch(replay)
            take_steps(replay, cuts[at:])
            return replay

        run = self._run(Run(name, "kappa"), advance)
        run.note = f"replayed and switched after {at} of {len(cuts)} steps"
        return run

    def finished(self, run: Run, database: Path) -> Run:
        """The rows that some other process left in a database."""
        return self._run(run, lambda engine, views: engine.open(views), database)

    def results(self, name: str) -> AbstractContextManager[Engine]:
        """An engine over what the run of that name has left."""
        return self.engine(self.folder / f"{_file_name(name)}.db", is_new=False)

    @contextmanager
    def engine(self, database: Path, *, is_new: bool) -> Iterator[Engine]:
        """An engine over a database of ours."""
        views = None if is_new else self.compiled
        with (
            open_store(f"sqlite:{database}") as store,
            open_engine(
                self.pipeline, log=self.log, store=store, spark=self.spark, is_silent=True, views=views
            ) as engine,
        ):
            yield engine

    def _run(
        self, run: Run, advance: Advance, database: Path | None = None, *, is_read: bool = True, is_new: bool = False
    ) -> Run:
        """Takes each set by itself: what stops one says nothing of the others."""
        with self.engine(database or self.folder / f"{_file_name(run.name)}.db", is_new=is_new) as engine:
            for views in engine.sets:
                began = time.monotonic()
                try:
                    running = advance(engine, views)
                except Exception as error:
                    run.errors.update(dict.fromkeys((view.name for view in views), error))
                    continue
                if is_read:
                    run.rows.update(_rows(engine, running))
                run.seconds.update(dict.fromkeys((view.name for view in views), time.monotonic() - began))
        return run


def only(pipeline: Pipeline, names: Collection[str]) -> Pipeline:
    """The same pipeline with those views only."""
    same = copy(pipeline)
    same.views = {name: spec for name, spec in pipeline.views.items() if name in names}
    return same


def error_text(error: Exception) -> str:
    """What stopped a run, in words: errors of Spark and of users' functions by their kind and their first lines."""
    if isinstance(error, PenstockError):
        return str(error)
    return "\n".join(f"{type(error).__name__}: {error}".splitlines()[:ERROR_LINES])


def take_steps(running: RunningSet, cuts: Sequence[Cut]) -> int:
    """Takes a set of views from cut to cut; those that bring it nothing new are left out. Returns how many were not."""
    taken = 0
    for cut in cuts:
        if running.is_new or running.lag({name: cut[name] for name in running.topics}):
            running.step({name: cut[name] for name in running.topics})
            taken += 1
    return taken


def _pair(engine: Engine, views: Sequence[CompiledView], cut: Cut) -> RunningSet:
    ends = {name: cut[name] for view in views for name in view.topics}
    return finish(make_pair(engine, engine.new(views), ends, None))


def _taking(cuts: Sequence[Cut]) -> Advance:
    def advance(engine: Engine, views: Sequence[CompiledView]) -> RunningSet:
        running = engine.open(views)
        take_steps(running, cuts)
        return running

    return advance


def _rows(engine: Engine, running: RunningSet) -> Mapping[str, pa.Table]:
    layers = running.generation.layers
    return {
        view.name: engine.store.read(view.shape.table(layers), columns=[KEY, *view.shape.columns.names])
        for view in running.views
    }


def _steps(taken: Iterable[int]) -> str:
    most = max(taken, default=0)
    return f"{most:,} step{'' if most == 1 else 's'}"


def _file_name(name: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in name)
