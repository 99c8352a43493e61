"""Late events and corrected rows are counted exactly: those of each step, and those of the view."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.modes.batch import run_batch
from penstock.modes.running import StepReport
from penstock.modes.stream import run_stream
from penstock.views.catalog import Counters
from tests.cli.commands import run
from tests.modes.harness import Lab, Rows, rows_of

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EVENTS = [
    # Minutes after noon when it happened and when it arrived, and who.
    (0, 0, "a"),
    (40, 50, "a"),  # As late as is allowed.
    (59, 65, "b"),
    (5, 80, "a"),  # Late, but the clock of the views, 13:05, had not closed the hour yet.
    (70, 80, "a"),
    (10, 80, "b"),  # Late, and the hour is closed: corrected.
    (None, 90, "c"),  # Without a time nothing is late.
    (50, 129, "c"),  # Late, and takes the hour out of `few`, which has less than six.
    (100, 131, "a"),  # Late, in an hour that is not closed yet.
    (110, 132, "a"),  # Late, in the same hour, now closed.
]
LATE = {3, 5, 7, 8, 9}


def hours() -> Pipeline:
    app = Pipeline("hours")
    app.topic("events", "time timestamp, k string", event_time="time", lateness="10 minutes")
    counts = "SELECT window(time, '1 hour') AS window, count(*) AS c FROM events GROUP BY 1"
    app.view("corrects", key="window", sql=counts)
    app.view("drops", key="window", late="drop", sql=counts)
    app.view("few", key="window", sql=f"{counts} HAVING c < 6")
    app.view("drops_few", key="window", late="drop", sql=f"{counts} HAVING c < 6")
    app.view("over", key="window", sql="SELECT window, -c AS c FROM corrects")
    return app


FIRST, SECOND = (NOON, NOON + timedelta(hours=1)), (NOON + timedelta(hours=1), NOON + timedelta(hours=2))
ROWS: Rows = {
    "corrects": [(FIRST, 6), (SECOND, 3)],
    "drops": [(FIRST, 3), (SECOND, 1)],
    "few": [(SECOND, 3)],
    "drops_few": [(FIRST, 3), (SECOND, 1)],
    "over": [(FIRST, -6), (SECOND, -3)],
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lab:
    made = Lab(tmp_path_factory.mktemp("late"), hours(), spark)
    rows = [{"time": None if at is None else NOON + timedelta(minutes=at), "k": k} for at, _, k in EVENTS]
    start = int(NOON.timestamp()) * 1_000_000
    made.append("events", rows, [start + arrived * 60_000_000 for _, arrived, _ in EVENTS])
    return made


def stream(lab: Lab, max_rows: int) -> tuple[Mapping[str, Counters], list[StepReport]]:
    reports: list[StepReport] = []
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, max_rows=max_rows, on_step=lambda report, *_: reports.append(report))
        assert rows_of(engine, store) == ROWS
        live = [engine.live(views) for views in engine.sets]
        return {name: each for one in live if one for name, each in one.counters.items()}, reports


def steps_with(reports: list[StepReport], what: str, view: str) -> list[int]:
    """The numbers of the steps, each of one record, in which a view counted something."""
    of_view = [report for report in reports if view in report.late]
    assert all(getattr(report, what)[view] in (0, 1) for report in of_view)
    return [number for number, report in enumerate(of_view) if getattr(report, what)[view]]


def test_each_late_event_and_each_row_changed_after_its_window_closed_is_counted(lab: Lab) -> None:
    counters, reports = stream(lab, 1)
    assert counters == {
        "corrects": Counters(2, late=5, corrected=3),
        "drops": Counters(2, late=5, corrected=0),
        "few": Counters(1, late=5, corrected=3),
        "drops_few": Counters(2, late=5, corrected=0),
        "over": Counters(2, late=0, corrected=3),
    }
    for view in ("corrects", "drops", "few", "drops_few"):
        assert steps_with(reports, "late", view) == sorted(LATE)
    for view in ("corrects", "few", "over"):
        assert steps_with(reports, "corrected", view) == [5, 7, 9]
    assert not any(each.corrected[view] for each in reports for view in ("drops", "drops_few") if view in each.late)


def test_in_larger_steps_as_many_are_late_and_only_windows_closed_before_a_step_are_corrected(lab: Lab) -> None:
    counters, reports = stream(lab, 5)
    # The second step begins at 13:20: one window is closed, and its row changes once.
    assert {name: (each.late, each.corrected) for name, each in counters.items()} == {
        "corrects": (5, 1), "drops": (5, 0), "few": (5, 1), "drops_few": (5, 0), "over": (0, 1),
    }  # fmt: skip
    assert [each.late["corrects"] for each in reports if "corrects" in each.late] == [1, 4]


def test_a_batch_counts_late_events_too_and_corrects_nothing(lab: Lab) -> None:
    with lab.engine() as (engine, store):
        done = run_batch(engine)
        assert rows_of(engine, store) == ROWS
    counters = {name: each for one in done for name, each in one.generation.counters.items()}
    assert {name: (each.late, each.corrected) for name, each in counters.items()} == {
        **dict.fromkeys(["corrects", "drops", "few", "drops_few"], (5, 0)), "over": (0, 0),
    }  # fmt: skip


def test_the_command_lists_the_same_events(lab: Lab) -> None:
    found = json.loads(run("late", "events", "--json", "--log", str(lab.folder / "log")))
    assert found["late"] == len(LATE)
    assert {each["offset"] for each in found["events"]} == LATE
    assert [each["late_by_seconds"] / 60 for each in found["events"]] == [75, 70, 79, 31, 22]


def test_a_struct_of_start_and_end_is_no_window_unless_they_are_times(tmp_path: Path, spark: SparkSession) -> None:
    app = Pipeline("spans")
    app.topic("events", "time timestamp, k string, n int", event_time="time", lateness="10 minutes")
    app.view(
        "spans",
        key="k",
        sql="SELECT k, named_struct('start', min(n), 'end', max(n)) AS span FROM events GROUP BY k",
        within="k",
    )
    lab = Lab(tmp_path, app, spark)
    start = int(NOON.timestamp()) * 1_000_000
    lab.append("events", [{"time": NOON, "k": "a", "n": n} for n in (5, 3, 9)], [start, start + 1, start + 2])
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, max_rows=1)
        [(_, span)] = rows_of(engine, store)["spans"]
    assert span == (3, 9)
