"""Lambda: a batch part up to a cut, and a speed part that begins exactly there, read as one.

A batch part is a generation like any other, which is not changed any more. The speed part is a generation that lies on
top of it: each of its rows counts instead of the one beneath, or hides it. A step of the stream reads both as one and
writes the upper one, so every view is kept as it always is, and a view over a view sees the changes of the merged
one. Now and then a new batch part is computed beside the running pair; when a new speed part on top of it has come as
far as the old one, both are switched in, in one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Unpack

from penstock.clock import now_us
from penstock.log.cut import Offsets
from penstock.modes.batch import BATCH_ROWS
from penstock.modes.beside import FILL_ROWS, Beside, build, catch_up, follow
from penstock.modes.engine import Engine, build_rows
from penstock.modes.running import RunningSet
from penstock.modes.stream import StreamOptions, run_stream
from penstock.modes.until import reached
from penstock.upkeep.step import Work, finish
from penstock.views.catalog import Catalog, Generation

EVERY = timedelta(hours=1)

OnRound = Callable[[RunningSet, float], None]
"""Is told of a pair that was switched in, and how many seconds its round took."""


def run_lambda(
    engine: Engine,
    *,
    every: timedelta = EVERY,
    on_round: OnRound | None = None,
    **options: Unpack[StreamOptions],
) -> list[RunningSet]:
    """A stream whose views are pairs of a batch part and a speed part, with a new batch part now and then.

    What is not there yet begins with a batch. What a stream or a batch has left is replaced by a pair as soon as its
    first round is done. See `run_stream` for the options.
    """
    goal = reached(options.get("until"), engine.topics)
    for views in engine.sets:
        if engine.live(views) is None and not any(view.name in engine.changed() for view in views):
            began = time.monotonic()
            ends = {name: goal[name] for view in views for name in view.topics}
            pair = finish(make_pair(engine, engine.new(views), ends, build_rows(views, BATCH_ROWS)))
            engine.switch(pair)
            if on_round is not None:
                on_round(pair, time.monotonic() - began)
    return run_stream(engine, beside=Rounds(engine, every=every, on_round=on_round), **options)


class Rounds:
    """The batch rounds of a lambda run, one set of views after the other. See `Companion`."""

    def __init__(self, engine: Engine, *, every: timedelta = EVERY, on_round: OnRound | None = None) -> None:
        self._engine = engine
        self._every_us = every // timedelta(microseconds=1)
        self._on_round = on_round
        self._goal: Mapping[str, Offsets] | None = None
        self._begun: tuple[RunningSet, Beside[RunningSet], float] | None = None
        self._next_us: int | None = None
        self._done: set[str] = set()
        """Sets that had their round, where the run ends by itself: each has one at most."""

    def begin(self, wake: Callable[[], None], goal: Mapping[str, Offsets] | None) -> None:
        self._wake = wake
        self._goal = goal

    @property
    def is_done(self) -> bool:
        return self._begun is None and (self._next_us is None or self._next_us > now_us())

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
            self._begun = None
            self._switch(running, live, work.result)
            if self._on_round is not None:
                self._on_round(work.result, time.monotonic() - began)
        return did

    def abandon(self) -> None:
        if self._begun is not None:
            self._begun[1].abandon()
            self._begun = None

    def _next(self, running: list[RunningSet]) -> tuple[RunningSet, Beside[RunningSet], float] | None:
        """The round of the set that has waited longest, if one is due."""
        due = {each.name: self._due_us(each.generation) for each in running if each.name not in self._done}
        live = min((each for each in running if each.name in due), key=lambda each: due[each.name], default=None)
        self._next_us = None if live is None else due[live.name]
        if live is None or due[live.name] > now_us():
            return None
        if self._goal is not None:
            self._done.add(live.name)
        return live, Beside(self._round(live), self._wake), time.monotonic()

    def _due_us(self, generation: Generation) -> int:
        return 0 if generation.beneath is None else generation.created_us + self._every_us

    def _round(self, live: RunningSet) -> Work[RunningSet]:
        """A new batch part up to what is there now, and on top of it a speed part about as far as the live one."""
        goal = live.ends() if self._goal is None else self._goal
        ends = {name: goal[name] for name in live.topics}
        batch = self._first_rows(live)
        pair = yield from make_pair(self._engine, batch, ends, build_rows(live.views, BATCH_ROWS), FILL_ROWS)
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

    def _switch(self, running: list[RunningSet], live: RunningSet, pair: RunningSet) -> None:
        """Both halves at once. What the old pair was is not kept: the new one holds the same, by the same code."""
        catch_up(pair, live.fence.offsets)
        # A batch corrects nothing; what was corrected before its cut was corrected all the same.
        pair.corrected_before(live.generation.counters)
        self._engine.switch(pair, is_same_code=True)
        running[running.index(live)] = pair


def make_pair(
    engine: Engine, batch: RunningSet, until: Mapping[str, Offsets], rows: int | None, fill_rows: int | None = None
) -> Work[RunningSet]:
    """Takes a batch part to a cut, with the rows that redoing needs, and puts an empty speed part on top of it."""
    yield from build(batch, until, rows)
    yield from batch.fill_kept_rows(fill_rows)
    return engine.on_top_of(batch)
