"""Whole: all of a view is computed again, and what differs is written."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.spark.private.prepared import Prepared
from penstock.upkeep.changes import GROUP, difference
from penstock.upkeep.groups import Groups
from penstock.upkeep.inputs import Inputs
from penstock.upkeep.shape import Shape
from penstock.upkeep.states import finished
from penstock.upkeep.step import Advance, Step


@dataclass(frozen=True)
class Whole:
    """Keeps a view by computing all of it: right for every function, and as dear as its inputs are large."""

    shape: Shape
    prepared: Prepared
    inputs: Inputs
    groups: Groups | None = None
    """Of the view's own rows, where they carry one."""

    def advance(self, step: Step) -> Advance:
        """See `Keeper`."""
        frames = {name: each.everything(step) for name, each in self.inputs.items()}
        [result] = yield [self.prepared.ask(frames)]
        new = self.rows(result)
        return difference(step.stored(self.shape.table(step.layers)), new)

    def rows(self, result: pa.Table) -> pa.Table:
        """What the function gave, as it is stored."""
        visible = finished(result)
        if self.groups is None:
            return self.shape.rows(visible)
        return self.shape.rows(visible, **{GROUP: self.groups.of(visible)})
