"""A row that the database cannot hold stops nobody: it goes to the dead letters, and nobody counts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.errors import ValueUnfit
from penstock.modes.batch import run_batch
from penstock.modes.stream import run_stream
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

YEAR_12000_US = 316_537_897_600_000_000


def moments() -> Pipeline:
    app = Pipeline("moments")
    app.topic("events", "id bigint, us bigint")

    @app.view(key="id")
    def times(events: DataFrame) -> DataFrame:
        return events.select("id", sf.timestamp_micros("us").alias("time"))

    @app.view(key=[])
    def count(times: DataFrame) -> DataFrame:
        return times.agg(sf.count("*").alias("times"))

    return app


def test_it_is_a_dead_letter_and_views_over_it_do_not_count_it(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, moments(), spark)
    lab.append("events", [{"id": 1, "us": 0}, {"id": 2, "us": YEAR_12000_US}, {"id": 3, "us": 5}])
    lab.append("events", [{"id": 3, "us": YEAR_12000_US}, {"id": 4, "us": 7}])
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, max_rows=3)
        found = rows_of(engine, store)
    assert [row[0] for row in found["times"]] == [1, 4]
    assert found["count"] == [(2,)]
    letters = lab.log.topic("moments.times.dead").slice().to_pylist()
    assert [json.loads(each["raw"])["id"] for each in letters] == [2, 3]
    assert {each["column"] for each in letters} == {"time"}


def latest() -> Pipeline:
    app = Pipeline("latest")
    app.topic("events", "id bigint, us bigint")

    @app.view(key="id")
    def last(events: DataFrame) -> DataFrame:
        return events.groupBy("id").agg(sf.count("*").alias("events"), sf.max(sf.timestamp_micros("us")).alias("time"))

    @app.view(key="time")
    def times(events: DataFrame) -> DataFrame:
        return events.groupBy(sf.timestamp_micros("us").alias("time")).agg(sf.count("*").alias("events"))

    return app


def test_a_fold_does_not_forget_what_it_counted_beside_it(tmp_path: Path, spark: SparkSession) -> None:
    """In a batch as in a stream: the step fails, the view stays as of the step before, and the other view goes on."""
    lab = Lab(tmp_path, latest(), spark)
    lab.append("events", [{"id": 3, "us": 5}])
    lab.append("events", [{"id": 3, "us": YEAR_12000_US}])
    with lab.engine() as (engine, store):
        with pytest.raises(ValueUnfit, match=r"'last'.*'time'"):
            run_stream(engine, once=True, max_rows=1)
        assert [(row[0], row[1]) for row in rows_of(engine, store)["last"]] == [(3, 1)]
        with pytest.raises(ValueUnfit):
            run_batch(engine)


def test_a_key_that_does_not_fit_is_a_dead_letter_of_a_fold(tmp_path: Path, spark: SparkSession) -> None:
    app = latest()
    del app.views["last"]
    lab = Lab(tmp_path, app, spark)
    lab.append("events", [{"id": 3, "us": 5}, {"id": 3, "us": YEAR_12000_US}])
    lab.append("events", [{"id": 3, "us": YEAR_12000_US}, {"id": 4, "us": 5}])
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, max_rows=2)
        assert [row[1] for row in rows_of(engine, store)["times"]] == [2]
    assert lab.log.topic("latest.times.dead").slice().num_rows == 2
