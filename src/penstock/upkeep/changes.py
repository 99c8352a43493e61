"""What a step does to a view: the rows that change, as they were and as they will be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.views.keys import halves, key_hashes
from penstock.views.values import one_array

KEY = "_key"
"""The primary key of every stored row: a hash of its key columns."""
GROUP = "_group"
"""Which window or group a row was computed from, where it can be computed again by itself."""


@dataclass(frozen=True)
class Changes:
    """Rows as stored, before and after. A key in both is an update; in one of them, a row that comes or goes."""

    before: pa.Table
    after: pa.Table

    @staticmethod
    def none(schema: pa.Schema) -> Changes:
        """Nothing changes."""
        return Changes(schema.empty_table(), schema.empty_table())

    def __len__(self) -> int:
        return int(self.after.num_rows) + len(self.gone)

    @cached_property
    def gone(self) -> pa.Array:
        """The keys of rows that leave the view."""
        keys, stay = one_array(self.before.column(KEY)), one_array(self.after.column(KEY))
        if not len(keys) or keys.equals(stay):  # As in most steps: a lookup would be built for nothing.
            return keys[:0]
        return keys.filter(pc.invert(is_among(keys, stay)))

    def without(self, keys: pa.Array) -> Changes:
        """The same changes, but rows with these keys are not in the view afterwards."""
        return Changes(self.before, self.after.filter(pc.invert(is_among(one_array(self.after.column(KEY)), keys))))

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """All rows of the view after the step, given all of them before."""
        keys = one_array(rows.column(KEY))
        touched = pc.or_(
            is_among(keys, one_array(self.before.column(KEY))), is_among(keys, one_array(self.after.column(KEY)))
        )
        return pa.concat_tables([rows.filter(pc.invert(touched)), self.after.select(rows.schema.names)])


def difference(old: pa.Table, new: pa.Table) -> Changes:
    """What turns the stored rows `old` into `new`. Rows that stay as they are appear in neither half."""
    if old.num_rows == 0 or new.num_rows == 0:
        return Changes(old, new)
    place = pc.index_in(one_array(new.column(KEY)), value_set=one_array(old.column(KEY)))
    columns = [name for name in new.schema.names if name != KEY]
    found = pc.is_valid(place)
    old_hashes, new_hashes = (key_hashes(each, columns, remembers=False) for each in (old, new))
    same = pc.fill_null(pc.and_(found, pc.equal(old_hashes.take(place), new_hashes)), False)
    unchanged = np.zeros(old.num_rows, bool)
    unchanged[place.filter(same).to_numpy(zero_copy_only=False)] = True
    return Changes(old.filter(pa.array(~unchanged)), new.filter(pc.invert(same)))


def is_among(values: pa.Array, known: pa.Array) -> pa.Array:
    """Whether each value is one of the known; NULL is not among anything but NULL."""
    return pc.is_in(values, value_set=known)


def with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The table with one more column in front."""
    return table.add_column(0, pa.field(name, values.type), values)


def repeated(keys: pa.Array) -> tuple[int, int] | None:
    """The places of two equal keys, or None where each is there once."""
    last = np.sort(halves(keys)[1])
    if not (last[1:] == last[:-1]).any():  # Nearly always, and found ten times as fast.
        return None
    counts = pc.value_counts(keys)
    many = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(many) == 0:
        return None
    first, second = np.flatnonzero(pc.equal(keys, many[0]).to_numpy(zero_copy_only=False))[:2]
    return int(first), int(second)


def readable_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows for people to read: a time that Python has no year for is told in microseconds."""
    return [dict(zip(table.schema.names, row, strict=True)) for row in zip(*map(_readable, table.columns), strict=True)]


def _readable(column: pa.ChunkedArray) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = (
            column.cast(pa.int64()).to_pylist()
            if pa.types.is_timestamp(column.type)
            else [str(column.type)] * len(column)
        )
    return values
