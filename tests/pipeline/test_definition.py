from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Pipeline
from penstock.errors import NotADataFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def app() -> Pipeline:
    app = Pipeline("app")
    app.topic("access", "ip string")
    return app


@pytest.mark.parametrize(
    ("returned", "found", "hint"),
    [(None, "found None", "did you forget `return`?"), ([1], "found a list", "without collecting")],
)
def test_a_function_that_returns_no_dataframe_is_named(app: Pipeline, returned: Any, found: str, hint: str) -> None:
    @app.view(name="renamed")
    def hits(access: Any) -> Any:
        return returned

    with pytest.raises(NotADataFrame) as caught:
        app.views["renamed"].build({"access": object()})  # type: ignore[dict-item]
    assert caught.value.returned == returned
    assert caught.value.view == "renamed"
    for text in ("view 'renamed'", "hits() returns a DataFrame", found, hint, str(app.views["renamed"].place)):
        assert text in str(caught.value)


@pytest.mark.spark
def test_a_view_is_built_by_the_names_of_its_parameters(app: Pipeline, spark: SparkSession) -> None:
    @app.view
    def joined(second: DataFrame, *, first: DataFrame) -> DataFrame:
        return first.crossJoin(second)

    frames = {name: spark.createDataFrame([(name,)], f"{name} string") for name in ("first", "second", "third")}
    assert app.views["joined"].build(frames).columns == ["first", "second"]


@pytest.mark.spark
def test_sql_is_built_over_frames_and_leaves_no_names_behind(app: Pipeline, spark: SparkSession) -> None:
    before = names_in(spark)
    total = app.view("total", sql="WITH a AS (SELECT * FROM Access) SELECT sum(n) AS total FROM a")

    def built(n: int) -> list[Any]:
        return total.build({"access": spark.createDataFrame([(n,), (1,)], "n int")}).collect()

    with ThreadPoolExecutor(4) as pool:
        assert [rows[0]["total"] for rows in pool.map(built, range(8))] == [n + 1 for n in range(8)]
    assert names_in(spark) == before


@pytest.mark.spark
def test_sql_that_is_wrong_leaves_no_names_behind_either(app: Pipeline, spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    before = names_in(spark)
    wrong = app.view("wrong", sql="SELECT nothing FROM access")
    with pytest.raises(AnalysisException, match="nothing"):
        wrong.build({"access": spark.range(1)})
    assert names_in(spark) == before


def names_in(spark: SparkSession) -> list[str]:
    """The names of all tables and temporary views; other tests of this process may have left some."""
    return sorted(table.name for table in spark.catalog.listTables())
