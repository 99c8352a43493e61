"""The store: where the rows of views are kept, in SQLite or PostgreSQL, behind one interface.

    with open_store("sqlite:./data/views.db") as store:
        with store.transaction(owner) as tx:        # all of it or nothing, and only while `owner` owns the pipeline
            tx.create(table)
            unfit = tx.upsert(table, rows)
        store.read(table, In("_key", keys))          # the very same Arrow values, schema included

Reads outside of a transaction see the last commit; several of them see the same one inside `store.snapshot()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa
from sqlalchemy import Connection, Engine, MetaData, false, func, or_, select, union_all
from sqlalchemy import column as sql_column
from sqlalchemy import table as sql_table
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.selectable import NamedFromClause

from penstock.errors import RowsReplaced, StoreUrlError, require
from penstock.redacted import database_url
from penstock.views.database import Database, ReadyRows, Rows
from penstock.views.keys import key_order
from penstock.views.publishing import create_published, show, take_away, withdraw_all
from penstock.views.stack import Stack, alike, spans
from penstock.views.tables import Both, In, Lookup, Ranges, StoredTable, Unfit, Where, unfits
from penstock.views.values import ambiguous_ends, join, one_array, split, to_plain

if TYPE_CHECKING:
    from penstock.views.owner import Owner
    from penstock.views.takeover import OnWait

__all__ = [
    "Both",
    "In",
    "Published",
    "Ranges",
    "Snapshot",
    "Store",
    "StoredTable",
    "Transaction",
    "Unfit",
    "Upserts",
    "Where",
    "open_store",
]

T = TypeVar("T")

_READS_MAX = 5
"""So often a read is repeated because what it read was replaced meanwhile."""

SENT_AT_ONCE = 100_000
"""So many keys go with one statement: the driver converts them while the transaction waits."""

DEFAULT_LEASE = timedelta(seconds=10)


def open_store(
    url: str,
    *,
    password: str = "",
    lease: timedelta = DEFAULT_LEASE,
    busy: timedelta = timedelta(seconds=30),
) -> Store:
    """Opens the database of views, and makes it if it is a SQLite file that is not there yet.

    `password` is that of the user in the address. Without one, libpq looks for it (PGPASSWORD, ~/.pgpass).
    `lease` is the owner's: PostgreSQL ends a writing transaction that does nothing for most of it. `busy` is how
    long a SQLite transaction waits for another process to finish its own.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest and rest != ":memory:":
        from penstock.views.sqlite import SqliteDatabase

        return Store(SqliteDatabase(Path(rest), busy_seconds=busy.total_seconds()), lease)
    if scheme in ("postgresql", "postgres"):
        from penstock.views.postgres import PostgresDatabase

        try:
            address = database_url(url).set(drivername="postgresql+psycopg")
        except ValueError as error:
            raise StoreUrlError(url, str(error)) from None
        if password:
            address = address.set(password=password)
        return Store(PostgresDatabase(address, lease=lease), lease)
    raise StoreUrlError(url)


class Published(NamedTuple):
    """A name under which people read these columns of a table."""

    name: str
    table: StoredTable
    columns: Sequence[str]


