"""Views in a SQLite file: the default, with nothing to install and nothing to run.

In WAL mode with synchronous=FULL: a commit is on disk before it returns, and readers never wait for a writer.
Writing transactions begin with BEGIN IMMEDIATE, so two of them never deadlock; the second waits `busy_seconds`.
A disk that is full, or a process that is killed, leaves the last whole transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, and_, bindparam, create_engine, delete, literal_column, select, text, update
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL
from sqlalchemy.types import TypeEngine, UserDefinedType

from penstock.access import make_file, make_folders
from penstock.errors import (
    PenstockError,
    QueryRefused,
    RowsRefused,
    StoreFull,
    StoreTooOld,
    StoreUnavailable,
    require,
)
from penstock.views import apsw_dbapi
from penstock.views.database import Database, Purpose, ReadyRows, Rows, Targets, quote_every_name, refuse_long
from penstock.views.stack import spans
from penstock.views.tables import Lookup, StoredTable
from penstock.views.values import Kind, Physical, Plain, from_plain, plain_type

VERSION_MIN = (3, 51, 3)
"""Before it, two connections that reset the WAL at the same moment could damage the file."""

_LENGTH_MAX = 900_000_000
_CHECKPOINT_PAGES = 8_192
"""32 MiB. With 1,000 pages, SQLite's own choice, a step over a thousand old rows would always end in a checkpoint."""
_ROWS_AT_ONCE = 20_000
_TOGETHER = (64, 8, 1)
"""So many rows are written by one statement, while there are as many: starting one takes as long as storing a row."""
_PARAMETERS_MAX = 32_766
_DECLARED: Mapping[Kind, str] = {
    "boolean": "BOOLEAN",
    "integer": "INTEGER",
    # Without a type nothing is converted: a REAL column would make 0.0 of -0.0. NaN is kept as text, which also sorts
    # after every number.
    "real": "",
    "text": "TEXT",
    "decimal": "TEXT",
    "timestamp": "TEXT",
    "date": "TEXT",
    "json": "TEXT",
    "binary": "BLOB",
}
_LONG: frozenset[Kind] = frozenset({"binary", "json"})
_READ_ONLY = {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE}


