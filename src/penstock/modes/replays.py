"""Kappa: when the code of views changed, the log is replayed into new generations beside the live ones.

People go on reading the old rows. A replay goes exactly as far as the old generation came, so that the two can be
compared record for record; then all that changed is switched in, in one transaction, and the stream goes on from there.
A replay that was stopped or killed goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

from penstock.log.partition import Offsets
from penstock.modes.batch import BATCH_ROWS
from penstock.modes.beside import FILL_ROWS, Beside, build
from penstock.modes.compared import Compared, compare_all
from penstock.modes.engine import Engine, build_rows
from penstock.modes.running import RunningSet
from penstock.modes.stream import StreamOptions, run_stream
from penstock.upkeep.compiled import CompiledView
from penstock.upkeep.step import Work
from penstock.views.catalog import Catalog, Generation
from penstock.views.requests import answer, is_asked

LOOK_SECONDS = 0.5
"""So often a replay that is held looks whether it may be switched in."""


@dataclass
class Watch:
    """What people may be told of replays. Every part does nothing unless it is replaced."""

    replayed: Callable[[RunningSet, int], None] = lambda *_: None
    """After each step: the set, and how many records are left."""
    compared: Callable[[Sequence[Compared]], None] = lambda _: None
    """Once everything is replayed: how the new rows differ from the old ones."""
    held: Callable[[], None] = lambda: None
    switched: Callable[[Sequence[RunningSet]], None] = lambda _: None


def run_kappa(
    engine: Engine,
    *,
    hold: bool = False,
    allow_loss: bool = False,
    watch: Watch | None = None,
    **options: Unpack[StreamOptions],
) -> list[RunningSet]:
    """A stream; views whose code changed are replayed beside it, compared with the live ones, and switched in.

    With `hold` they wait until somebody asks for the switch. ReplayRefused if retention has removed records that a
    replay would need, unless `allow_loss`. See `run_stream` for the options.
    """
    changed = engine.changed()
    replayed = [views for views in engine.sets if any(view.name in changed for view in views)]
    others = [views for views in engine.sets if views not in replayed]
    for views in () if allow_loss else replayed:
        engine.check_replay(views)
    replays = Replays(engine, replayed, hold=hold, watch=watch)
    return run_stream(engine, sets=others, beside=replays, mode="kappa", **options)


class Replays:
    """The replays of a kappa run, one set of views after the other. See `Companion`."""

    def __init__(
        self,
        engine: Engine,
        sets: Sequence[Sequence[CompiledView]],
        *,
        hold: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self._engine = engine
        self._waiting = list(sets)
        self._hold = hold
        self._watch = watch or Watch()
        self._begun: Beside[RunningSet] | None = None
        self._replayed: list[RunningSet] = []
        self._is_held = False
        self._looked = 0.0

    def begin(self, wake: Callable[[], None], goal: Mapping[str, Offsets] | None) -> None:  # noqa: ARG002
        self._wake = wake

    @property
    def is_done(self) -> bool:
        return not self._waiting and not self._replayed

    def seconds_until_due(self) -> float | None:
        return LOOK_SECONDS if self._is_held else None

    def go_on(self, running: list[RunningSet]) -> bool:
        if self.is_done:
            return False
        if self._is_held:
            return self._look(running)
        if self._begun is None:
            if self._was_switched(self._waiting[0]):
                running.append(self._engine.open(self._waiting.pop(0)))
                self._watch.switched(running[-1:])
                return True
            self._begun = Beside(self._replay(self._waiting[0]), self._wake)
        did = self._begun.go_on()
        if self._begun.is_done:
            self._replayed.append(self._begun.result)
            self._begun = None
            self._waiting.pop(0)
            if not self._waiting:
                self._finish(running)
        return did

    def abandon(self) -> None:
        if self._begun is not None:
            self._begun.abandon()
            self._begun = None
        self._waiting[:0] = [each.views for each in self._replayed]
        self._replayed.clear()
        self._is_held = False

    def _was_switched(self, views: Sequence[CompiledView]) -> bool:
        """Whether these are live already: the answer to their switch was lost, and it came through."""
        changed = self._engine.changed()
        return not any(view.name in changed for view in views)

    def _replay(self, views: Sequence[CompiledView]) -> Work[RunningSet]:
        """The new generation of a set, as far as the live one has come."""
        running = self._engine.unfinished(views) or self._engine.new(views)
        ends = self._until(views)
        rows = build_rows(views, BATCH_ROWS)
        yield from build(running, ends, rows, self._watch.replayed)
        yield from running.fill_kept_rows(FILL_ROWS)
        return running

    def _until(self, views: Sequence[CompiledView]) -> dict[str, Offsets]:
        """Where the old generations of these views are; in topics that they do not read, what is there now."""
        live = [each.fence.offsets for each in self._live(views).values()]
        ends: dict[str, Offsets] = {}
        for name in {name for view in views for name in view.topics}:
            reached = [each[name] for each in live if name in each]
            ends[name] = (
                {number: max(each.get(number, 0) for each in reached) for number in reached[0]}
                if reached
                else self._engine.log.topic(name).end()
            )
        return ends

    def _live(self, views: Sequence[CompiledView]) -> dict[str, Generation]:
        with self._engine.store.snapshot() as snapshot:
            known = Catalog(snapshot.connection).views(self._engine.pipeline.name)
        return {view.name: known[view.name] for view in views if view.name in known}

    def _finish(self, running: list[RunningSet]) -> None:
        """Everything is replayed: it is compared, and switched in or held."""
        with self._engine.store.snapshot() as snapshot:
            known = Catalog(snapshot.connection).views(self._engine.pipeline.name)
            found = [one for each in self._replayed for one in compare_all(snapshot, known, each.generation)]
        self._watch.compared(found)
        if not self._hold:
            self._switch(running)
            return
        with self._engine.store.transaction(self._engine.owner) as tx:
            answer(tx.connection, self._engine.pipeline.name, "switch")
            for each in self._replayed:
                each.generation = Catalog(tx.connection).ready(each.generation)
        self._is_held = True
        self._watch.held()

    def _look(self, running: list[RunningSet]) -> bool:
        """Whether somebody has asked for the switch."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return False
        self._looked = time.monotonic()
        pipeline = self._engine.pipeline.name
        with self._engine.store.snapshot() as snapshot:
            if not is_asked(snapshot.connection, pipeline, "switch"):
                return False
        self._switch(running)
        with self._engine.store.transaction(self._engine.owner) as tx:
            answer(tx.connection, pipeline, "switch")
        return True

    def _switch(self, running: list[RunningSet]) -> None:
        self._engine.switch(*self._replayed)
        self._watch.switched(self._replayed)
        running += self._replayed
        self._replayed, self._is_held = [], False
