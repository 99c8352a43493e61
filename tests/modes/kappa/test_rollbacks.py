"""Going back to an older generation, and what is left of those that were replaced."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import (
    NothingReady,
    NothingToRollBack,
    PipelineOwned,
    UnknownGeneration,
)
from penstock.modes.batch import run_batch
from penstock.modes.replays import Watch, run_kappa
from penstock.modes.rollback import find_generation, roll_back, roll_back_together, switch_ready
from penstock.modes.running import RunningSet
from penstock.modes.stream import run_stream
from penstock.views.catalog import Catalog
from penstock.views.store import Store, open_store
from tests.modes.harness import Lab, rows_of
from tests.modes.kappa.sales import (
    NEW,
    OLD,
    ORDERS,
    Views,
    append,
    generations,
    held,
    known_tables,
    sales,
    seen,
    tables,
)
from tests.modes.test_generations import told

pytestmark = pytest.mark.spark


def test_a_rollback_is_told_and_taken_back(lab: Lab, new_views: Views) -> None:
    topic = lab.log.topic("totals.changes")
    first = topic.end()[0]
    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):

        def nothing_is_told(running: RunningSet, left: int) -> None:
            engine.deliver()
            assert topic.end() == {0: first}

        run_kappa(engine, once=True, watch=Watch(replayed=nothing_is_told))
        engine.deliver()
        difference = [("delete", ("c", 1, 1), None), ("update", ("a", 3, 6), ("a", 2, 5))]
        assert told(lab, "totals.changes", first) == difference
    with open_store(f"sqlite:{lab.folder}/live.db") as store:
        assert roll_back(store, "sizes").number == 1
        assert seen(store) == {**OLD, "largest": NEW["largest"]}
        assert roll_back(store, "totals").number == 2
        assert seen(store) == NEW
        assert roll_back(store, "totals").number == 1
        assert roll_back(store, "largest").number == 1
        assert seen(store) == OLD
    with lab.engine("live") as (engine, store):
        engine.deliver()
        back = [("insert", None, ("c", 1, 1)), ("update", ("a", 2, 5), ("a", 3, 6))]
        assert told(lab, "totals.changes", first) == sorted([*difference * 2, *back * 2], key=repr)
        append(lab, [("c", 5)])
        run_stream(engine, once=True)
        assert seen(store)["totals"] == [*OLD["totals"][:2], ("c", 2, 6)]


def counts(sizes: str) -> Pipeline:
    app = Pipeline("sales")
    app.topic("orders", "k string, n bigint")
    app.view("totals", key="k", sql="SELECT k, count(*) AS c FROM orders GROUP BY k")
    app.view("sizes", key="c", changelog="sizes.changes", sql=f"SELECT {sizes}")
    return app


TOGETHER = "c, count(*) AS ks FROM totals GROUP BY c"
APART = "n AS c, count(*) AS ks FROM orders GROUP BY n"


@pytest.mark.parametrize("sizes", [(TOGETHER, APART), (APART, TOGETHER)], ids=["parted", "joined"])
def test_views_that_were_parted_or_joined_go_back_and_forth_together(
    tmp_path: Path, spark: SparkSession, sizes: tuple[str, str]
) -> None:
    before, after = (counts(each) for each in sizes)
    lab = Lab(tmp_path, before, spark)
    append(lab, ORDERS)
    with lab.engine("live") as (engine, store):
        run_stream(engine, once=True)
        old = rows_of(engine, store)
        count = len(engine.sets)
    first = lab.log.topic("sizes.changes").end()[0]
    with lab.engine("live", after) as (engine, store):
        run_kappa(engine, once=True)
        assert {count, len(engine.sets)} == {1, 2}
        new = rows_of(engine, store)
        assert new["totals"] == old["totals"]
        engine.deliver()
        # What differs is told, and nothing else.
        kinds = [kind for kind, _, _ in told(lab, "sizes.changes", first)]
        assert kinds == (["insert", "insert", "update"] if count == 1 else ["delete", "delete", "update"])
    with open_store(f"sqlite:{lab.folder}/live.db") as store:
        for rows in (old, new, old, new):
            together = roll_back_together(store, "totals")
            assert sorted(name for each in together for name in each.views) == ["sizes", "totals"]
            assert "totals" in together[0].views
            for name in ("totals", "sizes"):
                assert store.query(f"SELECT * FROM {name} ORDER BY 1")[1] == rows[name]


def test_generations_that_were_replaced_long_ago_are_dropped_with_all_their_tables(lab: Lab, new_views: Views) -> None:
    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):
        run_kappa(engine, once=True)
        assert generations(store) == [(1, "old"), (2, "live")]
        run_batch(engine)
        assert generations(store) == [(1, "old"), (2, "old"), (3, "live")]
        with store.transaction(engine.owner) as tx:
            tx.connection.exec_driver_sql(
                "UPDATE _penstock_generations SET retired_us = retired_us - 3600000000 WHERE number = 1"
            )
        hour = replace(engine, keep_old=timedelta(minutes=30))
        run_batch(hour)
        assert generations(store) == [(2, "old"), (3, "old"), (4, "live")]
        assert tables(store) == known_tables(store)
        assert not any("__1" in name for name in tables(store))
        none = replace(engine, keep_old=timedelta(0))
        run_batch(none)
        assert generations(store) == [(5, "live")]
        assert tables(store) == known_tables(store)
        assert seen(store) == NEW
        with pytest.raises(PipelineOwned):
            roll_back(store, "totals")
    with open_store(f"sqlite:{lab.folder}/live.db") as store, pytest.raises(NothingToRollBack) as caught:
        roll_back(store, "totals")
    assert caught.value.view == "totals"


def test_generations_are_found_by_what_people_call_them(lab: Lab, new_views: Views) -> None:
    def numbers(store: Store) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        with store.snapshot() as snapshot:
            for which in ("live", "old", "new", "1", "2"):
                try:
                    found[which] = find_generation(snapshot, "totals", which).number
                except UnknownGeneration:
                    found[which] = None
        return found

    with open_store(f"sqlite:{lab.folder}/live.db") as store:
        assert numbers(store) == {"live": 1, "old": None, "new": 1, "1": 1, "2": None}
    with held(lab, new_views) as (store, end):
        assert numbers(store) == {"live": 1, "old": 1, "new": 2, "1": 1, "2": 2}
        end()
        switch_ready(store)
        assert numbers(store) == {"live": 2, "old": 1, "new": 2, "1": 1, "2": 2}
        roll_back(store, "totals")
        assert numbers(store) == {"live": 1, "old": 2, "new": 1, "1": 1, "2": 2}
        for which in ("3", "next", "", "²", "-1"):
            with store.snapshot() as snapshot, pytest.raises(UnknownGeneration) as caught:
                find_generation(snapshot, "totals", which)
            assert (caught.value.view, caught.value.which) == ("totals", which)
            assert "1 (live), 2 (old)" in str(caught.value)
            assert "penstock view generations totals" in str(caught.value)


def test_what_is_not_there_is_told_with_what_would_make_it(lab: Lab) -> None:
    with open_store(f"sqlite:{lab.folder}/live.db") as store:
        with pytest.raises(NothingReady) as nothing:
            switch_ready(store)
        assert nothing.value.ready == []
        assert "nothing is ready to be switched in" in str(nothing.value)
        assert "penstock run FILE --mode kappa --hold" in str(nothing.value)
        with pytest.raises(NothingToRollBack) as none:
            roll_back(store, "totals")
        assert none.value.view == "totals"
        assert "there is no older generation" in str(none.value)
        with lab.engine("live") as (engine, _), store.transaction(engine.owner) as tx:
            catalog = Catalog(tx.connection)
            live = catalog.live("sales", "largest")
            assert live is not None
            catalog.ready(catalog.new_generation("sales", "largest", list(live.views.values())))
        with pytest.raises(NothingReady) as other:
            switch_ready(store, "other")
        assert (other.value.pipeline, other.value.ready) == ("other", ["sales"])
        assert "pipeline 'other' has nothing ready" in str(other.value)
        assert "penstock switch sales" in str(other.value)
