"""Verify passes what is right and finds what is not, with its line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from penstock import Pipeline, agg
from penstock.errors import NothingRecorded, TopicDiffers, UnknownTopic
from penstock.log.folder_log import FolderLog
from penstock.modes.topics import make_topics
from penstock.spark.private.prepared import Asked, InDriver
from penstock.upkeep.inputs import TopicInput
from penstock.upkeep.step import Step
from penstock.verify.page import page
from penstock.verify.report import Failure, Report
from penstock.verify.verify import verify
from tests.verify.planted import line_of, planted

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

START = datetime(2026, 1, 1, tzinfo=UTC)
STARTED_US = int(START.timestamp()) * 1_000_000


def put(log: FolderLog, topic: str, partition: int, rows: list[dict[str, Any]], arrived_seconds: list[int]) -> None:
    """Adds events to one partition, each arriving so many seconds after the start."""
    target = log.topic(topic)
    stamps = pa.array([STARTED_US + each * 1_000_000 for each in arrived_seconds], pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_pylist(rows, schema=target.schema)
    target.partitions[partition].append(batch, arrived=stamps)


def access(number: int, ip: str, url: str, seconds: int) -> dict[str, Any]:
    return {"time": START + timedelta(seconds=seconds), "ip": ip, "url": url, "n": number}


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Every ip has two early records in partition 1 and a later one in partition 0, which a batch reads first."""
    app = planted()
    with FolderLog(tmp_path_factory.mktemp("planted") / "log", background=False) as log:
        make_topics(app, log)
        ips = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
        early = [access(n, ips[n % 3], f"/{'ab'[n // 3]}", n) for n in range(6)]
        later = [access(n, ips[n % 3], f"/{'cab'[n % 3]}", n) for n in range(6, 12)]
        put(log, "access", 1, early, list(range(6)))
        put(log, "access", 0, later, list(range(6, 12)))
        before = sorted(path.name for path in log.root.rglob("*"))
        found = verify(app, log, spark, cuts=0, seed=7, singles=2, other_environment=False)
        assert sorted(path.name for path in log.root.rglob("*")) == before, "the log was changed"
        return found


def failure(report: Report, view: str) -> Failure:
    [found] = [each for each in report.failures if each.view == view]
    return found


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("chance", "rand()"),
        ("forced_fold", "OVER looks at the rows beside each row"),
        ("merged_users", "merge="),
        ("clock_in_plan", "current_timestamp()"),
        ("clock_in_function", "datetime.now()"),
    ],
)
def test_what_analysis_knows_is_a_failure_without_a_run(report: Report, view: str, words: str) -> None:
    found = failure(report, view)
    assert found.kind == "problem"
    assert words in found.cause
    assert found.cause_place is not None
    assert (Path(found.cause_place.file).name, found.cause_place.line) == ("planted.py", line_of(view))
    assert view not in {line.view for line in report.lines}


@pytest.mark.parametrize(
    ("view", "words", "runs"),
    [
        ("first_url", "first() takes rows in whatever order they come", {"stream, ten steps"}),
        ("shares", "the groups meet", {"stream, ten steps", "stream, single records"}),
        ("clock_in_udf", "two batches differ: the function seconds_ago() uses the clock (time)", {"batch again"}),
    ],
)
def test_what_only_running_shows_is_found_with_its_line(report: Report, view: str, words: str, runs: set[str]) -> None:
    found = failure(report, view)
    assert found.kind == "difference"
    assert words in found.cause
    assert found.cause_place is not None
    assert (Path(found.cause_place.file).name, found.cause_place.line) == ("planted.py", line_of(view))
    assert runs <= {line.run for line in report.lines if line.view == view and not line.agrees}


def test_groups_that_meet_in_one_row_are_named_where_the_step_fails(report: Report) -> None:
    found = failure(report, "users")
    assert found.kind == "error"
    assert "the groups meet" in found.cause
    assert found.cause_place is not None
    assert (Path(found.cause_place.file).name, found.cause_place.line) == ("planted.py", line_of("users"))


def test_right_views_beside_wrong_ones_agree(report: Report) -> None:
    views = {"chance", "forced_fold", "merged_users", "clock_in_plan", "clock_in_function"}
    assert {each.view for each in report.failures} == views | {"first_url", "users", "shares", "clock_in_udf"}
    lines = [line for line in report.lines if line.view in ("right", "right_above")]
    assert len(lines) == 20
    assert all(line.agrees for line in lines)


