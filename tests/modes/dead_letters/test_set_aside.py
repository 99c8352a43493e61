"""A record on which a view's function fails is set aside for that view, in every mode alike, and the run goes on."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, StringType

from penstock import Pipeline
from penstock.errors import StepFailed, StepOverflow, TooManyFailed
from penstock.modes.batch import run_batch
from penstock.modes.running import StepReport
from penstock.modes.stream import run_stream
from penstock.upkeep import aside, slices
from penstock.upkeep.explain import Explainer, asked_row
from penstock.verify.verify import verify
from penstock.views.find import stored_view
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = "name string, x string, n bigint, time timestamp"


@sf.udf(IntegerType())
def parsed(text: str) -> int:
    return int(text)


def shop() -> Pipeline:
    app = Pipeline("shop")
    app.topic("orders", EVENTS, partitions=2, event_time="time")
    app.topic("refunds", EVENTS)

    @app.view(key="name")
    def totals(orders: DataFrame) -> DataFrame:
        return orders.groupBy("name").agg(sf.sum(sf.col("x").cast("int")).alias("x"), sf.count("*").alias("orders"))

    @app.view()
    def called(orders: DataFrame) -> DataFrame:
        return orders.select("name", parsed("x").alias("x"))

    app.view("shares", key="n", sql="SELECT n, 100 DIV n AS share FROM orders")
    app.view(
        "both",
        key="name",
        sql="SELECT name, max(CAST(x AS INT)) AS most "
        "FROM (SELECT * FROM orders UNION ALL SELECT * FROM refunds) GROUP BY name",
    )
    app.view(
        "minutes",
        key="window",
        sql="SELECT window(time, '2 minutes', '1 minute') AS window, sum(100 DIV n) AS n FROM orders GROUP BY 1",
    )
    app.view("counted", key=[], sql="SELECT count(*) AS names, sum(x) AS x FROM totals")
    app.view(
        "unused",
        key="name",
        sql="SELECT name, count(*) AS c FROM (SELECT name, CAST(x AS INT) FROM orders) GROUP BY name",
    )
    return app


def events(count: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"n{number % 3}",
            "x": "?" if number % 4 == 3 else str(number),
            "n": number % 5,
            "time": START + timedelta(minutes=number),
        }
        for number in range(count)
    ]


def letters(lab: Lab, view: str) -> list[tuple[str, int, int]]:
    rows = lab.log.topic(f"{lab.pipeline.name}.{view}.dead").slice().to_pylist()
    raws = [(row["topic"], json.loads(row["raw"])) for row in rows]
    return sorted((topic, raw["_partition"], raw["_offset"]) for topic, raw in raws)


def test_every_mode_sets_the_same_records_aside(tmp_path: Path, spark: SparkSession) -> None:
    app = shop()
    del app.views["shares"]
    lab = Lab(tmp_path, app, spark)
    lab.append("orders", events(8))
    lab.append("refunds", events(4))
    reports: list[StepReport] = []
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, on_step=lambda report, *_: reports.append(report))
        found = rows_of(engine, store)
    assert {row[0]: row[1:] for row in found["unused"]} == {"n0": (3,), "n1": (3,), "n2": (2,)}
    assert sum(row[2] for row in found["totals"]) == 6
    assert found["counted"] == [(3, sum(range(8)) - 3 - 7)]
    assert len(found["called"]) == 6
    assert len(letters(lab, "totals")) == len(letters(lab, "called")) == 2
    assert len(letters(lab, "minutes")) == 2
    assert [topic for topic, *_ in letters(lab, "both")] == ["orders", "orders", "refunds"]
    assert sum(each.unfit for each in reports) == 2 + 2 + 2 + 3
    for other in (lab.batch(), lab.stream(5)):
        assert other == found


def test_a_warning_names_the_view_and_its_dead_letters_once(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path, orders("totals", "counted"), spark)
    lab.append("orders", events(8))
    with lab.engine() as (engine, _):
        run_stream(engine, once=True, max_rows=4)
    [warning] = [each for each in caplog.messages if "dead" in each]
    assert warning.startswith("view 'totals': records that could not be computed, or rows that could not be stored: 1")
    assert "penstock consume shop.totals.dead" in warning


def orders(*names: str) -> Pipeline:
    """Only these views of the shop."""
    app = shop()
    del app.topics["refunds"]
    for name in {*app.views} - {*names}:
        del app.views[name]
    return app


def test_so_it_is_where_spark_reads_the_records(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, orders("totals", "called", "unused"), spark)
    lab.append("orders", events(8))
    by_driver = lab.batch()
    monkeypatch.setattr(slices, "SMALL_ROWS", 2)
    assert lab.batch() == by_driver
    assert sum(row[2] for row in by_driver["totals"]) == 6


def test_lambda_and_kappa_agree_and_a_rebuild_publishes_no_letter_again(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, orders("totals", "counted"), spark)
    lab.append("orders", events(8))
    with lab.engine("live") as (engine, store):
        run_stream(engine, once=True, max_rows=4)
        found = rows_of(engine, store)
        once = letters(lab, "totals")
        assert len(once) == 2
        run_batch(engine)
        assert rows_of(engine, store) == found
        assert letters(lab, "totals") == once
    assert lab.as_lambda(4, cuts=2) == found
    assert lab.as_kappa(4) == found


def test_the_letter_names_record_error_and_line(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, shop(), spark)
    lab.append("orders", [{"name": "a", "x": "seven", "n": 0}])
    with lab.engine() as (engine, _):
        run_stream(engine, once=True)
    line = inspect.getsourcelines(parsed.func)[1] + 2
    expected = {
        "called": ("ValueError: invalid literal for int()", f"{__file__}:{line}   return int(text)"),
        "totals": ("[CAST_INVALID_INPUT] The value 'seven'", "sf.col"),
        "shares": ("[DIVIDE_BY_ZERO]", 'app.view("shares"'),
    }
    for view, (error, place) in expected.items():
        [letter] = lab.log.topic(f"shop.{view}.dead").slice().to_pylist()
        assert letter["topic"] == "orders"
        assert letter["producer"] == f"view {view}"
        assert letter["reason"].startswith(error)
        assert place in letter["reason"], letter["reason"]
        assert f"{Path(__file__).name}:" in letter["reason"]
        raw = json.loads(letter["raw"])
        assert (raw["x"], raw["_offset"]) == ("seven", 0)


def one(sql: str, **options: Any) -> Pipeline:
    app = Pipeline("one", **options)
    app.topic("orders", EVENTS)
    app.view("it", key="name", sql=sql)
    return app


STOPS: dict[str, tuple[Callable[[], Pipeline], str]] = {
    "on_error": (lambda: one("SELECT name, CAST(x AS INT) AS x FROM orders", on_error="stop"), "on_error"),
    "a sum": (lambda: one("SELECT name, sum(9223372036854775800 + n) AS n FROM orders GROUP BY name"), "too large"),
    "redo": (lambda: one("SELECT name, count(DISTINCT CAST(x AS INT)) AS x FROM orders GROUP BY name"), "kept by redo"),
    "no record": (lambda: one("SELECT name, n + 1 DIV 0 AS n FROM orders"), "DIVIDE_BY_ZERO"),
}


@pytest.mark.parametrize("case", STOPS)
def test_what_no_record_explains_stops_the_run(tmp_path: Path, spark: SparkSession, case: str) -> None:
    make, hint = STOPS[case]
    lab = Lab(tmp_path, make(), spark)
    lab.append("orders", [{"name": "a", "x": "1", "n": 1}, {"name": "a", "x": "?", "n": 2}])
    with lab.engine() as (engine, store):
        with pytest.raises(StepFailed, match=hint) as raised:
            run_stream(engine, once=True)
        assert isinstance(raised.value, StepOverflow) == (case == "a sum")
        assert rows_of(engine, store) == {"it": []}


def test_too_many_records_stop_the_run(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "FAILED_MAX", 3)
    lab = Lab(tmp_path, one("SELECT name, CAST(x AS INT) AS x FROM orders"), spark)
    lab.append("orders", [{"name": f"{number}", "x": "?"} for number in range(20)])
    with lab.engine() as (engine, _), pytest.raises(TooManyFailed) as raised:
        run_stream(engine, once=True)
    assert (raised.value.view, raised.value.most) == ("it", 3)


def test_the_letter_holds_what_python_cannot(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, one("SELECT name, 1 DIV n AS n FROM orders"), spark)
    [partition] = lab.topics["orders"].partitions
    far, text = pa.array([2**58], pa.timestamp("us", "UTC")), pa.array([b"\xff"], pa.binary()).view(pa.string())
    batch = pa.record_batch({"name": ["a"], "x": text, "n": [0], "time": far}, lab.topics["orders"].schema)
    partition.append(batch)
    with lab.engine() as (engine, _):
        run_stream(engine, once=True)
    [letter] = lab.log.topic("one.it.dead").slice().to_pylist()
    raw = json.loads(letter["raw"])
    assert raw["x"] == "\\xff"
    assert str(2**58) in raw["time"]


@pytest.mark.parametrize(
    ("raised", "is_data"),
    [
        ("ValueError: no", True),
        ("decimal.InvalidOperation: no", True),
        ("ConnectionRefusedError: no", False),
        ("socket.gaierror: no", False),
        ("urllib.error.HTTPError: HTTP Error 503", False),
        ("requests.exceptions.ConnectTimeout: no", False),
        ("numpy._core._exceptions._ArrayMemoryError: no", False),
        ("psycopg.OperationalError: no", False),
    ],
)
def test_only_errors_of_data_count(raised: str, is_data: bool) -> None:
    stack = 'Traceback (most recent call last):\n  File "app.py", line 3, in parsed\n    return int(text)\n'
    error = PythonException(message=f"{stack}{raised}\n")
    assert aside.is_data_error(error) is is_data


@sf.udf(StringType())
def looked_up(text: str) -> str:
    raise ConnectionRefusedError(f"{text}\nValueError: no")


def test_what_may_pass_sets_nothing_aside(tmp_path: Path, spark: SparkSession) -> None:
    app = Pipeline("one")
    app.topic("orders", EVENTS)

    @app.view(key="name")
    def it(orders: DataFrame) -> DataFrame:
        return orders.select("name", looked_up("x").alias("x"))

    lab = Lab(tmp_path, app, spark)
    lab.append("orders", [{"name": "a", "x": "1"}])
    with lab.engine() as (engine, _), pytest.raises(StepFailed, match="ConnectionRefusedError"):
        run_stream(engine, once=True)


def test_verify_compares_what_is_left_with_plain_spark(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, orders("totals", "counted"), spark)
    lab.append("orders", events(8))
    report = verify(lab.pipeline, lab.log, spark, cuts=0, singles=0, seed=1, other_environment=False)
    assert report.failures == (), report.text()


def test_explain_row_names_only_the_records_that_count(tmp_path: Path, spark: SparkSession) -> None:
    app = Pipeline("one")
    app.topic("orders", EVENTS)
    app.view("it", key="x", sql="SELECT CAST(x AS INT) AS x, sum(100 DIV n) AS n FROM orders GROUP BY 1")
    lab = Lab(tmp_path, app, spark)
    lab.append("orders", [{"x": "1", "n": 1}, {"x": "1", "n": 0}, {"x": "?", "n": 1}, {"x": "1", "n": 2}])
    with lab.engine() as (engine, store):
        run_stream(engine, once=True)
        [view] = lab.compiled()
        generation = engine.live([view])
        assert generation is not None
        with store.snapshot() as snapshot:
            row, key = asked_row(snapshot, stored_view(snapshot, "it"), ["1"])
            found = Explainer(view, generation, snapshot, lab.log, spark).explain(row, key)
    assert [each.offset for each in found.records] == [0, 3]
