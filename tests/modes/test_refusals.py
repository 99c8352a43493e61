"""A run that is refused says what changed, and changes nothing; one that has nothing to protect is not refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import (
    PenstockError,
    ReplayRefused,
    TopicDiffers,
    TwoRowsForOneKey,
    UntilError,
    ViewsChanged,
    ViewTaken,
)
from penstock.events.schema import format_ddl
from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine
from penstock.modes.outlook import outlook
from penstock.modes.replays import run_kappa
from penstock.modes.rounds import run_lambda
from penstock.modes.stream import run_stream
from penstock.pipeline.loading import load_pipeline
from penstock.spark.session_settings import settings_for_now
from penstock.views.store import open_store
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

APP = """
from penstock import Pipeline
from pyspark.sql import functions as F

import rules

app = Pipeline("shop")
app.topic("orders", "k string, n bigint")
app.table("rates", "rates.csv", schema="k string, rate bigint")


@app.view(key="k")
def sums(orders):
    gross = F.udf(lambda n: rules.gross(n), "bigint")
    return orders.groupBy("k").agg(F.sum(gross("n")).alias("n"))


@app.view
def priced(orders, rates):
    return orders.join(rates, "k").select("k", (F.col("n") * F.col("rate")).alias("n"))
"""
RULES = """
TAX = 19


def gross(n):
    return with_tax(n)


