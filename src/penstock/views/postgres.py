"""Views in PostgreSQL 15 or newer, for more than one machine.

A few thousand rows go as arrays in one statement; more go by COPY into a temporary table and from there, in the same
transaction, to where they belong. A writing transaction that does nothing for most of the owner's lease is ended by
the server, so a frozen owner holds up nobody. Sessions run in UTC.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.types.string import TextLoader
from sqlalchemy import (
    Connection,
    MetaData,
    Table,
    and_,
    bindparam,
    cast,
    column,
    create_engine,
    delete,
    event,
    func,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.schema import CreateTable
from sqlalchemy.types import TypeEngine

from penstock.errors import (
    PenstockError,
    QueryRefused,
    RowsRefused,
    RowsReplaced,
    StoreFull,
    StoreNotTrusted,
    StoreTooOld,
    StoreUnavailable,
    require,
)
from penstock.loopback import warn_of_plain_database
from penstock.redacted import redacted
from penstock.views.copying import copy_lines
from penstock.views.database import Database, Purpose, ReadyRows, Rows, quote_every_name, refuse_long
from penstock.views.stack import spans
from penstock.views.tables import Lookup, StoredTable
from penstock.views.values import Kind, Physical, Plain, decoded, from_plain, plain_type

VERSION_MIN = 150_000
CONNECT_SECONDS = 10
COPY_ROWS_MIN = 5_000
"""From so many rows on they go by COPY."""

_LOCK_MS = 200
"""So long a switch waits for a reader before it gives way."""
_LENGTH_MAX = 250_000_000
_ARRAYS_BYTES_MAX = 64 << 20
_RELATIONS = {"r": "table", "p": "table", "v": "view", "m": "materialized view", "i": "index", "S": "sequence"}
_AS_TEXT = ("timestamptz", "timestamp", "date", "numeric", "jsonb")
_NUL_IN_JSON = r"(^|[^\\])(\\\\)*\\u0000"
_UNTRUSTED = re.compile("certificate|does not support SSL")
"""What the driver says where TLS was asked for and cannot be had. Of a server that goes away it says other things."""
_PLAIN_SQL: Mapping[Kind, TypeEngine[Any]] = {
    "boolean": pg.BOOLEAN(),
    "integer": pg.BIGINT(),
    "real": pg.DOUBLE_PRECISION(),
    "binary": pg.BYTEA(),
}


class PostgresDatabase(Database):
    """A PostgreSQL database; tables lie in the first schema of its search path."""

    def __init__(self, url: URL, *, lease: timedelta) -> None:
        super().__init__()
        self.place = redacted(url.set(drivername="postgresql").render_as_string(hide_password=True))
        self._idle_ms = max(int(lease.total_seconds() * 750), 100)
        if "connect_timeout" not in url.query:
            # A server that takes a connection and then says nothing would be waited for without end.
            url = url.update_query_dict({"connect_timeout": str(CONNECT_SECONDS)})
        self._writers = self.engine = create_engine(url, pool_pre_ping=True, pool_size=2, max_overflow=30)
        self._readers = create_engine(
            url, pool_pre_ping=True, pool_size=2, max_overflow=30, isolation_level="REPEATABLE READ"
        )
        quote_every_name(self._writers, self._readers)
        event.listen(self._writers, "connect", lambda driver, _: self._prepare(driver, is_reader=False))
        event.listen(self._readers, "connect", lambda driver, _: self._prepare(driver, is_reader=True))
        with self.errors(), self._writers.connect() as connection:
            version = _driver(connection).info.server_version
            warn_of_plain_database("views", self.place, _driver(connection))
        if version < VERSION_MIN:
            found = f"{version // 10_000}.{version % 10_000}"
            raise StoreTooOld("PostgreSQL", found, "15", "it was tested with no older one", "upgrade the server")

    @contextmanager
    def transaction(self, purpose: Purpose) -> Iterator[Connection]:
        with self.transacting(self._writers if purpose == "write" else self._readers) as connection:
            if purpose == "read":
                connection.exec_driver_sql("SELECT 1")  # From here on the snapshot stands.
            yield connection

    def rows(
        self, connection: Connection, table: StoredTable, columns: Sequence[Physical], lookup: Lookup, size: int | None
    ) -> Iterator[list[pa.Array]]:
        statement = self._lookup_statement("select", table, lookup, columns)
        driver = _driver(connection)
        cursor: Any = driver.cursor() if size is None else driver.cursor(name="penstock_batches")
        with cursor:
            for name in _AS_TEXT:
                cursor.adapters.register_loader(name, TextLoader)
            cursor.execute(statement, _parameters(lookup.parameters))
            while rows := (cursor.fetchall() if size is None else cursor.fetchmany(size)):
                yield [_column(each, values) for each, values in zip(columns, zip(*rows, strict=True), strict=True)]
                if size is None:
                    return

    def prepared(self, rows: ReadyRows) -> list[ReadyRows]:
        found = []
        for (table, _), (start, stop) in zip(rows.targets, spans([stop for _, stop in rows.targets]), strict=True):
            arrays: Sequence[pa.Array] = [decoded(each[start:stop]) for each in rows.arrays]
            if rows.is_upsert:
                arrays = _last_of_each(table, arrays)
            if len(arrays[0]):
                found.append(ReadyRows([(table, len(arrays[0]))], arrays, rows.is_upsert))
        return found

    def write(self, connection: Connection, rows: ReadyRows) -> None:
        [(table, _)], arrays, is_upsert = rows.targets, rows.arrays, rows.is_upsert
        is_large = len(arrays[0]) >= COPY_ROWS_MIN or sum(each.nbytes for each in arrays) > _ARRAYS_BYTES_MAX
        cursor = _driver(connection).cursor()
        try:
            if not is_large:
                cursor.execute(self._insert_statement(connection, table, is_upsert), _parameters(arrays))
            elif not is_upsert:
                self._copy(connection, self.sql_table(table), arrays)
            else:
                staging = self._staging(table)
                connection.execute(CreateTable(staging, if_not_exists=True))
                self._copy(connection, staging, arrays)
                cursor.execute(self._merge_statement(table, staging), {})
                connection.execute(delete(staging))
        except psycopg.errors.IntegrityError as error:
            raise RowsRefused(table.name, error) from error

    def delete(self, connection: Connection, table: StoredTable, lookup: Lookup) -> int:
        statement = self._lookup_statement("delete", table, lookup)
        return _driver(connection).execute(statement, _parameters(lookup.parameters)).rowcount

    def cover(self, connection: Connection, table: StoredTable, lookup: Lookup) -> None:
        _driver(connection).execute(self._lookup_statement("cover", table, lookup), _parameters(lookup.parameters))

    def query(self, sql: str, parameters: Mapping[str, object] | None) -> Rows:
        with self._readers.connect() as connection:
            statement, values = sql, None
            if parameters is not None:
                compiled = text(sql).compile(dialect=self._readers.dialect)
                statement, values = str(compiled), dict(parameters)
            driver = _driver(connection)
            driver.prepare_threshold = 0
            cursor = driver.cursor()
            try:
                # Prepared, for the server takes only one statement that way: "COMMIT; DROP ..." is two.
                cursor.execute(statement, values, prepare=True)
                if cursor.description is None:
                    raise QueryRefused(sql, "it gives no rows")
                return [each.name for each in cursor.description], cursor.fetchall()
            except (
                psycopg.ProgrammingError,
                psycopg.DataError,
                psycopg.NotSupportedError,
                psycopg.InternalError,
            ) as error:
                raise QueryRefused(sql, error) from error
            finally:
                connection.invalidate()

    def find(self, connection: Connection, name: str) -> str | None:
        found = connection.execute(
            text(
                "SELECT relkind::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
                "WHERE nspname = current_schema() AND relname = :name"
            ),
            {"name": name},
        ).scalar()
        return None if found is None else _RELATIONS.get(found, "relation")

    def replace_view(self, connection: Connection, name: str, select: str) -> None:
        quoted = connection.dialect.identifier_preparer.quote(name)
        try:
            # Keeps what was granted on it; but only the same columns can be replaced.
            with connection.begin_nested():
                connection.exec_driver_sql(f"CREATE OR REPLACE VIEW {quoted} AS {select}")
        except ProgrammingError:
            connection.exec_driver_sql(f"DROP VIEW IF EXISTS {quoted}")
            connection.exec_driver_sql(f"CREATE VIEW {quoted} AS {select}")

    def patiently(self, connection: Connection, body: Callable[[], object]) -> None:
        # Shorter than the server's deadlock_timeout: of a switch and a reader of several views, the switch gives way.
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_MS}")
        while True:
            try:
                with connection.begin_nested():
                    body()
                break
            except (DBAPIError, psycopg.errors.LockNotAvailable) as error:
                if not isinstance(getattr(error, "orig", error), psycopg.errors.LockNotAvailable):
                    raise
                time.sleep(random.uniform(0.01, 0.05))
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")

    def sql_type(self, column: Physical) -> TypeEngine[Any]:
        kind, data_type = column.kind, column.type
        if kind == "integer":
            return {1: pg.SMALLINT(), 2: pg.SMALLINT(), 4: pg.INTEGER(), 8: pg.BIGINT()}[data_type.bit_width // 8]
        if kind == "real":
            return pg.REAL() if pa.types.is_float32(data_type) else pg.DOUBLE_PRECISION()
        if kind == "decimal":
            return pg.NUMERIC(data_type.precision, data_type.scale)
        if kind == "timestamp":
            return pg.TIMESTAMP(timezone=data_type.tz is not None)
        others: dict[Kind, TypeEngine[Any]] = {"date": pg.DATE(), "json": pg.JSONB(), "text": pg.TEXT()}
        return others.get(kind) or _PLAIN_SQL[kind]

    def refuse(self, column: Physical, plain: Plain) -> None:
        refuse_long(column, plain, _LENGTH_MAX)
        if column.kind == "text":
            has_nul = pc.match_substring(plain.array, "\0")
        elif column.kind == "json":
            has_nul = pc.match_substring_regex(plain.array, _NUL_IN_JSON)
        else:
            return
        if pc.any(has_nul).as_py():
            for row in pc.indices_nonzero(has_nul.fill_null(False)).to_pylist():
                plain.misfits[row] = "PostgreSQL cannot hold the character NUL"

    def translated(self, error: BaseException) -> PenstockError | None:
        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate or ""
        if isinstance(error, psycopg.errors.UndefinedTable):
            return RowsReplaced(self.place, error)
        if state == "53100":
            return StoreFull(self.place, error)
        if not state and _UNTRUSTED.search(str(error)):
            return StoreNotTrusted(self.place, error)
        if state.startswith(("28", "3D", "42501")):
            return StoreUnavailable(self.place, error, is_retryable=False)
        is_gone = isinstance(error, psycopg.OperationalError) or str(error) == "the connection is closed"
        if is_gone or state.startswith(("08", "40", "53", "57P", "25P03")):
            return StoreUnavailable(self.place, error)
        return None

    def close(self) -> None:
        self._writers.dispose()
        self._readers.dispose()

    def _prepare(self, driver: Any, *, is_reader: bool) -> None:
        settings = ["SET TimeZone = 'UTC'", "SET DateStyle = 'ISO'", "SET extra_float_digits = 1"]
        if is_reader:
            settings.append("SET default_transaction_read_only = on")
        else:
            settings.append(f"SET idle_in_transaction_session_timeout = {self._idle_ms}")
        for each in settings:
            driver.execute(each)
        driver.commit()
        driver.read_only = is_reader or None
        # A prepared SELECT fails once its table was made anew with other columns.
        driver.prepare_threshold = None

    def _copy(self, connection: Connection, target: Table, arrays: Sequence[pa.Array]) -> None:
        preparer = connection.dialect.identifier_preparer
        names = ", ".join(preparer.quote(each.name) for each in target.c)
        # SQLAlchemy doubles % for statements with parameters; COPY has none.
        statement = f"COPY {preparer.format_table(target)} ({names}) FROM STDIN".replace("%%", "%")
        with _driver(connection).cursor() as cursor, cursor.copy(statement) as copy:
            for lines in copy_lines(arrays):
                copy.write(lines)

    def _staging(self, table: StoredTable) -> Table:
        target = self.sql_table(table)
        staging = Table(
            f"{self.index_name(table, ['staging'])}", MetaData(), prefixes=["TEMPORARY"], postgresql_on_commit="DROP"
        )
        for each in target.c:
            staging.append_column(each.__class__(each.name, each.type))
        return staging

    def _merge_statement(self, table: StoredTable, staging: Table) -> str:
        key = (table, "merge")
        if key not in self._statements:
            self._statements[key] = self._compiled(self._insert(table, select(*staging.c), is_upsert=True))
        return self._statements[key]

    def _insert_statement(self, connection: Connection, table: StoredTable, is_upsert: bool) -> str:  # noqa: ARG002
        key = (table, "insert", is_upsert)
        if key not in self._statements:
            given = _given([each.kind for each in table.columns])
            target = self.sql_table(table)
            chosen = select(*(cast(given.c[f"c{n}"], each.type) for n, each in enumerate(target.c)))
            self._statements[key] = self._compiled(self._insert(table, chosen, is_upsert))
        return self._statements[key]

    def _insert(self, table: StoredTable, rows: Any, is_upsert: bool) -> Any:
        target = self.sql_table(table)
        statement = pg.insert(target).from_select([each.name for each in target.c], rows)
        if not is_upsert:
            return statement
        primary = list(target.primary_key.columns)
        require(bool(primary), f"table {table.name!r} has no primary columns to find rows by")
        rest = {each.name: statement.excluded[each.name] for each in target.c if not each.primary_key}
        if rest:
            return statement.on_conflict_do_update(index_elements=primary, set_=rest)
        return statement.on_conflict_do_nothing(index_elements=primary)

    def _lookup_statement(self, verb: str, table: StoredTable, lookup: Lookup, columns: Sequence[Physical] = ()) -> str:
        key = (table, verb, tuple(each.name for each in columns), lookup.shape)
        if key not in self._statements:
            target = self.sql_table(table)
            bounds = [lookup.time] * (lookup.has_low + lookup.has_high) if lookup.time else []
            wanted = [*lookup.equal, *bounds]
            given = _given([each.kind for each in wanted]) if wanted else None
            values = (
                [cast(given.c[f"c{n}"], target.c[each.name].type) for n, each in enumerate(wanted)]
                if given is not None
                else []
            )
            conditions: list[Any] = self.seen(table)
            conditions += [target.c[each.name].is_(None) for each in lookup.null]
            conditions += [target.c[each.name] == value for each, value in zip(lookup.equal, values, strict=False)]
            if lookup.time is not None:
                time, rest = target.c[lookup.time.name], values[len(lookup.equal) :]
                conditions += [time >= rest.pop(0)] if lookup.has_low else []
                conditions += [time < rest.pop(0)] if lookup.has_high else []
                conditions += [] if lookup.has_low or lookup.has_high else [time.is_not(None)]
            if verb == "delete":
                statement: Any = delete(target).where(*conditions)
            elif verb == "cover":
                statement = update(target).where(*conditions).values({table.covered: literal_column("TRUE")})
            else:
                statement = select(*(target.c[each.name] for each in columns)).where(and_(True, *conditions))
            self._statements[key] = self._compiled(statement)
        return self._statements[key]

    def _compiled(self, statement: Any) -> str:
        return str(statement.compile(dialect=self._writers.dialect))


def _given(kinds: Sequence[Kind]) -> Any:
    """Arrays that came as parameters, as rows: unnest(:p0, :p1) AS given(c0, c1)."""
    types = [_PLAIN_SQL.get(kind, pg.TEXT()) for kind in kinds]
    arrays = [cast(bindparam(f"p{n}", type_=pg.ARRAY(each)), pg.ARRAY(each)) for n, each in enumerate(types)]
    columns = [column(f"c{n}", each) for n, each in enumerate(types)]
    return func.unnest(*arrays).table_valued(*columns, name="given").render_derived()


def _parameters(arrays: Sequence[pa.Array]) -> dict[str, list[Any]]:
    return {f"p{n}": each.to_pylist() for n, each in enumerate(arrays)}


def _last_of_each(table: StoredTable, arrays: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """The rows without those that a later one replaces: PostgreSQL refuses to change a row twice in one statement."""
    primary = {each.name for name in table.primary for each in table.physical(name)}
    keys = [array for each, array in zip(table.columns, arrays, strict=True) if each.name in primary]
    if len(keys) == 1 and pc.count_distinct(keys[0]).as_py() == len(keys[0]):
        return arrays
    names = [f"k{n}" for n in range(len(keys))]
    numbered = pa.table([*keys, pa.array(range(len(keys[0])), pa.int64())], names=[*names, "row"])
    last = numbered.group_by(names, use_threads=False).aggregate([("row", "max")]).column("row_max")
    if len(last) == len(keys[0]):
        return arrays
    chosen = pc.take(last, pc.array_sort_indices(last.combine_chunks())).combine_chunks()
    return [each.take(chosen) for each in arrays]


def _driver(connection: Connection) -> psycopg.Connection[tuple[Any, ...]]:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def _column(physical: Physical, values: Sequence[Any]) -> pa.Array:
    """A column of rows as Arrow has it."""
    array = pa.array(values, plain_type(physical.type))
    if physical.kind == "timestamp" and physical.type.tz is not None:
        return array.cast(pa.timestamp("us", "UTC")).view(pa.int64()).view(physical.type)
    return from_plain(array, physical.type)
