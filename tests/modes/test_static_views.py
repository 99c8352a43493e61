"""Views that read nothing but static tables are computed once, in every mode."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.modes.batch import run_batch
from penstock.modes.replays import run_kappa
from penstock.modes.rounds import run_lambda
from penstock.modes.stream import run_stream
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

ROWS = {"sums": [("a", 4), ("b", 2)], "total": [(6,)]}


@pytest.fixture
def lab(tmp_path: Path, spark: SparkSession) -> Lab:
    (tmp_path / "codes.csv").write_text("code,n\na,1\nb,2\na,3\n")
    app = Pipeline("static")
    app.table("codes", str(tmp_path / "codes.csv"), schema="code string, n bigint")
    app.view("sums", key="code", sql="SELECT code, sum(n) AS n FROM codes GROUP BY code")
    app.view("total", key=[], sql="SELECT sum(n) AS n FROM sums")
    return Lab(tmp_path, app, spark)


def test_a_batch_ends(lab: Lab) -> None:
    assert lab.batch() == ROWS


@pytest.mark.parametrize("run", [run_stream, run_lambda, run_kappa])
def test_a_run_that_goes_up_to_now_ends_and_another_one_adds_nothing(lab: Lab, run: object) -> None:
    with lab.engine(name="views") as (engine, store):
        for _ in range(3):
            run(engine, once=True)  # type: ignore[operator]
            assert rows_of(engine, store) == ROWS


def test_a_batch_and_a_stream_take_turns(lab: Lab) -> None:
    with lab.engine(name="views") as (engine, store):
        run_batch(engine)
        run_stream(engine, once=True)
        run_batch(engine)
        assert rows_of(engine, store) == ROWS