def test_a_difference_shows_both_rows_and_the_records_behind_them(report: Report) -> None:
    found = failure(report, "shares")
    difference = found.differences[0]
    assert difference.example.expected is not None
    assert difference.example.columns == ("all_hits",)
    url = difference.example.key["url"]
    assert difference.explained is not None
    assert {record.values["url"] for record in difference.explained.records if record.values} == {url}
    of_udf = failure(report, "clock_in_udf").differences[0]
    assert of_udf.explained is not None
    assert of_udf.explained.records_total == 1


def test_the_report_is_text_json_and_html(report: Report) -> None:
    text = report.text()
    assert "9 of 11 views failed" in text
    assert f"planted.py:{line_of('users')}" in text
    assert "seed 7" in text
    assert report.tolerant == ()
    document = json.loads(report.json())
    assert document["agrees"] is False
    assert {each["view"] for each in document["failures"]} == {each.view for each in report.failures}
    html = page(report)
    assert html.count("<table>") == 1
    assert "9 of 11 views failed" in html


def orders_alone() -> Pipeline:
    app = Pipeline("shop")
    app.topic(
        "orders", "time timestamp, id bigint, customer string, amount double", event_time="time", lateness="5 seconds",
        key="customer", partitions=2,
    )  # fmt: skip
    return app


def shop() -> Pipeline:
    app = orders_alone()

    @app.view(key=["window", "customer"], late="drop")
    def punctual(orders: DataFrame) -> DataFrame:
        return orders.groupBy(sf.window("time", "10 seconds"), "customer").agg(sf.sum("amount").alias("amount"))

    @app.view(key="window")
    def customers(orders: DataFrame) -> DataFrame:
        return orders.groupBy(sf.window("time", "10 seconds")).agg(sf.countDistinct("customer").alias("customers"))

    @app.view(key="id", within="customer")
    def gaps(orders: DataFrame) -> DataFrame:
        earlier = Window.partitionBy("customer").orderBy("time", "id")
        return orders.select("id", "customer", (sf.col("amount") - sf.lag("amount").over(earlier)).alias("more"))

    @app.view(key="customer", changelog="balance-changes")
    def balances(orders: DataFrame) -> DataFrame:
        return orders.groupBy("customer").agg(sf.count("*").alias("orders"), agg.mean("amount").alias("mean"))

    @app.view(key="rank")
    def top(balances: DataFrame) -> DataFrame:
        order = Window.orderBy(sf.desc("orders"), "customer")
        return balances.withColumn("rank", sf.row_number().over(order)).filter("rank <= 2").drop("mean")

    return app


@pytest.fixture
def recorded(tmp_path: Path) -> FolderLog:
    log = FolderLog(tmp_path / "log", background=False)
    make_topics(shop(), log)
    for number in range(24):
        late = 20 if number % 5 == 4 else 0
        row = {
            "time": START + timedelta(seconds=number * 2 - late),
            "id": number,
            "customer": [None, "ann", "bob", "eve"][number % 4],
            "amount": 0.1 * number,
        }
        put(log, "orders", number % 2, [row], [number * 2])
    return log


def test_a_right_pipeline_agrees_in_every_run(recorded: FolderLog, spark: SparkSession) -> None:
    found = verify(shop(), recorded, spark, cuts=1, seed=3, rows=20, singles=3)
    assert found.agrees, found.text()
    assert found.records == {"orders": 20}
    assert {line.view for line in found.lines} == {"punctual", "customers", "gaps", "balances", "top"}
    assert {line.comparison.rows > 0 for line in found.lines if line.comparison} == {True}
    assert "punctual" in found.tolerant
    assert "customers" not in found.tolerant
    assert recorded.topics() == ["orders"], "a changelog was published"
    assert "everything agrees: 5 views, 12 runs" in found.text()


