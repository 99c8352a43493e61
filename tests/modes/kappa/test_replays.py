"""Kappa: changed code is replayed beside what people read, compared with it, and switched in all at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.errors import (
    ReplayRefused,
    StoreUnavailable,
)
from penstock.modes.batch import run_batch
from penstock.modes.compared import Compared, compare_generations
from penstock.modes.engine import Engine
from penstock.modes.replays import Watch, run_kappa
from penstock.modes.rollback import find_generation
from penstock.modes.running import RunningSet
from penstock.modes.stream import Stop, run_stream
from penstock.views.store import open_store
from tests.modes.harness import Lab, rows_of
from tests.modes.kappa.sales import (
    NEW,
    OLD,
    ORDERS,
    Views,
    append,
    generations,
    in_small_steps,
    known_tables,
    sales,
    seen,
    tables,
)
from tests.postgresql import Server

pytestmark = pytest.mark.spark


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


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
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
        reader.join()
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
