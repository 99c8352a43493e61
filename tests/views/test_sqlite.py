"""What only a file can do: fill its disk, be locked, be damaged, be too old."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import apsw
import pyarrow as pa
import pytest

from penstock.errors import InvariantBroken, StoreFull, StoreTooOld, StoreUnavailable
from penstock.views import apsw_dbapi
from penstock.views.sqlite import SqliteDatabase
from penstock.views.store import In, Store, StoredTable, Transaction, open_store
from tests.views.stored_rows import HITS, hits, seen

COLUMNS_MAX = 2000
"""SQLite makes no table with more."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_store(f"sqlite:{tmp_path}/deep/down/views.db", busy=timedelta(milliseconds=50))
    with opened.transaction(None) as tx:
        tx.create(HITS)
        tx.upsert(HITS, hits((0, "/a", 1)))
    return opened


def connection_of(tx: Transaction) -> apsw.Connection:
    driver = tx.connection.connection.driver_connection
    assert isinstance(driver, apsw_dbapi.Connection)
    return driver.apsw


def test_commits_are_on_disk_and_readers_do_not_wait(store: Store) -> None:
    with store.transaction(None) as tx:
        connection = connection_of(tx)
        assert (connection.pragma("journal_mode"), connection.pragma("synchronous")) == ("wal", 2)
        assert store.count(HITS) == 1


def test_a_full_disk_stores_nothing_and_the_next_transaction_works(store: Store) -> None:
    many = hits(*((n, f"/{n}", n) for n in range(20_000)))
    with pytest.raises(StoreFull) as caught:  # noqa: PT012, SIM117
        with store.transaction(None) as tx:
            connection = connection_of(tx)
            connection.pragma("max_page_count", connection.pragma("page_count") + 20)
            tx.upsert(HITS, hits((0, "/a", 2)))
            tx.upsert(HITS, many)
    assert caught.value.is_retryable
    assert "no space is left" in str(caught.value)
    connection.pragma("max_page_count", 1 << 30)
    assert seen(store.read(HITS)) == [(0, "/a", 1)]
    with store.transaction(None) as tx:
        tx.upsert(HITS, many)
    assert store.count(HITS) == 20_001


def test_a_table_of_the_most_columns_takes_many_rows(store: Store) -> None:
    names = ["_key", *(f"c{n}" for n in range(COLUMNS_MAX - 1))]
    wide = StoredTable(
        "wide", pa.schema([(name, pa.binary() if name == "_key" else pa.int64()) for name in names]), ("_key",)
    )
    numbers = pa.array(range(40))
    keys = pa.array([bytes([n]) for n in range(40)])
    rows = pa.table([keys, *[numbers] * (COLUMNS_MAX - 1)], schema=wide.schema)
    with store.transaction(None) as tx:
        tx.create(wide)
        tx.insert(wide, rows)
        tx.upsert(wide, rows)
    assert store.read(wide).sort_by("_key").equals(rows)


def test_an_error_that_was_caught_inside_still_stores_nothing(store: Store) -> None:
    with pytest.raises(InvariantBroken, match="nothing of it"):  # noqa: PT012, SIM117
        with store.transaction(None) as tx:
            connection = connection_of(tx)
            connection.pragma("max_page_count", connection.pragma("page_count") + 2)
            with pytest.raises(StoreFull):
                tx.upsert(HITS, hits(*((n, f"/{n}", n) for n in range(9_000))))
            tx.upsert(HITS, hits((7, "/alone", 7)))
    assert seen(store.read(HITS)) == [(0, "/a", 1)]


def test_a_second_writer_waits_only_so_long(store: Store, tmp_path: Path) -> None:
    other = open_store(f"sqlite:{tmp_path}/deep/down/views.db", busy=timedelta(milliseconds=50))
    with store.transaction(None) as tx:
        tx.upsert(HITS, hits((0, "/a", 2)))
        with pytest.raises(StoreUnavailable, match="another process") as caught, other.transaction(None):
            pass
        assert caught.value.is_retryable
        assert seen(other.read(HITS)) == [(0, "/a", 1)]
    assert seen(other.read(HITS)) == [(0, "/a", 2)]


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "views.db"
    path.write_bytes(b"my diary, page 1" * 100)
    with pytest.raises(StoreUnavailable) as caught:
        open_store(f"sqlite:{path}")
    assert not caught.value.is_retryable
    assert path.read_bytes() == b"my diary, page 1" * 100


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw_dbapi, "sqlite_version_info", (3, 51, 2))
    with pytest.raises(StoreTooOld) as caught:
        SqliteDatabase(tmp_path / "views.db")
    assert caught.value.needed == "3.51.3"


def test_keys_are_found_by_the_index_and_not_by_looking_at_every_row(store: Store) -> None:
    plans: list[str] = []
    with store.transaction(None) as tx:
        connection = connection_of(tx)

        def explain(_: apsw.Cursor, statement: str, bindings: object) -> bool:
            if not statement.startswith("EXPLAIN"):
                explained = connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)  # type: ignore[arg-type]
                plans.extend(row[3] for row in explained)
            return True

        connection.exec_trace = explain
        tx.read(HITS, In("_key", hits((0, "/a", 1)).column("_key").chunk(0)))
        tx.read(HITS, In("url", pa.array(["/a"])))
        tx.delete(HITS, "window", hits((5, "/a", 1)).column("window").chunk(0))
        connection.exec_trace = None
    assert len(plans) == 3
    assert all(plan.startswith("SEARCH hits_1 USING") for plan in plans), plans
