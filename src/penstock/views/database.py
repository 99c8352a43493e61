"""What a database must be able to do to hold views. Each one is a file beside this: sqlite.py, postgres.py.

Statements are built by SQLAlchemy, which quotes every name; rows go through the driver itself, many at a time.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Index,
    MetaData,
    Select,
    Table,
    false,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from penstock.errors import PenstockError, StoreUnavailable
from penstock.views.tables import Lookup, StoredTable, Where, lookups
from penstock.views.values import Physical, Plain

Purpose = Literal["read", "write"]
Rows = tuple[list[str], list[tuple[Any, ...]]]
"""The names of the columns, and the rows."""
Targets = Sequence[tuple[StoredTable, int]]
"""Tables that rows go into, and where among the rows those of each end."""


@dataclass(frozen=True)
class ReadyRows:
    """Rows on their way into tables that are alike, as plain columns, which may be coded."""

    targets: Targets
    arrays: Sequence[pa.Array]
    is_upsert: bool
    """A row of the same primary columns is replaced."""


class _EveryWord(set[str]):
    """Every word is reserved: no list of them is complete, and new versions have new ones."""

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str)


def quote_every_name(*engines: Engine) -> None:
    """From now on SQLAlchemy writes every name of a table or column in quotes."""
    for engine in engines:
        engine.dialect.identifier_preparer.reserved_words = _EveryWord()


class Database(ABC):
    """One database, with pools of connections for reading and for writing. Threads may use it at once."""

    place: str
    """Its address as people may see it: without a password."""
    engine: Engine
    """Whose connections write; for what is no transaction of a view."""

    def __init__(self) -> None:
        self._tables: dict[StoredTable, Table] = {}
        self._statements: dict[tuple[object, ...], str] = {}

    @abstractmethod
    def transaction(self, purpose: Purpose) -> AbstractContextManager[Connection]:
        """One transaction: committed at the end, rolled back if the body raises. A reading one is one snapshot."""

    @abstractmethod
    def rows(
        self, connection: Connection, table: StoredTable, columns: Sequence[Physical], lookup: Lookup, size: int | None
    ) -> Iterator[list[pa.Array]]:
        """The rows of a lookup as plain columns, `size` at a time, or all at once."""

    def prepared(self, rows: ReadyRows) -> list[ReadyRows]:
        """What `write` would do with the rows before it sends them, done before the transaction begins."""
        return [rows]

    @abstractmethod
    def write(self, connection: Connection, rows: ReadyRows) -> None:
        """Inserts rows that were `prepared`."""

    @abstractmethod
    def delete(self, connection: Connection, table: StoredTable, lookup: Lookup) -> int:
        """Deletes the rows of a lookup; returns how many there were."""

    @abstractmethod
    def cover(self, connection: Connection, table: StoredTable, lookup: Lookup) -> None:
        """Marks the rows of a lookup, in a table that lies beneath another one, as covered."""

    @abstractmethod
    def query(self, sql: str, parameters: Mapping[str, object] | None) -> Rows:
        """One SELECT of a person's, on a connection that can change nothing."""

    @abstractmethod
    def find(self, connection: Connection, name: str) -> str | None:
        """What has this name: "table", "view", another word, or None."""

    @abstractmethod
    def replace_view(self, connection: Connection, name: str, select: str) -> None:
        """Makes the view, or makes it anew."""

    def patiently(self, connection: Connection, body: Callable[[], object]) -> None:  # noqa: ARG002
        """Runs the body; where it waits for readers that wait for it, it is undone and run again."""
        body()

    @abstractmethod
    def sql_type(self, column: Physical) -> TypeEngine[Any]:
        """The type of a column in this database."""

    @abstractmethod
    def refuse(self, column: Physical, plain: Plain) -> None:
        """Adds to the misfits what only this database cannot hold."""

    @abstractmethod
    def translated(self, error: BaseException) -> PenstockError | None:
        """The driver's error as one of ours; None if it is a bug of ours and must stay as it is."""

    @abstractmethod
    def close(self) -> None:
        """Gives all connections back."""

    def lookups(self, table: StoredTable, where: Where | None) -> list[Lookup]:
        """A condition as statements, without the values that no row here can have."""
        found = []
        for each in lookups(table, where):
            unheld: set[int] = set()
            for column, array in zip(each.equal, each.parameters, strict=False):
                plain = Plain(array)
                self.refuse(column, plain)
                unheld.update(plain.misfits)
            if unheld:
                held = pa.array([row not in unheld for row in range(len(each.parameters[0]))])
                each = replace(each, parameters=tuple(array.filter(held) for array in each.parameters))
            if not each.parameters or len(each.parameters[0]):
                found.append(each)
        return found

    def sql_table(self, table: StoredTable) -> Table:
        """The table as SQLAlchemy knows it."""
        found = self._tables.get(table)
        if found is None:
            primary = {each.name for name in table.primary for each in table.physical(name)}
            found = Table(table.name, MetaData(), **self.table_options(table))
            for each in table.columns:
                is_primary = each.name in primary
                found.append_column(
                    Column(
                        each.name,
                        self.sql_type(each),
                        primary_key=is_primary,
                        nullable=not is_primary,
                        autoincrement=False,
                    )
                )
            if table.hidden_by is not None:
                found.append_column(Column(table.covered, Boolean))
            for names in table.indexes:
                self.index(found, table, names)
            self._tables[table] = found
        return found

    def seen(self, table: StoredTable) -> list[ColumnElement[bool]]:
        """What is true of the rows of a part that are rows of the whole: see `StoredTable.parts`."""
        own = self.sql_table(table).c
        if table.hidden_by is not None:
            return [own[table.covered].is_(false())]
        return [own[table.columns[-1].name].is_(false())] if table.is_upper else []

    def put_beneath(self, connection: Connection, table: StoredTable) -> None:
        """Gives a table what it needs to lie beneath another one: one at a time. Quick, however large it is."""
        preparer = connection.dialect.identifier_preparer
        name, mark = preparer.quote(table.name), preparer.quote(table.covered)
        if table.covered in {each["name"] for each in inspect(connection).get_columns(table.name)}:
            connection.exec_driver_sql(f"UPDATE {name} SET {mark} = FALSE WHERE {mark}")
        else:
            connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {mark} BOOLEAN NOT NULL DEFAULT FALSE")

    def rows_of_both(self, table: StoredTable) -> str:
        """The statement that gives the rows of two tables which are read as one."""
        first, second = (self._all_rows(part, table) for part in table.parts)
        return f"{first} UNION ALL {second}"

    def _all_rows(self, part: StoredTable, whole: StoredTable) -> str:
        own = self.sql_table(part).c
        chosen: Select[Any] = select(*(own[each.name] for each in whole.columns)).where(*self.seen(part))
        return str(chosen.compile(dialect=self.engine.dialect, compile_kwargs={"literal_binds": True}))

    @contextmanager
    def transacting(self, engine: Engine) -> Iterator[Connection]:
        """One transaction of an engine, with errors that say whether anything can have been stored."""
        with self.errors(), engine.connect() as connection:
            transaction = connection.begin()
            try:
                yield connection
            except BaseException:
                with suppress(Exception):  # What went wrong first is what counts.
                    transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                ours = self.translated(_innermost(error))
                if isinstance(ours, StoreUnavailable) and error.connection_invalidated:
                    raise StoreUnavailable(self.place, ours.cause, is_outcome_unknown=True) from error
                with suppress(Exception):
                    transaction.rollback()
                raise

    def index(self, sql_table: Table, table: StoredTable, names: Sequence[str]) -> Index:
        """An index whose name follows from what it is."""
        columns = [each.name for name in names for each in table.physical(name)]
        return Index(self.index_name(table, columns), *(sql_table.c[name] for name in columns))

    def index_name(self, table: StoredTable, words: Sequence[str]) -> str:
        """A name that goes with a table, short enough for every database."""
        digest = hashlib.blake2b("\0".join((table.name, *words)).encode(), digest_size=8).hexdigest()
        return f"_penstock_{digest}"

    def table_options(self, table: StoredTable) -> dict[str, Any]:  # noqa: ARG002
        """What else CREATE TABLE needs here."""
        return {}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Driver errors of the body come out as ours."""
        try:
            yield
        except PenstockError:
            raise
        except Exception as error:
            ours = self.translated(_innermost(error))
            if ours is None:
                raise
            raise ours from error


def refuse_long(column: Physical, plain: Plain, length_max: int) -> None:
    """Adds to the misfits what is longer than the database takes."""
    array = plain.array
    if array.nbytes <= length_max or not (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
        return
    lengths = pc.binary_length(array).fill_null(0)
    for row in pc.indices_nonzero(pc.greater(lengths, length_max)).to_pylist():
        plain.misfits[row] = f"it has {lengths[row].as_py()} bytes as {column.kind}; at most {length_max} can be kept"


def _innermost(error: BaseException) -> BaseException:
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
