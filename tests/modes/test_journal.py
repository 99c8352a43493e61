"""A run leaves a journal: how much it did, how fast, and how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import OwnershipLost, StoreUnavailable
from penstock.modes.batch import run_batch
from penstock.modes.replays import run_kappa
from penstock.modes.rounds import run_lambda
from penstock.modes.stream import Stop, run_stream
from penstock.views.runs import Run, ViewSteps, recent
from penstock.views.store import Store
from tests.modes.harness import Lab

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lab:
    app = Pipeline("counts")
    app.topic("events", "k bigint")
    app.view("totals", key="k", sql="SELECT k, count(*) AS c FROM events GROUP BY k")
    app.view("all_of_them", key=[], sql="SELECT count(*) AS c FROM events")
    made = Lab(tmp_path_factory.mktemp("journal"), app, spark)
    made.append("events", [{"k": n % 3} for n in range(30)])
    return made


def runs(store: Store) -> list[Run]:
    with store.snapshot() as snapshot:
        return recent(snapshot.connection)


def test_a_record_that_two_views_read_counts_once(lab: Lab) -> None:
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, max_rows=10)
        [run] = runs(store)
    assert (run.mode, run.state(), run.rows, run.steps) == ("stream", "done", 30, 3)
    assert sum(each.rows for each in run.samples) == 30
    assert run.samples[-1].lag == 0
    assert all(each.seconds > 0 for each in run.samples)


@pytest.mark.parametrize("small_plans", ["auto", "off"])
def test_steps_are_counted_by_where_they_were_computed(tmp_path: Path, spark: SparkSession, small_plans: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.penstock.small_plans", small_plans)
    app = Pipeline("counts")
    app.topic("events", "k bigint")
    app.view("totals", key="k", sql="SELECT k, count(*) AS c FROM events GROUP BY k")
    app.view("first", key=[], kept="whole", sql="SELECT k FROM totals ORDER BY c, k LIMIT 1")
    lab = Lab(tmp_path, app, session)
    lab.append("events", [{"k": n % 3} for n in range(30)])
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, max_rows=10)
        [run] = runs(store)
    in_driver = 3 if small_plans == "auto" else 0
    assert run.views == {"totals": ViewSteps(in_driver, 3 - in_driver), "first": ViewSteps(0, 3)}


def test_each_mode_is_noted_by_its_name(lab: Lab) -> None:
    with lab.engine() as (engine, store):
        run_batch(engine)
        run_lambda(engine, once=True)
        run_kappa(engine, once=True)
        assert [(run.mode, run.state()) for run in runs(store)] == [
            ("kappa", "done"), ("lambda", "done"), ("batch", "done")
        ]  # fmt: skip
        assert runs(store)[-1].rows == 60, "a batch reads the log once for each set of views"


def test_a_stopped_run_and_a_failed_one_say_so(lab: Lab) -> None:
    with lab.engine() as (engine, store):
        stop = Stop()
        run_stream(engine, max_rows=10, stop=stop, on_step=lambda *_: stop())
        assert runs(store)[0].state() == "stopped"

        def fail(*_: object) -> None:
            raise RuntimeError("the watcher fell asleep\nwith more lines")

        with pytest.raises(RuntimeError):
            run_stream(engine, max_rows=10, on_step=fail)
        assert runs(store)[0].state() == "failed: the watcher fell asleep"
        assert runs(store)[0].rows == 20, "what was read before it failed is noted too"


def test_a_running_stream_can_be_watched(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.modes.journal.NOTE_SECONDS", 0.0)
    seen: list[Run] = []
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, max_rows=10, on_step=lambda *_: seen.extend(runs(store)))
    assert [(run.state(), run.rows) for run in seen if run.is_alive()] == [
        ("running", rows) for rows in (0, 0, 10, 10, 20, 20)
    ]


def test_a_run_that_lost_its_pipeline_notes_no_end(lab: Lab) -> None:
    with lab.engine() as (engine, store):

        def lose(*_: object) -> None:
            engine.owner.lose()

        with pytest.raises(OwnershipLost):
            run_stream(engine, max_rows=10, on_step=lose)
        assert runs(store)[0].ended_us is None


def test_an_error_that_no_database_can_hold_is_still_the_one_that_is_raised(lab: Lab) -> None:
    with lab.engine() as (engine, store):

        def fail(*_: object) -> None:
            raise RuntimeError("a file named \udcff\0 was not there")

        with pytest.raises(RuntimeError, match="was not there"):
            run_stream(engine, max_rows=10, on_step=fail)
        assert runs(store)[0].state() == "failed: a file named ? was not there"


def test_a_batch_goes_on_though_its_journal_cannot_be_written(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("views.db", "the database is away")

    with lab.engine() as (engine, store):
        monkeypatch.setattr("penstock.modes.journal.NOTE_SECONDS", 0.0)
        monkeypatch.setattr("penstock.modes.journal.note", away)
        run_batch(engine)
        assert store.query("SELECT c FROM all_of_them")[1] == [(30,)]
