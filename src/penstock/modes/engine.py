"""The engine: a pipeline, a log and a database, brought together and ready to run.

It makes the topics that are missing, compiles the views, owns the pipeline, and knows the generations of each set of
views. `batch` and `stream` only say how far the steps reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import ReplayRefused, UnknownView, ViewsChanged
from penstock.log.cut import Offsets
from penstock.log.log import Log
from penstock.log.topic import Topic
from penstock.modes.changed import changed_views
from penstock.modes.running import RunningSet, known_views
from penstock.modes.topics import make_changelog, make_topics
from penstock.pipeline.pipeline import Pipeline
from penstock.produce.dead_letters import SCHEMA as DEAD_SCHEMA
from penstock.upkeep.changelog import changelog_rows
from penstock.upkeep.changes import KEY, difference
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from penstock.upkeep.fold import STATE
from penstock.views.catalog import Catalog, Generation, KnownView
from penstock.views.outbox import Relay, enqueue, prepare, waiting
from penstock.views.owner import Owner
from penstock.views.store import Store, Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_ROWS = 2_000_000
"""The most records of a step whose aggregates bring their values to the driver."""


@dataclass(frozen=True)
class Engine:
    """Everything a run needs. `open_engine` makes one; it owns the pipeline until it is closed."""

    pipeline: Pipeline
    log: Log
    store: Store
    spark: SparkSession
    owner: Owner
    sets: tuple[tuple[CompiledView, ...], ...]
    is_silent: bool = False
    """Nothing is sent to topics: the log is only read."""

    @property
    def views(self) -> tuple[CompiledView, ...]:
        return tuple(view for views in self.sets for view in views)

    @property
    def topics(self) -> dict[str, Topic]:
        """The topics that some view reads."""
        return {name: self.log.topic(name) for view in self.views for name in view.topics}

    # --- generations ---

    def live(self, views: Sequence[CompiledView]) -> Generation | None:
        """The generation of this set that people read now; None if it has none, or is no longer the same set."""
        with self.store.snapshot() as snapshot:
            known = Catalog(snapshot.connection).live(self.pipeline.name, set_name(views))
        return known if known is not None and set(known.views) == {view.name for view in views} else None

    def changed(self) -> dict[str, str]:
        """Views whose live generation was made by something else than what is written now, and what differs."""
        with self.store.snapshot() as snapshot:
            known = Catalog(snapshot.connection).views(self.pipeline.name)
        return changed_views(self.sets, known)

    def open(self, views: Sequence[CompiledView]) -> RunningSet:
        """The live generation of a set, to go on with; a first one is made where there is none.

        ViewsChanged if the live one was made by other code: going on would mix two answers.
        """
        changed = {name: why for name, why in self.changed().items() if name in {view.name for view in views}}
        if changed:
            raise ViewsChanged(self.pipeline.name, changed, {view.name: view.spec.place for view in views})
        live = self.live(views)
        if live is None:
            running = self.new(views)
            self.switch(running)
            return running
        return self._running(views, live)

    def check_owner(self) -> None:
        """OwnershipLost if the heartbeat saw that somebody else owns the pipeline now."""
        if self.owner.is_lost:
            with self.store.transaction(self.owner):
                pass

    def reread(self, running: RunningSet) -> None:
        """Takes a set back to what is stored of it: after an error its last commit may or may not have come through."""
        with self.store.snapshot() as snapshot:
            stored = Catalog(snapshot.connection).read_generation(
                self.pipeline.name, running.generation.set, running.generation.number
            )
        if stored is not None:
            running.generation = stored

    def new(self, views: Sequence[CompiledView]) -> RunningSet:
        """A new, empty generation of a set, in the state building. What an earlier build left behind is removed."""
        with self.store.transaction(self.owner) as tx:
            catalog = Catalog(tx.connection)
            name = set_name(views)
            names = {view.name for view in views}
            for left in catalog.generations(self.pipeline.name):
                if left.state == "building" and names & set(left.views):
                    _drop(tx, left)
            number = catalog.next_number(self.pipeline.name, name, names)
            for view in views:
                tx.create(view.shape.table(number))
                for kept in view.kept:
                    tx.create(kept.table(number))
            generation = catalog.new_generation(self.pipeline.name, name, known_views(views, number))
        return self._running(views, generation)

    def switch(self, running: RunningSet) -> None:
        """Makes a generation the one people read, in one transaction, and tells of what differs from the one before.

        Of generations that are old by now, only the last is kept.
        """
        with self.store.transaction(self.owner) as tx:
            catalog = Catalog(tx.connection)
            known = catalog.views(self.pipeline.name)
            live = {each.set: each for view in running.views if (each := known.get(view.name))}
            others = [each for each in live.values() if each.set != running.generation.set]
            for view in running.views:
                if view.spec.changelog:
                    self._tell_difference(tx, view, known.get(view.name), running)
            switched = catalog.switch(running.generation, replaces=others)
            for name in switched.withdraw:
                tx.unpublish(name)
            for view in running.views:
                tx.publish(view.name, view.shape.table(running.generation.number), view.shape.columns.names)
            kept = {(old.set, old.number) for old in switched.old}
            for each in catalog.generations(self.pipeline.name):
                is_ours = bool(set(each.views) & set(running.generation.views))
                if is_ours and each.state == "old" and (each.set, each.number) not in kept:
                    _drop(tx, each)
        running.generation = replace(switched.live, fence=running.fence, counters=running.generation.counters)

    def _tell_difference(
        self, tx: Transaction, view: CompiledView, before: Generation | None, running: RunningSet
    ) -> None:
        """Tells the topic of changes what turns the older rows into the new ones: all rows, where it knew of none."""
        visible = [KEY, *view.shape.columns.names]
        new = tx.read(view.shape.table(running.generation.number), columns=visible)
        old = new.schema.empty_table()
        if before is not None and _is_told_of(view, before.views[view.name]):
            # The hidden columns of the older one may be others; its visible ones are the same.
            old_table = replace(view.shape, hidden=pa.schema([]), has_group=False).table(before.number)
            old = tx.read(old_table, columns=visible)
        records = changelog_rows(view.shape, difference(old, new), running.fence)
        enqueue(tx.connection, self.pipeline.name, str(view.spec.changelog), records)

    def build(
        self, views: Sequence[CompiledView], until: Mapping[str, Offsets], *, max_rows: int | None = None
    ) -> Iterator[RunningSet]:
        """Builds a new generation up to a cut, in one step or several, and yields it after each; it is not live yet."""
        running = self.new(views)
        size = build_rows(views, max_rows)
        while running.is_new or running.lag(until):
            running.step(running.next_cut(until, size))
            yield running

    def check_replay(self, views: Sequence[CompiledView]) -> None:
        """ReplayRefused if retention has removed records that a new generation would need, and the live one has.

        A first generation loses nothing by beginning with what is left.
        """
        with self.store.snapshot() as snapshot:
            known = Catalog(snapshot.connection).views(self.pipeline.name)
        if not any(view.name in known for view in views):
            return
        gone = {
            name: sum(topic.start().values())
            for view in views
            for name, topic in ((each, self.log.topic(each)) for each in view.topics)
        }
        lost = {name: count for name, count in gone.items() if count}
        if lost:
            raise ReplayRefused([view.name for view in views], lost)

    def set_of(self, view: str) -> tuple[CompiledView, ...]:
        """The views that move together with this one. UnknownView names the nearest."""
        for views in self.sets:
            if view in {each.name for each in views}:
                return views
        raise UnknownView(view, [each.name for each in self.views])

    def _running(self, views: Sequence[CompiledView], generation: Generation) -> RunningSet:
        return RunningSet(views, generation, log=self.log, store=self.store, spark=self.spark, owner=self.owner)

    # --- what views send to topics ---

    def deliver(self) -> int:
        """Carries what waits in the outbox to the log. Returns how many records were stored."""
        if self.is_silent:
            return 0
        with self.store.snapshot() as snapshot:
            topics = waiting(snapshot.connection, self.pipeline.name)
        if not topics:
            return 0
        for name in topics:
            if name.endswith(".dead"):
                self.log.create(name, DEAD_SCHEMA, exist_ok=True)
        return Relay(self.store, self.log, self.pipeline.name).deliver().stored


@contextmanager
def open_engine(
    pipeline: Pipeline,
    *,
    log: Log,
    store: Store,
    spark: SparkSession,
    is_silent: bool = False,
    views: Sequence[CompiledView] | None = None,
) -> Iterator[Engine]:
    """Makes missing topics, compiles the views and takes ownership; gives it back at the end.

    With `is_silent` the log is only read, and must have the topics. `views` are those of the pipeline where they were
    compiled before. PipelineProblems, PipelineOwned, SchemaRefused:
    before anything is written.
    """
    if not is_silent:
        make_topics(pipeline, log)
    compiled = {view.name: view for view in (compile_pipeline(pipeline, spark) if views is None else views)}
    with store.own(pipeline.name) as owner:
        for view in compiled.values():
            if view.spec.changelog and not is_silent:
                topic = make_changelog(view, log)
                with store.transaction(owner) as tx:
                    prepare(tx.connection, pipeline.name, topic)
        sets = tuple(tuple(compiled[name] for name in names) for names in connected_sets(compiled))
        yield Engine(pipeline, log, store, spark, owner, sets, is_silent)


def connected_sets(views: Mapping[str, CompiledView]) -> list[tuple[str, ...]]:
    """Views that move together, each set in topological order: those connected through views."""
    home: dict[str, int] = {}
    for number, view in enumerate(views.values()):
        joined = {home[name] for name in view.upstream}
        home[view.name] = number
        home.update({name: number for name, place in home.items() if place in joined})
    return [tuple(name for name in views if home[name] == number) for number in sorted(set(home.values()))]


def set_name(views: Sequence[CompiledView]) -> str:
    """A set goes by the first of its views, by name."""
    return min(view.name for view in views)


def build_rows(views: Sequence[CompiledView], asked: int | None) -> int | None:
    """How many records a step of a build takes; None: all.

    A view that is not folded would read the whole log again in each step, so it gets one. Aggregates of `penstock.agg`
    bring the values of a step to the driver, so theirs are small.
    """
    if any(view.keeping.how != "fold" for view in views):
        return None
    has_states = any(name.startswith(STATE.format("")) for view in views for name in view.shape.hidden.names)
    return min(asked or STATE_ROWS, STATE_ROWS) if has_states else asked


def _is_told_of(view: CompiledView, before: KnownView) -> bool:
    """Whether the topic of changes knows the older rows. For other columns it is a new one, if of the same name."""
    return before.details.get("changelog") == view.spec.changelog and before.schema.equals(view.shape.columns)


def _drop(tx: Transaction, generation: Generation) -> None:
    for name in Catalog(tx.connection).drop(generation):
        tx.drop(name)
