"""What retention removed from the log: views go on being exact, and nobody computes them anew by accident."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import KeptRowsLost, ReplayRefused
from penstock.modes.batch import run_batch
from penstock.modes.stream import run_stream
from tests.modes.harness import Lab, Rows, rows_of

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FIRST = [(0, "a", 1), (20, "b", 2), (70, "a", 4)]
"""Minutes after noon, who, and how much: these are removed."""
SECOND = [(30, "b", 8), (50, "c", 16), (80, "a", 32)]
LATE = [(10, "d", 64), (40, "a", 128)]


def visits() -> Pipeline:
    app = Pipeline("visits")
    app.topic("events", "time timestamp, k string, n bigint", event_time="time", lateness="5 minutes")
    hours = "FROM events GROUP BY window(time, '1 hour')"
    app.view("folded", key="window", sql=f"SELECT window, count(*) AS c, sum(n) AS n {hours}")
    app.view("redone", key="window", sql=f"SELECT window, count(DISTINCT k) AS k, avg(n) AS n {hours}")
    app.view("by_who", key="k", sql="SELECT k, count(DISTINCT n) AS c, max_by(n, time) AS last FROM events GROUP BY k")
    return app


KEPT = {"folded": "fold", "redone": "redo", "by_who": "redo"}
NOON_HOUR, NEXT_HOUR = (NOON, NOON + HOUR), (NOON + HOUR, NOON + 2 * HOUR)
BEFORE: Rows = {
    "folded": [(NOON_HOUR, 4, 27), (NEXT_HOUR, 2, 36)],
    "redone": [(NOON_HOUR, 3, 6.75), (NEXT_HOUR, 1, 18.0)],
    "by_who": [("a", 3, 32), ("b", 2, 8), ("c", 1, 16)],
}
AFTER: Rows = {
    "folded": [(NOON_HOUR, 6, 219), (NEXT_HOUR, 2, 36)],
    "redone": [(NOON_HOUR, 4, 36.5), (NEXT_HOUR, 1, 18.0)],
    "by_who": [("a", 4, 32), ("b", 2, 8), ("c", 1, 16), ("d", 1, 64)],
}


def append(lab: Lab, events: list[tuple[int, str, int]]) -> None:
    lab.append("events", [{"time": NOON + timedelta(minutes=m), "k": k, "n": n} for m, k, n in events])


def remove_first(lab: Lab) -> None:
    """Retention takes away all that is sealed, which is what came first."""
    topic = lab.topics["events"]
    topic.alter(retention_bytes=1)
    assert [each.records for each in topic.retain()] == [len(FIRST)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lab:
    """Two databases over one log: `stream`, which came here in steps, and `batch`; then the first events are gone."""
    made = Lab(tmp_path_factory.mktemp("retention"), visits(), spark)
    assert {view.name: view.keeping.how for view in made.compiled()} == KEPT
    append(made, FIRST)
    made.topics["events"].seal(active=True)
    append(made, SECOND)
    with made.engine("stream") as (engine, store):
        run_stream(engine, once=True, max_rows=4)
        assert rows_of(engine, store) == BEFORE
    with made.engine("batch") as (engine, store):
        run_batch(engine)
        assert rows_of(engine, store) == BEFORE
    remove_first(made)
    append(made, LATE)
    return made


def test_a_late_event_corrects_a_window_of_which_half_is_gone_from_the_log(lab: Lab) -> None:
    with lab.engine("stream") as (engine, store):
        run_stream(engine, once=True)
        assert rows_of(engine, store) == AFTER


def test_computing_anew_is_refused_with_what_would_be_lost(lab: Lab) -> None:
    with lab.engine("stream") as (engine, store):
        before = rows_of(engine, store)
        for views in engine.sets:
            with pytest.raises(ReplayRefused) as caught:
                run_batch(engine, sets=[views])
            assert caught.value.lost == {"events": len(FIRST)}
            assert caught.value.views == [view.name for view in views]
            assert "3 of topic 'events'" in str(caught.value)
            assert "--allow-loss" in str(caught.value)
        assert rows_of(engine, store) == before


def test_a_batch_that_kept_no_rows_cannot_go_on_as_a_stream_and_says_so(lab: Lab) -> None:
    with lab.engine("batch") as (engine, store):
        with pytest.raises(KeptRowsLost) as caught:
            run_stream(engine, once=True)
        assert caught.value.topic == "events"
        assert "--allow-loss" in str(caught.value)
        assert rows_of(engine, store) == BEFORE
        run_batch(engine, allow_loss=True)
        left = rows_of(engine, store)
        assert left["folded"] == [(NOON_HOUR, 4, 216), (NEXT_HOUR, 1, 32)]
        append(lab, [(90, "a", 1)])
        run_stream(engine, once=True)
        assert rows_of(engine, store)["redone"] == [(NOON_HOUR, 4, 54.0), (NEXT_HOUR, 1, 16.5)]
