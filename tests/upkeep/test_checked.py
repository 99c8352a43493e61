"""What `check` finds: everything in one go, whatever one view is like."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline, agg
from penstock.plans import keeping
from penstock.plans.fold import fold_of
from penstock.plans.tree import Node
from penstock.upkeep.checked import check_pipeline

pytestmark = pytest.mark.spark


def app() -> Pipeline:
    made = Pipeline("several")
    made.topic("events", "time timestamp, k string, xs array<int>", event_time="time")
    made.view("sound", key="k", sql="SELECT k, count(*) AS n FROM events GROUP BY k")
    return made


def test_one_view_does_not_hide_what_is_wrong_with_the_others(spark: SparkSession) -> None:
    pipeline = app()
    changes = "operation string, before struct<id: bigint>, after struct<id: bigint>"
    pipeline.topic("changes", changes, partitions=2)
    pipeline.table("people", topic="changes", key="id")
    pipeline.view("zipped", sql="SELECT k, arrays_zip(xs, xs) AS z FROM events")
    pipeline.view("lasting", sql="SELECT k, time - TIMESTAMP '2026-01-01' AS since, make_interval(1) AS i FROM events")
    pipeline.view("over_people", sql="SELECT id FROM people")

    @pipeline.view(key="k")
    def texts(events: DataFrame) -> DataFrame:
        return events.groupBy("k").agg(agg.mean(sf.col("k")).alias("mean"))

    views, problems = check_pipeline(pipeline, spark)
    assert [view.name for view in views] == ["sound"]
    found = {each.view or getattr(each, "thing", ""): str(each) for each in problems}
    assert set(found) == {"zipped", "lasting", "texts", "table 'people'"}
    assert "'z' has the type array<struct" in found["zipped"]
    assert "'i' has the type interval" in found["lasting"]
    assert "cannot work on values of type" in found["texts"]


def test_an_error_of_ours_is_a_problem_of_one_view(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = app()
    pipeline.view("odd", key="k", sql="SELECT k, max(xs) AS xs FROM events GROUP BY k")
    read = fold_of

    def fails_for_one(plan: Node, spec: object, *rest: object) -> object:
        assert spec.name != "odd", "never met before"  # type: ignore[attr-defined]
        return read(plan, spec, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(keeping, "fold_of", fails_for_one)
    views, [problem] = check_pipeline(pipeline, spark)
    assert [view.name for view in views] == ["sound"]
    assert problem.view == "odd"
    assert problem.place == pipeline.views["odd"].place
    assert "AssertionError: never met before" in str(problem)
