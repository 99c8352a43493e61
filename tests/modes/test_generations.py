"""Changed code mixes nothing: readers see the old rows until the switch, the new ones from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import ViewsChanged
from penstock.modes.batch import run_batch
from penstock.modes.stream import run_stream
from penstock.views.store import Store
from tests.modes.harness import Lab, Rows, rows_of

pytestmark = pytest.mark.spark


def sales(where: str = "true") -> Pipeline:
    app = Pipeline("sales")
    app.topic("orders", "k string, n bigint")
    app.view(
        "totals",
        key="k",
        changelog="totals.changes",
        sql=f"SELECT k, count(*) AS c, sum(n) AS n FROM orders WHERE {where} GROUP BY k",
    )
    app.view("sizes", key="c", changelog="sizes.changes", sql="SELECT c, count(*) AS ks FROM totals GROUP BY c")
    app.view("largest", key="k", sql="SELECT k, max(n) AS n FROM orders GROUP BY k")
    return app


OLD: Rows = {"totals": [("a", 3, 6), ("b", 2, 9), ("c", 1, 1)], "sizes": [(1, 1), (2, 1), (3, 1)]}
NEW: Rows = {"totals": [("a", 2, 5), ("b", 2, 9), ("d", 1, 7)], "sizes": [(1, 1), (2, 2)]}


def seen(store: Store) -> Rows:
    """What people who query the database see."""
    return {
        "totals": store.query("SELECT k, c, n FROM totals ORDER BY k")[1],
        "sizes": store.query("SELECT c, ks FROM sizes ORDER BY c")[1],
    }


def told(lab: Lab, topic: str, since: int) -> list[tuple[Any, ...]]:
    """The changes from an offset on: what was done, the row before and after."""
    rows = lab.log.topic(topic).slice().to_pylist()[since:]
    found = [(each["operation"], *(tuple(each[side].values()) if each[side] else None for side in ("before", "after")))
             for each in rows]  # fmt: skip
    return sorted(found, key=repr)


def test_changed_code_is_refused_then_rebuilt_beside_the_old_rows_and_switched_in(
    tmp_path: Path, spark: SparkSession
) -> None:
    lab = Lab(tmp_path, sales(), spark)
    given = [("a", 1), ("b", 4), ("a", 2), ("c", 1), ("b", 5), ("a", 3)]
    lab.append("orders", [{"k": k, "n": n} for k, n in given])
    with lab.engine("live") as (engine, store):
        run_stream(engine, once=True)
        assert seen(store) == OLD
    ends = {name: lab.log.topic(name).end()[0] for name in ("totals.changes", "sizes.changes")}
    lab.append("orders", [{"k": "d", "n": 7}])

    with lab.engine("live", sales("n > 1")) as (engine, store):
        # Refused when it is opened, with the command to go on; the view that did not change is not named.
        with pytest.raises(ViewsChanged) as caught:
            run_stream(engine, once=True)
        assert caught.value.changed == {"totals": "its query"}
        assert "penstock view rebuild totals --app FILE" in str(caught.value)
        assert str(engine.set_of("totals")[0].spec.place) in str(caught.value)
        assert seen(store) == OLD

        # Built in several steps beside what people read; nothing is told meanwhile.
        views = engine.set_of("totals")
        steps = []
        for running in engine.build(views, {"orders": {0: 7}}, max_rows=3):
            steps.append(running)
            assert seen(store) == OLD
        assert len(steps) > 1
        engine.deliver()
        assert {name: lab.log.topic(name).end()[0] for name in ends} == ends

        engine.switch(steps[-1])
        assert seen(store) == NEW
        engine.deliver()
        assert told(lab, "totals.changes", ends["totals.changes"]) == [
            ("delete", ("c", 1, 1), None),
            ("insert", None, ("d", 1, 7)),
            ("update", ("a", 3, 6), ("a", 2, 5)),
        ]
        assert told(lab, "sizes.changes", ends["sizes.changes"]) == [
            ("delete", (3, 1), None),
            ("update", (2, 1), (2, 2)),
        ]

        # From here on it is a stream again, and the other view has gone on from its own fence.
        lab.append("orders", [{"k": "c", "n": 2}, {"k": "c", "n": 1}])
        run_stream(engine, once=True)
        rows = rows_of(engine, store)
        assert rows["totals"] == [*NEW["totals"][:2], ("c", 1, 2), NEW["totals"][2]]
        assert rows["largest"] == [("a", 3), ("b", 5), ("c", 2), ("d", 7)]


def test_a_rebuild_that_dies_leaves_the_old_rows_and_the_next_one_removes_what_it_left(
    tmp_path: Path, spark: SparkSession
) -> None:
    lab = Lab(tmp_path, sales(), spark)
    lab.append("orders", [{"k": "a", "n": n} for n in range(6)])
    with lab.engine("live") as (engine, store):
        run_stream(engine, once=True)
        before = seen(store)
        views = engine.set_of("totals")
        next(engine.build(views, {"orders": {0: 6}}, max_rows=2))
    with lab.engine("live") as (engine, store):
        assert seen(store) == before
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'totals%' ORDER BY name"
        half_built = store.query(tables)[1]
        run_batch(engine, sets=[views])
        assert seen(store) == before
        assert len(half_built) == 2
        assert len(store.query(tables)[1]) == 2
        assert half_built[-1] not in store.query(tables)[1]
