"""Python functions that see more than one row: whichever rows a step brings, they are shown what a batch shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DoubleType

from penstock import Pipeline
from penstock.errors import PipelineProblems
from penstock.upkeep.compiled import compile_pipeline
from tests.modes.harness import Lab

pytestmark = pytest.mark.spark


@pandas_udf(DoubleType())  # type: ignore[call-overload, untyped-decorator]
def ranked(values: pd.Series) -> pd.Series:
    return values.rank()


def deviations(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"id": rows.id, "k": rows.k, "x": rows.x - rows.x.mean(), "place": rows.x.rank()})


def renamed(batches: Any) -> Any:
    for batch in batches:
        yield batch.assign(x=batch.x.rank())


def begun() -> Pipeline:
    app = Pipeline("looking")
    app.topic("events", "id bigint, k string, x double", key="k", partitions=2)
    return app


def test_a_function_of_a_batch_is_refused_over_a_topic_and_over_a_view(spark: SparkSession) -> None:
    app = begun()

    @app.view(key="id")
    def of_topic(events: DataFrame) -> DataFrame:
        return events.select("id", ranked("x").alias("x"))

    @app.view(key="id")
    def latest(events: DataFrame) -> DataFrame:
        return events.select("id", "k", "x")

    @app.view(key="id")
    def of_view(latest: DataFrame) -> DataFrame:
        return latest.select("id", ranked("x").alias("x"))

    @app.view(key="id")
    def of_view_by_map(latest: DataFrame) -> DataFrame:
        return latest.select("id", "x").mapInPandas(renamed, "id bigint, x double")

    with pytest.raises(PipelineProblems) as caught:
        compile_pipeline(app, spark)
    found = {each.view: (each.message, each.hint, each.place.text) for each in caught.value.problems}
    assert sorted(found) == ["of_topic", "of_view", "of_view_by_map"]
    assert "ranked() is a pandas or Arrow UDF, which sees a batch" in found["of_topic"][0]
    assert "ranked() sees a batch of rows at once" in found["of_view"][0]
    assert "mapInPandas sees a batch of rows at once" in found["of_view_by_map"][0]
    assert all('kept="whole"' in hint for _, hint, _ in found.values())
    assert found["of_view"][2] == "def of_view(latest)"


def test_a_function_of_a_group_gives_in_steps_what_a_batch_gives(tmp_path: Path, spark: SparkSession) -> None:
    app = begun()

    @app.view(key="id")
    def of_groups(events: DataFrame) -> DataFrame:
        return events.groupBy("k").applyInPandas(deviations, "id bigint, k string, x double, place double")

    lab = Lab(tmp_path, app, spark)
    assert [view.keeping.how for view in lab.compiled()] == ["redo"]
    lab.append("events", [{"id": n, "k": "abc"[n % 3], "x": float(n * n % 7)} for n in range(12)])
    expected = lab.batch()
    assert expected["of_groups"][0] == (0, "a", -1.75, 1.0)
    assert lab.stream(5) == expected