def test_an_error_that_all_runs_of_the_engine_share_is_found(
    recorded: FolderLog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = TopicInput.new

    def without_bob(topic: TopicInput, step: Step, view: str) -> DataFrame:
        return real(topic, step, view).filter("coalesce(customer, '') <> 'bob'")

    monkeypatch.setattr(TopicInput, "new", without_bob)
    app = orders_alone()
    app.view("spent", key="customer", sql="SELECT customer, count(*) AS n FROM orders GROUP BY customer")
    found = verify(app, recorded, spark, cuts=0, seed=3, singles=1, other_environment=False)
    [failure] = found.failures
    assert failure.runs == ("plain Spark (1 rows)",)
    assert "plain Spark gives other rows" in failure.cause
    [difference] = failure.differences
    assert difference.example.found == {"customer": "bob", "n": 6}


def test_an_error_of_small_plans_is_named_as_such(
    recorded: FolderLog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as text that the driver decodes wrongly."""

    class Shouting(InDriver):
        def compute(self, asked: Sequence[Asked]) -> list[pa.Table | None]:
            return [found if found is None else _shouted(found) for found in super().compute(asked)]

    monkeypatch.setattr("penstock.plans.collect.small_plans", Shouting)
    app = orders_alone()
    app.view("customers", key="id", sql="SELECT id, customer FROM orders")
    found = verify(app, recorded, spark, cuts=0, seed=3, singles=1, other_environment=False)
    [failure] = found.failures
    assert failure.runs == ("plain Spark (6 rows)", "stream, without small plans (6 rows)")
    assert "steps that run in the driver give other rows than Spark's scheduler does" in failure.cause


def _shouted(table: pa.Table) -> pa.Table:
    texts = [place for place, each in enumerate(table.schema) if each.name == "customer"]
    for place in texts:
        found = pc.replace_substring(table.column(place), "bob", "BOB")
        table = table.set_column(place, table.schema.field(place), found)
    return table


def test_a_view_that_fails_takes_no_other_view_along(
    recorded: FolderLog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised: not only Penstock's own errors."""

    def refuse(number: int) -> int:
        raise ValueError(f"never seen: {number}")

    app = orders_alone()
    app.view("spent", key="customer", sql="SELECT customer, count(*) AS n FROM orders GROUP BY customer")

    @app.view(key="id", on_error="stop")
    def refused(orders: DataFrame) -> DataFrame:
        return orders.select("id", sf.udf(refuse, "int")("id").alias("never"))

    found = verify(app, recorded, spark, cuts=0, seed=3, singles=1, other_environment=False)
    assert {each.view for each in found.failures} == {"refused"}
    assert "never seen" in found.failures[0].cause
    of_right = [line for line in found.lines if line.view == "spent"]
    assert len(of_right) == 10
    assert all(line.agrees and line.comparison for line in of_right)


def test_what_a_view_leaves_out_is_in_the_report(recorded: FolderLog, spark: SparkSession) -> None:
    app = orders_alone()
    app.view("refused", key="id", sql="SELECT id, 1 DIV (id - 3) AS n FROM orders")
    found = verify(app, recorded, spark, cuts=0, seed=3, singles=0, other_environment=False)
    assert found.agrees, found.text()
    assert "view 'refused' leaves out 1, on which its function fails" in found.text()


@pytest.mark.long
def test_a_right_pipeline_agrees_when_it_is_killed(recorded: FolderLog, spark: SparkSession) -> None:
    found = verify(shop(), recorded, spark, cuts=0, seed=3, singles=1, faults=True)
    assert found.agrees, found.text()
    assert {line.view for line in found.lines if line.run == "stream, killed and restarted"} == {*shop().views}
    assert any("killed after" in note for note in found.notes)


def test_a_log_without_records_shows_nothing(tmp_path: Path, spark: SparkSession) -> None:
    log = FolderLog(tmp_path / "log", background=False)
    with pytest.raises(UnknownTopic):
        verify(shop(), log, spark)
    make_topics(shop(), log)
    with pytest.raises(NothingRecorded) as raised:
        verify(shop(), log, spark)
    assert raised.value.topics == ["orders"]


def test_a_topic_that_a_run_would_change_is_left_alone(recorded: FolderLog, spark: SparkSession) -> None:
    recorded.topic("orders").alter(lateness="1 hour")
    with pytest.raises(TopicDiffers) as raised:
        verify(shop(), recorded, spark)
    assert raised.value.setting == "lateness"
    assert recorded.topic("orders").definition.lateness == timedelta(hours=1)


def test_views_of_different_topics_are_compared_each_over_its_own(tmp_path: Path, spark: SparkSession) -> None:
    app = Pipeline("apart")
    app.topic("left", "k string, n bigint")
    app.topic("right", "k string, n bigint")

    @app.view(key="k")
    def of_left(left: DataFrame) -> DataFrame:
        return left.groupBy("k").agg(sf.sum("n").alias("n"))

    @app.view(key="k")
    def of_right(right: DataFrame) -> DataFrame:
        return right.groupBy("k").agg(sf.max("n").alias("n"))

    with FolderLog(tmp_path / "log", background=False) as log:
        for name, topic in make_topics(app, log).items():
            rows = [{"k": "ab"[number % 2], "n": number} for number in range(6 if name == "left" else 9)]
            topic.append(pa.Table.from_pylist(rows, topic.schema))
        found = verify(app, log, spark, cuts=1, seed=1, singles=1, other_environment=False)
    assert found.agrees, found.text()
    assert {line.view for line in found.lines} == {"of_left", "of_right"}
