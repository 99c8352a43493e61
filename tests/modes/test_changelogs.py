"""The changes of a view, as a topic: read as a table again they are the view, rows that went included."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import StoreUnavailable, TopicDiffers
from penstock.modes.batch import run_batch
from penstock.modes.running import RunningSet
from penstock.modes.stream import Stop, run_stream
from penstock.upkeep.changelog import changelog_ddl
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from tests.modes.harness import Lab, Rows, rows_of

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEYS = {"few": ["k"], "hours": ["window", "k"], "latest": ["k"]}
SENT = ["a", "b", None, "a", "b", "c", None, "a", "d", "b", "a", "c"]


def source(few: str = "count(*) AS c") -> Pipeline:
    app = Pipeline("source")
    app.topic("events", "id bigint, time timestamp, k string", event_time="time")
    app.view("few", key="k", changelog="few.changes", sql=f"SELECT k, {few} FROM events GROUP BY k HAVING c < 3")
    app.view(
        "hours",
        key=["window", "k"],
        changelog="hours.changes",
        sql="SELECT window(time, '1 hour') AS window, k, count(*) AS c, max(id) AS id FROM events GROUP BY 1, 2",
    )
    app.view("latest", key="k", changelog="latest.changes", sql="SELECT k, id, time FROM events WHERE id != 5")
    return app


def mirror(views: tuple[CompiledView, ...]) -> Pipeline:
    """Another pipeline, with a table over each topic of changes and a view over one of the tables."""
    app = Pipeline("mirror")
    for view in views:
        topic = app.topic(f"{view.name}.changes", changelog_ddl(view.shape.columns), key="key")
        app.table(f"{view.name}_now", topic=topic, key=KEYS[view.name])
    app.view("counts", key="c", sql="SELECT c, count(*) AS n FROM few_now GROUP BY c")
    return app


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> tuple[CompiledView, ...]:
    return compile_pipeline(source(), spark)


@pytest.fixture(scope="module")
def mirrored(spark: SparkSession, views: tuple[CompiledView, ...]) -> tuple[CompiledView, ...]:
    return compile_pipeline(mirror(views), spark)


def append(lab: Lab, first: int, last: int) -> None:
    rows = [{"id": n, "time": NOON + timedelta(minutes=25 * n % 140), "k": SENT[n]} for n in range(first, last)]
    lab.append("events", rows)


def counted(few: list[tuple[object, int]]) -> list[tuple[int, int]]:
    sizes = [size for _, size in few]
    return sorted({(size, sizes.count(size)) for size in sizes}, key=repr)


def as_mirrored(rows: Rows) -> Rows:
    return {**{f"{name}_now": each for name, each in rows.items()}, "counts": counted(rows["few"])}


@pytest.mark.parametrize("max_rows", [None, 3])
def test_a_table_over_the_changes_holds_the_rows_of_the_view(
    tmp_path: Path,
    spark: SparkSession,
    views: tuple[CompiledView, ...],
    mirrored: tuple[CompiledView, ...],
    max_rows: int | None,
) -> None:
    lab = Lab(tmp_path, source(), spark, compiled=views)
    copy = Lab(tmp_path, mirror(views), spark, compiled=mirrored)
    for first, last in ((0, 7), (7, 12)):
        append(lab, first, last)
        with lab.engine("source") as (engine, store):
            run_stream(engine, once=True, max_rows=max_rows)
            rows = rows_of(engine, store)
        with copy.engine("mirror") as (engine, store):
            run_stream(engine, once=True, max_rows=max_rows)
            assert rows_of(engine, store) == as_mirrored(rows)
    assert rows["few"] == [("c", 2), ("d", 1), (None, 2)]
    assert copy.batch() == as_mirrored(rows)
    gone = [each for each in lab.log.topic("few.changes").slice().to_pylist() if each["operation"] == "delete"]
    assert {(each["before"]["k"], each["after"]) for each in gone} == {("a", None), ("b", None)}


def test_a_batch_tells_of_all_rows_and_the_next_one_of_the_difference(
    tmp_path: Path, spark: SparkSession, views: tuple[CompiledView, ...], mirrored: tuple[CompiledView, ...]
) -> None:
    lab = Lab(tmp_path, source(), spark, compiled=views)
    copy = Lab(tmp_path, mirror(views), spark, compiled=mirrored)
    append(lab, 0, 7)
    with lab.engine("source") as (engine, store):
        run_batch(engine)
        rows = rows_of(engine, store)
    assert {name: lab.log.topic(f"{name}.changes").end()[0] for name in rows} == {n: len(e) for n, e in rows.items()}
    append(lab, 7, 12)
    with lab.engine("source") as (engine, store):
        run_batch(engine)
        rows = rows_of(engine, store)
        run_batch(engine)
        assert rows_of(engine, store) == rows
    told = lab.log.topic("few.changes").slice().to_pylist()[4:]
    assert sorted((each["operation"], each["key"]) for each in told) == [
        ("delete", '["a"]'), ("delete", '["b"]'), ("insert", '["d"]'), ("update", '["c"]'),
    ]  # fmt: skip
    assert copy.batch() == as_mirrored(rows)


def test_a_view_with_other_columns_needs_another_topic_and_nothing_is_done_before_it_has_one(
    tmp_path: Path, spark: SparkSession, views: tuple[CompiledView, ...]
) -> None:
    lab = Lab(tmp_path, source(), spark, compiled=views)
    append(lab, 0, 4)
    with lab.engine("source") as (engine, store):
        run_stream(engine, once=True)
        before = rows_of(engine, store)
    wider = source("count(*) AS c, max(id) AS id")
    with pytest.raises(TopicDiffers) as caught, lab.engine("source", wider):
        pass
    assert (caught.value.topic, caught.value.setting) == ("few.changes", "schema")
    assert "changelog=" in str(caught.value)
    with lab.engine("source") as (engine, store):
        assert rows_of(engine, store) == before
    lab.log.delete("few.changes")
    with lab.engine("source", wider) as (engine, _):
        run_batch(engine, sets=[engine.set_of("few")])
    told = lab.log.topic("few.changes").slice().to_pylist()
    assert sorted((each["operation"], *each["after"].values()) for each in told if each["after"]["k"]) == [
        ("insert", "a", 2, 3), ("insert", "b", 1, 1),
    ]  # fmt: skip


class Server:
    """A database that is gone once, after a stream has come so far; the one that takes over lacks its last commits."""

    is_done = False

    def __init__(self, events: int) -> None:
        self._events = events
        self._has_failed = False

    def begin(self, *_: object) -> None: ...

    def abandon(self) -> None: ...

    def seconds_until_due(self) -> None: ...

    def go_on(self, running: list[RunningSet]) -> bool:
        if not self._has_failed and all(each.fence.offsets["events"][0] == self._events for each in running):
            self._has_failed = True
            raise StoreUnavailable("views", "the server is gone")
        return False


def copied(source: Path, target: Path) -> None:
    """Copies what one database holds to another one, even if that is open."""
    with (
        closing(apsw.Connection(str(source))) as read,
        closing(apsw.Connection(str(target))) as written,
        written.backup("main", read, "main") as backup,
    ):
        backup.step()


def test_no_change_is_lost_where_another_server_takes_over_without_the_last_commits(
    tmp_path: Path, spark: SparkSession, views: tuple[CompiledView, ...], mirrored: tuple[CompiledView, ...]
) -> None:
    """What was sent of the lost steps is in the log, under ids that the other server would use again."""
    lab = Lab(tmp_path, source(), spark, compiled=views)
    copy = Lab(tmp_path, mirror(views), spark, compiled=mirrored)
    append(lab, 0, 3)
    stop = Stop()

    def stepped(_: object, running: RunningSet, __: int) -> None:
        events = running.fence.offsets["events"][0]
        if events == 3 and not (tmp_path / "older.db").exists():
            copied(tmp_path / "source.db", tmp_path / "older.db")
            append(lab, 3, 7)
        if events == 12:
            stop()

    def take_over(*_: object) -> None:
        copied(tmp_path / "older.db", tmp_path / "source.db")
        append(lab, 7, 12)

    with lab.engine("source") as (engine, store):
        run_stream(engine, beside=Server(7), on_step=stepped, on_retry=take_over, stop=stop)
        rows = rows_of(engine, store)
    assert copy.batch() == as_mirrored(rows)
