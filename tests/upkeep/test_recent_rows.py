"""Rows held in memory are those of the database, of one fence, and not too many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.upkeep import recent_rows
from penstock.upkeep.changes import KEY, Changes
from penstock.upkeep.recent_rows import RecentRows, Shelves, read_all, wrote_all
from penstock.views.catalog import Generation
from penstock.views.fence import Fence
from penstock.views.keys import halves, key_hashes
from penstock.views.stack import renamed
from penstock.views.store import In, Store, StoredTable, Where, open_store

SCHEMA = pa.schema([(KEY, pa.binary(16)), ("name", pa.string()), ("hits", pa.int64())])
TABLE = StoredTable("hits__1", SCHEMA, (KEY,))
GENERATION = Generation("app", "hits", 1, "live", Fence({"log": {0: 5}}, 7), {}, {}, 0, 0)


class Watched:
    """A database that remembers for how many keys it was asked."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.asked: list[int] = []

    def read(self, table: StoredTable, where: Where | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        assert isinstance(where, In)
        self.asked.append(len(where.values))
        return self.store.read(table, where, columns)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Watched]:
    with open_store(f"sqlite:{tmp_path / 'views.db'}") as store:
        with store.transaction(None) as tx:
            tx.create(TABLE)
        yield Watched(store)


def rows(**hits: int) -> pa.Table:
    table = pa.table({"name": pa.array([*hits], pa.string()), "hits": pa.array([*hits.values()], pa.int64())})
    return table.add_column(0, SCHEMA.field(KEY), key_hashes(table, ["name"]))


def asked_for(*names: str) -> In:
    return In(KEY, rows(**dict.fromkeys(names, 0)).column(KEY).combine_chunks())


def write(database: Watched, recent: RecentRows, fence: int, after: pa.Table, *gone: str) -> Generation:
    before = database.store.read(
        TABLE, In(KEY, pa.concat_arrays([after[KEY].combine_chunks(), asked_for(*gone).values]))
    )
    changes = Changes(before, after)
    with database.store.transaction(None) as tx:
        tx.delete(TABLE, KEY, changes.gone)
        tx.upsert(TABLE, after)
    recent.wrote(TABLE, changes)
    moved = replace(GENERATION, fence=Fence({"log": {0: fence}}, 7))
    recent.moved_to(moved)
    return moved


def hits(table: pa.Table) -> dict[str, int]:
    return dict(zip(table["name"].to_pylist(), table["hits"].to_pylist(), strict=True))


def test_what_was_written_is_not_read_again_and_what_was_not_is(database: Watched) -> None:
    recent = RecentRows(database)
    recent.stand_at(GENERATION)
    assert hits(recent.read(TABLE, asked_for("a", "b"))) == {}
    moved = write(database, recent, 6, rows(a=1, b=2))
    recent.stand_at(moved)
    assert hits(recent.read(TABLE, asked_for("b", "a"))) == {"a": 1, "b": 2}
    assert database.asked == [2]
    with database.store.transaction(None) as tx:
        tx.upsert(TABLE, rows(c=3))
    assert hits(recent.read(TABLE, asked_for("a", "c", "d"))) == {"a": 1, "c": 3}
    assert database.asked == [2, 2]


def test_a_row_that_went_is_not_held_and_one_that_changed_is_held_as_it_is(database: Watched) -> None:
    recent = RecentRows(database)
    recent.stand_at(GENERATION)
    recent.read(TABLE, asked_for("a"))
    write(database, recent, 6, rows(a=1, b=2, c=3))
    moved = write(database, recent, 7, rows(b=20), "a")
    recent.stand_at(moved)
    assert hits(recent.read(TABLE, asked_for("a", "b", "c"))) == {"b": 20, "c": 3}
    assert database.asked == [1, 1], "only the row that went was looked for"


@pytest.mark.parametrize("other", [{"fence": Fence({"log": {0: 6}}, 8)}, {"number": 2}, {"beneath": 1}])
def test_another_fence_or_generation_forgets_all(database: Watched, other: dict[str, object]) -> None:
    """As after a commit whose answer was lost: only the database knows what is stored."""
    recent = RecentRows(database)
    recent.stand_at(GENERATION)
    recent.read(TABLE, asked_for("a"))
    moved = write(database, recent, 6, rows(a=1))
    with database.store.transaction(None) as tx:
        tx.upsert(TABLE, rows(a=100))
    recent.stand_at(replace(moved, **other))  # type: ignore[arg-type]
    assert hits(recent.read(TABLE, asked_for("a"))) == {"a": 100}


def test_the_oldest_rows_are_given_up_first(database: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_rows, "ROWS_MAX", 2)
    recent = RecentRows(database)
    recent.stand_at(GENERATION)
    recent.read(TABLE, asked_for("a"))
    for fence, name in enumerate("abcd", start=6):
        write(database, recent, fence, rows(**{name: fence}))
    recent.stand_at(write(database, recent, 10, rows(e=10)))
    found = hits(recent.read(TABLE, asked_for("a", "b", "c", "d", "e")))
    assert found == {"a": 6, "b": 7, "c": 8, "d": 9, "e": 10}
    assert database.asked == [1, 3], "two rows are held, after twice as many were"


