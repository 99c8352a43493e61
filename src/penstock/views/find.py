"""Finding rows of a view, for people: by their key or a part of it, in an order, at most so many."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.errors import KeyValueError, UnknownViewColumn
from penstock.views.catalog import Catalog, Generation, KnownView
from penstock.views.keys import key_hashes
from penstock.views.store import In, Snapshot, StoredTable
from penstock.views.tables import table_name
from penstock.views.values import Physical, is_window, to_plain

KEY = "_key"
NULL = "NULL"
"""What people write for a key that is NULL."""


@dataclass(frozen=True)
class StoredView:
    """One view as it lies in the database: where to read it, and how far it has come."""

    generation: Generation
    known: KnownView

    @property
    def name(self) -> str:
        return self.known.name

    @property
    def rows(self) -> int:
        return self.generation.counters[self.name].rows

    @cached_property
    def table(self) -> StoredTable:
        """The columns that people see, and the key. What is hidden is not among them."""
        schema = pa.schema([pa.field(KEY, pa.binary(16)), *self.known.schema])
        beneath = self.generation.beneath
        lower = None if beneath is None else StoredTable(table_name(self.name, beneath), schema, (KEY,))
        return StoredTable(self.known.tables["rows"], schema, (KEY,), beneath=lower)

    @property
    def windows(self) -> list[str]:
        """The columns that are time windows."""
        return [each.name for each in self.known.schema if is_window(each.type)]


def stored_view(snapshot: Snapshot, name: str) -> StoredView:
    """The view as people read it now. UnknownView names the nearest."""
    generation = Catalog(snapshot.connection).find_view(name)
    return StoredView(generation, generation.views[name])


@dataclass(frozen=True)
class Condition:
    """A column that must have a value; None is NULL."""

    column: Physical
    value: Any


def conditions(view: StoredView, texts: Sequence[str]) -> list[Condition]:
    """What people wrote of a key: COLUMN=VALUE, or values in the order of the columns not named so. KeyValueError.

    Of a window its start is enough, START..END is all of it.
    """
    key = view.known.key or ()
    parted = [text.partition("=") for text in texts]
    named = [name if equals and name in key else None for name, equals, _ in parted]
    free = iter([name for name in key if name not in named])
    found: list[Condition] = []
    for text, (_, _, rest), name in zip(texts, parted, named, strict=True):
        column = name or next(free, None)
        if column is None:
            raise KeyValueError(view.name, key, text, "there are more values than key columns")
        found += _conditions(view, column, rest if name else text)
    return found


def _conditions(view: StoredView, column: str, text: str) -> list[Condition]:
    parts = view.table.physical(column)
    if len(parts) == 1:
        return [Condition(parts[0], _parsed(view, column, text, parts[0].type))]
    if text == NULL:
        return [Condition(part, None) for part in parts]
    start, dots, end = text.partition("..")
    texts = [start, end] if dots else [start]
    return [Condition(part, _parsed(view, column, each, part.type)) for part, each in zip(parts, texts, strict=False)]


def find_rows(
    snapshot: Snapshot,
    view: StoredView,
    wanted: Sequence[Condition] = (),
    *,
    order: str | None = None,
    limit: int | None = None,
) -> pa.Table:
    """The rows that meet all conditions, with their keys, in the order of a column (`-name`: downwards) or of the key.

    The database sorts and counts, so a large view costs no more than what is shown of it.
    """
    source = sa.table(view.table.name, *(sa.column(each.name) for each in view.table.columns))
    dialect = snapshot.connection.dialect.name
    statement = sa.select(source.c[KEY]).where(*(_compared(source, each, dialect) for each in wanted))
    statement = statement.order_by(*_order(view, source, order, dialect)).limit(limit)
    keys = pa.array([bytes(row[0]) for row in snapshot.connection.execute(statement)], pa.binary(16))
    rows = snapshot.read(view.table, In(KEY, keys)) if len(keys) else view.table.schema.empty_table()
    places = pc.index_in(keys, value_set=rows.column(KEY).combine_chunks())
    return rows.take(places)


def row_of_key(snapshot: Snapshot, view: StoredView, key: Mapping[str, Any]) -> pa.Table:
    """The row with exactly this key: a table of one row, or of none."""
    schema = pa.schema([view.known.schema.field(name) for name in view.known.key or ()])
    hashes = key_hashes(pa.Table.from_pylist([dict(key)], schema=schema), schema.names)
    return snapshot.read(view.table, In(KEY, hashes))


def _compared(source: sa.TableClause, condition: Condition, dialect: str) -> sa.ColumnElement[bool]:
    column: sa.ColumnElement[Any] = source.c[condition.column.name]
    value = condition.value
    if value is not None and dialect == "sqlite":  # Where everything is a number, text or bytes.
        [value] = to_plain(pa.array([value], condition.column.type)).array.to_pylist()
    found: sa.ColumnElement[bool] = column.is_(None) if value is None else column == value
    return found


def _order(view: StoredView, source: sa.TableClause, order: str | None, dialect: str) -> list[Any]:
    if order is None:
        names = [each for name in view.known.key or (KEY,) for each in view.table.physical(name)]
        return [_sorted_by(source, each, dialect) for each in names] or [source.c[KEY]]
    name, is_down = (order[1:], True) if order.startswith("-") else (order, False)
    known = {*view.known.schema.names, *(each.name for each in view.table.columns)} - {KEY}
    if name not in known:
        raise UnknownViewColumn(view.name, name, sorted(known))
    found = [_sorted_by(source, each, dialect) for each in view.table.physical(name)]
    return [*(each.desc().nulls_last() if is_down else each.nulls_last() for each in found), source.c[KEY]]


def _sorted_by(source: sa.TableClause, column: Physical, dialect: str) -> Any:
    found = source.c[column.name]
    # Decimals are text in SQLite, and '9' comes after '10'.
    return sa.cast(found, sa.REAL) if column.kind == "decimal" and dialect == "sqlite" else found


def _parsed(view: StoredView, column: str, text: str, kind: pa.DataType) -> Any:
    if text == NULL:
        return None
    try:
        return _value(text, kind)
    except (ValueError, KeyError, OverflowError, RecursionError, InvalidOperation, pa.ArrowException) as error:
        raise KeyValueError(
            view.name, view.known.key or (), text, f"column {column!r} is of type {kind}", column
        ) from error


def _value(text: str, kind: pa.DataType) -> Any:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return text
    if types.is_boolean(kind):
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
    if types.is_integer(kind):
        number, bits = int(text), kind.bit_width
        low, high = (-(1 << bits - 1), 1 << bits - 1) if types.is_signed_integer(kind) else (0, 1 << bits)
        if not low <= number < high:
            raise OverflowError(text)
        return number
    if types.is_floating(kind):
        return pa.scalar(float(text), kind).as_py()
    if types.is_decimal(kind):
        return pa.scalar(Decimal(text), kind).as_py()
    if types.is_date(kind):
        return date.fromisoformat(text)
    if types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        if kind.tz is None:
            return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return bytes.fromhex(text)
    return pa.scalar(json.loads(text), kind).as_py()
