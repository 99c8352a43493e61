"""Lambda: a batch part up to a cut, and a speed part that begins exactly there, read as one.

A batch part is a generation like any other, which is not changed any more. The speed part is a generation that lies on
top of it: each of its rows counts instead of the one beneath, or hides it. A step of the stream reads both as one and
writes the upper one, so every view is kept as it always is, and a view over a view sees the changes of the merged
one. Now and then a new batch part is computed beside the running pair; when a new speed part on top of it has come as
far as the old one, both are switched in, in one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Unpack

from penstock.clock import now_us
from penstock.log.partition import Offsets
from penstock.modes.batch import BATCH_ROWS
from penstock.modes.beside import FILL_ROWS, Beside, build, catch_up, follow
from penstock.modes.engine import Engine, build_rows
from penstock.modes.running import RunningSet
from penstock.modes.stream import StreamOptions, run_stream
from penstock.upkeep.compiled import CompiledView
from penstock.upkeep.step import Work
from penstock.views.catalog import Catalog, Generation

EVERY = timedelta(hours=1)

OnRound = Callable[[RunningSet, float], None]
"""Is told of a pair that was switched in, and how many seconds its round took."""
OnBatch = Callable[[RunningSet, int], None]
"""Is told of a batch part after each of its steps, and how many records are left."""


def run_lambda(
    engine: Engine,
    *,
    every: timedelta = EVERY,
    on_round: OnRound | None = None,
    on_batch: OnBatch | None = None,
    **options: Unpack[StreamOptions],
) -> list[RunningSet]:
    """A stream whose views are pairs of a batch part and a speed part, with a new batch part now and then.

    What is not there yet begins with a batch. What a stream or a batch has left is replaced by a pair as soon as its
    first round is done. See `run_stream` for the options.
    """
    changed = engine.changed()
    first = [
        views for views in engine.sets if engine.live(views) is None and not any(view.name in changed for view in views)
    ]
    others = [views for views in engine.sets if views not in first]
    rounds = Rounds(engine, first, every=every, on_round=on_round, on_batch=on_batch)
    return run_stream(engine, sets=others, beside=rounds, mode="lambda", **options)


class Rounds:
    """The batch rounds of a lambda run, one set of views after the other. See `Companion`."""

    def __init__(
        self,
        engine: Engine,
        first: Sequence[Sequence[CompiledView]] = (),
        *,
        every: timedelta = EVERY,
        on_round: OnRound | None = None,
        on_batch: OnBatch | None = None,
    ) -> None:
        self._engine = engine
        self._first = list(first)
        """Sets of which nothing is there yet."""
        self._every_us = every // timedelta(microseconds=1)
        self._on_round = on_round
        self._on_batch = on_batch
        self._goal: Mapping[str, Offsets] | None = None
        self._begun: _Round | None = None
        self._next_us: int | None = None
        self._done: set[str] = set()
        """Sets that had their round, where the run ends by itself: each has one at most."""

    def begin(self, wake: Callable[[], None], goal: Mapping[str, Offsets] | None) -> None:
        self._wake = wake
        self._goal = goal

    @property
    def is_done(self) -> bool:
        is_due = self._next_us is not None and self._next_us <= now_us()
        return self._begun is None and not self._first and not is_due

    def seconds_until_due(self) -> float | None:
        if self._begun is not None or self._next_us is None:
            return None
        return max((self._next_us - now_us()) / 1e6, 0.0)

    def go_on(self, running: list[RunningSet]) -> bool:
        if self._begun is None:
            self._begun = self._next(running)
        if self._begun is None:
            return False
        live, work, began = self._begun
        did = work.go_on()
        if work.is_done:
            self._switch(running, live, work.result)
            self._begun = None
            if self._on_round is not None:
                self._on_round(work.result, time.monotonic() - began)
        return did

    def abandon(self) -> None:
        if self._begun is not None:
            self._begun.work.abandon()
            self._begun = None

    def _next(self, running: list[RunningSet]) -> _Round | None:
        """The first round of a set, or that of the one that has waited longest, if one is due."""
        if self._first:
            return _Round(None, Beside(self._round(None, self._first[0]), self._wake), time.monotonic())
        due = {each.name: self._due_us(each.generation) for each in running if each.name not in self._done}
        live = min((each for each in running if each.name in due), key=lambda each: due[each.name], default=None)
        self._next_us = None if live is None else due[live.name]
        if live is None or due[live.name] > now_us():
            return None
        if self._goal is not None:
            self._done.add(live.name)
        return _Round(live, Beside(self._round(live, live.views), self._wake), time.monotonic())

    def _due_us(self, generation: Generation) -> int:
        return 0 if generation.beneath is None else generation.created_us + self._every_us

    def _round(self, live: RunningSet | None, views: Sequence[CompiledView]) -> Work[RunningSet]:
        """A new batch part up to what is there now, and on top of it a speed part about as far as the live one."""
        batch = self._engine.new(views) if live is None else self._first_rows(live)
        goal = batch.ends() if self._goal is None else self._goal
        ends = {name: goal[name] for name in batch.topics}
        rows = build_rows(views, BATCH_ROWS)
        pair = yield from make_pair(self._engine, batch, ends, rows, FILL_ROWS, self._on_batch)
        if live is not None:
            yield from follow(pair, live, BATCH_ROWS)
        return pair

    def _first_rows(self, live: RunningSet) -> RunningSet:
        """What a new batch part begins with: nothing, or the previous one where the log no longer has everything.

        Where the log no longer has what came after that one either, it is what people read now.
        """
        engine, generation = self._engine, live.generation
        if not engine.lost(live.views):
            return engine.new(live.views)
        if generation.beneath is not None:
            with engine.store.snapshot() as snapshot:
                catalog = Catalog(snapshot.connection)
                beneath = catalog.read_generation(generation.pipeline, generation.set, generation.beneath)
            assert beneath is not None, generation
            if not beneath.fence.lag_behind({name: topic.start() for name, topic in live.topics.items()}):
                generation = beneath
        return engine.copy_of(live.views, generation)

    def _switch(self, running: list[RunningSet], live: RunningSet | None, pair: RunningSet) -> None:
        """Both halves at once. What the old pair was is not kept: the new one holds the same, by the same code."""
        if live is None:
            self._engine.switch(pair, is_same_code=True)  # What it replaces, if anything, is empty.
            self._first.pop(0)
            self._done.update([pair.name] if self._goal is not None else [])
            running.append(pair)
            return
        catch_up(pair, live.fence.offsets)
        # A batch corrects nothing; what was corrected before its cut was corrected all the same.
        pair.corrected_before(live.generation.counters)
        self._engine.switch(pair, is_same_code=True)
        running[running.index(live)] = pair


class _Round(NamedTuple):
    live: RunningSet | None
    """What people read meanwhile; None if there is nothing yet."""
    work: Beside[RunningSet]
    began: float


def make_pair(
    engine: Engine,
    batch: RunningSet,
    until: Mapping[str, Offsets],
    rows: int | None,
    fill_rows: int | None = None,
    on_batch: OnBatch | None = None,
) -> Work[RunningSet]:
    """Takes a batch part to a cut, with the rows that redoing needs, and puts an empty speed part on top of it."""
    yield from build(batch, until, rows, on_batch)
    yield from batch.fill_kept_rows(fill_rows)
    return engine.on_top_of(batch)
