"""Batch: one long step over the whole log into a new generation, which is then switched in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from penstock.modes.engine import Engine
from penstock.modes.journal import journal_of
from penstock.modes.running import RunningSet
from penstock.modes.stream import Stop
from penstock.modes.until import Until, reached
from penstock.upkeep.compiled import CompiledView
from penstock.views.fence import Fence

BATCH_ROWS = 20_000_000
"""A folded view is built in steps of this size, so that what one step touches stays bounded."""


def run_batch(
    engine: Engine,
    *,
    until: Until = None,
    sets: Sequence[Sequence[CompiledView]] | None = None,
    max_rows: int | None = None,
    on_progress: Callable[[RunningSet, int], None] | None = None,
    allow_loss: bool = False,
    stop: Stop | None = None,
) -> list[RunningSet]:
    """Computes every view, or those of `sets`, anew up to a cut, and switches each set in when it is complete.

    Readers see the old rows until then. Killed, it leaves the live generation as it was; the next run removes what was
    half built. ReplayRefused if retention removed records, unless `allow_loss`. `on_progress` is told how many records
    of a set are left after each step. `stop` tells an end that was asked for from a failure.
    """
    chosen = engine.sets if sets is None else sets
    if not allow_loss:
        for views in chosen:
            engine.check_replay(views)
    engine.make_topics(chosen, until)
    done = []
    goal = reached(until, engine.topics)
    with journal_of(engine, "batch", stop) as journal:
        for views in chosen:
            ends = {name: goal[name] for view in views for name in view.topics}
            running, began = None, time.monotonic()
            left = Fence({name: engine.log.topic(name).start() for name in ends}).lag_behind(ends)
            for running in engine.build(views, ends, max_rows=max_rows or BATCH_ROWS):
                before, left = left, running.lag(ends)
                small = running.last.small if running.last is not None else {}
                journal.stepped(rows=before - left, seconds=time.monotonic() - began, lag=left, small=small)
                journal.note_if_due()
                began = time.monotonic()
                if on_progress is not None:
                    on_progress(running, left)
            assert running is not None
            engine.switch(running)
            done.append(running)
        engine.deliver()
    return done
