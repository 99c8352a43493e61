"""Fold: the function runs over what is new alone, and the result is merged into the rows that are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.plans.prepared import Asked, Prepared
from penstock.upkeep.changes import KEY, Changes, one_array, repeated
from penstock.upkeep.inputs import Inputs, Side, TopicInput
from penstock.upkeep.merge import RULES, align, merge_rows, unmerge_rows
from penstock.upkeep.rules import Rule
from penstock.upkeep.shape import Shape
from penstock.upkeep.step import Advance, Step
from penstock.views.keys import key_hashes
from penstock.views.store import In

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE = "_state_{}"
"""The hidden column that holds the state of an aggregate of `penstock.agg`."""
ROWS, COUNT = "_rows", "_count_{}"
"""Hidden columns for undoing: how many rows a group has, and how many of them gave a sum something to add."""

NOTHING = pa.table({"_offset": pa.array([], pa.int64())})
"""What is taken back of a topic: no record of it ever goes."""


@dataclass(frozen=True)
class FoldGroups:
    """Keeps one aggregation by the view's key, whose aggregates merge."""

    shape: Shape
    prepared: Prepared
    """With counts, where undoing needs them."""
    inputs: Inputs
    rules: Mapping[str, Rule]
    """How each column that is not in the key merges."""
    sums: tuple[str, ...] = ()
    """Columns that are NULL again once nothing is left to add; only where rows can go."""
    has_undo: bool = False
    """Some input is a view, whose rows change and go."""

    def advance(self, step: Step) -> Advance:
        """See `Keeper`."""
        if not self.has_undo:
            [new] = yield self.first(step)
            return self._changes(step, new, None)
        new, gone = yield [self.prepared.ask(new_frames(self.inputs, step, side)) for side in ("after", "before")]
        return self._changes(step, new, gone)

    def first(self, step: Step) -> list[Asked]:
        """See `Foreseeing`."""
        return [self.prepared.ask(new_frames(self.inputs, step), in_one_task=step.in_one_task)]

    def _changes(self, step: Step, new: pa.Table, gone: pa.Table | None) -> Changes:
        keys = new_keys = key_hashes(new, self.shape.key)
        names = new.select(list(self.shape.key))
        if gone is not None:
            gone_keys = key_hashes(gone, self.shape.key)
            only_gone = pc.invert(pc.is_in(gone_keys, value_set=keys))
            keys = pa.concat_arrays([keys, gone_keys.filter(only_gone)])
            names = pa.concat_tables([names, gone.select(names.schema.names).filter(only_gone)])
        assert repeated(keys) is None, f"{self.shape.view}: a grouping gave one key twice"
        before = step.stored(self.shape.table(step.layers), In(KEY, keys))
        old = align(before, keys)
        states = self._states(new)
        if gone is None:
            merged = merge_rows(old, states, self.columns)
            return Changes(before, self._rows(names, keys, merged))
        added = align(states.append_column(KEY, new_keys), keys)
        taken = align(self._states(gone).append_column(KEY, gone_keys), keys)
        merged, is_gone = unmerge_rows(
            merge_rows(old, added, self.columns), taken, self.columns, {name: COUNT.format(name) for name in self.sums}
        )
        rows = self._rows(names, keys, merged)
        # A view of one row has it even when nothing is left to count.
        return Changes(before, rows if not self.shape.key else rows.filter(pc.invert(is_gone)))

    @property
    def columns(self) -> dict[str, Rule]:
        """The stored columns that merge, and how."""
        counts = {ROWS: RULES["count"], **{COUNT.format(name): RULES["count"] for name in self.sums}}
        values = {STATE.format(name) if rule.has_state else name: rule for name, rule in self.rules.items()}
        return {**values, **(counts if self.has_undo else {})}

    def _states(self, result: pa.Table) -> pa.Table:
        """What the function gave, in the form in which it merges."""
        columns = {}
        for name, rule in self.rules.items():
            array = one_array(result.column(name))
            columns[STATE.format(name) if rule.has_state else name] = rule.compact(array) if rule.has_state else array
        for name in self.columns:
            if name not in columns:
                columns[name] = one_array(result.column(f"_{name}"))
        return pa.table(columns) if columns else pa.table({"_": pa.nulls(result.num_rows)})

    def _rows(self, names: pa.Table, keys: pa.Array, merged: pa.Table) -> pa.Table:
        columns = {name: names.column(name) for name in names.schema.names}
        for name, rule in self.rules.items():
            values = (
                rule.finish(one_array(merged.column(STATE.format(name)))) if rule.has_state else merged.column(name)
            )
            columns[name] = values
        hidden = {name: one_array(merged.column(name)) for name in self.shape.hidden.names}
        return self.shape.rows(pa.table(columns), **hidden, **{KEY: keys})


def new_frames(inputs: Inputs, step: Step, side: Side = "after") -> dict[str, DataFrame]:
    """What is new in each input; as `before`, what is no longer so."""
    frames: dict[str, DataFrame] = {}
    for name, each in inputs.items():
        if not isinstance(each, TopicInput):
            frames[name] = each.side(step, side)
        elif side == "after":
            frames[name] = each.new(step)
        else:
            frames[name] = each.frame(step, NOTHING)
    return frames
