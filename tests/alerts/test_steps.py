"""Alerts in a stream: which rows are told, how often, and that nothing but a live view tells anybody."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import AlertConditionError
from penstock.modes.batch import run_batch
from penstock.modes.replays import run_kappa
from penstock.modes.rollback import roll_back
from penstock.modes.rounds import run_lambda
from penstock.modes.stream import run_stream
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from penstock.views.store import Store, open_store
from tests.alerts.waiting import entries
from tests.modes.harness import Lab, rows_of
from tests.postgresql import Server

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MAIL = "mailto:ops@example.com"


def shop(limit: int = 0) -> Pipeline:
    app = Pipeline("shop")
    app.topic("access", "time timestamp, url string, status int", event_time="time")
    app.view(
        "errors",
        key="url",
        sql="SELECT url, count(*) AS hits, count_if(status >= 500) AS errors FROM access "
        f"WHERE status > {limit} GROUP BY url",
    )
    app.view("busy", key="url", sql="SELECT url, hits FROM errors WHERE hits < 4")
    return app


@pytest.fixture(scope="module")
def compiled(spark: SparkSession) -> tuple[CompiledView, ...]:
    return compile_pipeline(shop(), spark)


def send(lab: Lab, minute: float, *urls: str, status: int = 500) -> None:
    """One failed request for each URL, all of them arriving at that minute after noon."""
    at = NOON + timedelta(minutes=minute)
    rows = [{"time": at, "url": url, "status": status} for url in urls]
    lab.append("access", rows, [int(at.timestamp() * 1_000_000)] * len(rows))


def told(store: Store) -> list[tuple[str, int, list[Any]]]:
    """The alert, the minute and the rows of each entry."""
    noon_us = int(NOON.timestamp() * 1_000_000)
    return [
        (each.alert, (each.clock_us - noon_us) // 60_000_000, [tuple(row.values()) for row in each.rows])
        for each in sorted(entries(store), key=lambda each: (each.clock_us, each.alert))
    ]


def test_a_key_is_told_once_in_a_period_over_many_steps(
    tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...]
) -> None:
    app = shop()
    app.alert("errors", to=MAIL, every="10 minutes", when="errors > 1")
    app.alert("errors", to=MAIL, when="errors > 1 AND (before IS NULL OR before.errors <= 1)", name="crossed")
    lab = Lab(tmp_path, app, spark, compiled=compiled)
    with lab.engine() as (engine, store):
        for minute, urls in ((0, "/a"), (1, "/a"), (2, "/a /b /b"), (3, "/b"), (11.5, "/a /b"), (30, "/c")):
            send(lab, minute, *urls.split())
            run_stream(engine, once=True)
        assert told(store) == [
            ("crossed", 1, [("/a", 2, 2)]),
            ("errors", 1, [("/a", 2, 2)]),
            ("crossed", 2, [("/b", 2, 2)]),
            ("errors", 2, [("/b", 2, 2)]),
            ("errors", 11, [("/a", 4, 4)]),
        ]


def test_a_condition_may_have_other_letters_than_the_columns(
    tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...]
) -> None:
    app = shop()
    for number, when in enumerate(("ERRORS > 0", "BEFORE IS NULL", "Before.Errors IS NULL AND Hits > 0")):
        app.alert("errors", to=MAIL, when=when, name=f"a{number}")
    lab = Lab(tmp_path, app, spark, compiled=compiled)
    with lab.engine() as (engine, store):
        send(lab, 0, "/a")
        run_stream(engine, once=True)
        assert told(store) == [(f"a{number}", 0, [("/a", 1, 1)]) for number in range(3)]


def test_steps_of_any_size_end_with_the_same_keys_told(
    tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...]
) -> None:
    app = shop()
    app.alert("errors", to=MAIL, every="1 day", when="errors >= 2")
    lab = Lab(tmp_path, app, spark, compiled=compiled)
    for minute in range(6):
        send(lab, minute, "/a", f"/{minute % 3}")
    for max_rows in (1, 3, None):
        with lab.engine() as (engine, store):
            run_stream(engine, once=True, max_rows=max_rows)
            assert sorted(row[0] for _, _, rows in told(store) for row in rows) == ["/0", "/1", "/2", "/a"]


def test_a_function_decides_and_words_it(
    tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...]
) -> None:
    app = shop()

    @app.alert("errors", to=[MAIL, "topic:alarms"], every="1s")
    def worded(row: dict[str, Any], before: dict[str, Any] | None) -> str | bool | None:
        if row["url"] == "/quiet":
            return None
        return True if before is None else f"{row['url']} went from {before['errors']} to {row['errors']}"

    lab = Lab(tmp_path, app, spark, compiled=compiled)
    with lab.engine() as (engine, store):
        for minute in range(2):
            send(lab, minute, "/a", "/quiet")
            run_stream(engine, once=True)
        texts = [(each.receiver, each.state, each.text) for each in entries(store)]
        records = lab.log.topic("alarms").slice().to_pylist()
    assert texts == [
        (MAIL, "waiting", "url=/a, hits=1, errors=1"),
        ("topic:alarms", "sent", "url=/a, hits=1, errors=1"),
        (MAIL, "waiting", "/a went from 1 to 2"),
        ("topic:alarms", "sent", "/a went from 1 to 2"),
    ]
    assert [(each["alert"], each["view"], each["key"], each["text"], each["row"]) for each in records] == [
        ("worded", "errors", '["/a"]', "url=/a, hits=1, errors=1", '{"url": "/a", "hits": 1, "errors": 1}'),
        ("worded", "errors", '["/a"]', "/a went from 1 to 2", '{"url": "/a", "hits": 2, "errors": 2}'),
    ]
    assert [each["time"] for each in records] == [NOON, NOON + timedelta(minutes=1)]


def test_a_row_that_leaves_or_only_looks_changed_alerts_nobody(
    tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...]
) -> None:
    app = shop()
    app.alert("busy", to=MAIL, every="1s")
    lab = Lab(tmp_path, app, spark, compiled=compiled)
    with lab.engine() as (engine, store):
        for minute in range(5):
            send(lab, minute, "/a")
            run_stream(engine, once=True)
        assert [rows for _, _, rows in told(store)] == [[("/a", 1)], [("/a", 2)], [("/a", 3)]]


def test_what_fails_is_left_out_and_the_stream_goes_on(
    tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...], caplog: pytest.LogCaptureFixture
) -> None:
    app = shop()
    app.alert("errors", to=MAIL, when="10 / (errors - 2) > 1", name="divides", every="1s")
    app.alert("errors", to=MAIL, when="errors > 0", name="fine", every="1s")

    @app.alert("errors", to=MAIL, every="1s")
    def raises(row: dict[str, Any]) -> bool:
        return bool(1 / (row["errors"] - 2))

    lab = Lab(tmp_path, app, spark, compiled=compiled)
    with lab.engine() as (engine, store):
        for minute in range(4):
            send(lab, minute, "/a")
            run_stream(engine, once=True)
        assert rows_of(engine, store)["errors"] == [("/a", 4, 4)]
        found = {name: [each for each in entries(store) if each.alert == name] for name in app.alerts}
    assert [each.state for each in found["fine"]] == ["waiting"] * 4
    assert [each.state for each in found["divides"]] == ["failed", "waiting", "waiting"]
    assert [each.state for each in found["raises"]] == ["waiting", "failed", "waiting", "waiting"]
    divides, raised = found["divides"][0].error or "", found["raises"][1].error or ""
    assert "DIVIDE_BY_ZERO" in divides
    assert raised.startswith("ZeroDivisionError in line")
    assert "'url': '/a'" in raised
    assert "'raises' is left out of this step" in caplog.text
    assert "test_steps.py" in caplog.text


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def test_builds_rounds_replays_and_rollbacks_tell_nobody(
    tmp_path: Path,
    spark: SparkSession,
    compiled: tuple[CompiledView, ...],
    database: str,
    request: pytest.FixtureRequest,
) -> None:
    url = f"sqlite:{tmp_path}/all.db"
    if database == "postgresql":
        server: Server = request.getfixturevalue("postgresql")
        url = server.new_database()
    app, other = shop(), shop(limit=1)
    for each in (app, other):
        each.alert("errors", to=[MAIL], every="1s")
    lab = Lab(tmp_path, app, spark, compiled=compiled)
    for minute in range(5):
        send(lab, minute, "/a")
    with lab.engine(url=url) as (engine, store):
        run_batch(engine)
        assert told(store) == []
        run_lambda(engine, every=timedelta(0), once=True)
        assert told(store) == []
        send(lab, 10, "/a")
        run_lambda(engine, every=timedelta(hours=1), once=True)
        assert told(store) == [("errors", 10, [("/a", 6, 6)])]
        run_lambda(engine, every=timedelta(0), once=True)
        run_stream(engine, once=True)
        assert len(told(store)) == 1
    with lab.engine(pipeline=other, url=url) as (engine, store):
        run_kappa(engine, once=True)
        assert len(told(store)) == 1
        send(lab, 20, "/a")
        run_kappa(engine, once=True)
        send(lab, 40, "/a")
        run_kappa(engine, once=True)
        assert [minute for _, minute, _ in told(store)] == [10, 20, 40]
    with open_store(url) as opened:
        roll_back(opened, "errors")
    with lab.engine(url=url) as (engine, store):
        # What came since is read again, by the older code, as steps of a view that is live: and told to nobody again.
        run_stream(engine, once=True, max_rows=1)
        assert rows_of(engine, store)["errors"] == [("/a", 8, 8)]
        assert [minute for _, minute, _ in told(store)] == [10, 20, 40]
        send(lab, 60, "/a")
        run_stream(engine, once=True)
        assert [minute for _, minute, _ in told(store)] == [10, 20, 40, 60]


def test_what_is_read_again_in_one_big_step_after_a_rollback_is_told_to_nobody(
    tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...]
) -> None:
    url = f"sqlite:{tmp_path}/all.db"
    app, other = shop(), shop(limit=1)
    for each in (app, other):
        each.alert("errors", to=MAIL, every="10 minutes")
    lab = Lab(tmp_path, app, spark, compiled=compiled)
    send(lab, 0, "/a")
    with lab.engine(url=url) as (engine, store):
        run_batch(engine)
    with lab.engine(pipeline=other, url=url) as (engine, store):
        run_kappa(engine, once=True)
        for minute, name in ((20, "/a"), (60, "/b")):
            send(lab, minute, name)
            run_kappa(engine, once=True)
        assert [minute for _, minute, _ in told(store)] == [20, 60]
    with open_store(url) as opened:
        roll_back(opened, "errors")
    with lab.engine(url=url) as (engine, store):
        run_stream(engine, once=True)
        assert rows_of(engine, store)["errors"] == [("/a", 2, 2), ("/b", 1, 1)]
        assert [minute for _, minute, _ in told(store)] == [20, 60]
        send(lab, 80, "/a")
        run_stream(engine, once=True)
        assert [minute for _, minute, _ in told(store)] == [20, 60, 80]


@pytest.mark.parametrize(
    ("when", "found"),
    [
        ("erors > 1", "the view has no column 'erors'"),
        ("before.urls = 'x'", "urls"),
        ("errors + 1", "boolean"),
        ("count(*) > 1", "invalid expressions: count(1)"),
        ("errors > (SELECT 1)", "it reads another table"),
        ("rand() > 0.5", "another one each time"),
        ("errors >", "syntax"),
        ("row_number() OVER (ORDER BY url) = 1", "window function"),
    ],
)
def test_a_condition_that_cannot_be_asked_is_refused_before_anything_runs(
    tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...], when: str, found: str
) -> None:
    app = shop()
    app.alert("errors", to=MAIL, when=when)
    lab = Lab(tmp_path, app, spark, compiled=compiled)
    with pytest.raises(AlertConditionError) as caught, lab.engine():
        pass
    error = caught.value
    assert found.lower() in error.found.lower(), error.found
    assert error.place == app.alerts["errors"].place
    assert "JVM" not in str(error)


def test_a_column_that_is_misspelt_is_told_the_nearest(
    tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...]
) -> None:
    app = shop()
    app.alert("errors", to=MAIL, when="erors > 1")
    with pytest.raises(AlertConditionError) as caught, Lab(tmp_path, app, spark, compiled=compiled).engine():
        pass
    assert caught.value.hint == "its columns: url, hits, errors, and before\ndid you mean 'errors'?"


def test_a_view_without_alerts_is_not_looked_at(
    tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("nobody asked")

    monkeypatch.setattr("penstock.modes.running.look", never)
    lab = Lab(tmp_path, shop(), spark, compiled=compiled)
    send(lab, 0, "/a")
    with lab.engine() as (engine, store):
        run_stream(engine, once=True)
        assert rows_of(engine, store)["errors"] == [("/a", 1, 1)]
