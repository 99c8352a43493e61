"""Stream: many short steps, each as soon as there is something new."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from penstock.consume.wakeup import Wakeup
from penstock.log.cut import Offsets
from penstock.modes.engine import Engine
from penstock.modes.running import RunningSet, StepReport
from penstock.modes.until import Until, reached

STEP_ROWS = 1_000_000
"""The most records a step takes while the stream is behind."""


class Stop:
    """Asks a running stream to end after the step it is in. May be called from a signal handler or another thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._wakeups: list[Wakeup] = []

    def __call__(self, *_: object) -> None:
        self._event.set()
        for wakeup in self._wakeups:
            wakeup.notify()

    @property
    def is_asked(self) -> bool:
        return self._event.is_set()

    def wakes(self, wakeup: Wakeup) -> None:
        """This sleeper is woken too."""
        self._wakeups.append(wakeup)


def run_stream(
    engine: Engine,
    *,
    once: bool = False,
    until: Until = None,
    max_rows: int | None = None,
    trigger: timedelta | None = None,
    on_open: Callable[[Sequence[RunningSet]], None] | None = None,
    on_step: Callable[[StepReport, RunningSet, int], None] | None = None,
    stop: Stop | None = None,
) -> list[RunningSet]:
    """Takes every view from its fence on, step by step, for ever; with `once` up to what is there now.

    With `until` it ends at that cut. While behind, a step takes up to `max_rows` records; at the head each takes what
    is there, and the next begins when something is appended, or `trigger` after the last one began. `on_open` is told of
    the sets before the first step, `on_step` of each step, its set, and how many records are left.
    """
    stop = stop or Stop()
    running = [engine.open(views) for views in engine.sets]
    if on_open is not None:
        on_open(running)
    goals = [reached(until, each.topics) for each in running] if once or until is not None else None
    wakeup = Wakeup()
    stop.wakes(wakeup)
    due = [0.0] * len(running)
    try:
        for each in running:
            for topic in each.topics.values():
                for partition in topic.partitions:
                    wakeup.watch(partition.end_path)
        engine.deliver()
        while not stop.is_asked:
            did_step = False
            for number, each in enumerate(running):
                goal = goals[number] if goals is not None else each.ends()
                if stop.is_asked or time.monotonic() < due[number] or not (each.is_new or each.lag(goal)):
                    continue
                due[number] = time.monotonic() + _pause(each, trigger)
                report = each.step(each.next_cut(goal, max_rows or STEP_ROWS))
                did_step = True
                if on_step is not None:
                    on_step(report, each, each.lag(each.ends() if goals is None else goal))
            if did_step:
                engine.deliver()
            elif goals is not None and not any(map(_is_behind, running, goals)):
                break
            else:
                wakeup.wait(_until_due(running, due, goals))
    finally:
        wakeup.close()
    return running


def _pause(running: RunningSet, trigger: timedelta | None) -> float:
    """How long after a step began the next one may: as the run says, or as a view of the set asks for."""
    asked = [view.spec.trigger for view in running.views if view.spec.trigger is not None]
    return max([each.total_seconds() for each in [*asked, *([trigger] if trigger else [])]], default=0.0)


def _is_behind(running: RunningSet, goal: Mapping[str, Offsets]) -> bool:
    return running.is_new or running.lag(goal) > 0


def _until_due(running: list[RunningSet], due: list[float], goals: list[dict[str, Offsets]] | None) -> float | None:
    """How long to sleep at most: until a set that is behind may take its next step."""
    waits = [
        due[number] - time.monotonic()
        for number, each in enumerate(running)
        if _is_behind(each, goals[number] if goals is not None else each.ends())
    ]
    return max(0.0, min(waits)) if waits else None
