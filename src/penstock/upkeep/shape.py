"""What is stored of a view: its columns, its key, and what is hidden from readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TwoRowsForOneKey
from penstock.pipeline.place import Place
from penstock.upkeep.changes import GROUP, KEY, Changes, is_among, readable_rows, repeated
from penstock.views.catalog import Layers
from penstock.views.keys import key_hashes
from penstock.views.tables import StoredTable, table_name
from penstock.views.values import is_window, one_array


@dataclass(frozen=True)
class Shape:
    """The columns of one view as people see them, and as they are stored."""

    view: str
    place: Place
    key: tuple[str, ...]
    """Empty for a view of one row."""
    columns: pa.Schema
    """What readers see."""
    hidden: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """What only the next step needs: states of aggregates, counts for undoing, the order of the last change."""
    has_group: bool = False
    """Rows carry the window or group they came from."""
    _tables: dict[Layers, StoredTable] = field(default_factory=dict, init=False, repr=False, compare=False)

    def table(self, layers: Layers) -> StoredTable:
        """How the rows of one generation are stored."""
        if layers not in self._tables:
            self._tables[layers] = self._table(layers)
        return self._tables[layers]

    def _table(self, layers: Layers) -> StoredTable:
        own = [pa.field(KEY, pa.binary(16)), *([pa.field(GROUP, pa.binary(16))] if self.has_group else [])]
        schema = pa.schema([*own, *self.columns, *self.hidden])
        beneath = self.table(layers[1:]) if layers[1:] else None
        indexes = ((GROUP,),) if self.has_group else ()
        return StoredTable(table_name(self.view, layers[0]), schema, (KEY,), indexes, beneath)

    @cached_property
    def window(self) -> str | None:
        """The first column that is a window."""
        return next((each.name for each in self.columns if is_window(each.type)), None)

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are stored."""
        return self.table((0,)).schema

    def rows(self, table: pa.Table, **own: pa.Array) -> pa.Table:
        """Rows as stored: the columns of `table`, then `own` by name; without `_key` it is the hash of the key."""
        keys = own.pop(KEY, None)
        if keys is None:
            keys = key_hashes(table, self.key)
            self._check_unique(table, keys)
        arrays: Mapping[str, pa.Array] = {
            **{name: table.column(name) for name in table.schema.names},
            **own,
            KEY: keys,
        }
        schema = self.schema
        return pa.table([_as_type(arrays[name], schema.field(name).type) for name in schema.names], schema=schema)

    def visible(self, rows: pa.Table) -> pa.Table:
        """What readers see of stored rows."""
        return rows.select(self.columns.names)

    def check_free(self, stored: pa.Table, changes: Changes) -> None:
        """TwoRowsForOneKey if a row that comes has the key of a stored one that does not go."""
        is_staying = pc.invert(is_among(one_array(stored.column(KEY)), one_array(changes.before.column(KEY))))
        staying = stored.filter(is_staying)
        both = pa.concat_tables([self.visible(staying), self.visible(changes.after)])
        self._check_unique(both, pa.concat_arrays([one_array(e.column(KEY)) for e in (staying, changes.after)]))

    def _check_unique(self, table: pa.Table, keys: pa.Array) -> None:
        twice = repeated(keys)
        if twice is not None:
            # Which of them came first depends on where the log was cut.
            one, another = sorted(readable_rows(table.take(pa.array(twice))), key=repr)
            raise TwoRowsForOneKey(self.view, self.place, self.key, one, another)


def _as_type(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.Array:
    array = one_array(column)
    return array if array.type == kind else array.cast(kind)