def with_tax(n):
    return n + TAX
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pipeline]:
    """The pipeline of these files, loaded anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(rules: str = RULES, rates: str = "k,rate\na,2\n") -> Pipeline:
        (tmp_path / "rules.py").write_text(rules, encoding="utf-8")
        (tmp_path / "rates.csv").write_text(rates, encoding="utf-8")
        (tmp_path / "shop.py").write_text(APP, encoding="utf-8")
        monkeypatch.delitem(sys.modules, "rules", raising=False)
        return load_pipeline(str(tmp_path / "shop.py"))

    return load


def test_a_refusal_says_what_changed(tmp_path: Path, spark: SparkSession, shop: Callable[..., Pipeline]) -> None:
    lab = Lab(tmp_path, shop(), spark)
    lab.append("orders", [{"k": "a", "n": 1}])
    with lab.engine("live") as (engine, store):
        run_stream(engine, once=True)
        before = rows_of(engine, store)
    assert before == {"sums": [("a", 20)], "priced": [("a", 2)]}

    def refused(pipeline: Pipeline) -> dict[str, str]:
        with lab.engine("live", pipeline) as (engine, store):
            with pytest.raises(ViewsChanged) as caught:
                run_stream(engine, once=True)
            assert rows_of(engine, store) == before
        assert all(
            f"view {view!r}, changed: {what}\n" in str(caught.value) for view, what in caught.value.changed.items()
        )
        return caught.value.changed

    assert refused(shop(RULES.replace("n + TAX", "n - TAX"))) == {"sums": "function with_tax in rules.py"}
    assert refused(shop(RULES.replace("19", "16"))) == {"sums": "constant TAX in rules.py"}
    assert refused(shop(rates="k,rate\na,3\n")) == {"priced": "static table rates"}
    zone = "setting spark.sql.session.timeZone: UTC before, Europe/Berlin now"
    with settings_for_now(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        assert refused(shop()) == {"sums": zone, "priced": zone}

    # As it was, also with another comment, it goes on.
    lab.append("orders", [{"k": "a", "n": 2}])
    with lab.engine("live", shop(RULES + "# the end\n")) as (engine, store):
        run_stream(engine, once=True)
        assert rows_of(engine, store) == {"sums": [("a", 41)], "priced": [("a", 2), ("a", 4)]}

    # A batch and a replay take the new table.
    with lab.engine("live", shop(rates="k,rate\na,3\n")) as (engine, store):
        run_kappa(engine, once=True)
        assert rows_of(engine, store)["priced"] == [("a", 3), ("a", 6)]
    with lab.engine("live", shop(rates="k,rate\na,4\n")) as (engine, store):
        run_batch(engine)
        assert rows_of(engine, store)["priced"] == [("a", 4), ("a", 8)]


SIZES = "SELECT n, count(*) AS ks FROM totals GROUP BY n"


def sums(expression: str = "n", columns: str = "k string, n bigint", sizes: str = SIZES, **options: Any) -> Pipeline:
    app = Pipeline("sums")
    app.topic("orders", columns)
    app.view("totals", key="k", sql=f"SELECT k, sum({expression}) AS n FROM orders GROUP BY k", **options)
    app.view("sizes", key="n", sql=sizes)
    return app


def stream(engine: Engine) -> None:
    run_stream(engine, once=True)


def as_lambda(engine: Engine) -> None:
    run_lambda(engine, once=True)


def as_kappa(engine: Engine) -> None:
    run_kappa(engine, once=True)


@pytest.mark.parametrize("corrected", [stream, as_lambda, as_kappa])
def test_where_nothing_is_stored_corrected_code_runs(
    tmp_path: Path, spark: SparkSession, corrected: Callable[[Engine], None]
) -> None:
    lab = Lab(tmp_path, sums(sizes="SELECT 1L AS n, n AS ks FROM totals"), spark)
    lab.append("orders", [{"k": "a", "n": 1}, {"k": "b", "n": 2}])
    with lab.engine("live") as (engine, store), pytest.raises(TwoRowsForOneKey):
        run_stream(engine, once=True)
    with lab.engine("live", sums()) as (engine, store):
        [views] = engine.sets
        found = outlook("sums", engine.sets, store, lab.log)
        assert [(each.would, each.changed, each.behind) for each in found] == [("begin", None, 2)] * 2
        corrected(engine)
        assert rows_of(engine, store) == {"totals": [("a", 1), ("b", 2)], "sizes": [(1, 1), (2, 1)]}
        live = engine.live(views)
        assert live is not None
        # What the failed run left is gone.
        tables = store.query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'totals%'")[1]
        assert len(tables) == len(live.layers)
    with lab.engine("live", sums("2 * n")) as (engine, store), pytest.raises(ViewsChanged):
        run_stream(engine, once=True)


GROWN = "k string, n bigint, tax bigint"


def refuse_stream(engine: Engine) -> None:
    run_stream(engine, once=True)


def refuse_until(engine: Engine) -> None:
    run_batch(engine, until="orders=many")


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (refuse_stream, ViewsChanged),
        (as_lambda, ViewsChanged),
        (refuse_until, UntilError),
    ],
)
def test_a_refused_run_leaves_the_topics_as_they_are(
    tmp_path: Path, spark: SparkSession, run: Callable[[Engine], None], error: type[PenstockError]
) -> None:
    lab = Lab(tmp_path, sums(), spark)
    lab.append("orders", [{"k": "a", "n": 1}])
    with lab.engine("live") as (engine, store):
        run_stream(engine, once=True)
    grown = sums("n + coalesce(tax, 0)", GROWN, changelog="totals.changes")
    grown.topic("refunds", "k string")
    with lab.engine("live", grown) as (engine, store), pytest.raises(error):
        run(engine)
    assert format_ddl(lab.log.topic("orders").schema) == "k string, n bigint"
    assert {"refunds", "totals.changes"}.isdisjoint(lab.log.topics())
    # The old file runs on, and so does the new one once it is taken.
    with lab.engine("live", sums()) as (engine, store):
        run_stream(engine, once=True)
    with lab.engine("live", grown) as (engine, store):
        run_kappa(engine, once=True)
        assert format_ddl(lab.log.topic("orders").schema) == GROWN
        assert rows_of(engine, store)["totals"] == [("a", 1)]


@pytest.mark.parametrize("run", [run_batch, as_kappa])
def test_a_replay_that_would_lose_rows_leaves_the_topics_as_they_are(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, run: Callable[[Engine], Any]
) -> None:
    lab = Lab(tmp_path, sums(), spark)
    lab.append("orders", [{"k": "a", "n": 1}])
    with lab.engine("live") as (engine, _):
        run_stream(engine, once=True)
    monkeypatch.setattr(Engine, "lost", lambda *_: {"orders": 1})
    with lab.engine("live", sums("tax", GROWN)) as (engine, _), pytest.raises(ReplayRefused):
        run(engine)
    assert format_ddl(lab.log.topic("orders").schema) == "k string, n bigint"


def test_a_topic_that_cannot_become_what_is_defined_changes_no_other(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, sums(), spark)
    lab.log.create("refunds", "k string")
    other = sums(columns=GROWN)
    other.topic("refunds", "k int")
    with pytest.raises(TopicDiffers), lab.engine("live", other):
        pass
    assert format_ddl(lab.log.topic("orders").schema) == "k string, n bigint"


def test_one_name_in_two_pipelines_of_a_database_is_refused_in_words(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, sums(), spark)
    lab.append("orders", [{"k": "a", "n": 1}])
    with lab.engine("live") as (engine, _):
        run_stream(engine, once=True)
        sets = engine.sets
    other = sums()
    other.name = "other"
    other.topic("refunds", "k string")
    with pytest.raises(ViewTaken) as taken, lab.engine("live", other):
        pass
    assert (taken.value.name, taken.value.pipeline, taken.value.other) == ("sizes", "other", "sums")
    assert "refunds" not in lab.log.topics()
    with open_store(f"sqlite:{tmp_path / 'live'}.db") as store, pytest.raises(ViewTaken):
        outlook("other", sets, store, lab.log)


def test_of_two_pipelines_that_begin_at_once_the_second_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, sums(), spark)
    other = sums()
    other.name = "other"
    with lab.engine("both") as (first, _), lab.engine("both", other) as (second, _):
        run_stream(first, once=True)
        with pytest.raises(ViewTaken):
            run_stream(second, once=True)
