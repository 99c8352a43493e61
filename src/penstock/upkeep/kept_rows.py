"""The rows of an input that a redo may need again, kept beside the view and indexed by their group.

A log is ordered by arrival. A late event touches an old window or an old group, whose other events are anywhere in it;
so those columns that the view needs are kept a second time, by group or by window (`kept_windows`), in the same
transactions as the view. A step then costs what it touches, on a long log as on a short one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.definition import OWN_COLUMNS
from penstock.upkeep.changes import GROUP, KEY, with_column
from penstock.views.catalog import Layers
from penstock.views.tables import In, StoredTable, table_name
from penstock.views.values import one_array

TIME = "_time"
"""The moment that decides the window of a row, in microseconds; of a row without one, the least there is."""
NO_TIME = np.iinfo(np.int64).min
OWN_TYPES = (pa.int32(), pa.int64(), pa.int64(), pa.bool_())


@dataclass(frozen=True)
class KeptChange:
    """What one step adds to, and takes from, the kept rows of one input."""

    table: StoredTable
    added: pa.Table
    gone: In | None = None
    """What goes first: rows of an upstream view that are no longer so, or pieces that are written anew."""


@dataclass(frozen=True)
class KeptRows:
    """The kept rows of one input of one view. They belong to a generation and vanish with it."""

    purpose: ClassVar[str] = "kept"

    name: str
    """Of the table, without the generation."""
    columns: pa.Schema
    """The columns that the view needs, without the log's own."""
    time: str | None
    """The column that says when: the event time or the arrival; None where the input has no time."""
    is_view: bool = False
    """Rows of a view may change and go; those of a topic are there for ever."""

    def table(self, layers: Layers) -> StoredTable:
        """How it is stored."""
        name, beneath = table_name(self.name, layers[0]), self.table(layers[1:]) if layers[1:] else None
        fields = [each.with_type(kept_type(each.type)) for each in self.columns]
        if self.is_view:
            own = [pa.field(GROUP, pa.binary(16)), pa.field(KEY, pa.binary(16))]
            return StoredTable(name, pa.schema([*own, *fields]), (GROUP, KEY), ((KEY,),), beneath)
        own = [pa.field(GROUP, pa.binary(16)), pa.field(TIME, pa.int64()), *map(pa.field, OWN_COLUMNS, OWN_TYPES)]
        primary = (GROUP, TIME, "_partition", "_offset")
        return StoredTable(name, pa.schema([*own, *fields]), primary, (), beneath)

    def rows(self, layers: Layers, table: pa.Table, groups: pa.Array) -> pa.Table:
        """Records of the input as they are kept."""
        schema = self.table(layers).schema
        # A group that the rows of a view carry is the one they were computed from, not the one they are read by.
        kept = table.select([name for name in schema.names if name in table.schema.names and name != GROUP])
        if not self.is_view:
            kept = with_column(kept, TIME, times_of(table, self.time))
        kept = with_column(kept, GROUP, groups)
        return kept.select(schema.names).cast(schema)  # What is never NULL upstream may be so in what was read back.


def kept_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values are kept: one that every database holds whole, also texts with a NUL and any year."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.binary()
    return pa.int64() if types.is_timestamp(kind) else pa.int32() if types.is_date32(kind) else kind


def times_of(table: pa.Table, column: str | None) -> pa.Array:
    """A moment for each row, in microseconds."""
    if column is None:
        return pa.array(np.full(table.num_rows, NO_TIME), pa.int64())
    times = one_array(table.column(column))
    if times.type == pa.date32():
        times = times.cast(pa.timestamp("us"))
    return pc.fill_null(times.cast(pa.timestamp("us", times.type.tz)).view(pa.int64()), NO_TIME)


def joined_ranges(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same moments in as few ranges as possible.

    >>> joined_ranges([(5, 7), (0, 2), (1, 3), (3, 4)])
    [(0, 4), (5, 7)]
    """
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined
