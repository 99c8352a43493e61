"""SQLite for SQLAlchemy by way of apsw, which brings a current SQLite: the one inside Python is often years old.

As much of PEP 249 as SQLAlchemy Core asks for. A connection is in autocommit until `begin`; the dialect begins with
the statement the connection was opened with, so a transaction that will write says so at once (BEGIN IMMEDIATE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import apsw
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.engine import URL
from sqlalchemy.pool import Pool, QueuePool

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"
sqlite_version = apsw.sqlite_lib_version()
sqlite_version_info = tuple(int(part) for part in sqlite_version.split("."))
Binary = bytes


class Error(Exception):
    """Every error of SQLite; `cause` is the one of apsw."""

    def __init__(self, cause: apsw.Error) -> None:
        self.cause = cause
        super().__init__(str(cause))


class Warning(Exception):  # noqa: A001, D101
    pass


class InterfaceError(Error):  # noqa: D101
    pass


class DatabaseError(Error):  # noqa: D101
    pass


class DataError(DatabaseError):  # noqa: D101
    pass


class OperationalError(DatabaseError):  # noqa: D101
    pass


class IntegrityError(DatabaseError):  # noqa: D101
    pass


class InternalError(DatabaseError):  # noqa: D101
    pass


class ProgrammingError(DatabaseError):  # noqa: D101
    pass


class NotSupportedError(DatabaseError):  # noqa: D101
    pass


class Cursor:
    """One statement and its rows."""

    arraysize = 1
    lastrowid: int | None = None

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.description: Sequence[tuple[Any, ...]] | None = None
        self.rowcount = -1

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        before = self._connection.total_changes()
        self.description = None
        self._cursor.exec_trace = self._trace
        self._run(lambda: self._cursor.execute(statement, tuple(parameters)))
        self.rowcount = self._connection.total_changes() - before
        self.lastrowid = self._connection.last_insert_rowid()
        return self

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> Cursor:
        before = self._connection.total_changes()
        self._cursor.exec_trace = None
        self._run(lambda: self._cursor.executemany(statement, (tuple(each) for each in parameters)))
        self.rowcount = self._connection.total_changes() - before
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._run(self._cursor.fetchone)  # type: ignore[no-any-return]

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        while len(found) < (size or self.arraysize) and (row := self.fetchone()) is not None:
            found.append(row)
        return found

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._run(self._cursor.fetchall)  # type: ignore[no-any-return]

    def setinputsizes(self, sizes: Any) -> None:
        """Nothing to do here."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing to do here."""

    def close(self) -> None:
        self._cursor.close(force=True)

    def _trace(self, cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:  # noqa: ARG002
        """Called before the first step: a SELECT without rows is done before anybody could ask for its columns."""
        self.description = [(name, *[None] * 6) for name, *_ in cursor.get_description()] or None
        return True

    def _run(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except apsw.Error as error:
            raise _translated(error) from error


class Connection:
    """One connection; `begin` says how its transactions begin."""

    def __init__(self, apsw_connection: apsw.Connection, begin: str) -> None:
        self.apsw = apsw_connection
        self.begin_statement = begin

    def begin(self) -> None:
        self._run(self.begin_statement)

    def commit(self) -> None:
        if self.apsw.in_transaction:
            self._run("COMMIT")

    def rollback(self) -> None:
        # SQLite itself rolls back after a full disk or a failed read; then there is nothing left to do.
        if self.apsw.in_transaction:
            self._run("ROLLBACK")

    def cursor(self) -> Cursor:
        return Cursor(self.apsw)

    def close(self) -> None:
        self.apsw.close(force=True)

    def _run(self, statement: str) -> None:
        try:
            self.apsw.execute(statement)
        except apsw.Error as error:
            raise _translated(error) from error


STATEMENTS_KEPT = 1_000
"""Prepared statements of a connection: a step of many views needs all that the one before it had."""


def connect(path: str, *, flags: int, begin: str, prepare: Callable[[apsw.Connection], None]) -> Connection:
    """Opens the file; `prepare` gets the new connection once."""
    try:
        opened = apsw.Connection(path, flags=flags, statementcachesize=STATEMENTS_KEPT)
        prepare(opened)
    except apsw.Error as error:
        raise _translated(error) from error
    return Connection(opened, begin)


class ApswDialect(SQLiteDialect):
    """`sqlite+apsw:` in the address of an engine."""

    driver = "apsw"
    default_paramstyle = "qmark"
    supports_statement_cache = True
    supports_sane_rowcount = True
    returns_native_bytes = True

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        import sys

        return sys.modules[__name__]

    @classmethod
    def get_pool_class(cls, url: URL) -> type[Pool]:  # noqa: ARG003
        return QueuePool

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        return [url.database], {}

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:  # noqa: ARG002
        return sqlite_version_info

    def do_begin(self, dbapi_connection: Any) -> None:
        dbapi_connection.begin()

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:  # noqa: ARG002
        return "SERIALIZABLE"

    def is_disconnect(self, e: Exception, connection: Any, cursor: Any) -> bool:  # noqa: ARG002
        return False


registry.register("sqlite.apsw", __name__, "ApswDialect")


def _translated(error: apsw.Error) -> Error:
    for kinds, ours in _KINDS:
        if isinstance(error, kinds):
            return ours(error)
    return OperationalError(error)


_KINDS: tuple[tuple[tuple[type[apsw.Error], ...], type[Error]], ...] = (
    ((apsw.ConstraintError,), IntegrityError),
    ((apsw.SQLError, apsw.MisuseError, apsw.BindingsError, apsw.RangeError), ProgrammingError),
    ((apsw.TooBigError, apsw.MismatchError), DataError),
    ((apsw.InternalError,), InternalError),
)
