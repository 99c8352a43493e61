"""Fold of row-wise views: each record gives rows of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.private.prepared import Asked, Prepared
from penstock.upkeep.changes import KEY, Changes, difference
from penstock.upkeep.fold import new_frames
from penstock.upkeep.inputs import Inputs
from penstock.upkeep.merge import align
from penstock.upkeep.shape import Shape
from penstock.upkeep.states import finished
from penstock.upkeep.step import Advance, Step
from penstock.views.keys import key_hashes
from penstock.views.store import In
from penstock.views.values import one_array

CARRIED = ("__topic", "__arrived", "__partition", "__offset")
"""Where in the log each row of the result comes from, as `surgery.carry` names it."""
ORDERED_BY = ("arrived", "topic", "partition", "offset")
ORDER = pa.schema([(f"_order_{name}", pa.int64()) for name in ORDERED_BY])
"""Hidden: which record a row comes from, so that of two with one key the later one stays."""
DELETED = "__deleted"
"""A column of a topic of changes read as a table: whether the record takes its row away."""


@dataclass(frozen=True)
class FoldRows:
    """Keeps a row-wise view over topics. With a key, the latest record's row wins; without one, every row stays."""

    shape: Shape
    prepared: Prepared
    """With the carried columns."""
    inputs: Inputs
    has_key: bool

    def advance(self, step: Step) -> Advance:
        """See `Keeper`."""
        [result] = yield self.first(step)
        table = self.shape.table(step.layers)
        if not self.has_key:
            rows = self.shape.rows(self._visible(result), **{KEY: _places(result)})
            return Changes(table.schema.empty_table(), rows)
        result = result.append_column(KEY, key_hashes(result, self.shape.key))
        latest = result.take(_latest(result))
        keys = one_array(latest.column(KEY))
        before = step.stored(table, In(KEY, keys))
        newer = pa.array(_is_newer(latest, align(before, keys)))
        latest, keys = latest.filter(newer), keys.filter(newer)
        before = before.filter(pc.is_in(one_array(before.column(KEY)), value_set=keys))
        if DELETED in latest.schema.names:
            latest = latest.filter(pc.invert(one_array(latest.column(DELETED))))
        order = {f"_order_{name}": _number(latest, name) for name in ORDERED_BY}
        return Changes(before, self.shape.rows(self._visible(latest), **order, **{KEY: one_array(latest.column(KEY))}))

    def first(self, step: Step) -> list[Asked]:
        """See `Foreseeing`."""
        return [self.prepared.ask(new_frames(self.inputs, step, self.shape.view))]

    def _visible(self, result: pa.Table) -> pa.Table:
        return result.select(self.shape.columns.names)


@dataclass(frozen=True)
class FoldRowsOfViews:
    """Keeps a row-wise view over a view: what its changed rows gave goes, what they give now comes."""

    shape: Shape
    prepared: Prepared
    inputs: Inputs

    def advance(self, step: Step) -> Advance:
        """See `Keeper`."""
        sides = yield [
            self.prepared.ask(new_frames(self.inputs, step, self.shape.view, side)) for side in ("before", "after")
        ]
        gone, new = (self.shape.rows(finished(side)) for side in sides)
        changes = difference(gone, new)
        table = self.shape.table(step.layers)
        keys = pa.concat_arrays([one_array(side.column(KEY)) for side in (changes.before, changes.after)])
        stored = step.stored(table, In(KEY, pc.unique(keys)))
        self.shape.check_free(stored, changes)
        return Changes(stored, changes.after)


def _places(result: pa.Table) -> pa.Array:
    """Keys that name the record a row comes from, and its place among the rows of that record, in order of the log."""
    count = result.num_rows
    names = ("__topic", "__partition", "__offset")
    topic, partition, offset = (one_array(result.column(name)).to_numpy(zero_copy_only=False) for name in names)
    order = np.lexsort((np.arange(count), offset, partition, topic))
    is_first = np.ones(count, bool)
    if count:
        same = [np.diff(values[order]) == 0 for values in (topic, partition, offset)]
        is_first[1:] = ~(same[0] & same[1] & same[2])
    starts = np.maximum.accumulate(np.where(is_first, np.arange(count), 0))
    position = np.empty(count, np.int64)
    position[order] = np.arange(count) - starts
    packed = np.empty(count, dtype=[("topic", ">u2"), ("partition", ">u2"), ("offset", ">u8"), ("position", ">u4")])
    packed["topic"], packed["partition"], packed["offset"], packed["position"] = topic, partition, offset, position
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(packed.tobytes())])


def _latest(result: pa.Table) -> pa.Array:
    """For each key, the place of the row of the latest record."""
    count = result.num_rows
    numbers = {name: _number(result, name) for name in ORDERED_BY}
    ordered = pa.table({KEY: result.column(KEY), **numbers, "place": pa.array(np.arange(count))})
    ordered = ordered.sort_by([(name, "ascending") for name in ordered.schema.names])
    keys = one_array(ordered.column(KEY))
    is_last = np.ones(count, bool)
    if count > 1:
        is_last[:-1] = pc.not_equal(keys.slice(0, count - 1), keys.slice(1)).to_numpy(zero_copy_only=False)
    return one_array(ordered.column("place")).filter(pa.array(is_last))


def _is_newer(latest: pa.Table, old: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether each row comes from a later record than the one stored under its key; true where there is none."""
    newer = np.zeros(latest.num_rows, bool)
    equal = np.ones(latest.num_rows, bool)
    for name in ORDERED_BY:
        ours = _number(latest, name).to_numpy()
        stored = one_array(old.column(f"_order_{name}"))
        theirs = pc.fill_null(stored, np.iinfo(np.int64).min).to_numpy()
        newer |= equal & (ours > theirs)
        equal &= ours == theirs
    return newer


def _number(result: pa.Table, name: str) -> pa.Array:
    column = one_array(result.column(f"__{name}"))
    return column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column.cast(pa.int64())
