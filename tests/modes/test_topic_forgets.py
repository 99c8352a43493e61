"""Views over topics that remove records which the views go on counting are refused, in every mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import TopicForgets
from penstock.modes.batch import run_batch
from penstock.modes.stream import run_stream
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark


def make_lab(folder: Path, spark: SparkSession, **options: Any) -> Lab:
    app = Pipeline("people")
    app.topic("people", "id string, team string", key="id")
    app.table("newest", topic="people", key="id")
    app.view("teams", key="team", sql="SELECT team, count(*) AS n FROM newest GROUP BY team")
    if options:
        app.view("changes", key="team", **options)
    lab = Lab(folder, app, spark)
    lab.append("people", [{"id": key, "team": team} for key, team in ("ax", "bx", "ay")])
    return lab


def compact(lab: Lab) -> None:
    topic = lab.topics["people"]
    topic.alter(compact=True)
    topic.seal(active=True)


@pytest.mark.parametrize("run", [run_stream, run_batch])
def test_a_view_that_counts_the_records_of_a_compacted_topic_is_refused(
    tmp_path: Path, spark: SparkSession, run: Any
) -> None:
    lab = make_lab(tmp_path, spark, sql="SELECT team, count(*) AS n FROM people GROUP BY team")
    compact(lab)
    with lab.engine() as (engine, _), pytest.raises(TopicForgets, match=r"app.table\(..., topic=\"people\"\)") as found:
        run(engine, until=None)
    assert (found.value.view, found.value.topic) == ("changes", "people")


def test_the_newest_rows_of_a_compacted_topic_are_a_table_like_any_other(tmp_path: Path, spark: SparkSession) -> None:
    lab = make_lab(tmp_path, spark)
    with lab.engine("views") as (engine, store):
        run_stream(engine, once=True)
        before = rows_of(engine, store)
    compact(lab)
    with lab.engine("views") as (engine, store):
        run_stream(engine, once=True)
        assert rows_of(engine, store) == before
    assert lab.batch() == before
    assert before["teams"] == [("x", 1), ("y", 1)]


def test_a_view_computed_as_a_whole_is_refused_over_a_topic_with_retention(tmp_path: Path, spark: SparkSession) -> None:
    lab = make_lab(tmp_path, spark, kept="whole", sql="SELECT team, count(DISTINCT id) AS n FROM people GROUP BY team")
    with lab.engine() as (engine, _):
        run_stream(engine, once=True)
    lab.topics["people"].alter(retention_age="1 day")
    with lab.engine() as (engine, _), pytest.raises(TopicForgets, match="rows would disappear"):
        run_stream(engine, once=True)