def test_rows_that_change_all_the_time_are_held_once(database: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_rows, "ROWS_MAX", 4)
    recent = RecentRows(database)
    recent.stand_at(GENERATION)
    recent.read(TABLE, asked_for("a"))
    for fence in range(6, 40):
        recent.stand_at(write(database, recent, fence, rows(a=fence, b=-fence, c=0)))
        assert hits(recent.read(TABLE, asked_for("b", "a"))) == {"a": fence, "b": -fence}
        [shelf] = recent.shelves.values()
        [index] = shelf.indexes.values()
        assert len(index.places) == 3
        assert shelf.rows.num_rows <= 8
    assert database.asked == [1]


OTHER = StoredTable(
    "visits__1", pa.schema([(KEY, pa.binary(16)), ("who", pa.string()), ("visits", pa.int64())]), (KEY,)
)
"""Another table of the same types."""


def test_tables_that_share_shelves_are_read_together_and_each_has_its_own_rows(database: Watched) -> None:
    with database.store.transaction(None) as tx:
        tx.create(OTHER)
        tx.upsert(OTHER, renamed(rows(b=7), OTHER.schema))
    shelves: Shelves = {}
    one, another = RecentRows(database, shelves), RecentRows(database, shelves)
    for each, table in ((one, TABLE), (another, OTHER)):
        each.stand_at(GENERATION)
        each.read(table, asked_for("a"))
    one.stand_at(write(database, one, 6, rows(a=1, b=2)))
    database.asked.clear()
    wanted = asked_for("b", "a").values
    [hers, his] = read_all([(one, TABLE, wanted), (another, OTHER, wanted)])
    assert hits(hers) == {"a": 1, "b": 2}
    assert his.to_pylist() == [{KEY: wanted[0].as_py(), "who": "b", "visits": 7}]
    assert database.asked == [2], "only the other table was asked"

    wrote_all(
        [(one, TABLE, Changes(hers, rows(b=3))), (another, OTHER, Changes(his, renamed(rows(b=8), OTHER.schema)))]
    )
    [hers, his] = read_all([(one, TABLE, wanted[:1]), (another, OTHER, wanted[:1])])
    assert [hers["hits"].to_pylist(), his["visits"].to_pylist()] == [[3], [8]]
    assert database.asked == [2]


def test_rows_that_somebody_else_held_of_a_table_are_not_taken_for_the_stored_ones(database: Watched) -> None:
    shelves: Shelves = {}
    old, new = RecentRows(database, shelves), RecentRows(database, shelves)
    old.stand_at(GENERATION)
    old.read(TABLE, asked_for("a"))
    moved = write(database, old, 6, rows(a=1))
    with database.store.transaction(None) as tx:
        tx.upsert(TABLE, rows(a=100))
    new.stand_at(moved)
    assert hits(new.read(TABLE, asked_for("a"))) == {"a": 100}


def test_whoever_is_gone_leaves_nothing_on_the_shelves(database: Watched) -> None:
    shelves: Shelves = {}
    recent = RecentRows(database, shelves)
    recent.stand_at(GENERATION)
    recent.read(TABLE, asked_for("a"))
    write(database, recent, 6, rows(a=1))
    [shelf] = shelves.values()
    assert len(shelf.indexes) == 1
    del recent
    assert not shelf.indexes


_names = st.sampled_from("abcdef")


@given(
    steps=st.lists(st.tuples(st.dictionaries(_names, st.integers(0, 99), max_size=6), st.sets(_names))),
    most=st.integers(1, 5),
)
def test_what_is_held_is_what_was_written_last(steps: list[tuple[dict[str, int], set[str]]], most: int) -> None:
    """Whatever comes and goes: a row that is at hand is the row as it is, and one that went is not there."""
    model: dict[str, int] = {}
    shelf, held = recent_rows.Shelf(SCHEMA), (0, "hits__1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recent_rows, "ROWS_MAX", most)
        for after, gone in steps:
            before = rows(**{name: model[name] for name in sorted(gone | set(after)) if name in model})
            model = {name: count for name, count in model.items() if name not in gone} | after
            shelf.hold([(held, Changes(before, rows(**after)))])
            names = [*"abcdef"]
            places, is_held = shelf.index(held).find(*halves(asked_for(*names).values))
            found = hits(shelf.rows.take(places))
            assert [*found] == [name for name, is_there in zip(names, is_held, strict=True) if is_there]
            assert found.items() <= model.items()
            assert set(list(after)[:most]) <= set(found), "the latest are at hand"


def test_of_rows_that_are_large_only_the_latest_are_held(database: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_rows, "BYTES_MAX", 40)
    recent = RecentRows(database)
    recent.stand_at(GENERATION)
    recent.read(TABLE, asked_for("a"))
    recent.stand_at(write(database, recent, 6, rows(a=1, b=2, c=3)))
    assert hits(recent.read(TABLE, asked_for("a", "b", "c"))) == {"a": 1, "b": 2, "c": 3}
    assert database.asked == [1, 2]


def test_a_large_step_is_not_held_for_the_few_rows_of_it_that_are(
    database: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_rows, "ROWS_MAX", 2)
    recent = RecentRows(database)
    recent.stand_at(GENERATION)
    recent.read(TABLE, asked_for("a"))
    large = rows(**{f"row {number}": number for number in range(1_000)})
    recent.wrote(TABLE, Changes(SCHEMA.empty_table(), large))
    [shelf] = recent.shelves.values()
    assert shelf.rows.num_rows == 2
    assert shelf.rows.get_total_buffer_size() < 1_000
