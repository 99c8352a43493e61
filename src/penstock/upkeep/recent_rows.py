"""The rows that the last steps wrote, held in memory: a step at the head of the log mostly changes those again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.upkeep.changes import KEY, Changes, is_among, one_array
from penstock.views.tables import In, StoredTable, Where

if TYPE_CHECKING:
    from penstock.upkeep.step import Reader
    from penstock.views.catalog import Generation

ROWS_MAX = 4_096
BYTES_MAX = 1 << 20
"""So much of one table is held at most."""


class RecentRows:
    """Reads stored rows by their keys, and asks the database only for those that it does not hold.

    It holds what one generation has at one fence. Only the owner moves that fence, in the transaction that writes the
    rows, so whoever finds another fence (`stand_at`) knows that the database may have others: all is forgotten then.
    One thread at a time.
    """

    def __init__(self, store: Reader) -> None:
        self._store = store
        self._rows: dict[str, pa.Table] = {}
        """By table, the latest first; only of tables that were read by key."""
        self._standing: object = None

    def stand_at(self, generation: Generation) -> None:
        """From here on rows are read as this generation has them."""
        standing = (generation.layers, generation.fence)
        if standing != self._standing:
            self._rows.clear()
            self._standing = standing

    def read(self, table: StoredTable, where: Where | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that are meant, in no particular order. A key must not be asked for twice."""
        if not isinstance(where, In) or where.column != KEY or columns is not None:
            return self._store.read(table, where, columns)
        held = self._rows.setdefault(table.name, table.schema.empty_table())
        if not held.num_rows:
            return self._store.read(table, where)
        places = pc.index_in(where.values, value_set=one_array(held.column(KEY)))
        found = held.take(places.drop_null())
        if not places.null_count:
            return found
        return pa.concat_tables([found, self._store.read(table, In(KEY, where.values.filter(places.is_null())))])

    def wrote(self, table: StoredTable, changes: Changes) -> None:
        """These changes are in the database now; `stand_at` says as of when."""
        held = self._rows.get(table.name)
        if held is None:
            return
        latest = changes.after
        assert latest.schema.equals(table.schema), (latest.schema, table.schema)
        if held.num_rows:
            keys = one_array(held.column(KEY))
            is_other = pc.invert(is_among(keys, one_array(latest.column(KEY))))
            if len(changes.gone):
                is_other = pc.and_(is_other, pc.invert(is_among(keys, changes.gone)))
            latest = pa.concat_tables([latest, held.filter(is_other)])
        # Taken, not cut: a slice would hold all the rows of a large step.
        latest = latest.take(pa.array(range(ROWS_MAX))) if latest.num_rows > ROWS_MAX else latest.combine_chunks()
        self._rows[table.name] = latest if latest.nbytes <= BYTES_MAX else table.schema.empty_table()

    def moved_to(self, generation: Generation) -> None:
        """All that was written with the fence of this generation has been told."""
        self._standing = (generation.layers, generation.fence)
