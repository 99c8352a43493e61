"""A table that lies on another one: both are read as one, and the rows of the lower one stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.views.store import Both, In, Ranges, Store, StoredTable, Where
from tests.views.stored_rows import HITS, MINUTE, UTC_US, WINDOW, hits, seen

Row = tuple[int | None, str | None, int]

PAIR = replace(HITS, name="hits_2", beneath=HITS)
LOWER: list[Row] = [(0, "/a", 1), (0, "/b", 2), (1, "/a", 3), (2, None, 4), (None, "/n", 5)]


@pytest.fixture
def pair(store: Store) -> Store:
    with store.transaction(None) as tx:
        tx.create(HITS)
        tx.insert(HITS, hits(*LOWER))
        tx.create(PAIR)
    return store


def put(store: Store, *rows: Row) -> None:
    with store.transaction(None) as tx:
        assert tx.upsert(PAIR, hits(*rows)) == []


def take(store: Store, *rows: Row) -> int:
    """Deletes the rows of these keys."""
    with store.transaction(None) as tx:
        return tx.delete(PAIR, "_key", hits(*rows).column("_key").chunk(0))


def found(store: Store, where: Where | None = None) -> list[Row]:
    return seen(store.read(PAIR, where))


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=str)


def raw(store: Store) -> int:
    """How many rows the upper table has, those that only hide others included."""
    [(count,)] = store.query(f"SELECT count(*) FROM {PAIR.top.name}")[1]
    return int(count)


# --- what is read ---


def test_an_empty_upper_table_shows_what_lies_beneath(pair: Store) -> None:
    assert found(pair) == in_order(LOWER)
    assert pair.count(PAIR) == 5
    assert raw(pair) == 0
    assert pair.read(PAIR).schema.equals(HITS.schema)


def test_an_upsert_counts_instead_of_the_row_beneath_and_leaves_it_there(pair: Store) -> None:
    put(pair, (0, "/a", 10), (3, "/new", 11))
    assert found(pair) == in_order([(0, "/a", 10), *LOWER[1:], (3, "/new", 11)])
    assert pair.count(PAIR) == 6
    assert seen(pair.read(HITS)) == in_order(LOWER)
    assert raw(pair) == 2


def test_an_insert_of_a_key_that_lies_beneath_replaces_it(pair: Store) -> None:
    with pair.transaction(None) as tx:
        assert tx.insert(PAIR, hits((0, "/a", 10), (4, "/z", 1))) == []
    assert found(pair) == in_order([(0, "/a", 10), *LOWER[1:], (4, "/z", 1)])


def test_a_deleted_row_stays_away_until_it_is_written_again(pair: Store) -> None:
    assert take(pair, (0, "/a", 0), (9, "/z", 0)) == 1
    assert take(pair, (0, "/a", 0)) == 0
    assert found(pair) == in_order(LOWER[1:])
    assert pair.count(PAIR) == 4
    assert seen(pair.read(HITS)) == in_order(LOWER)
    put(pair, (0, "/a", 7))
    assert found(pair) == in_order([(0, "/a", 7), *LOWER[1:]])
    assert take(pair, (0, "/a", 0)) == 1
    assert found(pair) == in_order(LOWER[1:])


def test_every_condition_sees_both_tables_as_one(pair: Store) -> None:
    put(pair, (0, "/a", 10), (1, "/c", 11), (2, "/a", 12), (None, "/m", 13))
    take(pair, (2, None, 0))
    assert found(pair, In("url", pa.array(["/a", None]))) == [(0, "/a", 10), (1, "/a", 3), (2, "/a", 12)]
    windows = pa.array([None, {"start": 0, "end": MINUTE}], WINDOW)
    assert found(pair, In("window", windows)) == [(0, "/a", 10), (0, "/b", 2), (None, "/m", 13), (None, "/n", 5)]
    assert found(pair, Ranges("time", [(MINUTE, None)])) == [(1, "/a", 3), (1, "/c", 11), (2, "/a", 12)]
    assert found(pair, Ranges("time", [(None, 1)], with_null=True)) == [
        (0, "/a", 10), (0, "/b", 2), (None, "/m", 13), (None, "/n", 5),
    ]  # fmt: skip
    both = Both(In("url", pa.array(["/a", "/n"])), [Ranges("time", [(0, 1), (2 * MINUTE, None)]), Ranges("time", [])])
    assert found(pair, both) == [(0, "/a", 10), (2, "/a", 12)]
    sizes = [part.num_rows for part in pair.batches(PAIR, rows=2, columns=["hits"])]
    assert (sum(sizes), max(sizes)) == (7, 2)
    numbers = [n for part in pair.batches(PAIR, rows=2, columns=["hits"]) for n in part.column("hits").to_pylist()]
    assert sorted(numbers) == [2, 3, 5, 10, 11, 12, 13]
    assert pair.read(PAIR, columns=["url"]).column_names == ["url"]


def test_a_lower_row_that_matches_is_not_seen_where_the_upper_one_of_its_key_does_not(pair: Store) -> None:
    rows = hits((0, "/a", 10))
    later = rows.set_column(rows.schema.get_field_index("time"), rows.schema.field("time"), pa.array([MINUTE], UTC_US))
    with pair.transaction(None) as tx:
        tx.upsert(PAIR, later)
    assert found(pair, Ranges("time", [(0, 1)])) == [(0, "/b", 2)]
    assert found(pair, Ranges("time", [(MINUTE, MINUTE + 1)])) == [(0, "/a", 10), (1, "/a", 3)]
    assert found(pair, In("hits", pa.array([1]))) == []
    assert found(pair, Both(In("url", pa.array(["/a"])), Ranges("time", [(0, 1)]))) == []


def test_rows_are_hidden_by_what_finds_them_and_each_counts_once(pair: Store) -> None:
    put(pair, (0, "/a", 10), (1, "/c", 11))
    with pair.transaction(None) as tx:
        assert tx.delete_where(PAIR, In("url", pa.array(["/a"]))) == 2
        assert tx.delete_where(PAIR, Ranges("time", [(MINUTE, None)])) == 2
        assert seen(tx.read(PAIR)) == [(0, "/b", 2), (None, "/n", 5)]
        assert tx.delete_where(PAIR, None) == 2
        assert tx.delete_where(PAIR, None) == 0
    assert pair.count(PAIR) == 0
    assert found(pair) == []
    assert pair.count(HITS) == 5


def test_many_rows_lie_on_many(store: Store) -> None:
    with store.transaction(None) as tx:
        tx.create(HITS)
        tx.insert(HITS, hits(*((0, f"/{n}", 1) for n in range(6_000))))
        tx.create(PAIR)
        tx.upsert(PAIR, hits(*((0, f"/{n}", 2) for n in range(3_000, 12_000))))
        assert tx.delete(PAIR, "url", pa.array([f"/{n}" for n in range(0, 12_000, 2)])) == 6_000
    rows = store.read(PAIR)
    assert rows.num_rows == store.count(PAIR) == 6_000
    assert sum(rows.column("hits").to_pylist()) == 1_500 + 4_500 * 2
    assert store.count(HITS) == 6_000


def test_a_snapshot_stays_at_its_moment(pair: Store) -> None:
    with pair.snapshot() as snapshot:
        put(pair, (0, "/a", 10))
        take(pair, (0, "/b", 0))
        assert seen(snapshot.read(PAIR)) == in_order(LOWER)
        assert snapshot.count(PAIR) == 5
    assert pair.count(PAIR) == 4


# --- names ---


def test_people_read_the_merged_rows_under_both_names(pair: Store) -> None:
    put(pair, (0, "/a", 10), (3, "/new", 11))
    take(pair, (0, "/b", 0), (None, "/n", 0))
    with pair.transaction(None) as tx:
        tx.publish("hits", PAIR, ["url", "hits"])
    expected = [("/a", 3), ("/a", 10), ("/new", 11), (None, 4)]
    assert sorted(pair.query("SELECT url, hits FROM hits")[1], key=str) == sorted(expected, key=str)
    assert sorted(pair.query(f"SELECT url, hits FROM {PAIR.name}")[1], key=str) == sorted(expected, key=str)
    assert pair.query("SELECT * FROM hits")[0] == ["url", "hits"]
    put(pair, (0, "/b", 12))
    assert ("/b", 12) in pair.query("SELECT url, hits FROM hits")[1]


def test_a_name_moves_from_the_lower_table_to_the_pair_and_to_another_pair(pair: Store) -> None:
    other = replace(HITS, name="hits_3", beneath=HITS)
    with pair.transaction(None) as tx:
        tx.publish("hits", HITS, ["hits"])
    put(pair, (9, "/z", 100))
    with pair.transaction(None) as tx:
        tx.publish("hits", PAIR, ["hits"])
    assert pair.query("SELECT sum(hits) FROM hits")[1] == [(115,)]
    with pair.transaction(None) as tx:
        for name in PAIR.names:
            tx.drop(name)
        tx.create(other)
        tx.publish("hits", other, ["hits"])
    assert pair.query("SELECT sum(hits) FROM hits")[1] == [(15,)]


def test_dropping_takes_both_names_and_leaves_what_lies_beneath(pair: Store) -> None:
    put(pair, (0, "/a", 10))
    assert PAIR.names == ["hits_2", "hits_2__speed"]
    with pair.transaction(None) as tx:
        tx.publish("hits", PAIR, ["hits"])
        for name in PAIR.names:
            tx.drop(name)
    with pair.snapshot() as snapshot:
        left = [pair._database.find(snapshot.connection, name) for name in ("hits", *PAIR.names, HITS.name)]
    assert left == [None, None, None, "table"]
    assert seen(pair.read(HITS)) == in_order(LOWER)
    with pair.transaction(None) as tx:
        tx.create(PAIR)
    assert found(pair) == in_order(LOWER)


def test_a_copy_has_every_row_of_its_own(pair: Store) -> None:
    copied = replace(HITS, name="hits_4")
    with pair.transaction(None) as tx:
        tx.create(copied)
        tx.copy(HITS, copied)
        tx.upsert(copied, hits((0, "/a", 10)))
    assert seen(pair.read(copied)) == in_order([(0, "/a", 10), *LOWER[1:]])
    assert seen(pair.read(HITS)) == in_order(LOWER)


def test_a_copy_of_a_pair_is_one_table_with_what_was_read(pair: Store) -> None:
    put(pair, (0, "/a", 10), (3, "/new", 11))
    take(pair, (0, "/b", 0))
    copied = replace(HITS, name="hits_4")
    with pair.transaction(None) as tx:
        tx.create(copied)
        tx.copy(PAIR, copied)
    assert pair.read(copied).sort_by("_key").equals(pair.read(PAIR).sort_by("_key"))
    assert pair.count(copied) == 5


@pytest.mark.parametrize("name", ["_gone", "_GONE"])
def test_a_view_may_have_a_column_of_any_name(store: Store, name: str) -> None:
    schema = pa.schema([("n", pa.int64()), (name, pa.string())])
    lower = StoredTable("lower", schema, primary=("n",))
    upper = StoredTable("upper", schema, primary=("n",), beneath=lower)
    with store.transaction(None) as tx:
        tx.create(lower)
        tx.insert(lower, pa.table([pa.array([1, 2]), pa.array(["a", "b"])], schema=schema))
        tx.create(upper)
        tx.upsert(upper, pa.table([pa.array([1]), pa.array(["c"])], schema=schema))
        tx.delete(upper, "n", pa.array([2]))
    assert store.read(upper).to_pylist() == [{"n": 1, name: "c"}]


# --- against a dict ---

KEYS: list[tuple[int | None, str | None]] = [(m, u) for m in (0, 1, None) for u in ("/a", "/b", None)]
_keys = st.lists(st.sampled_from(KEYS), max_size=5)
_written = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 3)), max_size=5)
_wheres = st.one_of(
    st.none(),
    st.lists(st.sampled_from(["/a", "/b", None]), min_size=1, max_size=3).map(lambda v: ("url", v)),
    st.lists(st.integers(0, 3), min_size=1, max_size=2).map(lambda v: ("hits", v)),
    st.tuples(st.sampled_from([None, 0, 1]), st.sampled_from([None, 1, 2]), st.booleans()).map(lambda v: ("time", v)),
)
_changes = st.lists(
    st.one_of(
        _written.map(lambda v: ("upsert", v)), _keys.map(lambda v: ("delete", v)), _wheres.map(lambda v: ("hide", v))
    ),
    max_size=6,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(below=_written, changes=_changes, wheres=st.lists(_wheres, max_size=3))
def test_a_pair_is_a_dict(store: Store, below: list, changes: list, wheres: list) -> None:  # type: ignore[type-arg]
    with store.transaction(None) as tx:
        for name in (*PAIR.names, HITS.name):
            tx.drop(name)
        tx.create(HITS)
        lower = dict(below)
        tx.upsert(HITS, hits(*_rows(lower)))
        tx.create(PAIR)
    model = dict(lower)
    for kind, given_ in changes:
        with store.transaction(None) as tx:
            if kind == "upsert":
                tx.upsert(PAIR, hits(*((minute, url, n) for (minute, url), n in given_)))
                model.update(given_)
            elif kind == "delete":
                there = set(given_) & set(model)
                keys = hits(*((minute, url, 0) for minute, url in given_)).column("_key")
                assert tx.delete(PAIR, "_key", keys) == len(there)
                model = {key: n for key, n in model.items() if key not in there}
            else:
                gone = _matching(model, given_)
                assert tx.delete_where(PAIR, _where(given_)) == len(gone)
                model = {key: n for key, n in model.items() if key not in gone}
    assert found(store) == in_order(_rows(model))
    assert store.count(PAIR) == len(model)
    for each in wheres:
        assert found(store, _where(each)) == in_order(_rows(_matching(model, each)))
    columns = "window_start IS NULL, url, hits"
    shown = store.query(f"SELECT {columns} FROM {PAIR.name}")[1]
    assert sorted(((bool(n), u, h) for n, u, h in shown), key=str) == sorted(
        ((minute is None, url, n) for minute, url, n in _rows(model)), key=str
    )
    assert seen(store.read(HITS)) == in_order(_rows(lower))


def _rows(model: dict[tuple[int | None, str | None], int]) -> list[Row]:
    return [(minute, url, n) for (minute, url), n in model.items()]


def _where(chosen: tuple[str, list] | None) -> Where | None:  # type: ignore[type-arg]
    if chosen is None:
        return None
    column, values = chosen
    if column == "time":
        low, high, with_null = values
        bounds = (None if low is None else low * MINUTE, None if high is None else high * MINUTE)
        return Ranges("time", [bounds], with_null=with_null)
    return In(column, pa.array(values, HITS.schema.field(column).type))


def _matching(
    model: dict[tuple[int | None, str | None], int],
    chosen: tuple[str, list] | None,  # type: ignore[type-arg]
) -> dict[tuple[int | None, str | None], int]:
    if chosen is None:
        return dict(model)
    column, values = chosen
    if column == "url":
        return {key: n for key, n in model.items() if key[1] in values}
    if column == "hits":
        return {key: n for key, n in model.items() if n in values}
    low, high, with_null = values
    return {
        key: n
        for key, n in model.items()
        if (with_null if key[0] is None else (low is None or key[0] >= low) and (high is None or key[0] < high))
    }
