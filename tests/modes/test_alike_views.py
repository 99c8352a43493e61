"""Views whose rows have the same types are merged and written together, and each holds what it would hold alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline, agg
from penstock.upkeep.changes import Changes
from penstock.upkeep.fold import Folding
from tests.modes.harness import Lab

pytestmark = pytest.mark.spark

EVENTS = [
    {"page": page, "visitor": visitor, "seconds": seconds}
    for page, visitor, seconds in (
        ("/a", "ada", 1.0),
        ("/b", "ada", None),
        (None, "bob", 0.5),
        ("/a", None, -0.0),
        ("/a", "bob", float("nan")),
        ("/b", "ada", 3.0),
        ("/c", "cy", 0.25),
    )
]


def alike() -> Pipeline:
    app = Pipeline("alike")
    app.topic("events", "page string, visitor string, seconds double")
    for name, column in (("pages", "page"), ("visitors", "visitor")):
        sql = f"SELECT {column}, count(*) AS {name}_hits, max(seconds) AS {name}_most FROM events GROUP BY {column}"
        app.view(name, key=column, sql=sql)
    # The same types, other rules; the same rules, another order of the key.
    app.view("least", key="page", sql="SELECT page, count(*) AS n, min(seconds) AS least FROM events GROUP BY page")
    app.view("pairs", key=["page", "visitor"], sql="SELECT page, visitor, count(*) AS n FROM events GROUP BY ALL")
    app.view("turned", key=["visitor", "page"], sql="SELECT page, visitor, count(*) AS n FROM events GROUP BY ALL")

    @app.view(key="page")
    def page_means(events: DataFrame) -> DataFrame:
        return events.groupBy("page").agg(agg.mean("seconds").alias("of_page"))

    @app.view(key="visitor")
    def visitor_means(events: DataFrame) -> DataFrame:
        return events.where(sf.col("page").isNotNull()).groupBy("visitor").agg(agg.mean("seconds").alias("of_visitor"))

    return app


def test_views_that_are_alike_are_merged_together_and_hold_what_a_batch_gives(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[tuple[str, ...]] = []

    def watched(foldings: list[Folding]) -> list[Changes]:
        together.append(tuple(each.keeper.shape.view for each in foldings))
        return settled(foldings)

    settled = Folding.settle
    monkeypatch.setattr(Folding, "settle", staticmethod(watched))
    lab = Lab(tmp_path, alike(), spark)
    lab.append("events", EVENTS)
    expected = lab.batch()
    assert [row for row in expected["pages"] if row[0] == "/a"] == [("/a", 3, "NaN")]
    assert [row for row in expected["visitors"] if row[0] == "bob"] == [("bob", 2, "NaN")]
    together.clear()
    assert [lab.stream(rows) for rows in (1, 2, 5)] == [expected] * 3
    groups = {("pages", "visitors"), ("least",), ("pairs",), ("turned",), ("page_means", "visitor_means")}
    assert {tuple(sorted(each)) for each in together} == groups
