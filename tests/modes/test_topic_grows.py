"""Another process grows a topic while a run reads it: the run goes on with the columns that it knows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import SchemaOutgrown
from penstock.log.folder_log import FolderLog
from penstock.modes.stream import run_stream
from penstock.upkeep import slices
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

GROWN = "name string, n bigint, x float, note string"


def pipeline() -> Pipeline:
    app = Pipeline("shop")
    app.topic("events", "name string, n int, x float", key="name", partitions=2)
    app.view("sums", key="name", sql="SELECT name, count(*) AS events, sum(n) AS n FROM events GROUP BY name")
    app.view("rows", key="n", sql="SELECT n, name, x FROM events")
    app.view("distinct", key="name", sql="SELECT name, count(DISTINCT n) AS ns FROM events GROUP BY name")
    return app


@pytest.mark.parametrize("small_rows", [20_000, 0], ids=["read by the driver", "read by Spark"])
def test_a_live_stream_goes_on_and_loses_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, small_rows: int
) -> None:
    monkeypatch.setattr(slices, "SMALL_ROWS", small_rows)
    lab = Lab(tmp_path, pipeline(), spark)
    lab.append("events", [{"name": f"n{n % 3}", "n": n, "x": n} for n in range(6)])

    other = FolderLog(tmp_path / "log", background=False).topic("events")

    def grow(*_: object) -> None:
        """As another process does, behind the back of the run."""
        if other.schema_version == 0:
            other.alter(schema=GROWN)
            rows = [{"name": f"n{n % 3}", "n": n, "x": n, "note": "new"} for n in range(6, 9)]
            other.append(pa.Table.from_pylist(rows, schema=other.schema))

    with lab.engine("live") as (engine, store):
        run_stream(engine, once=True, on_step=grow)
        run_stream(engine, once=True)
        streamed = rows_of(engine, store)
    assert sum(row[1] for row in streamed["sums"]) == len(streamed["rows"]) == 9
    assert lab.batch() == streamed  # The old file also begins anew; the topic stays as wide as it is.
    assert lab.log.topic("events").schema.names[-1] == "note"


def test_a_number_that_needs_the_new_room_stops_the_run_and_says_so(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, pipeline(), spark)
    other = FolderLog(tmp_path / "log", background=False).topic("events")
    other.alter(schema=GROWN)
    other.append(pa.Table.from_pylist([{"name": "a", "n": 1 << 40}], schema=other.schema))
    with lab.engine("live") as (engine, _), pytest.raises(SchemaOutgrown) as raised:
        run_stream(engine, once=True)
    assert raised.value.topic == "events"


@pytest.mark.parametrize("small_rows", [20_000, 0], ids=["read by the driver", "read by Spark"])
@pytest.mark.parametrize(
    ("before", "after"),
    [("float", "double"), ("decimal(10,2)", "decimal(12,4)"), ("struct<a: int>", "struct<a: int, b: int>")],
)
def test_a_value_that_would_be_another_one_stops_the_run(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, small_rows: int, before: str, after: str
) -> None:
    monkeypatch.setattr(slices, "SMALL_ROWS", small_rows)
    app = Pipeline("shop")
    app.topic("events", f"name string, x {before}")
    app.view("rows", key="name", sql="SELECT name, x FROM events")
    lab = Lab(tmp_path, app, spark)
    other = FolderLog(tmp_path / "log", background=False).topic("events")
    other.alter(schema=f"name string, x {after}")
    other.append(pa.Table.from_pylist([{"name": "a"}], schema=other.schema))
    with lab.engine("live") as (engine, _), pytest.raises(SchemaOutgrown, match="column 'x' was"):
        run_stream(engine, once=True)
