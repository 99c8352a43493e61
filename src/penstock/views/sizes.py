"""How large the tables of views are, for people: rows, and bytes in the database."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, column, func, literal, select, table, text

_BYTES = {
    "sqlite": "SELECT sum(pgsize) FROM dbstat WHERE aggregate = TRUE AND name IN "
    "(SELECT name FROM sqlite_schema WHERE tbl_name = :name)",
    "postgresql": "SELECT pg_total_relation_size(to_regclass(quote_ident(:name)))",
}


@dataclass(frozen=True)
class Size:
    """What a table takes, with its indexes."""

    rows: int = 0
    bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.rows + other.rows, self.bytes + other.bytes)


def size_of(connection: Connection, name: str, counted_by: str | None = None) -> Size:
    """The size of a table of ours; `counted_by` names the column that says how many rows there are in one of its own.

    Reads all of it, so it takes as long as the table is large.
    """
    counted = func.count(literal(1)) if counted_by is None else func.coalesce(func.sum(column(counted_by)), 0)
    rows = connection.execute(select(counted).select_from(table(name))).scalar_one()
    found = connection.execute(text(_BYTES[connection.dialect.name]), {"name": name}).scalar()
    return Size(int(rows), int(found or 0))
