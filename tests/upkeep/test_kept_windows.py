"""Rows kept in pieces come back as they went in: each once, and from every slide that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import KeptRowUnfit
from penstock.upkeep import kept_windows
from penstock.upkeep.kept_windows import COUNT, KeptWindows
from penstock.views import sqlite
from penstock.views.store import Store, open_store

UTC_US = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema([("time", UTC_US), ("name", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64())])
MINUTE = 60_000_000
YEARS = st.sampled_from([0, 1_767_225_600_000_000, 4_070_908_800_000_000, -(1 << 63) + 1, (1 << 63) - 1])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:{tmp_path / 'views.db'}") as opened:
        yield opened


def kept(slide: int = MINUTE, offset: int = 0) -> KeptWindows:
    return KeptWindows("view__topic", COLUMNS, "time", slide, offset)


def records(times: list[int | None], first: int = 0) -> pa.Table:
    places = range(first, first + len(times))
    columns = [times, [f"row {place}" for place in places], [0] * len(times), [*places]]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, COLUMNS, strict=True)]
    return pa.table(arrays, schema=COLUMNS)


def keep(store: Store, windows: KeptWindows, new: pa.Table, read: pa.Table | None = None) -> None:
    from penstock.upkeep.commit import ready_kept, write_kept  # Here, because it imports Spark.

    ready = ready_kept(store, windows.change((1,), windows.chosen(new), read))
    with store.transaction(None) as tx:
        write_kept(tx, ready)


def pieces(store: Store, windows: KeptWindows, *ranges: tuple[int, int]) -> pa.Table:
    return store.read(windows.table((1,)), windows.pieces_in(ranges))


@settings(max_examples=40)
@given(data=st.data())
def test_each_moment_is_found_by_every_range_that_holds_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever the slides are, also at both ends of time."""
    windows = kept(data.draw(st.integers(1, 3 * MINUTE)), data.draw(st.integers(0, MINUTE)))
    near = st.integers(-3 * MINUTE, 3 * MINUTE)
    least, greatest = -(1 << 63) + 1, (1 << 63) - 1
    moment = st.builds(lambda year, off: min(max(year + off, least), greatest), YEARS, near)
    times = data.draw(st.lists(moment, min_size=1, max_size=20))
    with open_store(f"sqlite:{tmp_path_factory.mktemp('kept') / 'views.db'}") as store:
        with store.transaction(None) as tx:
            tx.create(windows.table((1,)))
        keep(store, windows, records(times))
        for time in times:
            start, stop = max(time - data.draw(st.integers(0, MINUTE)), least), min(time + 1, greatest)
            if start < stop:
                found = windows.rows(pieces(store, windows, (start, stop)))
                wanted = {place for place, other in enumerate(times) if start <= other < stop}
                assert wanted <= {*found.column("_offset").to_pylist()}


@settings(max_examples=100)
@given(data=st.data())
def test_each_record_touches_the_windows_that_hold_it(data: st.DataObject) -> None:
    slide = data.draw(st.integers(1, 3 * MINUTE))
    length, offset = data.draw(st.integers(1, 5 * slide)), data.draw(st.integers(-MINUTE, MINUTE))
    near = st.integers(-3 * MINUTE, 3 * MINUTE)
    times = data.draw(st.lists(st.builds(int.__add__, YEARS.filter(lambda year: year % 10 == 0), near), max_size=9))
    windows = kept(slide, offset)
    starts = windows.starts(windows.chosen(records([*times, None])), length).tolist()
    last = [time - (time - offset) % slide for time in times]
    reached = range(-(-length // slide))
    assert starts == sorted({start - slide * back for start in last for back in reached})


def test_windows_that_reach_beyond_time_are_not_touched() -> None:
    windows = kept(slide=MINUTE)
    rows = windows.chosen(records([-(1 << 63) + 1, (1 << 63) - 1, 5]))
    assert windows.starts(rows, 2 * MINUTE).tolist() == [-MINUTE, 0]


def test_a_record_without_a_time_is_in_no_window_and_not_kept(store: Store) -> None:
    windows = kept()
    with store.transaction(None) as tx:
        tx.create(windows.table((1,)))
    keep(store, windows, records([None, 5, None]))
    assert windows.rows(store.read(windows.table((1,)))).column("_offset").to_pylist() == [1]
    keep(store, windows, records([None], first=3))
    assert store.count(windows.table((1,))) == 1


def test_many_pieces_become_one_and_nothing_is_lost_or_there_twice(store: Store) -> None:
    windows = kept()
    with store.transaction(None) as tx:
        tx.create(windows.table((1,)))
    steps = 5 * kept_windows.PIECES_MAX
    most = 0
    for step in range(steps):
        read = pieces(store, windows, (0, MINUTE))
        most = max(most, read.num_rows)
        keep(store, windows, records([step, MINUTE + step], first=2 * step), read)
    assert most == kept_windows.PIECES_MAX + 1
    table = store.read(windows.table((1,)))
    assert sorted(windows.rows(table).column("_offset").to_pylist()) == [*range(2 * steps)]
    assert sum(table.column(COUNT).to_pylist()) == 2 * steps
    untouched = pieces(store, windows, (MINUTE, 2 * MINUTE))
    assert untouched.num_rows == steps, "nobody read this slide, so its pieces stay"


def test_a_large_piece_is_cut(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_windows, "PIECE_BYTES", 10_000)
    windows = kept()
    with store.transaction(None) as tx:
        tx.create(windows.table((1,)))
    keep(store, windows, records([*range(5_000)]))
    table = store.read(windows.table((1,)))
    assert table.num_rows > 10
    assert max(len(each) for each in table.column("_rows").to_pylist()) < 20_000
    assert sorted(windows.rows(table).column("_offset").to_pylist()) == [*range(5_000)]


def test_a_few_large_records_beside_many_small_ones_make_no_large_piece(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_windows, "PIECE_BYTES", 10_000)
    windows = kept()
    with store.transaction(None) as tx:
        tx.create(windows.table((1,)))
    many = records([*range(2_000)])
    names = [("x" * 5_000 if 1_000 <= place < 1_020 else "x") for place in range(2_000)]
    keep(store, windows, many.set_column(1, COLUMNS.field("name"), pa.array(names)))
    table = store.read(windows.table((1,)))
    assert max(len(each) for each in table.column("_rows").to_pylist()) < 20_000
    assert sorted(windows.rows(table).column("_offset").to_pylist()) == [*range(2_000)]


def test_a_piece_that_the_database_refuses_is_an_error_and_not_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_LENGTH_MAX", 1_000)
    windows = kept()
    with store.transaction(None) as tx:
        tx.create(windows.table((1,)))
    with pytest.raises(KeptRowUnfit, match="'view__topic__1'") as caught:
        keep(store, windows, records([*range(200)]))
    assert caught.value.column == "_rows"
    assert store.count(windows.table((1,))) == 0


def test_slides_begin_at_the_offset(store: Store) -> None:
    windows = kept(MINUTE, 10_000_000)
    with store.transaction(None) as tx:
        tx.create(windows.table((1,)))
    keep(store, windows, records([9_999_999, 10_000_000, 69_999_999, 70_000_000]))
    starts = store.read(windows.table((1,))).column("_time").to_pylist()
    assert sorted(starts) == [-50_000_000, 10_000_000, 70_000_000]
    assert np.isin(windows.rows(pieces(store, windows, (10_000_000, 70_000_000))).column("_offset"), [1, 2]).all()
