"""No column of a view has the name of one that Penstock stores beside it: `check` refuses it, with its line."""

from __future__ import annotations

import inspect

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.upkeep.changes import GROUP, KEY
from penstock.upkeep.compiled import is_hidden, try_compile
from penstock.upkeep.fold import COUNT, ROWS, STATE
from penstock.upkeep.fold_rows import CARRIED, DELETED, ORDER
from penstock.upkeep.kept_rows import TIME

pytestmark = pytest.mark.spark

OURS = [KEY, GROUP, TIME, ROWS, COUNT.format("n"), STATE.format("n"), *ORDER.names, *CARRIED, DELETED]


def app() -> Pipeline:
    app = Pipeline("shop")
    app.topic("events", "name string, n bigint")
    return app


def test_every_name_that_is_stored_beside_a_view_is_hidden() -> None:
    assert [name for name in OURS if not is_hidden(name)] == []
    assert not any(is_hidden(name) for name in ["key", "rows", "_total", "count_n", "_x", "_keys"])


@pytest.mark.parametrize("name", ["_count_n", "_KEY", "__deleted"])
def test_check_names_view_column_line_and_what_to_do(spark: SparkSession, name: str) -> None:
    pipeline = app()

    @pipeline.view(key="name")
    def sums(events: DataFrame) -> DataFrame:
        rows = events.groupBy("name")
        return rows.agg(sf.sum("n").alias("n"), sf.max("n").alias("_rows"))

    pipeline.view("named", key="name", sql=f"SELECT name, n AS {name} FROM events")
    done, problems = try_compile(pipeline, spark)
    assert done == ()
    assert [each.view for each in problems] == ["sums", "named"]
    assert "'_rows'" in problems[0].message
    assert "'rows'" in problems[0].hint
    assert problems[0].place.line == inspect.getsourcelines(sums)[1] + 3  # Where it is named.
    assert repr(name) in problems[1].message


def test_a_table_of_changes_may_have_its_own(spark: SparkSession) -> None:
    pipeline = app()
    pipeline.view(
        "sums", key="name", sql="SELECT name, sum(n) AS n FROM events GROUP BY name", changelog="sums.changes"
    )
    pipeline.topic(
        "sums.changes", "key string, operation string, before struct<name: string>, after struct<name: string>"
    )
    pipeline.table("latest", topic="sums.changes", key="name")
    _, problems = try_compile(pipeline, spark)
    assert problems == ()
