"""The rows that the last steps wrote, held in memory: a step at the head of the log mostly changes those again."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.upkeep.changes import KEY, Changes
from penstock.views.keys import Halves, halves
from penstock.views.stack import Stack, renamed
from penstock.views.tables import In, StoredTable, Where
from penstock.views.values import one_array

if TYPE_CHECKING:
    from penstock.upkeep.step import Reader
    from penstock.views.catalog import Generation

ROWS_MAX = 4_096
BYTES_MAX = 1 << 20
"""So much of one table is held for long; up to twice as much until the oldest rows are given up."""

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Shelves = dict[Hashable, "Shelf"]
"""Where rows are held, by the types of their columns: whoever shares them can read and write many tables in one go."""
Held = tuple[int, str]
"""Who holds rows, and of which table."""

_holders = itertools.count()


class RecentRows:
    """Reads stored rows by their keys, and asks the database only for those that are not at hand.

    It holds what one generation has at one fence. Only the owner moves that fence, in the transaction that writes the
    rows, so whoever finds another fence (`stand_at`) knows that the database may have others: all is forgotten then.
    Rows lie on `shelves`, which others may share. One thread at a time, of all that do.
    """

    def __init__(self, store: Reader, shelves: Shelves | None = None) -> None:
        self._store = store
        self.shelves: Shelves = {} if shelves is None else shelves
        self._number = next(_holders)
        self._tables: set[Held] = set()
        """Those that were read by key: only their rows are held."""
        self._standing: object = None
        weakref.finalize(self, _forget, self.shelves, self._tables)

    def stand_at(self, generation: Generation) -> None:
        """From here on rows are read as this generation has them."""
        standing = (generation.layers, generation.fence)
        if standing != self._standing:
            _forget(self.shelves, self._tables)
            self._standing = standing

    def moved_to(self, generation: Generation) -> None:
        """All that was written with the fence of this generation has been told."""
        self._standing = (generation.layers, generation.fence)

    def read(self, table: StoredTable, where: Where | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that are meant, in no particular order. A key must not be asked for twice."""
        if not isinstance(where, In) or where.column != KEY or columns is not None:
            return self._store.read(table, where, columns)
        [rows] = read_all([(self, table, where.values)])
        return rows

    def wrote(self, table: StoredTable, changes: Changes) -> None:
        """These changes are in the database now; `stand_at` says as of when."""
        wrote_all([(self, table, changes)])

    def _shelf(self, table: StoredTable) -> Shelf:
        likeness = tuple(table.schema.types)
        if likeness not in self.shelves:
            self.shelves[likeness] = Shelf(table.schema)
        return self.shelves[likeness]

    def _held(self, table: StoredTable) -> Held:
        return self._number, table.name


def read_all(asked: Sequence[tuple[RecentRows, StoredTable, pa.Array]]) -> list[pa.Table]:
    """The rows of these keys in tables whose columns are of the same types, which share their shelves."""
    shelf = asked[0][0]._shelf(asked[0][1])
    found: list[tuple[Places, Flags]] = []
    for recent, table, keys in asked:
        held = recent._held(table)
        recent._tables.add(held)
        found.append(shelf.index(held).find(*halves(keys)))
    rows = shelf.rows.take(np.concatenate([places for places, _ in found]))
    parts, start = [], 0
    for (recent, table, keys), (places, is_held) in zip(asked, found, strict=True):
        part = renamed(rows.slice(start, len(places)), table.schema)
        start += len(places)
        if len(places) < len(keys):
            missing = recent._store.read(table, In(KEY, keys.filter(pa.array(~is_held))))
            part = pa.concat_tables([part, missing]) if len(places) else missing
        parts.append(part)
    return parts


def wrote_all(written: Sequence[tuple[RecentRows, StoredTable, Changes]]) -> None:
    """The changes of several tables, which are in the database now."""
    by_shelf: dict[int, tuple[Shelf, list[tuple[Held, Changes]]]] = {}
    for recent, table, changes in written:
        held = recent._held(table)
        if held in recent._tables:
            assert changes.after.schema.equals(table.schema), (changes.after.schema, table.schema)
            shelf = recent._shelf(table)
            by_shelf.setdefault(id(shelf), (shelf, []))[1].append((held, changes))
    for shelf, of_tables in by_shelf.values():
        shelf.hold(of_tables)


def _forget(shelves: Shelves, tables: set[Held]) -> None:
    for shelf in [*shelves.values()]:
        for held in tables:
            shelf.indexes.pop(held, None)
    tables.clear()


