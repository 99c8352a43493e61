"""The names under which people read views: an SQL VIEW over the live table, with just the columns they should see.

Which names are ours is written down in `_penstock_published`: anything else in the database is never touched.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Column, Connection, MetaData, Table, Text, delete, insert, select
from sqlalchemy.schema import CreateTable

from penstock.errors import ViewNameTaken
from penstock.views.database import Database
from penstock.views.tables import StoredTable

PUBLISHED = Table(
    "_penstock_published",
    MetaData(),
    Column("name", Text, primary_key=True),
    Column("table_name", Text, nullable=False),
    Column("statement", Text, nullable=False),
)


def create_published(connection: Connection) -> None:
    """Makes the list of names, if it is not there."""
    connection.execute(CreateTable(PUBLISHED, if_not_exists=True))


def show(database: Database, connection: Connection, name: str, table: StoredTable, columns: Sequence[str]) -> None:
    """Makes `name` stand for these columns of the table; ViewNameTaken if it is somebody else's."""
    of = database.sql_table(table).c
    chosen = [of[each.name] for column in columns for each in table.physical(column)]
    statement = str(select(*chosen).compile(dialect=connection.dialect))
    listed = connection.execute(select(PUBLISHED.c.statement).where(PUBLISHED.c.name == name)).scalar()
    found = database.find(connection, name)
    if found is not None and (listed is None or found != "view"):
        raise ViewNameTaken(name, found, database.place)
    if found is not None and listed == statement:
        return
    database.replace_view(connection, name, statement)
    connection.execute(delete(PUBLISHED).where(PUBLISHED.c.name == name))
    connection.execute(insert(PUBLISHED), {"name": name, "table_name": table.name, "statement": statement})


def take_away(connection: Connection, name: str) -> None:
    """Takes a name of ours away."""
    if connection.execute(delete(PUBLISHED).where(PUBLISHED.c.name == name)).rowcount:
        quoted = connection.dialect.identifier_preparer.quote(name)
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {quoted}")


def withdraw_all(connection: Connection, table_name: str) -> None:
    """Takes all names away that stand for this table."""
    for name in connection.scalars(select(PUBLISHED.c.name).where(PUBLISHED.c.table_name == table_name)).all():
        take_away(connection, name)
