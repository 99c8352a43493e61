"""Fold: the function runs over what is new alone, and the result is merged into the rows that are there."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.private.prepared import Asked, Prepared
from penstock.upkeep.changes import KEY, Changes, repeated
from penstock.upkeep.inputs import Inputs, Side, TopicInput
from penstock.upkeep.merge import RULES, align, merge_rows, unmerge_rows
from penstock.upkeep.recent_rows import RecentRows, read_all
from penstock.upkeep.rules import Rule
from penstock.upkeep.shape import Shape
from penstock.upkeep.step import Advance, Step
from penstock.views.keys import key_hashes
from penstock.views.stack import Stack, renamed
from penstock.views.store import In
from penstock.views.values import one_array

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
            return Folding(self, step, new)
        new, gone = yield [
            self.prepared.ask(new_frames(self.inputs, step, self.shape.view, side)) for side in ("after", "before")
        ]
        return self._changes(step, new, gone)

    def first(self, step: Step) -> list[Asked]:
        """See `Foreseeing`."""
        return [self.prepared.ask(new_frames(self.inputs, step, self.shape.view), in_one_task=step.in_one_task)]

    def _changes(self, step: Step, new: pa.Table, gone: pa.Table) -> Changes:
        """What came and what went, merged into the rows that are there."""
        new_keys, gone_keys = (key_hashes(each, self.shape.key) for each in (new, gone))
        only_gone = pc.invert(pc.is_in(gone_keys, value_set=new_keys))
        keys = pa.concat_arrays([new_keys, gone_keys.filter(only_gone)])
        names = new.select(list(self.shape.key))
        names = pa.concat_tables([names, gone.select(names.schema.names).filter(only_gone)])
        before = self.stored(step, keys)
        added = align(self._states(new).append_column(KEY, new_keys), keys)
        taken = align(self._states(gone).append_column(KEY, gone_keys), keys)
        merged, is_gone = unmerge_rows(
            merge_rows(align(before, keys), added, self.columns),
            taken,
            self.columns,
            {name: COUNT.format(name) for name in self.sums},
        )
        rows = self._rows(names, keys, merged)
        # A view of one row has it even when nothing is left to count.
        return Changes(before, rows if not self.shape.key else rows.filter(pc.invert(is_gone)))

    def stored(self, step: Step, keys: pa.Array) -> pa.Table:
        """The rows that are there for these keys."""
        self.check_once(keys)
        return step.stored(self.shape.table(step.layers), In(KEY, keys))

    def check_once(self, keys: pa.Array) -> None:
        """A grouping gives every key once."""
        assert repeated(keys) is None, f"{self.shape.view}: a grouping gave one key twice"

    @cached_property
    def likeness(self) -> Hashable:
        """What views have in common whose rows can be merged together: all but the names."""
        stored = self.shape.schema
        key = tuple(map(stored.get_field_index, self.shape.key))
        rules = tuple((stored.get_field_index(name), rule.name) for name, rule in self.rules.items())
        return tuple(stored.types), key, rules

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


@dataclass(frozen=True)
class Folding:
    """Rows that came for one view, to be merged into those that are there; see `Pending`."""

    keeper: FoldGroups
    step: Step
    new: pa.Table

    @property
    def rows(self) -> int:
        return int(self.new.num_rows)

    @property
    def likeness(self) -> Hashable:
        return self.keeper.likeness, tuple(self.new.schema.types)

    @staticmethod
    def settle(foldings: Sequence[Folding]) -> list[Changes]:
        """The changes of views that are alike: found, merged and named as if they were one view's."""
        keeper = foldings[0].keeper
        new = Stack.of([each.new for each in foldings])
        keys = key_hashes(new.rows, keeper.shape.key)
        keys_of_each = new.cut(keys)
        before = _stored_together(foldings, keys_of_each)
        old = Stack.of([align(each, own) for each, own in zip(before, keys_of_each, strict=True)])
        merged = merge_rows(old.rows, keeper._states(new.rows), keeper.columns)
        after = new.cut(keeper._rows(new.rows.select(list(keeper.shape.key)), keys, merged))
        return [
            Changes(rows, renamed(part, each.keeper.shape.schema))
            for each, rows, part in zip(foldings, before, after, strict=True)
        ]


def _stored_together(foldings: Sequence[Folding], keys: Sequence[pa.Array]) -> list[pa.Table]:
    """The rows that are there for the keys of each: in one go where they are at hand."""
    recent = [each.step.store for each in foldings if isinstance(each.step.store, RecentRows) and not each.step.is_new]
    if len(recent) < len(foldings) or any(each.shelves is not recent[0].shelves for each in recent):
        return [each.keeper.stored(each.step, own) for each, own in zip(foldings, keys, strict=True)]
    for each, own in zip(foldings, keys, strict=True):
        each.keeper.check_once(own)
    tables = [each.keeper.shape.table(each.step.layers) for each in foldings]
    return read_all([*zip(recent, tables, keys, strict=True)])


def new_frames(inputs: Inputs, step: Step, view: str, side: Side = "after") -> dict[str, DataFrame]:
    """What is new for a view in each input; as `before`, what is no longer so."""
    frames: dict[str, DataFrame] = {}
    for name, each in inputs.items():
        if not isinstance(each, TopicInput):
            frames[name] = each.side(step, side)
        elif side == "after":
            frames[name] = each.new(step, view)
        else:
            frames[name] = each.frame(step, NOTHING)
    return frames
