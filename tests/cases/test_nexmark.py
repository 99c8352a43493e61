"""The 13 Nexmark queries of the cases, as views: the answers that come with them, in batch and in steps of any size."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine
from penstock.modes.stream import run_stream
from penstock.views.store import Store
from tests.cases import nexmark
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

Answers = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def folder(cases: Path) -> Path:
    return cases / "nexmark"


@pytest.fixture(scope="module")
def answers(folder: Path) -> Answers:
    return {name: rows for name, (_, rows) in nexmark.expected(folder).items()}


@pytest.fixture(scope="module")
def lab(folder: Path, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lab:
    made = Lab(tmp_path_factory.mktemp("nexmark"), nexmark.answered(), spark)
    for topic, rows in nexmark.events(folder).items():
        made.append(topic, rows)
    return made


def test_each_query_is_kept_as_cheaply_as_in_the_trials(lab: Lab, answers: Answers) -> None:
    with lab.engine() as (engine, _):
        assert {view.name: view.keeping.how for view in engine.views} == nexmark.HOW
    assert set(nexmark.HOW) == set(answers)


def test_a_batch_gives_the_expected_rows(lab: Lab, folder: Path, answers: Answers) -> None:
    with lab.engine() as (engine, store):
        run_batch(engine)
        assert answered_by(engine, store, folder) == answers


# A step's records are shared out among the topics that a view reads: of 15, a view of bids alone takes 15 bids, and all
# 50 in four steps; one that joins them with auctions takes seven at a time, in eight.
@pytest.mark.parametrize("max_rows", [None, 15, pytest.param(1, marks=pytest.mark.long)])
def test_steps_of_any_size_give_the_expected_rows(
    lab: Lab, folder: Path, answers: Answers, max_rows: int | None
) -> None:
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, max_rows=max_rows)
        assert answered_by(engine, store, folder) == answers


@pytest.mark.long
def test_one_event_at_a_time_in_any_order_gives_the_expected_rows(
    folder: Path, tmp_path: Path, spark: SparkSession, answers: Answers
) -> None:
    """110 steps of one record each, over all three topics mixed."""
    lab = Lab(tmp_path, nexmark.answered(), spark)
    mixed = [(topic, row) for topic, rows in nexmark.events(folder).items() for row in rows]
    Random(1).shuffle(mixed)
    with lab.engine() as (engine, store):
        for topic, row in mixed:
            lab.append(topic, [row])
            run_stream(engine, once=True)
        assert answered_by(engine, store, folder) == answers


def answered_by(engine: Engine, store: Store, folder: Path) -> Answers:
    """What the views hold, in the columns that the answers have: keys may need more."""
    columns = {name: names for name, (names, _) in nexmark.expected(folder).items()}
    stored = rows_of(engine, store)
    found = {}
    for view in engine.views:
        places = [view.shape.columns.names.index(name) for name in columns[view.name]]
        found[view.name] = sorted((tuple(row[place] for place in places) for row in stored[view.name]), key=repr)
    return found
