"""One step ahead: what the next step will ask of Spark, computed while this one is merged and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.plans.collect import collect

if TYPE_CHECKING:
    from penstock.plans.prepared import Asked
    from penstock.upkeep.compiled import CompiledView
    from penstock.upkeep.slices import Slice

Slices = dict[object, "Slice"]
"""Slices by their topic, start and stop."""

_pool = ThreadPoolExecutor(4, thread_name_prefix="penstock-ahead")


class Ahead:
    """What was begun for one step that may come. If another one comes instead, it is of no use and does no harm."""

    def __init__(self) -> None:
        self.slices: Slices = {}
        self._begun: dict[str, tuple[Mapping[str, Slice], Future[list[pa.Table]]]] = {}

    def begin(self, view: str, slices: Mapping[str, Slice], asked: Sequence[Asked]) -> None:
        """Begins with what a view will ask for first.

        It is asked by the caller: reading a topic sets the session for a moment, which two threads must not do at once.
        """
        self._begun[view] = (slices, _pool.submit(collect, asked))

    def wait(self) -> None:
        """Until all of it is computed, well or not."""
        wait([future for _, future in self._begun.values()])

    def ready_for(
        self, slices: Mapping[str, Slice], views: Sequence[CompiledView]
    ) -> dict[str, Future[list[pa.Table]]]:
        """What was computed over just these slices."""
        found = {view.name: self._begun[view.name] for view in views if view.name in self._begun}
        return {name: future for name, (over, future) in found.items() if over == slices}
