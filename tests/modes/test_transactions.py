"""What takes time is done before a step's transaction begins: a database ends one that it hears nothing of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import event

from penstock import Pipeline
from penstock.modes.stream import run_stream
from penstock.upkeep import commit
from penstock.views import store as stores
from tests.modes.harness import Lab
from tests.postgresql import Server

pytestmark = pytest.mark.spark

SLOW = ((stores, "key_order"), (stores, "to_plain"), (commit, "changelog_rows"), (commit, "corrected_rows"))
"""What grows with the number of rows: sorting, converting, and telling what has changed."""


def pages() -> Pipeline:
    app = Pipeline("pages")
    app.topic("events", "id bigint, time timestamp, page string", event_time="time")
    app.view("views", key="page", changelog="views.changes", sql="SELECT page, count(*) AS c FROM events GROUP BY page")
    app.view(
        "visitors",
        key=["window", "page"],
        sql="SELECT window(time, '1 hour') AS window, page, count(DISTINCT id) AS c FROM events GROUP BY 1, 2",
    )
    app.view("often", key="c", sql="SELECT c, count(*) AS pages FROM views GROUP BY c")
    return app


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def test_rows_are_sorted_and_converted_before_the_transaction_begins(
    tmp_path: Path, spark: SparkSession, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Server | None = request.getfixturevalue("postgresql") if kind == "postgresql" else None
    lab = Lab(tmp_path, pages(), spark, server.new_database if server else None)
    lab.append("events", [{"id": n, "time": n * 60_000_000, "page": f"/{n % 7}"} for n in range(300)])
    happened: list[str] = []
    here = threading.get_ident()

    def note(what: str) -> None:
        if threading.get_ident() == here:
            happened.append(what)

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            note(name)
            return function(*arguments, **named)

        return noted

    for module, name in SLOW:
        monkeypatch.setattr(module, name, noting(name, getattr(module, name)))
    with lab.engine() as (engine, store):
        for name in ("begin", "commit"):
            event.listen(store.engine, name, lambda _, name=name: note(name))
        run_stream(engine, once=True, max_rows=100)
    assert {name for _, name in SLOW} <= {*happened}
    is_inside = False
    for what in happened:
        is_inside = what == "begin" or (is_inside and what != "commit")
        assert what in ("begin", "commit") or not is_inside, f"{what} within a transaction"
