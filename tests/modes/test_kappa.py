"""Kappa: changed code is replayed beside what people read, compared with it, and switched in all at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import (
    NothingReady,
    NothingToRollBack,
    PipelineOwned,
    ReplayRefused,
    StoreUnavailable,
    UnknownGeneration,
)
from penstock.modes import replays
from penstock.modes.batch import run_batch
from penstock.modes.compared import Compared, compare_generations
from penstock.modes.engine import Engine
from penstock.modes.replays import Watch, run_kappa
from penstock.modes.rollback import find_generation, roll_back, roll_back_together, switch_ready
from penstock.modes.running import RunningSet
from penstock.modes.stream import Stop, run_stream
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from penstock.views.catalog import Catalog
from penstock.views.store import Store, open_store
from tests.modes.harness import Lab, Rows, rows_of
from tests.modes.test_generations import told
from tests.postgresql import Server

pytestmark = pytest.mark.spark

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


@pytest.fixture(scope="module")
def old_views(spark: SparkSession) -> Views:
    return compile_pipeline(sales(), spark)


@pytest.fixture(scope="module")
def new_views(spark: SparkSession) -> Views:
    return compile_pipeline(sales("n > 1"), spark)


@pytest.fixture(scope="module")
def wide_views(spark: SparkSession) -> Views:
    return compile_pipeline(sales(also=", count(*) AS c"), spark)


@pytest.fixture
def lab(tmp_path: Path, spark: SparkSession, old_views: Views) -> Lab:
    """Six orders, and a stream of the old code over them."""
    made = Lab(tmp_path, sales(), spark, compiled=old_views)
    append(made, ORDERS)
    with made.engine("live") as (engine, store):
        run_stream(engine, once=True)
        assert seen(store) == OLD
    return made


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


# --- replays ---


def test_changed_views_are_replayed_while_the_others_go_on(
    lab: Lab, new_views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_steps(monkeypatch)
    stop = Stop()
    steps: list[tuple[str, bool]] = []
    replayed: list[tuple[str, int, int]] = []
    switched: list[list[str]] = []
    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):

        def stepped(report: Any, running: RunningSet, left: int) -> None:
            steps.append((running.name, bool(switched)))
            rows = seen(store)
            if not switched:
                # What changed stays as it was read before; what did not is kept up to date.
                assert {name: rows[name] for name in ("totals", "sizes", "largest")} == {
                    name: OLD[name] for name in ("totals", "sizes", "largest")
                }
                append(lab, [("d", 2)])
            elif engine.live(engine.set_of("totals")).fence == engine.live(engine.set_of("smallest")).fence:  # type: ignore[union-attr]
                stop()

        def switch_told(sets: Sequence[RunningSet]) -> None:
            switched.append([each.name for each in sets])
            append(lab, [("d", 1)])

        append(lab, [("d", 9)])
        watch = Watch(
            replayed=lambda running, left: replayed.append((running.name, running.generation.number, left)),
            switched=switch_told,
        )
        timer = threading.Timer(120, stop)
        timer.start()
        run_kappa(engine, watch=watch, on_step=stepped, stop=stop)
        timer.cancel()
        assert ("smallest", False) in steps
        assert replayed == [("sizes", 2, 4), ("sizes", 2, 2), ("sizes", 2, 0),
                            ("largest", 2, 4), ("largest", 2, 2), ("largest", 2, 0)]  # fmt: skip
        assert switched == [["sizes", "largest"]]
        run_stream(engine, once=True)
        rows = rows_of(engine, store)
        run_batch(engine)
        assert rows_of(engine, store) == rows
        assert ("d", 1) in rows["smallest"]


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def test_all_that_changed_is_switched_in_at_once(
    tmp_path: Path,
    spark: SparkSession,
    old_views: Views,
    new_views: Views,
    database: str,
    request: pytest.FixtureRequest,
) -> None:
    server: Server | None = request.getfixturevalue("postgresql") if database == "postgresql" else None
    lab = Lab(tmp_path, sales(), spark, compiled=old_views)
    append(lab, ORDERS)
    url = server.new_database() if server else f"sqlite:{tmp_path}/live.db"
    with lab.engine(url=url) as (engine, _):
        run_stream(engine, once=True)
    looks: list[tuple[int, ...]] = []
    errors: list[BaseException] = []
    over = threading.Event()

    def read() -> None:
        sql = "SELECT (SELECT count(*) FROM totals), (SELECT count(*) FROM sizes), (SELECT count(*) FROM largest)"
        try:
            with open_store(url) as store:
                while not over.is_set():
                    looks.append(tuple(store.query(sql)[1][0]))
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        # There and back, by replay, by going on with the older one, and by rollback.
        for views, pipeline in ((new_views, sales("n > 1")), (old_views, sales()), (new_views, sales("n > 1"))):
            with lab.engine(url=url, pipeline=pipeline, compiled=views) as (engine, _):
                run_kappa(engine, once=True)
    finally:
        over.set()
        reader.join(30)
    assert not errors
    assert set(looks) == {(3, 3, 3), (2, 1, 2)}


def test_the_comparison_tells_counts_examples_and_columns(lab: Lab, new_views: Views, wide_views: Views) -> None:
    found: list[Compared] = []
    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):
        run_kappa(engine, once=True, watch=Watch(compared=found.extend))
        assert seen(store) == NEW
    by_name = {each.view: each for each in found}
    assert set(by_name) == {"totals", "sizes", "largest"}
    assert all(each.is_at_one_cut and not each.agrees for each in found)
    totals = by_name["totals"].rows
    assert totals is not None
    assert (totals.equal, totals.different, totals.missing, totals.extra) == (1, 1, 1, 0)
    different, missing = totals.examples
    assert (different.kind, different.key, different.columns) == ("different", {"k": "a"}, ("c", "n"))
    assert (different.expected, different.found) == ({"k": "a", "c": 3, "n": 6}, {"k": "a", "c": 2, "n": 5})
    assert (missing.kind, missing.expected, missing.found) == ("missing", {"k": "c", "c": 1, "n": 1}, None)

    found.clear()
    with lab.engine("live", sales(also=", count(*) AS c"), compiled=wide_views) as (engine, store):
        run_kappa(engine, once=True, watch=Watch(compared=found.extend))
        assert store.query("SELECT k, c FROM largest ORDER BY k")[1] == [("a", 3), ("b", 2), ("c", 1)]
        by_name = {each.view: each for each in found}
        largest = by_name["largest"]
        assert (largest.added, largest.removed, largest.retyped) == (("c",), (), ())
        assert largest.rows is not None
        assert (largest.rows.equal, largest.rows.extra) == (2, 1)
        with store.snapshot() as snapshot:
            sides = (find_generation(snapshot, "largest", which) for which in ("live", "old"))
            back = compare_generations(snapshot, "largest", *sides, examples=0)
        assert (back.added, back.removed) == ((), ("c",))
        assert back.rows is not None
        assert (back.rows.missing, back.rows.examples) == (1, ())
        assert not back.agrees


class Killed(Exception):
    pass


def test_a_replay_that_was_interrupted_goes_on_at_its_fence(
    lab: Lab, new_views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_steps(monkeypatch)
    replayed: list[tuple[str, int, int]] = []

    def kill(running: RunningSet, left: int) -> None:
        if left == 2:
            raise Killed

    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):
        with pytest.raises(Killed):
            run_kappa(engine, once=True, watch=Watch(replayed=kill))
        assert seen(store) == OLD
        with store.snapshot() as snapshot:
            begun = find_generation(snapshot, "totals", "new")
        assert (begun.number, begun.state, begun.fence.offsets) == (2, "building", {"orders": {0: 4}})
    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):
        watch = Watch(replayed=lambda running, left: replayed.append((running.name, running.generation.number, left)))
        run_kappa(engine, once=True, watch=watch)
        assert replayed[0] == ("sizes", 2, 0)
        assert seen(store) == NEW
        assert generations(store) == [(1, "old"), (2, "live")]
        assert tables(store) == known_tables(store)


def test_a_replay_by_other_code_again_begins_anew_and_leaves_nothing_behind(
    lab: Lab, new_views: Views, wide_views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_steps(monkeypatch)

    def kill(running: RunningSet, left: int) -> None:
        if running.name == "largest":
            raise Killed

    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, _), pytest.raises(Killed):
        run_kappa(engine, once=True, watch=Watch(replayed=kill))
    with lab.engine("live", sales(also=", count(*) AS c"), compiled=wide_views) as (engine, store):
        run_kappa(engine, once=True)
        assert generations(store, "largest") == [(1, "old"), (3, "live")]
        assert rows_of(engine, store)["largest"] == [("a", 3, 3), ("b", 5, 2), ("c", 1, 1)]
        assert rows_of(engine, store)["totals"] == OLD["totals"]


def test_a_switch_that_went_through_without_an_answer_is_not_made_twice(
    lab: Lab, new_views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Engine.switch
    switched: list[RunningSet] = []

    def unanswered(self: Engine, *sets: RunningSet, is_same_code: bool = False) -> None:
        before = [each.generation for each in sets]
        real(self, *sets, is_same_code=is_same_code)
        switched.extend(sets)
        if len(switched) == len(sets):
            for each, generation in zip(sets, before, strict=True):
                each.generation = generation
            raise StoreUnavailable("here", "the connection broke", is_outcome_unknown=True)

    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):
        with monkeypatch.context() as patched:
            patched.setattr(Engine, "switch", unanswered)
            append(lab, [("e", 5)])
            run_kappa(engine, once=True)
        assert len(switched) == 2
        assert generations(store) == [(1, "old"), (2, "live")]
        assert seen(store)["totals"] == [*NEW["totals"], ("e", 1, 5)]
        with store.snapshot() as snapshot:
            assert find_generation(snapshot, "totals", "old").number == 1


# --- holding ---


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
        assert is_held.wait(120)
        assert not errors, errors

        def end() -> None:
            stop()
            thread.join(60)
            assert not thread.is_alive()

        with open_store(f"sqlite:{lab.folder}/live.db") as store:
            yield store, end
        thread.join(60)
        assert not thread.is_alive()
        assert not errors, errors
    finally:
        stop()
        thread.join(60)


def test_what_is_held_waits_for_somebody_else_to_switch_it_in(lab: Lab, new_views: Views) -> None:
    with held(lab, new_views) as (store, _):
        assert seen(store) == OLD
        assert generations(store) == [(1, "live"), (2, "ready")]
        live = switch_ready(store)
        assert sorted((each.set, each.number, each.state) for each in live) == [
            ("largest", 2, "live"), ("sizes", 2, "live"),
        ]  # fmt: skip
        assert seen(store) == NEW
        assert generations(store) == [(1, "old"), (2, "live")]
    # Nothing of the request is left: the next one that holds waits again.
    with open_store(f"sqlite:{lab.folder}/live.db") as store:
        assert store.query("SELECT count(*) FROM _penstock_requests")[1] == [(0,)]


def test_what_a_run_left_ready_is_switched_in_without_any_run(lab: Lab, new_views: Views) -> None:
    with held(lab, new_views) as (store, end):
        end()
        assert seen(store) == OLD
        assert generations(store) == [(1, "live"), (2, "ready")]
        assert len(switch_ready(store, "sales")) == 2
        assert seen(store) == NEW
        with pytest.raises(NothingReady):
            switch_ready(store)
    append(lab, [("a", 1), ("a", 7)])
    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):
        run_stream(engine, once=True)
        assert seen(store)["totals"] == [("a", 3, 12), ("b", 2, 9)]


def test_what_was_held_is_switched_in_by_the_next_run_that_does_not_hold(lab: Lab, new_views: Views) -> None:
    with held(lab, new_views) as (_, end):
        end()
    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):
        run_kappa(engine, once=True)
        assert generations(store) == [(1, "old"), (2, "live")]
        assert seen(store) == NEW


# --- going back ---


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


# --- what is refused, and what is dropped ---


def test_a_replay_that_would_lose_records_is_refused_unless_that_is_allowed(
    tmp_path: Path, spark: SparkSession, old_views: Views, new_views: Views
) -> None:
    lab = Lab(tmp_path, sales(), spark, compiled=old_views)
    append(lab, ORDERS[:2])
    lab.topics["orders"].seal(active=True)
    append(lab, ORDERS[2:])
    with lab.engine("live") as (engine, _):
        run_stream(engine, once=True)
    lab.topics["orders"].alter(retention_bytes=1)
    lab.topics["orders"].retain()
    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):
        with pytest.raises(ReplayRefused) as caught:
            run_kappa(engine, once=True)
        assert caught.value.lost == {"orders": 2}
        assert caught.value.views == ["totals", "sizes"]
        assert "2 of topic 'orders'" in str(caught.value)
        assert "--allow-loss" in str(caught.value)
        assert seen(store) == OLD
        assert generations(store) == [(1, "live")]
        run_kappa(engine, once=True, allow_loss=True)
        assert seen(store)["totals"] == [("a", 2, 5), ("b", 1, 5)]
        assert seen(store)["smallest"] == OLD["smallest"]


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
