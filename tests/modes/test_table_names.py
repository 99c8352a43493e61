"""Every table of every view has a name of its own, in both databases, whatever views and topics are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import DefinitionError
from penstock.modes.stream import run_stream
from penstock.views.catalog import Catalog
from tests.modes.harness import Lab, rows_of
from tests.views.conftest import url

__all__ = ["url"]

pytestmark = pytest.mark.spark

LONG = "x" * 62


def named_alike() -> Pipeline:
    """Views whose names differ at the end alone, or read alike once the name of an input is added to them."""
    app = Pipeline("alike")
    app.topic("b", "k string, n bigint")
    app.view("_b", key="k", sql="SELECT k, max(n) AS n FROM b GROUP BY k")
    app.view("a", key="k", within="k", sql="SELECT k, count(DISTINCT n) AS c FROM _b GROUP BY k")
    app.view("a_", key="k", within="k", sql="SELECT k, count(DISTINCT n) AS c FROM b GROUP BY k")
    for last in "yz":
        app.view(LONG + last, key="k", within="k", sql="SELECT k, count(DISTINCT n) AS c FROM b GROUP BY k")
    return app


def test_views_and_inputs_that_are_named_alike_share_no_table(tmp_path: Path, spark: SparkSession, url: str) -> None:
    lab = Lab(tmp_path, named_alike(), spark)
    lab.append("b", [{"k": "v", "n": 1}, {"k": "v", "n": 2}, {"k": "w", "n": 3}])
    with lab.engine(url=url) as (engine, store):
        run_stream(engine, once=True, max_rows=1)
        counts = [("v", 2), ("w", 1)]
        highest = [("v", 2), ("w", 3)]
        assert rows_of(engine, store) == {
            "_b": highest, "a": [("v", 1), ("w", 1)], "a_": counts, LONG + "y": counts, LONG + "z": counts,
        }  # fmt: skip
        with store.snapshot() as snapshot:
            tables = [name for each in Catalog(snapshot.connection).generations() for name in each.tables]
        assert len(tables) == len({*tables}) == 9
        assert max(map(len, tables)) <= 63


@pytest.mark.parametrize("name", ["a__b", "a__1", "_penstock_owner", "a___b"])
def test_a_name_like_a_table_of_penstock_is_refused(name: str) -> None:
    app = Pipeline("alike")
    app.topic("b", "k string")
    with pytest.raises(DefinitionError):
        app.view(name, key="k", sql="SELECT k FROM b")