class SqliteDatabase(Database):
    """A SQLite file. Any number of processes may read it; one at a time writes."""

    def __init__(self, path: Path, *, busy_seconds: float = 30.0, cache_bytes: int = 64 << 20) -> None:
        super().__init__()
        if apsw_dbapi.sqlite_version_info < VERSION_MIN:
            needed = ".".join(map(str, VERSION_MIN))
            why = "older ones can damage a file that two processes write"
            raise StoreTooOld(
                "SQLite", apsw_dbapi.sqlite_version, needed, why, "install a newer one: pip install -U apsw"
            )
        self.place = str(path)
        self._path = path
        self._busy_ms = int(busy_seconds * 1000)
        self._cache_kib = cache_bytes >> 10
        try:
            make_folders(path.parent)
            if not path.exists():
                make_file(path)  # SQLite gives the files beside it the same mode.
        except OSError as error:
            raise StoreUnavailable(self.place, error, is_retryable=False) from error
        url = URL.create("sqlite+apsw", database=str(path))
        self._writers = self.engine = create_engine(url, creator=self._writer, pool_size=2, max_overflow=30)
        self._readers = create_engine(url, creator=self._reader, pool_size=2, max_overflow=30)
        quote_every_name(self._writers, self._readers)
        with self.errors():
            # The file is there from now on, in WAL mode. No transaction: somebody may hold the lock, and own() waits.
            self._writers.raw_connection().close()

    @contextmanager
    def transaction(self, purpose: Purpose) -> Iterator[Connection]:
        engine = self._writers if purpose == "write" else self._readers
        with self.transacting(engine) as connection:
            if purpose == "read":
                # From here on the snapshot stands. Closed: a statement left half read would hold it for ever.
                connection.exec_driver_sql("SELECT 1 FROM sqlite_schema LIMIT 1").close()
            yield connection

    def rows(
        self, connection: Connection, table: StoredTable, columns: Sequence[Physical], lookup: Lookup, size: int | None
    ) -> Iterator[list[pa.Array]]:
        statement = self._lookup_statement("select", table, lookup, columns)
        cursor = _apsw(connection).cursor()
        # One prepared SELECT, run for each line of the parameters: as fast as IN (...), of any length and any type.
        found = cursor.executemany(statement, _lines(lookup)) if lookup.parameters else cursor.execute(statement)
        while rows := (found.fetchall() if size is None else list(islice(found, size))):
            yield [_column(each, values) for each, values in zip(columns, zip(*rows, strict=True), strict=True)]
            if size is None:
                return

    def write(self, connection: Connection, rows: ReadyRows) -> None:
        arrays = rows.arrays
        cursor, width = _apsw(connection).cursor(), len(arrays)
        few = _row_by_row(arrays) if len(arrays[0]) <= _ROWS_AT_ONCE else None
        for table, start, stop in _pieces(rows.targets):
            values, place = few, start * width
            if values is None:
                values, place = _row_by_row([each[start:stop] for each in arrays]), 0
            end = place + (stop - start) * width
            try:
                for count in _TOGETHER:
                    size = count * width
                    whole = end - (end - place) % size
                    if whole > place and size <= _PARAMETERS_MAX:
                        lines = (values[first : first + size] for first in range(place, whole, size))
                        cursor.executemany(self._insert_statement(table, rows.is_upsert, count), lines)
                        place = whole
            except apsw.ConstraintError as error:
                raise RowsRefused(table.name, error) from error

    def delete(self, connection: Connection, table: StoredTable, lookup: Lookup) -> int:
        statement = self._lookup_statement("delete", table, lookup)
        driver = _apsw(connection)
        before = driver.total_changes()
        if lookup.parameters:
            driver.cursor().executemany(statement, _lines(lookup))
        else:
            driver.cursor().execute(statement)
        return driver.total_changes() - before

    def cover(self, connection: Connection, table: StoredTable, lookup: Lookup) -> None:
        _apsw(connection).cursor().executemany(self._lookup_statement("cover", table, lookup), _lines(lookup))

    def query(self, sql: str, parameters: Mapping[str, object] | None) -> Rows:
        connection = self._reader().apsw
        seen: list[list[str]] = []

        def one_statement(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:  # noqa: ARG001
            seen.append([name for name, *_ in cursor.get_description()])
            return len(seen) == 1

        connection.authorizer = lambda action, *_: apsw.SQLITE_OK if action in _READ_ONLY else apsw.SQLITE_DENY
        try:
            cursor = connection.cursor()
            cursor.exec_trace = one_statement
            statement, values = _named(sql, parameters)
            rows = cursor.execute(statement, values).fetchall()
        except (apsw.SQLError, apsw.AuthError, apsw.BindingsError, apsw.ReadOnlyError, TypeError) as error:
            raise QueryRefused(sql, error) from error
        except apsw.ExecTraceAbort as error:
            raise QueryRefused(sql, "more than one statement") from error
        finally:
            connection.close(force=True)
        if not seen or not seen[0]:
            raise QueryRefused(sql, "it gives no rows")
        return seen[0], rows

    def find(self, connection: Connection, name: str) -> str | None:
        found = connection.execute(
            text("SELECT type FROM sqlite_schema WHERE lower(name) = lower(:name)"), {"name": name}
        )
        return found.scalar()

    def replace_view(self, connection: Connection, name: str, select: str) -> None:
        quoted = connection.dialect.identifier_preparer.quote(name)
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {quoted}")
        connection.exec_driver_sql(f"CREATE VIEW {quoted} AS {select}")

    def sql_type(self, column: Physical) -> TypeEngine[Any]:
        return _Declared(_DECLARED[column.kind])

    def table_options(self, table: StoredTable) -> dict[str, Any]:
        # Rows that lie where their key is are found and written in half the time. But they must be short: where one may
        # be as large as a sketch, few would fit on a page on the way to it.
        is_short = all(each.kind not in _LONG for each in table.columns if each.logical not in table.primary)
        return {"sqlite_with_rowid": not (table.primary and is_short)}

    def refuse(self, column: Physical, plain: Plain) -> None:
        refuse_long(column, plain, _LENGTH_MAX)

    def translated(self, error: BaseException) -> PenstockError | None:
        if isinstance(error, apsw.FullError):
            return StoreFull(self.place, error)
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return StoreUnavailable(self.place, f"another process is writing and did not finish in time ({error})")
        if isinstance(error, apsw.IOError | apsw.ProtocolError | apsw.NoMemError):
            return StoreUnavailable(self.place, error)
        if isinstance(
            error,
            apsw.CantOpenError | apsw.CorruptError | apsw.NotADBError | apsw.ReadOnlyError | apsw.PermissionsError,
        ):
            return StoreUnavailable(self.place, error, is_retryable=False)
        return None

    def close(self) -> None:
        self._writers.dispose()
        self._readers.dispose()

    def _writer(self) -> apsw_dbapi.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        return apsw_dbapi.connect(self.place, flags=flags, begin="BEGIN IMMEDIATE", prepare=self._prepare_writer)

    def _reader(self) -> apsw_dbapi.Connection:
        flags = apsw.SQLITE_OPEN_READONLY
        return apsw_dbapi.connect(self.place, flags=flags, begin="BEGIN", prepare=self._prepare)

    def _prepare(self, connection: apsw.Connection) -> None:
        connection.set_busy_timeout(self._busy_ms)
        connection.pragma("cache_size", -self._cache_kib)

    def _prepare_writer(self, connection: apsw.Connection) -> None:
        self._prepare(connection)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)

    def _insert_statement(self, table: StoredTable, is_upsert: bool, rows: int) -> str:
        key = (table, "insert", is_upsert, rows)
        if key not in self._statements:
            sql_table = self.sql_table(table)
            statement = insert(sql_table).values([dict.fromkeys(sql_table.c.keys())] * rows)
            primary = list(sql_table.primary_key.columns)
            if is_upsert:
                require(bool(primary), f"table {table.name!r} has no primary columns to find rows by")
                rest = {each.name: statement.excluded[each.name] for each in sql_table.c if not each.primary_key}
                statement = (
                    statement.on_conflict_do_update(index_elements=primary, set_=rest)
                    if rest
                    else statement.on_conflict_do_nothing(index_elements=primary)
                )
            compiled = statement.compile(dialect=self._writers.dialect)
            assert compiled.positiontup is not None
            self._statements[key] = str(compiled)
        return self._statements[key]

    def _lookup_statement(self, verb: str, table: StoredTable, lookup: Lookup, columns: Sequence[Physical] = ()) -> str:
        key = (table, verb, tuple(each.name for each in columns), lookup.shape)
        if key not in self._statements:
            of = self.sql_table(table).c
            conditions: list[Any] = self.seen(table)
            conditions += [of[each.name] == bindparam(f"equal{n}") for n, each in enumerate(lookup.equal)]
            conditions += [of[each.name].is_(None) for each in lookup.null]
            if lookup.time is not None:
                time = of[lookup.time.name]
                conditions += [time >= bindparam("low")] if lookup.has_low else []
                conditions += [time < bindparam("high")] if lookup.has_high else []
                conditions += [] if lookup.has_low or lookup.has_high else [time.is_not(None)]
            where = [and_(*conditions)] if conditions else []
            if verb == "delete":
                statement: Any = delete(self.sql_table(table)).where(*where)
            elif verb == "cover":
                statement = update(self.sql_table(table)).where(*where).values({table.covered: literal_column("TRUE")})
            else:
                statement = select(*(of[each.name] for each in columns)).where(*where)
            self._statements[key] = str(statement.compile(dialect=self._writers.dialect))
        return self._statements[key]


