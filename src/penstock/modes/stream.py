"""Stream: many short steps, each as soon as there is something new."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TypedDict

from penstock.consume.wakeup import Wakeup
from penstock.errors import StoreUnavailable
from penstock.log.partition import Offsets
from penstock.modes.ahead import Foresight
from penstock.modes.beside import Companion
from penstock.modes.engine import Engine
from penstock.modes.journal import Journal, journal_of
from penstock.modes.patience import OnRetry, Patience
from penstock.modes.running import Cut, RunningSet, StepReport, step_together
from penstock.modes.until import Until, reached
from penstock.upkeep.compiled import CompiledView
from penstock.upkeep.step import finish

OnStep = Callable[[StepReport, RunningSet, int], None]
"""Is told of a step, of the set that took it, and of how many records are left."""

_Cut = Mapping[str, Offsets]
"""By topic."""

LOOK_SECONDS = 10.0
"""So often an idle stream looks whether it still owns the pipeline; its heartbeat knows."""

SWEEP_SECONDS = 600.0
"""So often a stream looks for generations that need not be kept any longer."""

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

    def wait(self, seconds: float) -> None:
        """Sleeps so long, or until it is asked."""
        self._event.wait(seconds)

    def wakes(self, wakeup: Wakeup) -> None:
        """This sleeper is woken too."""
        self._wakeups.append(wakeup)


class StreamOptions(TypedDict, total=False):
    """What every mode that streams can be told: see `run_stream`."""

    once: bool
    until: Until
    max_rows: int | None
    trigger: timedelta | None
    on_open: Callable[[Sequence[RunningSet]], None] | None
    on_step: OnStep | None
    on_retry: OnRetry | None
    stop: Stop | None


def run_stream(
    engine: Engine,
    *,
    once: bool = False,
    until: Until = None,
    max_rows: int | None = None,
    trigger: timedelta | None = None,
    sets: Sequence[Sequence[CompiledView]] | None = None,
    beside: Companion | None = None,
    mode: str = "stream",
    on_open: Callable[[Sequence[RunningSet]], None] | None = None,
    on_step: OnStep | None = None,
    on_retry: OnRetry | None = None,
    stop: Stop | None = None,
) -> list[RunningSet]:
    """Takes every view from its fence on, or those of `sets`, step by step, for ever; with `once` up to now.

    With `until` it ends at that cut. While behind, a step takes up to `max_rows` records; at the head each takes what
    is there, and the next begins when something is appended, or `trigger` after the last one began. `on_open` is told
    of the sets before the first step, `on_step` of each step, its set, and how many records are left. What goes on
    `beside` it is called between the steps. `mode` is what the journal of runs calls it.

    While the database is away, or its disk is full, it tells `on_retry`, waits, and goes on from the fence it then
    finds; StoreUnavailable once that has lasted for minutes, or if waiting cannot help.
    """
    stop = stop or Stop()
    patience = Patience(stop, on_retry)
    chosen = engine.sets if sets is None else sets
    patience.until_done(lambda: engine.check_unchanged(chosen))
    patience.until_done(engine.check_log)
    patience.until_done(lambda: engine.make_topics(engine.sets, until))
    running = patience.until_done(lambda: [engine.open(views) for views in chosen])
    if on_open is not None:
        on_open(running)
    goal = reached(until, engine.topics) if once or until is not None else None
    with closing(Wakeup()) as wakeup, journal_of(engine, mode, stop, patience) as journal:
        stream = _Stream(engine, running, goal, max_rows or STEP_ROWS, trigger, on_step, journal)
        stop.wakes(wakeup)
        for topic in engine.topics.values():
            for partition in topic.partitions:
                wakeup.watch(partition.signal)
        if beside is not None:
            beside.begin(wakeup.notify, goal)
        try:
            _loop(stream, beside, journal, wakeup, stop, patience)
        finally:
            if beside is not None:
                beside.abandon()
    return running


def _loop(
    stream: _Stream, beside: Companion | None, journal: Journal, wakeup: Wakeup, stop: Stop, patience: Patience
) -> None:
    """Until the stream is where it ends, or is asked to stop."""
    while not stop.is_asked:
        try:
            did_step = stream.go_on()
            if beside is not None:
                did_step |= beside.go_on(stream.running)
            journal.note_if_due()
        except StoreUnavailable as error:
            if beside is not None:
                beside.abandon()
            patience.failed(error)
            stream.must_reread = True
            continue
        patience.succeeded()
        if did_step:
            continue
        if stream.is_done and (beside is None or beside.is_done):
            break
        besides = [journal] if beside is None else [journal, beside]
        due = [LOOK_SECONDS, *(each.seconds_until_due() for each in [stream, *besides])]
        wakeup.wait(min(each for each in due if each is not None))


class _Stream:
    """The sets of a stream between their steps."""

    def __init__(
        self,
        engine: Engine,
        running: list[RunningSet],
        goal: Mapping[str, Offsets] | None,
        max_rows: int,
        trigger: timedelta | None,
        on_step: OnStep | None,
        journal: Journal,
    ) -> None:
        self.running = running
        """May be exchanged between two steps by what goes on beside it."""
        self._engine = engine
        self._goal = goal
        self._max_rows = max_rows
        self._trigger = trigger
        self._on_step = on_step
        self._journal = journal
        self._due: dict[str, float] = {}
        self._must_deliver = True
        self._sweep_at = 0.0
        self._foresight = Foresight(max_rows)
        self.must_reread = False
        """A commit may or may not have come through: only the database knows the fence."""

    @property
    def is_done(self) -> bool:
        """Whether every set is where the run ends."""
        return self._goal is not None and not any(map(_is_behind, self.running, self._ends()))

    def go_on(self) -> bool:
        """Takes the sets that are behind and due one step further, all together. False if there is none."""
        self._engine.check_owner()
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + SWEEP_SECONDS
            self._engine.drop_expired()
        if self.must_reread:
            self._engine.reread(self.running)
            self._foresight.forget()
            self.must_reread, self._must_deliver = False, True
        self._deliver()
        now = time.monotonic()
        ready = [
            (each, ends)
            for each, ends in zip(self.running, self._ends(), strict=True)
            if now >= self._due.get(each.name, 0.0) and _is_behind(each, ends)
        ]
        if not ready:
            for topic in {name: topic for each in self.running for name, topic in each.topics.items()}.values():
                topic.check_there()
            return False
        steps = [(each, each.next_cut(ends, self._max_rows), ends) for each, ends in ready]
        ahead = self._foresight.look(steps)
        read = _records([(_begun(each), cut) for each, cut, _ in steps])
        reports = finish(step_together([(each, cut) for each, cut, _ in steps], ahead))
        self._journal.stepped(
            rows=read,
            seconds=reports[0].seconds,
            lag=max(each.lag(ends) for each, ends in ready),
            late=max(late for report in reports for late in report.late.values()),
            corrected=sum(sum(report.corrected.values()) for report in reports),
            small={view: is_small for report in reports for view, is_small in report.small.items()},
        )
        self._must_deliver = True
        for (each, ends), report in zip(ready, reports, strict=True):
            self._due[each.name] = now + _pause(each, self._trigger)
            if self._on_step is not None:
                self._on_step(report, each, each.lag(ends))
        self._deliver()
        return True

    def seconds_until_due(self) -> float | None:
        """How long to sleep at most: until a set that is behind may take its next step."""
        waits = [
            self._due.get(each.name, 0.0) - time.monotonic()
            for each, ends in zip(self.running, self._ends(), strict=True)
            if _is_behind(each, ends)
        ]
        return max(0.0, min(waits)) if waits else None

    def _ends(self) -> list[_Cut]:
        """How far each set may go now: as far as the run goes, or as the log has come. Each topic is asked once."""
        ends = self._goal
        if ends is None:
            topics = {name: topic for each in self.running for name, topic in each.topics.items()}
            ends = {name: topic.end() for name, topic in topics.items()}
        return [{name: ends[name] for name in each.topics} for each in self.running]

    def _deliver(self) -> None:
        """Carries to the log what the last step sends to topics."""
        if self._must_deliver:
            self._engine.deliver()
            self._must_deliver = False


def _records(ways: Sequence[tuple[Cut, Cut]]) -> int:
    """How many records lie on these ways from cut to cut; one that several ways pass counts once."""
    passed: dict[str, int] = {}
    for begun, cut in ways:
        for topic, offsets in cut.items():
            records = sum(offset - begun.get(topic, {}).get(number, 0) for number, offset in offsets.items())
            passed[topic] = max(passed.get(topic, 0), records)
    return sum(passed.values())


def _begun(running: RunningSet) -> Cut:
    """Where the next step of a set begins."""
    return {name: topic.start() for name, topic in running.topics.items()} if running.is_new else running.fence.offsets


def _pause(running: RunningSet, trigger: timedelta | None) -> float:
    """How long after a step began the next one may: as the run says, or as a view of the set asks for."""
    asked = [view.spec.trigger for view in running.views if view.spec.trigger is not None]
    return max([each.total_seconds() for each in [*asked, *([trigger] if trigger else [])]], default=0.0)


def _is_behind(running: RunningSet, goal: Mapping[str, Offsets]) -> bool:
    return running.is_new or running.lag(goal) > 0
