"""Some steps ahead: what the next ones will ask of Spark, computed while this one is merged and written."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.plans.collect import collect

if TYPE_CHECKING:
    from penstock.modes.running import Cut, RunningSet
    from penstock.upkeep.compiled import CompiledView
    from penstock.upkeep.slices import Slice
    from penstock.upkeep.step import Foreseeing, Step

Slices = dict[object, "Slice"]
"""Slices by their topic, start and stop."""

DEPTH = max(2, os.cpu_count() or 1)
"""So many steps are computed at once, each by one core where it can be: there is no exchange, and nobody waits."""

_pool = ThreadPoolExecutor(2 * DEPTH, thread_name_prefix="penstock-ahead")


class Foresight:
    """What was begun for the steps that will come after this one."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._begun: deque[tuple[dict[str, Cut], Ahead]] = deque()

    def look(self, steps: Sequence[tuple[RunningSet, Cut, Cut]]) -> Ahead | None:
        """What was begun for just these steps, if anything; begins with what comes after them.

        A step is a set of views, where it ends, and how far it could go.
        """
        at = {each.name: cut for each, cut, _ in steps}
        if self._begun and self._begun[0][0] != at:
            self.forget()
        found = self._begun.popleft()[1] if self._begun else None
        at = self._begun[-1][0] if self._begun else at
        while len(self._begun) < DEPTH:
            behind = [(each, at[each.name], end) for each, _, end in steps if at[each.name] != end]
            if not behind:
                break
            ahead = Ahead()
            for each, start, end in behind:
                stop = each.next_cut(end, self._max_rows, start)
                each.look_ahead(start, stop, ahead)
                at = {**at, each.name: stop}
            self._begun.append((at, ahead))
        return found

    def forget(self) -> None:
        """Something else will come, or nothing: waits for what was begun."""
        for _, ahead in self._begun:
            ahead.wait()
        self._begun.clear()


class Ahead:
    """What was begun for one step that may come. If another one comes instead, it is of no use and does no harm."""

    def __init__(self) -> None:
        self.slices: Slices = {}
        self._begun: dict[str, tuple[Mapping[str, Slice], Future[list[pa.Table]]]] = {}

    def begin(self, view: str, step: Step, keeper: Foreseeing) -> None:
        """Begins with what a view will ask for first."""
        self._begun[view] = (step.slices, _pool.submit(lambda: collect(keeper.first(step))))

    def wait(self) -> None:
        """Until all of it is computed, well or not."""
        wait([future for _, future in self._begun.values()])

    def ready_for(
        self, slices: Mapping[str, Slice], views: Sequence[CompiledView]
    ) -> dict[str, Future[list[pa.Table]]]:
        """What was computed over just these slices."""
        found = {view.name: self._begun[view.name] for view in views if view.name in self._begun}
        return {name: future for name, (over, future) in found.items() if over == slices}
