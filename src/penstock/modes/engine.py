"""The engine: a pipeline, a log and a database, brought together and ready to run.

It compiles the views, owns the pipeline, makes the topics that are missing once nothing refuses the run, and knows the
generations of each set of views. `batch` and `stream` only say how far the steps reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.alerts.compiled import Alerts, compile_alerts
from penstock.errors import ReplayRefused, TopicForgets, UnknownView, ViewsChanged
from penstock.log.log import Log
from penstock.log.partition import Offsets
from penstock.log.topic import Topic
from penstock.modes.changed import changed_views
from penstock.modes.origin import check_origin
from penstock.modes.running import RunningSet, known_views
from penstock.modes.switching import KEEP_OLD, drop_expired, drop_generations, is_expired, switch_in
from penstock.modes.topics import (
    check_sent_topics,
    check_topics,
    found_topic,
    make_alert_topics,
    make_changelog,
    make_topics,
    told_topics,
)
from penstock.modes.until import Until, reached
from penstock.modes.ways import check_only_stepped
from penstock.pipeline.pipeline import Pipeline
from penstock.produce.dead_letters import SCHEMA as DEAD_SCHEMA
from penstock.upkeep.commit import dead_topic
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from penstock.upkeep.fold import STATE
from penstock.upkeep.recent_rows import Shelves
from penstock.views.catalog import Catalog, Generation
from penstock.views.outbox import Relay, prepare, remembered_ids, waiting
from penstock.views.owner import Owner
from penstock.views.store import Store, Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESUMED = ("old", "building", "ready")
"""Generations that can be gone on with, the worst first."""

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
    keep_old: timedelta = KEEP_OLD
    """So long a generation that was replaced is kept for a rollback."""
    alerts: Alerts = field(default_factory=Alerts)
    """Of which rows people are told."""
    _shelves: Shelves = field(default_factory=dict, init=False, repr=False, compare=False)
    """Where all its sets hold their latest rows."""
    _has_topics: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)
    """Not empty once the topics are made."""

    @property
    def views(self) -> tuple[CompiledView, ...]:
        return tuple(view for views in self.sets for view in views)

    @property
    def topics(self) -> dict[str, Topic]:
        """The topics that some view reads."""
        return {name: self.log.topic(name) for view in self.views for name in view.topics}

    def make_topics(self, sets: Sequence[Sequence[CompiledView]], until: Until = None) -> None:
        """Makes the topics that are missing, and grows those whose definition grew, for a run of these sets.

        A run does so once nothing can refuse it any more, so that one that is refused leaves the log as it was.
        TopicForgets if a topic removes what a view counts, UntilError if the run is to end where there is no record.
        """
        for views in sets:
            self._check_topics(views)
        if self.is_silent or self._has_topics:
            return
        topics = {name: found_topic(name, self.log) for view in self.views for name in view.topics}
        if None not in topics.values():
            reached(until, self.topics)
        make_topics(self.pipeline, self.log)
        for view in self.views:
            if view.spec.changelog:
                make_changelog(view, self.log)
        make_alert_topics(self.pipeline, self.log)
        self._prepare_outbox()
        self._has_topics.append(True)

    def _prepare_outbox(self) -> None:
        """Lets the ids of what is sent go on above what the log remembers: see `penstock.views.outbox.prepare`."""
        changelogs = [view.spec.changelog for view in self.views if view.spec.changelog]
        letters = [dead_topic(self.pipeline.name, view.name) for view in self.views]
        names = [*changelogs, *told_topics(self.pipeline), *letters]
        topics = [topic for name in names if (topic := found_topic(name, self.log)) is not None]
        remembered = remembered_ids(self.pipeline.name, topics)
        if remembered:
            with self.store.transaction(self.owner) as tx:
                prepare(tx.connection, self.pipeline.name, remembered)

    # --- generations ---

    def live(self, views: Sequence[CompiledView]) -> Generation | None:
        """The generation of this set that people read now, if it can be gone on with.

        None if there is none, if it is no longer the same set, or if other code made one that nothing is stored in.
        """
        with self.store.snapshot() as snapshot:
            known = Catalog(snapshot.connection).live(self.pipeline.name, set_name(views))
        made = {view.name: view.fingerprint for view in views}
        if known is None or set(known.views) != set(made):
            return None
        return None if known.is_empty and known.fingerprints != made else known

    def changed(self) -> dict[str, str]:
        """Views whose live generation was made by something else than what is written now, and what differs."""
        with self.store.snapshot() as snapshot:
            known = Catalog(snapshot.connection).views(self.pipeline.name)
        return changed_views(self.sets, known)

    def check_unchanged(self, sets: Sequence[Sequence[CompiledView]]) -> None:
        """ViewsChanged if the live generation of a set was made by other code: going on would mix two answers."""
        changed = self.changed()
        if any(view.name in changed for views in sets for view in views):
            # All of them, also those of other sets: people want to know once.
            raise ViewsChanged(self.pipeline.name, changed, {view.name: view.spec.place for view in self.views})

    def check_log(self) -> None:
        """LogReplaced if a live generation was computed from other topics of the same names, or from lost records."""
        with self.store.snapshot() as snapshot:
            known = Catalog(snapshot.connection).views(self.pipeline.name)
        live = {known[view.name].set: known[view.name] for view in self.views if view.name in known}
        topics = {name: found_topic(name, self.log) for view in self.views for name in view.topics}
        for generation in live.values():
            check_origin(generation, topics)

    def open(self, views: Sequence[CompiledView]) -> RunningSet:
        """The live generation of a set, to go on with; a first one is made where there is none.

        ViewsChanged if the live one was made by other code.
        """
        self.check_unchanged([views])
        self._check_topics(views)
        live = self.live(views)
        if live is None:
            running = self.new(views)
            # What it replaces, if anything, is empty.
            self.switch(running, is_same_code=True)
            return running
        return self._running(views, live)

    def check_owner(self) -> None:
        """OwnershipLost if the heartbeat saw that somebody else owns the pipeline now."""
        if self.owner.is_lost:
            with self.store.transaction(self.owner):
                pass

    def reread(self, sets: Sequence[RunningSet]) -> None:
        """Takes sets back to what is stored of them: after an error their last commit may or may not have come through.

        A server that has taken over from another one may even lack commits that were acknowledged, and what they sent.
        """
        if self._has_topics:
            self._prepare_outbox()
        for each in sets:
            self._reread(each)

    def _reread(self, running: RunningSet) -> None:
        with self.store.snapshot() as snapshot:
            catalog, name = Catalog(snapshot.connection), running.generation.set
            stored = catalog.read_generation(self.pipeline.name, name, running.generation.number)
            if stored is None:  # It was replaced: the lost answer was that to a switch.
                stored = catalog.live(self.pipeline.name, name)
        if stored is not None:
            running.generation = stored

    def new(self, views: Sequence[CompiledView]) -> RunningSet:
        """A new, empty generation of a set, in the state building. What an earlier build left behind is removed."""
        self._check_topics(views)
        with self.store.transaction(self.owner) as tx:
            self._remove_unfinished(tx, views)
            return self._made(tx, views)

    def _check_topics(self, views: Sequence[CompiledView]) -> None:
        """TopicForgets if a topic removes records that a view goes on counting."""
        for view in views:
            if view.name in self.pipeline.tables:
                continue  # The newest record of each key is all that it wants.
            for name in view.topics:
                found = found_topic(name, self.log)
                if found is None:
                    continue
                topic = found.definition
                if topic.compact:
                    why = "the topic is compacted: it removes records that the view has counted, and a batch would miss"
                    hint = f'read its newest rows, as app.table(..., topic="{name}"), or do not compact it'
                    raise TopicForgets(view.name, view.spec.place, name, why, hint)
                if view.keeping.how == "whole" and (topic.retention_age or topic.retention_bytes):
                    why = "all of it is computed again at each step, and the topic has retention: rows would disappear"
                    hint = "let it be kept otherwise, with within=, or give the topic no retention"
                    raise TopicForgets(view.name, view.spec.place, name, why, hint)

    def unfinished(self, views: Sequence[CompiledView]) -> RunningSet | None:
        """A generation that the code as it is now has made, or begun to make, and that is not live; None without one.

        It may be one that a run did not finish, one that waits to be switched in, or one that was replaced since.
        """
        with self.store.snapshot() as snapshot:
            there = Catalog(snapshot.connection).generations(self.pipeline.name, set_name(views))
        made = {view.name: view.fingerprint for view in views}
        found = [
            each
            for each in there
            if each.state in _RESUMED
            and each.fingerprints == made
            and each.beneath is None
            # Of one that has no fence yet only some of its first rows may be there.
            and each.fence.offsets
        ]
        best = max(found, key=lambda each: (_RESUMED.index(each.state), each.number), default=None)
        return None if best is None else self._running(views, best)

    def on_top_of(self, batch: RunningSet) -> RunningSet:
        """A speed part over a generation, which is a batch part from now on: both are read, and kept, as one."""
        with self.store.transaction(self.owner) as tx:
            return self._made(tx, batch.views, beneath=batch.generation)

    def copy_of(self, views: Sequence[CompiledView], source: Generation) -> RunningSet:
        """A new generation, in the state building, that begins with the rows and the fence of another one.

        A pair is copied as it is read: as one.
        """
        with self.store.transaction(self.owner) as tx:
            self._remove_unfinished(tx, views)
            running = self._made(tx, views)
            layers = running.generation.layers
            for view in views:
                tx.copy(view.shape.table(source.layers), view.shape.table(layers))
                for kept in view.kept:
                    tx.copy(kept.table(source.layers), kept.table(layers))
            catalog = Catalog(tx.connection)
            running.generation = catalog.set_fence(running.generation, source.fence, source.counters)
        return running

    def _made(self, tx: Transaction, views: Sequence[CompiledView], beneath: Generation | None = None) -> RunningSet:
        catalog, name = Catalog(tx.connection), set_name(views)
        number = catalog.next_number(self.pipeline.name, name, [view.name for view in views])
        layers = (number,) if beneath is None else (number, beneath.number)
        # Before the tables: their names may be another pipeline's, which it says.
        made = catalog.new_generation(self.pipeline.name, name, known_views(views, layers), beneath=beneath)
        for view in views:
            tx.create(view.shape.table(layers))
            for kept in view.kept:
                tx.create(kept.table(layers))
        return self._running(views, made)

    def _remove_unfinished(self, tx: Transaction, views: Sequence[CompiledView]) -> None:
        names = {view.name for view in views}
        there = Catalog(tx.connection).generations(self.pipeline.name)
        left = [each for each in there if each.state in ("building", "ready") and names & set(each.views)]
        drop_generations(tx, self.pipeline.name, left)

    def switch(self, *sets: RunningSet, is_same_code: bool = False) -> None:
        """Makes these generations the ones people read, all in one transaction: see `switch_in`."""
        with self.store.transaction(self.owner) as tx:
            generations = [each.generation for each in sets]
            live = switch_in(tx, generations, keep_old=self.keep_old, is_same_code=is_same_code)
        for each, generation in zip(sets, live, strict=True):
            each.generation = generation

    def build(
        self, views: Sequence[CompiledView], until: Mapping[str, Offsets], *, max_rows: int | None = None
    ) -> Iterator[RunningSet]:
        """Builds a new generation up to a cut, in one step or several, and yields it after each; it is not live yet."""
        running = self.new(views)
        size = build_rows(views, max_rows)
        while running.is_new or running.lag(until):
            running.step(running.next_cut(until, size))
            yield running

    def drop_expired(self) -> None:
        """Drops the generations that were replaced longer ago than they are kept."""
        with self.store.snapshot() as snapshot:
            there = Catalog(snapshot.connection).generations(self.pipeline.name)
        if any(is_expired(each, self.keep_old) for each in there):
            with self.store.transaction(self.owner) as tx:
                drop_expired(tx, self.pipeline.name, self.keep_old)

    def check_replay(self, views: Sequence[CompiledView]) -> None:
        """ReplayRefused if retention has removed records that a new generation would need, and the live one has."""
        lost = self.lost(views)
        if lost:
            raise ReplayRefused([view.name for view in views], lost)

    def lost(self, views: Sequence[CompiledView]) -> dict[str, int]:
        """By topic, how many records retention has removed that the live generation has and a new one would not have.

        A first generation loses nothing by beginning with what is left.
        """
        with self.store.snapshot() as snapshot:
            known = Catalog(snapshot.connection).views(self.pipeline.name)
        if not any(view.name in known for view in views):
            return {}
        topics = {name: found_topic(name, self.log) for view in views for name in view.topics}
        # One that the run will make has lost nothing.
        gone = {name: sum(topic.start().values()) for name, topic in topics.items() if topic is not None}
        return {name: count for name, count in gone.items() if count}

    def set_of(self, view: str) -> tuple[CompiledView, ...]:
        """The views that move together with this one. UnknownView names the nearest."""
        for views in self.sets:
            if view in {each.name for each in views}:
                return views
        raise UnknownView(view, [each.name for each in self.views])

    def _running(self, views: Sequence[CompiledView], generation: Generation) -> RunningSet:
        return RunningSet(
            views,
            generation,
            log=self.log,
            store=self.store,
            spark=self.spark,
            owner=self.owner,
            alerts=self.alerts,
            shelves=self._shelves,
        )

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
    keep_old: timedelta = KEEP_OLD,
    in_steps: bool = True,
) -> Iterator[Engine]:
    """Compiles the views and takes ownership; gives it back at the end. The log is only read: see `make_topics`.

    With `is_silent` it always is, and must have the topics. `views` are those of the pipeline where they were
    compiled before. PipelineProblems, AlertConditionError, PipelineOwned, TopicDiffers, ViewTaken: before anything is
    written. Where views are taken further `in_steps`, ChangelogTaken if one of them was run record at a time.
    """
    if not is_silent:
        check_topics(pipeline, log)
    compiled = {view.name: view for view in (compile_pipeline(pipeline, spark) if views is None else views)}
    alerts, problems = compile_alerts([] if is_silent else pipeline.alerts.values(), [*compiled.values()], spark)
    for problem in problems:
        raise problem
    if not is_silent:
        check_sent_topics(pipeline, compiled.values(), log)
    with store.own(pipeline.name) as owner:
        with store.snapshot() as snapshot:
            Catalog(snapshot.connection).check_names(pipeline.name, compiled)
        if in_steps and not is_silent:
            check_only_stepped(store, pipeline.name, compiled.values())
        sets = tuple(tuple(compiled[name] for name in names) for names in connected_sets(compiled))
        yield Engine(pipeline, log, store, spark, owner, sets, is_silent, keep_old, alerts)


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
