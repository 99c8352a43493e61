"""Beside a stream: a generation that is built while the live ones go on, all in one thread.

Spark computes in threads of its own. Whatever else there is to do, such as merging and writing, is done in small
pieces between two steps of the stream, so that nothing is shared between threads and nothing has to be locked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, Protocol

import pyarrow as pa

from penstock.log.partition import Offsets
from penstock.modes.running import Cut, RunningSet, step_together
from penstock.plans.collect import begin
from penstock.upkeep.slices import SMALL_ROWS
from penstock.upkeep.step import T, Wanted, Work

FILL_ROWS = 200_000
"""So many kept rows are written at a time while others are live."""

_pool = ThreadPoolExecutor(2, thread_name_prefix="penstock-beside")


class Companion(Protocol):
    """What goes on beside a stream. The stream calls it between its steps."""

    def begin(self, wake: Callable[[], None], goal: Mapping[str, Offsets] | None) -> None:
        """The stream is about to begin, and ends at `goal`, or not at all. `wake` ends its sleep."""
        ...

    def go_on(self, running: list[RunningSet]) -> bool:
        """Does a piece of its work; False if it has none, or waits. It may exchange the sets that the stream keeps."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether a stream that ends may end now."""
        ...

    def seconds_until_due(self) -> float | None:
        """How long the stream may sleep at most, if nothing else happens."""
        ...

    def abandon(self) -> None:
        """The stream ends, or must begin anew: what was begun is left as it is."""
        ...


class Beside(Generic[T]):
    """Work whose plans are computed in another thread; `on_ready` is called there when it can go on."""

    def __init__(self, work: Work[T], on_ready: Callable[[], None]) -> None:
        self._work = work
        self._on_ready = on_ready
        self._asked: Future[None] | None = None
        self._answers: list[Sequence[pa.Table] | Exception] = []
        self._results: list[T] = []

    def go_on(self) -> bool:
        """Does what can be done without waiting. False if it has to wait."""
        if self._asked is not None and not self._answers:
            return False
        try:
            answer = self._answers.pop() if self._answers else None
            if answer is None:
                wanted = next(self._work)
            elif isinstance(answer, Exception):
                wanted = self._work.throw(answer)
            else:
                wanted = self._work.send(answer)
        except StopIteration as done:
            self._results.append(done.value)
            return True
        if wanted:
            self._asked = _pool.submit(self._compute, wanted)
        else:
            self._answers.append([])  # It only lets others have a turn.
        return True

    def _compute(self, wanted: Wanted) -> None:
        try:
            tables = begin(wanted)
            tables.wait()  # The stream must not have to.
            self._answers.append(tables)
        except Exception as error:
            self._answers.append(error)
        self._on_ready()

    @property
    def is_done(self) -> bool:
        return bool(self._results)

    @property
    def result(self) -> T:
        [result] = self._results
        return result

    def abandon(self) -> None:
        """Ends it where it is, once Spark is done with what it was asked."""
        if self._asked is not None:
            wait([self._asked])
        self._work.close()


def build(
    running: RunningSet,
    until: Mapping[str, Offsets],
    rows: int | None,
    on_step: Callable[[RunningSet, int], None] | None = None,
) -> Work[None]:
    """Takes a generation to a cut, in steps of so many records; tells after each how many are left."""
    while running.is_new or running.lag(until):
        yield from step_together([(running, running.next_cut(until, rows))], in_pieces=True)
        if on_step is not None:
            on_step(running, running.lag(until))


def follow(running: RunningSet, live: RunningSet, rows: int) -> Work[None]:
    """Takes a generation nearly to where a live one is, which moves on meanwhile."""
    while running.lag(live.fence.offsets) > SMALL_ROWS:
        goal = joint(running, live.fence.offsets)
        yield from step_together([(running, running.next_cut(goal, rows))])


def catch_up(running: RunningSet, with_cut: Cut) -> None:
    """The last step, right here: from now on nobody who reads it instead of the other one goes back in time."""
    if running.lag(with_cut):
        running.step(joint(running, with_cut))


def joint(running: RunningSet, cut: Cut) -> dict[str, Offsets]:
    """In every partition the further one of where a generation is, and of a cut."""
    own = running.fence.offsets
    return {
        name: {
            number: max(own.get(name, {}).get(number, 0), cut.get(name, {}).get(number, 0))
            for number in {**own.get(name, {}), **cut.get(name, {})}
        }
        for name in running.topics
    }
