"""Tables of the same types, one below the other: what is done row by row is done once for all of them.

A call of Arrow or numpy costs as much as some hundred rows. A step that changes a few rows of many views would spend
most of its time on calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
Rows = TypeVar("Rows", pa.Table, pa.Array)

ROWS_MAX = 5_000
"""A table of more rows stays by itself: it has little to gain, and would have to be copied."""


@dataclass(frozen=True)
class Stack:
    """The rows of several tables in their order, under the names of the first one."""

    rows: pa.Table
    stops: tuple[int, ...]
    """Where the rows of each table end."""

    @staticmethod
    def of(tables: Sequence[pa.Table]) -> Stack:
        """All rows; copied, unless it is one table."""
        first, stops = tables[0], tuple(accumulate(each.num_rows for each in tables))
        if len(tables) == 1:
            return Stack(first, stops)
        return Stack(pa.concat_tables([renamed(each, first.schema) for each in tables]).combine_chunks(), stops)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """From where to where the rows of each table go."""
        return spans(self.stops)

    def cut(self, rows: Rows) -> list[Rows]:
        """What was made of all rows, table by table; nothing is copied."""
        return [rows] if len(self.stops) == 1 else [rows.slice(start, stop - start) for start, stop in self.spans]


def spans(stops: Sequence[int]) -> list[tuple[int, int]]:
    """From where to where each goes, of several that end there: each begins where the one before it ends."""
    return [*pairwise((0, *stops))]


def renamed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns under the names of another schema of the same types."""
    return table if table.schema.equals(schema) else pa.Table.from_arrays(table.columns, schema=schema)


def alike(
    items: Sequence[T], rows: Callable[[T], int], likeness: Callable[[T], Hashable], rows_max: int = ROWS_MAX
) -> list[list[T]]:
    """The items in groups that can be stacked: of the same likeness, none with many rows."""
    groups: dict[Hashable, list[T]] = {}
    for place, each in enumerate(items):
        is_small = rows(each) <= rows_max
        groups.setdefault((is_small, likeness(each) if is_small else place), []).append(each)
    return [*groups.values()]