class Snapshot:
    """Reads that all see the same moment. One thread at a time."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database = database
        self.connection = connection
        """For statements of your own, in the same transaction."""

    def read(self, table: StoredTable, where: Where | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that are meant, in no particular order; all columns, or those that are named."""
        found = list(self._pieces(table, where, columns, None))
        return pa.concat_tables(found) if found else _chosen(table, columns).empty_table()

    def batches(
        self,
        table: StoredTable,
        where: Where | None = None,
        rows: int = 50_000,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        """The same rows, at most so many at a time: a table larger than memory can be read."""
        return self._pieces(table, where, columns, rows)

    def count(self, table: StoredTable) -> int:
        """How many rows there are."""
        with self._database.errors():
            counts = [
                select(func.count()).select_from(self._database.sql_table(part)).where(*self._database.seen(part))
                for part in table.parts
            ]
            return sum(int(self.connection.execute(each).scalar_one()) for each in counts)

    def differing(
        self, one: StoredTable, other: StoredTable, columns: Sequence[str], limit: int | None = None
    ) -> pa.Array:
        """The primary values of rows that are only in one of two tables, or differ in these columns; so many at most.

        Both have the columns, and the same single primary column. Equal is what the database says is equal.
        """
        [primary] = one.primary
        left, right = (self._as_named(each, name) for each, name in ((one, "one"), (other, "other")))
        named = [each.name for column in columns for each in one.physical(column)]
        unlike = or_(*(left.c[name].is_distinct_from(right.c[name]) for name in named), false())
        same = left.c[primary] == right.c[primary]
        keys = union_all(
            select(left.c[primary])
            .select_from(left.join(right, same, isouter=True))
            .where(or_(right.c[primary].is_(None), unlike)),
            select(right.c[primary]).select_from(right.join(left, same, isouter=True)).where(left.c[primary].is_(None)),
        ).limit(limit)
        with self._database.errors():
            found = self.connection.execute(keys).scalars().all()
        return pa.array([bytes(each) for each in found], one.schema.field(primary).type)

    def _as_named(self, table: StoredTable, name: str) -> NamedFromClause[Any]:
        """A table, or two that are read as one, by a name of its own."""
        return sql_table(table.name, *(sql_column(each.name) for each in table.columns)).alias(name)

    def _pieces(
        self, table: StoredTable, where: Where | None, names: Sequence[str] | None, size: int | None
    ) -> Iterator[pa.Table]:
        schema = _chosen(table, names)
        columns = [each for each in table.columns if each.logical in schema.names]
        with self._database.errors():
            for lookup in self._database.lookups(table, where):
                for part in table.parts:
                    for arrays in self._database.rows(self.connection, part, columns, lookup, size):
                        yield join(schema, columns, arrays)


class Upserts(NamedTuple):
    """Rows on their way into tables, sorted and converted, so that a transaction only has to send them.

    PostgreSQL ends a transaction that it hears nothing of, and millions of rows take longer than that.
    """

    rows: Sequence[ReadyRows]
    covered: Sequence[tuple[StoredTable, Lookup]]
    """What lies beneath them."""
    unfit: Sequence[list[Unfit]]
    """For each table, the rows with a value that the database cannot hold; they are left out."""


class Transaction(Snapshot):
    """Changes that are stored together or not at all. One thread at a time; after an error it stores nothing."""

    def __init__(self, database: Database, connection: Connection) -> None:
        super().__init__(database, connection)
        self.is_failed = False

    def create(self, table: StoredTable) -> None:
        """Makes the table and its indexes. One with another beneath it is read under its name like any other."""
        with self._changing():
            made = self._database.sql_table(table.top)
            self.connection.execute(CreateTable(made))
            for index in made.indexes:
                self.connection.execute(CreateIndex(index))
            if table.beneath is not None:
                self._database.put_beneath(self.connection, table.beneath)
                self._database.replace_view(self.connection, table.name, self._database.rows_of_both(table))

    def copy(self, source: StoredTable, target: StoredTable) -> None:
        """Adds all rows of a table to another one of the same columns, without bringing them here."""
        require(target.beneath is None, f"{target.name!r} lies on another table: only the upper one can be written to")
        with self._changing():
            rows, columns = self._database.sql_table(source), self._database.sql_table(target)
            chosen = select(*(rows.c[each.name] for each in columns.c))
            self.connection.execute(columns.insert().from_select([each.name for each in columns.c], chosen))

    def index(self, table: StoredTable, columns: Sequence[str]) -> None:
        """One more index on a table that is there; nothing happens if it has it."""
        with self._changing():
            bare = StoredTable(table.name, table.schema, table.primary)
            made = self._database.sql_table(bare).to_metadata(MetaData())
            self.connection.execute(CreateIndex(self._database.index(made, table, columns), if_not_exists=True))

    def drop(self, name: str) -> None:
        """Drops a table, and the names under which people read it. Nothing happens if it is not there."""
        self.exchange(drop=[name])

    def insert(self, table: StoredTable, rows: pa.Table) -> list[Unfit]:
        """Adds rows. Those with a value that the database cannot hold are left out and returned."""
        [unfit] = self.write(_ready(self._database, [table], [rows], is_upsert=False))
        return unfit

    def upsert(self, table: StoredTable, rows: pa.Table) -> list[Unfit]:
        """Adds rows, and replaces those with the same primary columns; of two given for one, the last stays.

        For a few rows: many are `prepared` before the transaction begins.
        """
        [unfit] = self.write(_ready(self._database, [table], [rows], is_upsert=True))
        return unfit

    def write(self, upserts: Upserts) -> Sequence[list[Unfit]]:
        """Writes rows that were prepared; returns which were left out."""
        with self._changing():
            for rows in upserts.rows:
                self._database.write(self.connection, rows)
            for table, lookup in upserts.covered:
                self._database.cover(self.connection, table, lookup)
        return upserts.unfit

    def delete(self, table: StoredTable, column: str, values: pa.Array) -> int:
        """Deletes the rows whose column has one of the values; returns how many there were."""
        return self.delete_where(table, In(column, values))

    def delete_where(self, table: StoredTable, where: Where | None) -> int:
        """Deletes the rows that are meant, or all of them; returns how many there were."""
        if isinstance(where, In) and len(where.values) > SENT_AT_ONCE:
            return sum(self.delete_where(table, In(where.column, each)) for each in _pieces(where.values))
        if table.beneath is not None:
            return self._hide(table, where)
        with self._changing():
            found = self._database.lookups(table, where)
            return sum(self._database.delete(self.connection, table, each) for each in found)

    def _hide(self, table: StoredTable, where: Where | None) -> int:
        """Deletes rows of a table that has another beneath it: what lies there stays, and is no longer seen."""
        found = self.read(table, where, list(table.primary))
        columns = [
            found.column(each.name) if each.name in table.primary else pa.nulls(found.num_rows, each.type)
            for each in table.schema
        ]
        hiding = pa.table(columns, schema=table.schema)
        self.write(_ready(self._database, [table], [hiding], is_upsert=True, is_gone=True))
        return int(found.num_rows)

    def publish(self, name: str, table: StoredTable, columns: Sequence[str]) -> None:
        """From the commit on, people read these columns of the table under this name."""
        self.exchange([Published(name, table, columns)])

    def unpublish(self, name: str) -> None:
        """Takes the name away. Nothing happens if it is not there."""
        self.exchange(withdraw=[name])

    def exchange(
        self, publish: Sequence[Published] = (), withdraw: Sequence[str] = (), drop: Sequence[str] = ()
    ) -> None:
        """Exchanges what people read: names that come, names that go, tables that are dropped, with what they bear.

        All of these have to wait for readers. What has to be changed together is given together: then it is the readers
        who are let through first, also those of several names.
        """

        def body() -> None:
            for name in withdraw:
                take_away(self.connection, name)
            for each in publish:
                show(self._database, self.connection, each.name, each.table, each.columns)
            for name in drop:
                withdraw_all(self.connection, name)
                quoted = self.connection.dialect.identifier_preparer.quote(name)
                kind = "VIEW" if self._database.find(self.connection, name) == "view" else "TABLE"
                self.connection.exec_driver_sql(f"DROP {kind} IF EXISTS {quoted}")

        with self._changing():
            self._database.patiently(self.connection, body)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        # SQLite ends a transaction by itself when the disk is full: what came after would be committed on its own.
        require(not self.is_failed, "this transaction has failed before; nothing of it will be stored")
        try:
            with self._database.errors():
                yield
        except BaseException:
            self.is_failed = True
            raise


class Store:
    """The database of views. Threads may use it at once; each transaction belongs to one of them."""

    def __init__(self, database: Database, lease: timedelta = DEFAULT_LEASE) -> None:
        self._database = database
        self._lease = lease
        self.place = database.place
        """Its address as people may see it."""
        self._make_own_tables()

    def own(self, pipeline: str, *, on_wait: OnWait | None = None) -> Owner:
        """Makes this process the owner of a pipeline; PipelineOwned if another one is at work on it.

        While somebody holds the database's lock this waits, and tells `on_wait` for whom; see `penstock.views.owner`.
        """
        from penstock.views.owner import own

        with self._database.errors():
            return own(self.engine, pipeline, lease=self._lease, on_wait=on_wait)

    @property
    def engine(self) -> Engine:
        """For what is no transaction of a view: ownership, and the relay of the outbox."""
        return self._database.engine

    @contextmanager
    def transaction(self, owner: Owner | None) -> Iterator[Transaction]:
        """Changes that are stored at the end of the `with`, or not at all if it raises.

        Its first statement claims the pipeline for this owner: OwnershipLost if another has it. None claims nothing.
        """
        with self._database.transaction("write") as connection:
            if owner is not None:
                from penstock.views.owner import claim

                claim(connection, owner)
            transaction = Transaction(self._database, connection)
            yield transaction
            require(not transaction.is_failed, "an error of this transaction was ignored; nothing of it was stored")
            if owner is not None:
                owner.renew_if_due(connection)

    def prepared(self, given: Sequence[tuple[StoredTable, pa.Table]]) -> Upserts:
        """Rows for `Transaction.write`, sorted and converted; of two given for one row of a table, the last stays.

        Of many tables with a few rows each, those that are alike are done together, in a fraction of the time.
        """
        rows: list[ReadyRows] = []
        covered: list[tuple[StoredTable, Lookup]] = []
        unfit: list[list[Unfit]] = [[] for _ in given]
        for places in alike(range(len(given)), lambda n: given[n][1].num_rows, lambda n: given[n][0].likeness):
            tables, new = zip(*(given[place] for place in places), strict=True)
            ready = _ready(self._database, tables, new, is_upsert=True)
            rows += ready.rows
            covered += ready.covered
            for place, found in zip(places, ready.unfit, strict=True):
                unfit[place] = found
        return Upserts(rows, covered, unfit)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Reads that all see the same moment, without holding up any writer."""
        with self._database.transaction("read") as connection:
            yield Snapshot(self._database, connection)

    def reading(self, body: Callable[[Snapshot], T]) -> T:
        """What `body` reads of one moment, from names that it looks up in the catalog.

        Where a switch drops a table between the look and the read, as only PostgreSQL can, all of it is read again.
        """
        for _ in range(_READS_MAX):
            with suppress(RowsReplaced), self.snapshot() as snapshot:
                return body(snapshot)
        with self.snapshot() as snapshot:
            return body(snapshot)

    def read(self, table: StoredTable, where: Where | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that are meant, in no particular order."""
        with self.snapshot() as snapshot:
            return snapshot.read(table, where, columns)

    def batches(
        self,
        table: StoredTable,
        where: Where | None = None,
        rows: int = 50_000,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        """The same rows, at most so many at a time, all as of one moment."""
        with self.snapshot() as snapshot:
            yield from snapshot.batches(table, where, rows, columns)

    def count(self, table: StoredTable) -> int:
        """How many rows there are."""
        with self.snapshot() as snapshot:
            return snapshot.count(table)

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> Rows:
        """The columns and rows of one SELECT, with parameters such as `:url`. It can change nothing."""
        with self._database.errors():
            return self._database.query(sql, parameters)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _make_own_tables(self) -> None:
        from penstock.views.system_tables import METADATA, create_system_tables

        with self._database.transaction("read") as connection:
            known = [*METADATA.tables, "_penstock_published"]
            is_complete = all(self._database.find(connection, name) for name in known)
        if not is_complete:
            with self._database.transaction("write") as connection:
                create_system_tables(connection)
                create_published(connection)


def _ready(
    database: Database,
    tables: Sequence[StoredTable],
    given: Sequence[pa.Table],
    *,
    is_upsert: bool,
    is_gone: bool = False,
) -> Upserts:
    """Rows of tables that are alike. If some do not fit, table by table: they are named by its columns."""
    stack = Stack.of([_fitted(rows, table, is_gone) for rows, table in zip(given, tables, strict=True)])
    if not stack.rows.num_rows:
        return Upserts([], [], [[] for _ in tables])
    top = tables[0].top
    # Never a plain insert into an upper table: it may have a row that hides one of the same key.
    is_upsert = is_upsert or tables[0].beneath is not None
    order = key_order(stack, top.primary) if is_upsert else None
    rows = stack.rows if order is None else stack.rows.take(order)
    plain = [to_plain(each, may_code=True) for each in split(rows, top.columns)]
    for column, each in zip(top.columns, plain, strict=True):
        database.refuse(column, each)
        if column.part == "end":
            each.misfits.update(ambiguous_ends(one_array(rows.column(column.logical))))
    unfit = unfits(top.columns, plain)
    if unfit and len(tables) > 1:
        each_alone = [
            _ready(database, [table], [own], is_upsert=is_upsert, is_gone=is_gone)
            for table, own in zip(tables, given, strict=True)
        ]
        return Upserts(
            [rows for each in each_alone for rows in each.rows],
            [beneath for each in each_alone for beneath in each.covered],
            [found for each in each_alone for found in each.unfit],
        )
    arrays, stops = [each.array for each in plain], stack.stops
    if unfit:
        left_out = {each.row for each in unfit}
        fits = pa.array([row not in left_out for row in range(rows.num_rows)])
        arrays = [each.filter(fits) for each in arrays]
        stops = (len(arrays[0]),)
    ready = ReadyRows([(table.top, stop) for table, stop in zip(tables, stops, strict=True)], arrays, is_upsert)
    named = [unfit if order is None else [replace(each, row=int(order[each.row])) for each in unfit]]
    return Upserts(
        database.prepared(ready) if stops[-1] else [],
        [
            beneath
            for table, (start, stop) in zip(tables, spans(stops), strict=True)
            for beneath in _beneath(table, [each[start:stop] for each in arrays])
        ],
        [*named, *([] for _ in tables[1:])],
    )


def _beneath(table: StoredTable, arrays: Sequence[pa.Array]) -> Iterator[tuple[StoredTable, Lookup]]:
    """What lies beneath rows of a table, given as plain columns."""
    for lower in table.parts[1:]:
        equal = tuple(each for name in lower.primary for each in lower.physical(name))
        named = dict(zip((each.name for each in table.top.columns), arrays, strict=True))
        for keys in zip(*(_pieces(named[each.name]) for each in equal), strict=True):
            yield lower, Lookup(equal=equal, parameters=keys)


def _pieces(values: pa.Array) -> Iterator[pa.Array]:
    """The same values, not too many at once."""
    return (values[start : start + SENT_AT_ONCE] for start in range(0, len(values), SENT_AT_ONCE))


def _chosen(table: StoredTable, names: Sequence[str] | None) -> pa.Schema:
    return table.schema if names is None else pa.schema([table.schema.field(name) for name in names])


def _fitted(rows: pa.Table, table: StoredTable, is_gone: bool) -> pa.Table:
    """Rows with the columns of a table, or of the upper one of two."""
    if rows.schema.names != table.schema.names:
        rows = rows.select(table.schema.names)
    if rows.schema != table.schema:
        rows = rows.cast(table.schema)
    if table.beneath is None:
        return rows
    return rows.append_column(table.top.schema.field(len(table.top.schema) - 1), pa.repeat(is_gone, rows.num_rows))
