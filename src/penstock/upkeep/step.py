"""A step: takes views from one cut of the log to the next.

Every view has a keeper. A keeper is asked to `advance` and answers with the changes of its rows; on the way it yields
the frames it wants to have computed, so that the views of a step share their Spark jobs. Nothing is written here: a
step that dies leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.errors import StepFailed
from penstock.plans.collect import FrameFailed, collect
from penstock.upkeep.changes import Changes
from penstock.upkeep.kept_rows import KeptChange
from penstock.upkeep.slices import Slice
from penstock.views.store import StoredTable, Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.upkeep.compiled import CompiledView

Wanted = Sequence["DataFrame"]
Advance = Generator[Wanted, list[pa.Table], Changes]
"""Yields frames, is sent their rows, returns the changes of the view."""


class Reader(Protocol):
    """Where stored rows are read: the database, or one snapshot of it."""

    def read(self, table: StoredTable, where: Where | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that are meant."""
        ...


class Keeper(Protocol):
    """How one view is kept."""

    def advance(self, step: Step) -> Advance:
        """The changes that this step makes to the view."""
        ...


@dataclass
class Step:
    """What is new, and where everything else can be read."""

    spark: SparkSession
    store: Reader
    generation: int
    slices: Mapping[str, Slice]
    is_new: bool = False
    """Nothing is stored yet, so nothing needs to be read back."""
    is_big: bool = False
    """So much is new that computing everything again is cheaper than finding out what it touched."""
    changes: dict[str, Changes] = field(default_factory=dict)
    """By view, as far as they are known."""
    kept: list[KeptChange] = field(default_factory=list)
    """What is added to the rows kept for later redos."""

    def stored(self, table: StoredTable, where: Where | None = None) -> pa.Table:
        """Rows as they were before this step."""
        return table.schema.empty_table() if self.is_new else self.store.read(table, where)

    def run(self, views: Sequence[CompiledView]) -> dict[str, Changes]:
        """Advances all views, those that others are made of first, each level in as few jobs as can be."""
        waiting = list(views)
        while waiting:
            ready = [view for view in waiting if all(name in self.changes for name in view.upstream)]
            assert ready, [view.name for view in waiting]
            self.changes.update(self._run_level(ready))
            waiting = [view for view in waiting if view.name not in self.changes]
        return {view.name: self.changes[view.name] for view in views}

    def _run_level(self, views: Sequence[CompiledView]) -> dict[str, Changes]:
        done: dict[str, Changes] = {}
        running = {view.name: view.keeper.advance(self) for view in views}
        answers: dict[str, list[pa.Table] | None] = dict.fromkeys(running)
        while running:
            wanted: dict[str, list[DataFrame]] = {}
            for name, keeper in list(running.items()):
                try:
                    answer = answers[name]
                    wanted[name] = list(next(keeper) if answer is None else keeper.send(answer))
                except StopIteration as finished:
                    done[name] = finished.value
                    del running[name]
            if wanted:
                tables = iter(_collected(views, wanted))
                answers = {name: [next(tables) for _ in frames] for name, frames in wanted.items()}
        return done


def _collected(views: Sequence[CompiledView], wanted: Mapping[str, list[DataFrame]]) -> list[pa.Table]:
    """The rows of all frames. StepFailed names the view whose frame Spark could not compute."""
    owners = [name for name, frames in wanted.items() for _ in frames]
    try:
        return collect([frame for frames in wanted.values() for frame in frames])
    except FrameFailed as failed:
        view = next(view for view in views if view.name == owners[failed.index])
        raise StepFailed(view.name, view.spec.place, reason_of(failed.__cause__)) from failed.__cause__


def reason_of(error: BaseException | None) -> str:
    """What Spark says, without its stack."""
    text = str(error).strip()
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "JVM stack"))]
    return "\n  ".join(lines[:6]) or type(error).__name__
