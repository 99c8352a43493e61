"""Of each view some records are taken one by one: of the same group, late ones, whatever the load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.log.folder_log import FolderLog
from penstock.modes.topics import make_topics
from penstock.upkeep.compiled import try_compile
from penstock.verify.cuts import Arrival, Recorded
from penstock.verify.runs import Runner
from penstock.verify.singles import Single, one_by_one, singles
from penstock.verify.verify import BATCH, SINGLE
from tests.verify.test_verify import put

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
RECORDS = 120
COUNT = 12


def pipeline() -> Pipeline:
    app = Pipeline("singles")
    app.topic("orders", "time timestamp, id bigint, customer string", event_time="time", lateness="5 seconds")
    app.topic("visits", "customer string")

    @app.view(key="customer")
    def folded(orders: DataFrame) -> DataFrame:
        return orders.groupBy("customer").agg(sf.count("*").alias("orders"))

    @app.view(key="window")
    def windowed(orders: DataFrame) -> DataFrame:
        return orders.groupBy(sf.window("time", "20 seconds")).agg(sf.countDistinct("customer").alias("customers"))

    @app.view(key="id", within="customer")
    def gaps(orders: DataFrame) -> DataFrame:
        return orders.select("id", sf.lag("id").over(Window.partitionBy("customer").orderBy("id")).alias("before"))

    @app.view(key="visits", kept="whole")
    def twice(visits: DataFrame) -> DataFrame:
        return visits.groupBy("customer").agg(sf.count("*").alias("visits")).groupBy("visits").agg(sf.count("*"))

    return app


@pytest.fixture(scope="module")
def runner(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """No two of the first 50 orders are of one customer, and none of the first 90 is late."""
    app, folder = pipeline(), tmp_path_factory.mktemp("singles")
    with FolderLog(folder / "log", background=False) as log:
        topics = make_topics(app, log)
        rows = [
            {
                "time": START + timedelta(seconds=n - (30 if n > 90 and n % 7 == 0 else 0)),
                "id": n,
                "customer": f"{n % 50}",
            }
            for n in range(RECORDS)
        ]
        put(log, "orders", 0, rows, list(range(RECORDS)))
        put(log, "visits", 0, [{"customer": "ann"}] * 2, [RECORDS] * 2)
        compiled, problems = try_compile(app, spark)
        assert not problems
        found = Runner(app, log, spark, Recorded.of(topics, None), folder, compiled)
        found.batch(BATCH)
        yield found


def chosen(runner: Runner) -> tuple[dict[str, Single], dict[str, list[Arrival]]]:
    """By view, and the orders that it has for itself."""
    order = list(runner.recorded.arriving(RECORDS + 2))
    found, alone = {}, {}
    with runner.results(BATCH) as engine:
        for views in engine.sets:
            single = singles(engine, views, runner.recorded, COUNT)
            ends = [0, *(sum(sum(each.values()) for each in cut.values()) for cut in single.cuts)]
            for view in views:
                found[view.name] = single
                alone[view.name] = [order[end - 1] for before, end in pairwise(ends) if end - before == 1]
    return found, alone


def test_every_view_sees_records_of_one_group_and_a_late_one(runner: Runner) -> None:
    found, alone = chosen(runner)
    for view in ("folded", "gaps", "windowed"):
        assert found[view].records == COUNT
        assert any(each.is_late for each in alone[view]), view
    for view in ("folded", "gaps"):
        assert max(Counter(each.offset % 50 for each in alone[view]).values()) >= 3, view
    assert max(Counter(each.offset // 20 for each in alone["windowed"] if not each.is_late).values()) >= 2
    assert chosen(runner) == (found, alone), "each time the same"


def test_the_report_warns_of_what_was_hardly_covered(runner: Runner) -> None:
    few = one_by_one(runner, SINGLE, BATCH, 1)
    assert not few.errors
    assert "view 'folded' saw 1 of 120 records one by one" in few.note
    enough = one_by_one(runner, f"{SINGLE} again", BATCH, COUNT)
    assert "one by one" in enough.note
    assert "view 'folded' saw" not in enough.note
    assert "one step" not in enough.note
    assert not enough.errors
    assert enough.rows.keys() == {"folded", "gaps", "windowed", "twice"}


def test_the_report_warns_of_a_stream_that_was_one_step(runner: Runner) -> None:
    visited = {"orders": runner.recorded.start["orders"], "visits": runner.recorded.end["visits"]}
    run = runner.stream("stream, two steps", [visited, runner.recorded.end])
    assert "all records in one step, so nothing met what was there before: " in run.note
    assert {*run.note.rpartition(": ")[2].split(", ")} == {"folded", "windowed", "gaps", "twice"}


def test_where_groups_cannot_be_told_the_first_records_are_taken(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no plan")

    monkeypatch.setattr("penstock.upkeep.explain.Explainer.groups", fails)
    found, alone = chosen(runner)
    assert found["folded"].records == COUNT
    assert any(each.is_late for each in alone["folded"])