class Shelf:
    """The latest rows of tables that have columns of the same types, and where each key is among them.

    A row that changes is added behind the others, and its old place forgotten: rows without one go when there are many.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = schema.empty_table()
        self.indexes: dict[Held, Index] = {}
        self._bytes = 0

    def index(self, held: Held) -> Index:
        return self.indexes.setdefault(held, Index())

    def hold(self, written: Sequence[tuple[Held, Changes]]) -> None:
        """Rows as they are now, and none that went."""
        stack = Stack.of([self._latest(self.index(held), changes) for held, changes in written])
        firsts, seconds = halves(one_array(stack.rows.column(KEY)))
        places = np.arange(self.rows.num_rows, self.rows.num_rows + stack.rows.num_rows)
        self.rows = pa.concat_tables([self.rows, renamed(stack.rows, self.rows.schema)])
        self._bytes += stack.rows.nbytes  # To ask all the rows for it would take as long as all the rest.
        for (held, _), (start, stop) in zip(written, stack.spans, strict=True):
            self.index(held).note(firsts[start:stop], seconds[start:stop], places[start:stop])
        share = len(self.indexes)
        if self.rows.num_rows > 2 * ROWS_MAX * share or self._bytes > 2 * BYTES_MAX * share:
            self._keep(ROWS_MAX * share, BYTES_MAX * share)

    def _latest(self, index: Index, changes: Changes) -> pa.Table:
        """What is to be held of these changes; the index forgets what it will not learn from them."""
        latest = changes.after
        if latest.num_rows > ROWS_MAX:
            index.clear()
            return latest.take(np.arange(ROWS_MAX))  # Not cut: a slice would hold all the rows of a large step.
        if len(changes.gone):
            index.forget(halves(changes.gone)[1])
        return latest

    def _keep(self, rows_max: int, bytes_max: int) -> None:
        """Holds only the latest rows, and of large ones so many as may be about as large."""
        indexes = [*self.indexes.values()]
        chosen = np.sort(np.concatenate([index.places for index in indexes]))[-rows_max:]
        kept = self.rows.take(chosen)
        if kept.nbytes > bytes_max:
            chosen = chosen[len(chosen) - len(chosen) * bytes_max // kept.nbytes :]
            kept = self.rows.take(chosen)
        for index in indexes:
            index.keep(chosen)
        self.rows, self._bytes = kept, kept.nbytes


class Index:
    """Where the row of each key of one table is.

    Numbers side by side, not a dictionary: with many views its entries lie all over the memory, and a step would wait
    for each of them.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._firsts: Halves = np.empty(0, np.uint64)
        self._seconds: Halves = np.empty(0, np.uint64)
        """In order; no two are the same."""
        self.places: Places = np.empty(0, np.int64)
        self._last: tuple[Halves, Places, Flags] | None = None
        """What was looked for last: a step looks for the keys that it writes."""

    def find(self, firsts: Halves, seconds: Halves) -> tuple[Places, Flags]:
        """The places of the keys that are known, in their order; and which are."""
        near, is_known = self._near(seconds)
        if len(self.places):
            is_known = is_known & (self._firsts[near] == firsts)
        return self.places[near if is_known.all() else near[is_known]], is_known

    def note(self, firsts: Halves, seconds: Halves, places: Places) -> None:
        """Remembers where each key is; of two with the same second half, only the later one."""
        near, is_known = self._near(seconds)
        known, is_new = near[is_known], ~is_known
        self._firsts[known], self.places[known] = firsts[is_known], places[is_known]
        if is_new.any():
            self._firsts = np.concatenate([self._firsts, firsts[is_new]])
            self._seconds = np.concatenate([self._seconds, seconds[is_new]])
            self.places = np.concatenate([self.places, places[is_new]])
            order = np.argsort(self._seconds, kind="stable")
            ordered = self._seconds[order]
            self._choose(order[np.append(ordered[1:] != ordered[:-1], True)])

    def forget(self, seconds: Halves) -> None:
        """No longer knows these keys."""
        near, is_known = self._near(seconds)
        self._choose(np.delete(np.arange(len(self.places)), near[is_known]))

    def keep(self, chosen: Places) -> None:
        """Only these places are left, and become 0, 1, 2 and so on."""
        moved = np.searchsorted(chosen, self.places)
        is_kept = np.append(chosen, -1)[moved] == self.places
        self.places = moved
        self._choose(np.flatnonzero(is_kept))

    def _near(self, seconds: Halves) -> tuple[Places, Flags]:
        """Where each second half is, if it is there, and whether it is."""
        if self._last is not None and np.array_equal(self._last[0], seconds):
            return self._last[1:]
        if not len(self._seconds):
            return np.zeros(len(seconds), np.int64), np.zeros(len(seconds), bool)
        near = np.minimum(np.searchsorted(self._seconds, seconds), len(self._seconds) - 1)
        self._last = seconds, near, self._seconds[near] == seconds
        return self._last[1:]

    def _choose(self, chosen: Places) -> None:
        self._firsts, self._seconds, self.places = self._firsts[chosen], self._seconds[chosen], self.places[chosen]
        self._last = None
