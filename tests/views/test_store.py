"""What every database promises to hold views: one suite over all of them."""

from __future__ import annotations

from dataclasses import replace

import apsw
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from penstock.errors import OwnershipLost, QueryRefused, RowsRefused, StoreUrlError, ViewNameTaken
from penstock.views.keys import key_hashes
from penstock.views.store import Both, In, Ranges, Snapshot, Store, StoredTable, Unfit, open_store
from tests.views.stored_rows import HITS, MINUTE, WINDOW, columns, hits, listed, same, seen


@pytest.fixture
def made(store: Store) -> Store:
    with store.transaction(None) as tx:
        tx.create(HITS)
    return store


def put(store: Store, *rows: tuple[int | None, str | None, int]) -> pa.Table:
    table = hits(*rows)
    with store.transaction(None) as tx:
        assert tx.upsert(HITS, table) == []
    return table


# --- rows ---


def test_rows_come_back_as_they_were_written_schema_included(made: Store) -> None:
    rows = put(made, (0, "/a", 1), (None, None, 2), (5, "", 3))
    found = made.read(HITS)
    assert found.schema.equals(rows.schema, check_metadata=True)
    assert found.sort_by("_key").equals(rows.sort_by("_key"))
    assert made.count(HITS) == 3


def test_an_upsert_replaces_the_row_of_the_same_key_and_the_last_one_given_stays(made: Store) -> None:
    put(made, (0, "/a", 1), (0, "/b", 1))
    put(made, (0, "/a", 2), (0, "/c", 5), (0, "/a", 3))
    assert seen(made.read(HITS)) == [(0, "/a", 3), (0, "/b", 1), (0, "/c", 5)]


def test_many_rows_replace_many(made: Store) -> None:
    put(made, *((0, f"/{n}", 1) for n in range(6_000)))
    put(made, *((0, f"/{n}", 2) for n in range(3_000, 12_000)), (0, "/3000", 7))
    found = made.read(HITS)
    assert found.num_rows == 12_000
    assert pc.sum(found.column("hits")).as_py() == 3_000 + 9_000 * 2 + 5


