"""A step that cannot be right fails, in a batch and in a stream alike, and leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.errors import PenstockError, StepFailed, StepOverflow, TwoRowsForOneKey, ViewsChanged
from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine
from penstock.modes.stream import run_stream
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

LARGEST = 2**63 - 1
EVENTS = "k string, x bigint, n bigint"


def sums(kind: str = "bigint") -> Pipeline:
    app = Pipeline("sums")
    app.topic("events", EVENTS)

    @app.view(key="k")
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("k").agg(sf.sum(sf.col("n").cast(kind)).alias("n"))

    return app


def fails(lab: Lab, run: Callable[[Engine], Any], name: str | None = None) -> PenstockError:
    """How a run over this database fails. Whatever is there, the rows and the fence stay as they were."""
    with lab.engine(name) as (engine, store):
        live = [engine.live(views) for views in engine.sets]
        before = rows_of(engine, store) if all(live) else None
        with pytest.raises(PenstockError) as caught:
            run(engine)
        if before is not None:
            assert rows_of(engine, store) == before
            assert [each.fence for each in map(engine.live, engine.sets) if each] == [e.fence for e in live if e]
        else:  # Perhaps there is a first generation by now; no step of it was stored.
            assert all(each is None or not each.fence.offsets for each in map(engine.live, engine.sets))
    return caught.value


def batch(engine: Engine) -> None:
    run_batch(engine)


def one_step(engine: Engine) -> None:
    run_stream(engine, once=True)


def small_steps(engine: Engine) -> None:
    run_stream(engine, once=True, max_rows=2)


def test_a_sum_that_overflows_fails_alike_in_batch_and_stream_and_stores_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    lab = Lab(tmp_path, sums(), spark)
    lab.append("events", [{"k": "a", "n": LARGEST}, {"k": "b", "n": 1}])
    with lab.engine("live") as (engine, store):
        run_stream(engine, once=True)
        before = rows_of(engine, store)
    assert before == {"totals": [("a", LARGEST), ("b", 1)]}
    lab.append("events", [{"k": "b", "n": 1}, {"k": "a", "n": 1}])

    # Where steps are added up, within one step, in a rebuild beside what is live, and in a new batch.
    ways = [(small_steps, "live"), (one_step, None), (batch, "live"), (batch, None)]
    errors = [fails(lab, run, name) for run, name in ways]
    assert {type(each) for each in errors} == {StepOverflow}
    [text] = {str(each) for each in errors}
    place = lab.pipeline.views["totals"].place
    assert place.file == __file__
    assert f"{place.line}   def totals(events)" in text
    assert [isinstance(each, StepFailed) and each.view for each in errors] == ["totals"] * len(ways)

    with lab.engine("live") as (engine, store):
        assert rows_of(engine, store) == before

    # With room for it, computed anew, the view goes on.
    fixed = sums("decimal(38,0)")
    with lab.engine("live", fixed) as (engine, store):
        with pytest.raises(ViewsChanged):
            run_stream(engine, once=True)
        run_batch(engine)
        lab.append("events", [{"k": "b", "n": 1}])
        run_stream(engine, once=True)
        assert rows_of(engine, store) == {"totals": [("a", 2**63), ("b", 3)]}


def test_of_views_that_are_merged_together_the_one_that_overflows_is_named(tmp_path: Path, spark: SparkSession) -> None:
    app = sums()
    app.view("doubled", key="k", sql="SELECT k, sum(2 * n) AS twice FROM events GROUP BY k")
    app.view("odd", key="k", sql="SELECT k, sum(n % 2) AS odd FROM events GROUP BY k")
    lab = Lab(tmp_path, app, spark)
    lab.append("events", [{"k": "a", "n": LARGEST // 2}, {"k": "b", "n": 1}])
    with lab.engine("live") as (engine, store):
        run_stream(engine, once=True)
        before = rows_of(engine, store)
        lab.append("events", [{"k": "a", "n": 2}])
        with pytest.raises(StepOverflow) as raised:
            run_stream(engine, once=True)
        assert raised.value.view == "doubled"
        assert rows_of(engine, store) == before


def test_a_stream_goes_on_from_its_fence_once_the_sum_fits_again(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, sums(), spark)
    lab.append("events", [{"k": "a", "n": LARGEST}, {"k": "a", "n": 1}])
    with lab.engine("live") as (engine, store):
        with pytest.raises(StepOverflow):
            run_stream(engine, once=True, max_rows=1)
        assert rows_of(engine, store) == {"totals": [("a", LARGEST)]}
        lab.append("events", [{"k": "a", "n": -1}, {"k": "b", "n": 4}])
        steps: list[int] = []
        run_stream(engine, once=True, on_step=lambda report, *_: steps.append(report.rows))
        assert rows_of(engine, store) == {"totals": [("a", LARGEST), ("b", 4)]}
    assert steps == [3]


RANKED = "SELECT x, k, row_number() OVER (PARTITION BY k ORDER BY n) AS place FROM events"
GROWING = [("a", 0, 1), ("b", 0, 2), ("c", 0, 3), ("a", 0, 1)]
ONE_KEY_TWICE = {
    "redone by group": (RANKED, [("a", 1, 1), ("a", 2, 2), ("b", 3, 3), ("b", 3, 4)]),
    "redone by group, one in each of two": (RANKED, [("a", 1, 1), ("a", 2, 2), ("b", 4, 3), ("b", 2, 4)]),
    "whole, over a view": ("SELECT n AS x, k FROM totals ORDER BY n, k LIMIT 9", GROWING),
    "row-wise, over a view": ("SELECT n AS x, k FROM totals", GROWING),
}
"""By how the view `one_each` is kept: its query, and events (k, x, n) of which only the last gives an x twice."""


@pytest.mark.parametrize("case", ONE_KEY_TWICE)
def test_two_rows_for_one_key_fail_alike_in_batch_and_stream_and_nothing_is_stored(
    tmp_path: Path, spark: SparkSession, case: str
) -> None:
    sql, given = ONE_KEY_TWICE[case]
    events = [{"k": k, "x": x, "n": n} for k, x, n in given]
    app = sums()
    if "totals" not in sql:
        del app.views["totals"]
    app.view("one_each", key="x", sql=sql)
    lab = Lab(tmp_path, app, spark)
    assert case.startswith(("row-wise", lab.compiled()[-1].keeping.how)), lab.compiled()[-1].keeping
    lab.append("events", events[:3])
    with lab.engine("live") as (engine, _):
        run_stream(engine, once=True, max_rows=2)
    lab.append("events", events[3:])
    errors = [fails(lab, *way) for way in ((small_steps, "live"), (one_step, None), (batch, "live"), (batch, None))]
    assert len({str(each) for each in errors}) == 1
    for each in errors:
        assert isinstance(each, TwoRowsForOneKey)
        assert (each.view, each.key) == ("one_each", ("x",))
