"""A pipeline of four views, two of which change with its code, and what is seen of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from penstock import Pipeline
from penstock.modes import replays
from penstock.modes.replays import Watch, run_kappa
from penstock.modes.stream import Stop
from penstock.upkeep.compiled import CompiledView
from penstock.views.catalog import Catalog
from penstock.views.store import Store, open_store
from tests.eventually import LIMIT_SECONDS
from tests.modes.harness import Lab, Rows

Views = tuple[CompiledView, ...]
ORDERS = [("a", 1), ("b", 4), ("a", 2), ("c", 1), ("b", 5), ("a", 3)]


def sales(where: str = "true", also: str = "") -> Pipeline:
    app = Pipeline("sales")
    app.topic("orders", "k string, n bigint")
    app.view(
        "totals",
        key="k",
        changelog="totals.changes",
        sql=f"SELECT k, count(*) AS c, sum(n) AS n FROM orders WHERE {where} GROUP BY k",
    )
    app.view("sizes", key="c", sql="SELECT c, count(*) AS ks FROM totals GROUP BY c")
    app.view("largest", key="k", sql=f"SELECT k, max(n) AS n{also} FROM orders WHERE {where} GROUP BY k")
    app.view("smallest", key="k", sql="SELECT k, min(n) AS n FROM orders GROUP BY k")
    return app


OLD: Rows = {
    "totals": [("a", 3, 6), ("b", 2, 9), ("c", 1, 1)],
    "sizes": [(1, 1), (2, 1), (3, 1)],
    "largest": [("a", 3), ("b", 5), ("c", 1)],
    "smallest": [("a", 1), ("b", 4), ("c", 1)],
}
NEW: Rows = {
    "totals": [("a", 2, 5), ("b", 2, 9)],
    "sizes": [(2, 2)],
    "largest": [("a", 3), ("b", 5)],
    "smallest": [("a", 1), ("b", 4), ("c", 1)],
}


def append(lab: Lab, orders: Sequence[tuple[str, int]]) -> None:
    lab.append("orders", [{"k": k, "n": n} for k, n in orders])


def seen(store: Store) -> Rows:
    """What people who query the database see."""
    return {name: store.query(f"SELECT * FROM {name} ORDER BY 1")[1] for name in OLD}


def generations(store: Store, view: str = "totals") -> list[tuple[int, str]]:
    with store.snapshot() as snapshot:
        there = Catalog(snapshot.connection).generations("sales")
    return [(each.number, each.state) for each in there if view in each.views]


def tables(store: Store) -> set[str]:
    """The tables of views that are in the database, and the SQL views over two of them."""
    names = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name LIKE '%\\_\\_%' ESCAPE '\\'"
    return {name for (name,) in store.query(names)[1]}


def known_tables(store: Store) -> set[str]:
    with store.snapshot() as snapshot:
        return {name for each in Catalog(snapshot.connection).generations() for name in each.tables}


def in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "BATCH_ROWS", 2)


@contextmanager
def held(lab: Lab, views: Views) -> Iterator[tuple[Store, Callable[[], None]]]:
    """A run with --hold in another thread, once it holds; another connection to its database, and what ends it."""
    is_held, stop = threading.Event(), Stop()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with lab.engine("live", sales("n > 1"), compiled=views) as (engine, _):
                run_kappa(engine, once=True, hold=True, stop=stop, watch=Watch(held=is_held.set))
        except BaseException as error:
            errors.append(error)
            is_held.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert is_held.wait(LIMIT_SECONDS)
        assert not errors, errors

        def end() -> None:
            stop()
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive()

        with open_store(f"sqlite:{lab.folder}/live.db") as store:
            yield store, end
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()
        assert not errors, errors
    finally:
        stop()
        thread.join(LIMIT_SECONDS)