class _Declared(UserDefinedType[Any]):
    """A type by its name in CREATE TABLE."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


def _apsw(connection: Connection) -> apsw.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, apsw_dbapi.Connection)
    return driver.apsw


def _lines(lookup: Lookup) -> Iterable[tuple[Any, ...]]:
    return zip(*(_driver_values(each) for each in lookup.parameters), strict=True)


def _pieces(targets: Targets) -> Iterator[tuple[StoredTable, int, int]]:
    """Which rows go into which table, not too many at once."""
    for (table, _), (begin, end) in zip(targets, spans([stop for _, stop in targets]), strict=True):
        for start in range(begin, end, _ROWS_AT_ONCE):
            yield table, start, min(start + _ROWS_AT_ONCE, end)


def _row_by_row(arrays: Sequence[pa.Array]) -> list[Any]:
    """The values of plain columns as apsw binds them, one row after the other."""
    values: list[Any] = [None] * (len(arrays) * len(arrays[0]))
    for place, each in enumerate(arrays):
        values[place :: len(arrays)] = _driver_values(each)
    return values


def _driver_values(array: pa.Array) -> list[Any]:
    """A plain column as apsw binds it."""
    if pa.types.is_dictionary(array.type):
        known = [*array.dictionary.to_pylist(), None]
        return [*map(known.__getitem__, _driver_values(array.indices.fill_null(len(known) - 1)))]
    if pa.types.is_floating(array.type):
        values: list[Any] = array.to_pylist() if array.null_count else array.to_numpy().tolist()
        if not array.null_count and not np.isnan(array.to_numpy()).any():
            return values
        return ["NaN" if each is not None and each != each else each for each in values]
    if pa.types.is_integer(array.type) and not array.null_count:
        return array.to_numpy().tolist()  # type: ignore[no-any-return]
    return array.to_pylist()  # type: ignore[no-any-return]


def _column(column: Physical, values: Sequence[Any]) -> pa.Array:
    """A column of rows as Arrow has it."""
    plain = plain_type(column.type)
    if pa.types.is_boolean(plain):
        return pa.array(values, pa.int8()).cast(plain)
    if pa.types.is_floating(plain):
        try:
            return pa.array(values, plain)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array([None if each is None else float(each) for each in values], plain)
    return from_plain(pa.array(values, plain), column.type)


def _named(sql: str, parameters: Mapping[str, object] | None) -> tuple[str, Mapping[str, Any]]:
    return sql, dict(parameters or {})
