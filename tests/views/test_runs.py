"""Runs are remembered: who, how, since when, and how they ended."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from penstock.views import runs
from penstock.views.runs import Run, Sample, ViewSteps
from penstock.views.store import Store

SECOND = 1_000_000


def begun(store: Store, mode: str = "stream", pipeline: str = "shop") -> Run:
    """A run whose owner has let go again."""
    with store.own(pipeline) as owner, store.transaction(owner) as tx:
        return runs.begin(tx.connection, owner, mode)


def known(store: Store, pipeline: str | None = None, limit: int = 20) -> list[Run]:
    with store.snapshot() as snapshot:
        return runs.recent(snapshot.connection, pipeline=pipeline, limit=limit)


def test_a_run_that_owns_its_pipeline_is_alive(store: Store) -> None:
    with store.own("shop") as owner:
        with store.transaction(owner) as tx:
            made = runs.begin(tx.connection, owner, "stream")
        [run] = known(store)
        assert run.is_alive(run.seen_us + SECOND)
        assert run.state(run.seen_us + SECOND) == "running"
        assert (run.pipeline, run.epoch, run.mode, run.pid) == ("shop", made.epoch, "stream", owner.pid)
        assert not run.is_alive(run.seen_us + 3600 * SECOND), "no sign of life for an hour"


def test_a_run_is_alive_for_a_reader_whose_clock_is_hours_ahead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.own("shop") as owner:
        with store.transaction(owner) as tx:
            runs.begin(tx.connection, owner, "stream")
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + 2 * 3600 * 1_000_000_000)
        [run] = known(store)
        assert run.state() == "running"


def test_a_run_that_let_go_without_a_word_was_killed(store: Store) -> None:
    begun(store)
    [run] = known(store)
    assert run.state() == "killed"
    assert run.ended_us is None


def test_what_a_run_notes_is_there_for_others(store: Store) -> None:
    samples = (Sample(1 * SECOND, 10, 2, 0.25, 1, 0, 5), Sample(2 * SECOND, 20, 1, 0.125, 0, 3, 0))
    run = replace(begun(store), rows=30, steps=3, samples=samples)
    with store.transaction(None) as tx:
        runs.note(tx.connection, run)
        runs.end(tx.connection, run, "done")
    [found] = known(store)
    assert (found.rows, found.steps, found.samples) == (30, 3, samples)
    assert found.state() == "done"
    assert found.ended_us is not None
    assert found.ended_us >= found.started_us


def test_a_run_says_how_the_steps_of_its_views_were_computed(store: Store) -> None:
    with store.own("shop") as owner:
        with store.transaction(owner) as tx:
            first = runs.begin(tx.connection, owner, "stream")
            for steps in (ViewSteps(3, 1), ViewSteps(7, 1)):
                runs.note(tx.connection, replace(first, views={"hits": steps}))
        with store.transaction(owner) as tx:
            again = runs.begin(tx.connection, owner, "stream")
    assert again.views == {"hits": ViewSteps(in_driver=7, by_spark=1)}
    assert [run.views for run in known(store)] == [again.views]


def test_the_same_owner_goes_on_with_its_run(store: Store) -> None:
    with store.own("shop") as owner:
        with store.transaction(owner) as tx:
            first = runs.begin(tx.connection, owner, "batch")
            runs.note(tx.connection, replace(first, rows=7, steps=1))
            runs.end(tx.connection, first, "done")
        with store.transaction(owner) as tx:
            again = runs.begin(tx.connection, owner, "batch")
    assert (again.rows, again.steps) == (7, 1)
    assert len(known(store)) == 1


def test_runs_come_newest_first_and_of_one_pipeline_if_asked(store: Store) -> None:
    for pipeline in ("shop", "web", "shop"):
        begun(store, pipeline=pipeline)
    assert [run.pipeline for run in known(store)] == ["shop", "web", "shop"]
    assert [run.epoch for run in known(store, "shop")] == [2, 1]
    assert len(known(store, limit=1)) == 1


def test_old_runs_are_forgotten(store: Store) -> None:
    for _ in range(3):
        begun(store)
    with store.own("shop") as owner, store.transaction(owner) as tx:
        owner.epoch += runs.RUNS_MAX  # As if there had been so many more.
        made = runs.begin(tx.connection, owner, "stream")
        runs.note(tx.connection, replace(made, views={"hits": ViewSteps(1, 0)}))
    assert [run.epoch for run in known(store)] == [4 + runs.RUNS_MAX]