@pytest.mark.parametrize("count", [1, 7, 8, 9, 32, 36, 50, 100])
def test_however_many_rows_are_given_each_is_stored_and_the_last_of_a_key_stays(made: Store, count: int) -> None:
    rows = [(n, f"/{n}", n) for n in range(count)]
    put(made, *rows[: count // 2])
    put(made, *rows, *((minute, url, hits + 100) for minute, url, hits in rows))
    assert sorted(seen(made.read(HITS))) == [(minute, url, hits + 100) for minute, url, hits in rows]


ALIKE = [
    StoredTable(
        f"counts_{name}", pa.schema([("_key", pa.binary(16)), (name, pa.string()), ("n", pa.int64())]), ("_key",)
    )
    for name in ("page", "user", "device")
]
"""Tables of the same types with other names."""


def counted(table: StoredTable, **counts: int) -> pa.Table:
    named = pa.table({"name": pa.array([*counts], pa.string()), "n": pa.array([*counts.values()], pa.int64())})
    return pa.table([key_hashes(named, ["name"]), *named.columns], schema=table.schema)


def stored_counts(store: Store, table: StoredTable) -> dict[str, int]:
    names, counts = store.read(table).columns[1:]
    return dict(zip(names.to_pylist(), counts.to_pylist(), strict=True))


def test_rows_of_several_tables_that_are_given_together_go_each_into_its_own(store: Store) -> None:
    with store.transaction(None) as tx:
        for table in (*ALIKE, HITS):
            tx.create(table)
        tx.upsert(ALIKE[1], counted(ALIKE[1], a=1, z=1))
        many = {f"row {number}": number for number in range(6_000)}
        pairs = [
            (ALIKE[0], counted(ALIKE[0], b=2, a=3)),
            (HITS, hits((0, "/a", 1))),
            (ALIKE[2], counted(ALIKE[2], **many)),
        ]
        written = store.prepared([*pairs, (ALIKE[1], counted(ALIKE[1], c=4, a=5))])
        assert tx.write(written) == [[], [], [], []]
        others = store.prepared([(ALIKE[0], counted(ALIKE[0])), (ALIKE[1], counted(ALIKE[1], c=6))])
        assert tx.write(others) == [[], []]
        assert tx.write(store.prepared([])) == []
    found = [stored_counts(store, table) for table in ALIKE]
    assert found == [{"a": 3, "b": 2}, {"a": 5, "c": 6, "z": 1}, many]
    assert seen(store.read(HITS)) == [(0, "/a", 1)]


def test_a_row_that_does_not_fit_is_named_by_its_own_table(store: Store) -> None:
    tables = [
        StoredTable(f"times_{name}", pa.schema([("_key", pa.binary(16)), (name, pa.timestamp("us"))]), ("_key",))
        for name in ("came", "left")
    ]
    moments = [pa.array(each, pa.int64()).view(pa.timestamp("us")) for each in ([2, 1, 3], [3, 2**62, 1])]
    keys = pa.array([bytes([each]) * 16 for each in (9, 1, 5)], pa.binary(16))
    pairs = [(table, pa.table([keys, each], schema=table.schema)) for table, each in zip(tables, moments, strict=True)]
    with store.transaction(None) as tx:
        for table in tables:
            tx.create(table)
        fit, unfit = tx.write(store.prepared(pairs))
    assert fit == []
    assert [(each.row, each.column) for each in unfit] == [(1, "left")], "rows are named by where they were given"
    assert [store.count(table) for table in tables] == [3, 2]


def test_any_number_of_rows_is_deleted_piece_by_piece(made: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.views.store.SENT_AT_ONCE", 10)
    rows = put(made, *((0, f"/{n}", n) for n in range(45)))
    with made.transaction(None) as tx:
        assert tx.delete(HITS, "_key", rows.column("_key")[3:38]) == 35
    assert sorted(hits for _, _, hits in seen(made.read(HITS))) == [0, 1, 2, *range(38, 45)]


def test_two_rows_of_one_key_given_together_are_refused_as_an_insert(made: Store) -> None:
    rows = [(n, f"/{n}", n) for n in range(40)]
    with pytest.raises(RowsRefused), made.transaction(None) as tx:
        tx.insert(HITS, hits(*rows, rows[3]))
    assert made.count(HITS) == 0


def test_inserting_a_second_row_of_one_key_is_refused_and_stores_nothing(made: Store) -> None:
    put(made, (0, "/a", 1))
    with pytest.raises(RowsRefused) as caught:  # noqa: PT012, SIM117
        with made.transaction(None) as tx:
            tx.insert(HITS, hits((1, "/b", 1)))
            tx.insert(HITS, hits((0, "/a", 2)))
    assert caught.value.table == "hits_1"
    assert seen(made.read(HITS)) == [(0, "/a", 1)]


def test_every_word_of_sql_can_be_a_column(store: Store) -> None:
    words = {word.lower() for word in apsw.keywords}
    with store.snapshot() as snapshot:
        if snapshot.connection.dialect.name == "postgresql":
            words |= set(snapshot.connection.scalars(text("SELECT word FROM pg_get_keywords()")))
    schema = pa.schema([("n", pa.int64()), *((word, pa.string()) for word in sorted(words))])
    table = StoredTable("words", schema, primary=("n",))
    rows = pa.Table.from_pylist([{"n": 1, **{word: word for word in words}}], schema=schema)
    with store.transaction(None) as tx:
        tx.create(table)
        tx.upsert(table, rows)
        tx.publish("nothing", table, sorted(words))
    assert store.read(table, In("nothing", pa.array(["nothing"]))).equals(rows)
    assert store.query('SELECT * FROM "nothing"')[0] == sorted(words)


def test_a_body_that_raises_leaves_nothing_not_even_its_tables(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012, SIM117
        with store.transaction(None) as tx:
            tx.create(HITS)
            tx.upsert(HITS, hits((0, "/a", 1)))
            raise ZeroDivisionError
    with store.transaction(None) as tx:
        tx.create(HITS)
    assert store.count(HITS) == 0


def test_a_transaction_reads_what_it_wrote_and_others_do_not(made: Store) -> None:
    with made.transaction(None) as tx:
        tx.upsert(HITS, hits((0, "/a", 1)))
        assert seen(tx.read(HITS)) == [(0, "/a", 1)]
        assert made.count(HITS) == 0
    assert made.count(HITS) == 1


def test_a_snapshot_stays_at_its_moment(made: Store) -> None:
    with made.snapshot() as snapshot:
        put(made, (0, "/a", 1))
        assert snapshot.count(HITS) == 0
        assert snapshot.read(HITS).num_rows == 0
    assert made.count(HITS) == 1


def test_batches_are_bounded_and_hold_every_row_once(made: Store) -> None:
    put(made, *((n, "/a", n) for n in range(25)))
    sizes = [batch.num_rows for batch in made.batches(HITS, rows=10, columns=["hits"])]
    assert (sum(sizes), max(sizes)) == (25, 10)
    assert sorted(n for batch in made.batches(HITS, rows=10) for n in batch.column("hits").to_pylist()) == list(
        range(25)
    )


def test_an_owner_that_was_replaced_changes_nothing(made: Store) -> None:
    with made.own("shop") as owner:
        with made.transaction(owner) as tx:
            tx.upsert(HITS, hits((0, "/a", 1)))
        with made.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE _penstock_owner SET epoch = epoch + 1, holder = 'another'")
        with pytest.raises(OwnershipLost), made.transaction(owner) as tx:
            tx.upsert(HITS, hits((0, "/a", 2)))
    assert seen(made.read(HITS)) == [(0, "/a", 1)]


# --- which rows ---


def test_rows_are_found_by_keys_and_by_none_of_those_that_are_not_there(made: Store) -> None:
    rows = put(made, (0, "/a", 1), (0, "/b", 2), (1, "/a", 3))
    keys = pa.concat_arrays([rows.column("_key").chunk(0)[:2], hits((9, "/z", 0)).column("_key").chunk(0)])
    assert seen(made.read(HITS, In("_key", pa.concat_arrays([keys, keys])))) == [(0, "/a", 1), (0, "/b", 2)]
    assert made.read(HITS, In("_key", keys[:0])).num_rows == 0


def test_null_finds_null_in_text_and_in_windows(made: Store) -> None:
    put(made, (0, None, 1), (None, "/a", 2), (1, "/b", 3), (2, "", 4))
    assert seen(made.read(HITS, In("url", pa.array([None, "/b", "/a\0"])))) == [(0, None, 1), (1, "/b", 3)]
    windows = pa.array([None, {"start": MINUTE, "end": 2 * MINUTE}], WINDOW)
    assert seen(made.read(HITS, In("window", windows))) == [(1, "/b", 3), (None, "/a", 2)]


def test_ranges_are_half_open_may_overlap_and_may_be_open(made: Store) -> None:
    put(made, *((n, "/a", n) for n in range(6)), (None, "/n", 9))
    found = made.read(HITS, Ranges("time", [(MINUTE, 3 * MINUTE), (2 * MINUTE, 4 * MINUTE), (9, 9)]))
    assert seen(found) == [(1, "/a", 1), (2, "/a", 2), (3, "/a", 3)]
    assert seen(made.read(HITS, Ranges("window_start", [(None, MINUTE), (5 * MINUTE, None)]))) == [
        (0, "/a", 0),
        (5, "/a", 5),
    ]
    assert made.read(HITS, Ranges("time", [(None, None)])).num_rows == 6
    assert made.read(HITS, Ranges("time", [(-(2**63), 2**63 - 1)], with_null=True)).num_rows == 7
    assert made.read(HITS, Ranges("time", [])).num_rows == 0


def test_groups_and_ranges_hold_together(made: Store) -> None:
    put(made, *((n, url, n) for n in range(4) for url in ("/a", "/b", None)), (None, "/a", 7))
    groups = In("url", pa.array(["/a", None]))
    first = Ranges("time", [(0, MINUTE)])
    assert seen(made.read(HITS, Both(groups, first))) == [(0, "/a", 0), (0, None, 0)]
    last = Ranges("time", [(2 * MINUTE, None)], with_null=True)
    assert seen(made.read(HITS, Both(groups, [last, first]))) == [
        (0, None, 0),
        (2, "/a", 2),
        (3, "/a", 3),
        (None, "/a", 7),
    ]


def test_rows_are_deleted_by_what_finds_them(made: Store) -> None:
    put(made, *((n, url, n) for n in range(4) for url in ("/a", None)))
    with made.transaction(None) as tx:
        assert tx.delete(HITS, "url", pa.array([None, "/z"], pa.string())) == 4
        assert tx.delete_where(HITS, Ranges("time", [(None, MINUTE)])) == 1
        assert tx.delete_where(HITS, Both(In("url", pa.array(["/a"])), Ranges("time", [(MINUTE, 2 * MINUTE)]))) == 1
    assert seen(made.read(HITS)) == [(2, "/a", 2), (3, "/a", 3)]
    with made.transaction(None) as tx:
        assert tx.delete_where(HITS, None) == 2


# --- values ---


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=columns(), times=st.sampled_from([1, 1, 1, 1_000]))
def test_values_of_every_type_read_back_the_very_same(store: Store, array: pa.Array, times: int) -> None:
    array = pa.concat_arrays([array] * times)  # Many rows may go another way than few.
    rows = pa.table({"n": pa.array(range(len(array)), pa.int64()), "value": array})
    table = StoredTable("anything", rows.schema, primary=("n",))
    with store.transaction(None) as tx:
        tx.drop("anything")
        tx.create(table)
        assert tx.upsert(table, rows) == []
    found = store.read(table).sort_by("n")
    assert found.schema.equals(rows.schema)
    assert same(listed(found.column("value")), listed(array))
    picked = store.read(table, In("value", array[:1]))
    assert 0 in picked.column("n").to_pylist()


def test_a_value_that_does_not_fit_leaves_out_its_row_only(store: Store) -> None:
    moments = pa.array([0, 2**62, None], pa.int64()).view(pa.timestamp("us", "UTC"))
    nested = pa.array([[0], [0], [-(2**62)]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us")))
    rows = pa.table({"n": pa.array([1, 2, 3]), "at": moments, "list": nested})
    table = StoredTable("times", rows.schema, primary=("n",))
    with store.transaction(None) as tx:
        tx.create(table)
        unfit = tx.upsert(table, rows)
    assert [(each.row, each.column) for each in unfit] == [(1, "at"), (2, "list")]
    assert "between 1 and 9999" in unfit[0].reason
    assert "between 1 and 9999" in unfit[1].reason
    assert store.read(table).column("n").to_pylist() == [1]


def test_nul_in_text_is_kept_by_sqlite_and_left_out_by_postgresql(store: Store, url: str) -> None:
    kind = pa.struct([("text", pa.string())])
    texts = ["a\0b", "plain", "\\u0000"]
    rows = pa.table({"n": pa.array([1, 2, 3]), "s": pa.array(texts), "j": pa.array([{"text": t} for t in texts], kind)})
    table = StoredTable("texts", rows.schema, primary=("n",))
    with store.transaction(None) as tx:
        tx.create(table)
        unfit = tx.insert(table, rows)
    if url.startswith("sqlite"):
        assert unfit == []
        assert store.read(table).sort_by("n").equals(rows)
    else:
        assert unfit == [Unfit(0, "s", "PostgreSQL cannot hold the character NUL")]
        assert store.read(table).sort_by("n").equals(rows[1:])


def test_any_column_name_is_taken(store: Store) -> None:
    names = [
        "a b",
        'quo"te',
        "per%cent",
        "%(x)s",
        "UPPER",
        "upper_",
        "select",
        "ctid",
        "ä" * 60,
        "ä" * 61,
        "window_start",
    ]
    schema = pa.schema(
        [("n", pa.int64()), ("window", WINDOW), *((name, pa.string()) for name in names), ("", pa.int8())]
    )
    table = StoredTable('odd "table" %s', schema, primary=("n",), indexes=(("per%cent",), ("window", 'quo"te')))
    row = {"n": 1, "window": {"start": 0, "end": 1}, **{name: name for name in names}, "": 1}
    rows = pa.Table.from_pylist([row], schema=schema)
    with store.transaction(None) as tx:
        tx.create(table)
        tx.index(table, ["%(x)s"])
        tx.index(table, ["%(x)s"])
        tx.upsert(table, rows)
        tx.publish("odd", table, ["per%cent", "window"])
    assert store.read(table, In('quo"te', pa.array(['quo"te']))).equals(rows)
    assert store.query("SELECT * FROM odd")[0] == ["per%cent", "window_start_", "window_end"]
    with store.transaction(None) as tx:
        tx.upsert(table, pa.concat_tables([rows.set_column(0, "n", pa.array([n])) for n in range(6_000)]))
        tx.drop(table.name)


# --- names and queries ---


def test_people_read_the_visible_columns_under_the_name_of_the_view(made: Store) -> None:
    put(made, (0, "/a", 1), (1, "/b", 2))
    with made.transaction(None) as tx:
        tx.publish("hits", HITS, ["url", "hits"])
    assert made.query("SELECT * FROM hits ORDER BY url") == (["url", "hits"], [("/a", 1), ("/b", 2)])
    assert made.query("SELECT hits FROM hits WHERE url = :url AND 1 % 2 = 1", {"url": "/b"})[1] == [(2,)]
    with made.transaction(None) as tx:
        tx.publish("hits", HITS, ["hits", "window"])
    assert made.query("SELECT * FROM hits")[0] == ["hits", "window_start", "window_end"]
    with made.transaction(None) as tx:
        tx.drop("hits_1")
    with pytest.raises(QueryRefused):
        made.query("SELECT * FROM hits")


def test_a_name_that_is_not_ours_is_left_alone(made: Store) -> None:
    with made.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE hits (theirs INTEGER)")
    with pytest.raises(ViewNameTaken) as caught, made.transaction(None) as tx:
        tx.publish("hits", HITS, ["url"])
    assert (caught.value.name, caught.value.found) == ("hits", "table")


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM hits_1",
        "DROP TABLE hits_1",
        "SELECT 1; SELECT 2",
        "COMMIT; DROP TABLE hits_1",
        "SELECT nothing",
        "",
    ],
)
def test_a_query_can_change_nothing(made: Store, sql: str) -> None:
    with pytest.raises(QueryRefused) as caught:
        made.query(sql)
    assert caught.value.sql == sql
    assert made.count(HITS) == 0


@pytest.mark.parametrize("address", ["sqlite:", "sqlite::memory:", "mysql://here/x", "views.db"])
def test_an_address_nobody_knows_is_refused(address: str) -> None:
    with pytest.raises(StoreUrlError, match="expected: sqlite:PATH"):
        open_store(address)


def test_a_read_whose_table_was_dropped_after_it_was_looked_up_is_made_again(made: Store) -> None:
    put(made, (0, "/a", 1))
    other = replace(HITS, name="hits_2")
    tried: list[StoredTable] = []

    def body(snapshot: Snapshot) -> pa.Table:
        tried.append(other if tried else HITS)
        if len(tried) == 1:
            with made.transaction(None) as tx:
                tx.create(other)
                tx.upsert(other, hits((0, "/a", 1)))
                tx.drop(HITS.name)
        return snapshot.read(tried[-1])

    assert seen(made.reading(body)) == [(0, "/a", 1)]
    # SQLite goes on showing the snapshot what it began with.
    assert tried in ([HITS], [HITS, other])
