"""Small plans run in the driver only where they give what Spark's scheduler gives."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.events.schema import parse_ddl, to_spark
from penstock.modes.stream import run_stream
from penstock.plans import collect
from penstock.spark.private import canary, prepared
from penstock.spark.private.prepared import Prepared, quickly
from penstock.spark.private.rows import arrow_schema, from_arrow
from penstock.spark.private.stand_in import stand_in
from penstock.spark.private.task import Turn
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

LARGE = "spark.sql.execution.arrow.useLargeVarTypes"
SCHEMA = to_spark(parse_ddl("k string, url string"))


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session of its own, whose settings can be changed and which has not been asked yet."""
    return spark.newSession()


def ask_twice(spark: SparkSession) -> pa.Table | None:
    """What a small plan gives in the driver; None if Spark's scheduler has to run it."""

    def build(rows: DataFrame) -> DataFrame:
        return rows.groupBy("k").agg(sf.max("url").alias("last"))

    leaf = stand_in(spark, SCHEMA)
    found = Prepared(build(leaf), {"rows": leaf}, lambda frames: build(frames["rows"]))
    rows = pa.Table.from_pylist([{"k": "a", "url": url} for url in ("/1", "/2")], arrow_schema(SCHEMA))
    with Turn() as turn:
        for _ in range(2):
            [table] = quickly([found.ask({"rows": from_arrow(spark, rows, SCHEMA)})], turn)
    return table


@pytest.mark.parametrize("large", ["false", "true"])
def test_a_session_that_gives_the_same_values_is_trusted(session: SparkSession, large: str) -> None:
    session.conf.set(LARGE, large)
    table = ask_twice(session)
    assert table is not None
    assert table.to_pylist() == [{"k": "a", "last": "/2"}]


def test_nothing_runs_in_the_driver_where_it_is_turned_off(session: SparkSession) -> None:
    session.conf.set(canary.SETTING, "off")
    assert ask_twice(session) is None


@pytest.mark.parametrize("kind", ["wrong", "failing", "missing"])
def test_a_session_that_gives_other_values_is_not_trusted(
    session: SparkSession, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = prepared._try_out

    def broken(rows: DataFrame, build: canary.Build) -> pa.Table | None:
        if kind == "failing":
            raise RuntimeError("a private part moved")
        table = real(rows, build)
        assert table is not None
        at = table.schema.get_field_index("text")
        return None if kind == "missing" else table.set_column(at, table.schema.field(at), pa.array([""] * 3))

    monkeypatch.setattr(prepared, "_try_out", broken)
    with caplog.at_level(logging.WARNING):
        assert ask_twice(session) is None
    assert "Spark's scheduler runs every step" in caplog.text
    assert len(caplog.records) == 1


def test_falling_back_is_reported_once(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert ask_twice(session) is not None

    def moved(*_: object) -> None:
        raise RuntimeError("a private part moved")

    monkeypatch.setattr(prepared, "run_together", moved)
    prepared._warn_of_fallback.cache_clear()
    leaf = stand_in(session, SCHEMA)
    rows = pa.Table.from_pylist([{"k": "a"}, {"k": "b"}], arrow_schema(SCHEMA))
    counting = Prepared(leaf.groupBy("k").count(), {"rows": leaf}, lambda frames: frames["rows"].groupBy("k").count())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            [table] = collect.collect([counting.ask({"rows": from_arrow(session, rows, SCHEMA)})])
            assert table.num_rows == 2
    assert [record.message for record in caplog.records if "a private part moved" in record.message] != []
    assert len(caplog.records) == 1


@pytest.fixture
def large_types(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(LARGE, "false")
    spark.conf.set(LARGE, "true")
    yield
    spark.conf.set(LARGE, before or "false")


@pytest.mark.parametrize("is_small", [True, False], ids=["small plans", "Spark's scheduler"])
def test_large_arrow_types_change_no_answer(
    tmp_path: Path, spark: SparkSession, large_types: None, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_small:
        monkeypatch.setattr(prepared, "uses_small_plans", lambda *_: False)
    app = Pipeline("large")
    app.topic("events", "k string, url string, raw binary", partitions=2, key="k")
    app.view("last", key="k", sql="SELECT k, max(url) AS url, max(raw) AS raw FROM events GROUP BY k")
    app.view("seen", key="url", sql="SELECT url, count(*) AS n FROM events GROUP BY url")
    lab = Lab(tmp_path, app, spark)
    with lab.engine() as (engine, store):
        for step in range(3):
            lab.append("events", [{"k": k, "url": f"/{k}/{step}", "raw": f"{step}".encode()} for k in "aab"])
            run_stream(engine, once=True)
        assert rows_of(engine, store) == {
            "last": [("a", "/a/2", b"2"), ("b", "/b/2", b"2")],
            "seen": [(f"/{k}/{step}", n) for k, n in (("a", 2), ("b", 1)) for step in range(3)],
        }
