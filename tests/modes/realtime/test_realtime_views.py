"""Which views can run record at a time: each that cannot is named, with its line, the reason and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf

import penstock
from penstock import Log, Pipeline
from penstock.errors import ConnectorMissing, RealtimeOptionError, RealtimeRefused, TooFewCores, ZoneNotUtc
from penstock.modes.realtime import checkpoints_url
from penstock.modes.realtime_spark import check_cores, check_spark, cores_needed, cores_there, realtime_spark
from penstock.modes.realtime_views import check_changelogs, check_views
from penstock.modes.topics import make_changelog
from penstock.settings import SparkSettings
from penstock.spark.jars import CONNECTOR
from penstock.spark.private.context import made_folder
from penstock.spark.session_settings import settings_for_now
from penstock.upkeep.compiled import compile_pipeline
from tests.cli.commands import fails

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DDL = "time timestamp, user string, n bigint"


def pipeline() -> Pipeline:
    app = Pipeline("payments")
    app.topic("clicks", DDL, event_time="time", partitions=3)
    app.topic("prices", DDL)
    app.topic("binary", DDL, values="avro")
    return app


def test_a_row_wise_view_with_a_changelog_can(tmp_path: Path, spark: SparkSession) -> None:
    app = pipeline()
    (tmp_path / "names.csv").write_text("user,name\nu,Ada\n")
    app.table("names", str(tmp_path / "names.csv"), schema="user string, name string")

    @app.view(changelog="large")
    def large(clicks: DataFrame, names: DataFrame) -> DataFrame:
        return clicks.where("n > 100").join(names, "user").select("user", sf.explode(sf.array("n", "name")).alias("x"))

    # As docs/kafka.md has it: rows of one record that tell themselves apart.
    app.view(
        "parts", sql="SELECT n AS `a``b`, posexplode(array(n, n + 1)) AS (number, part) FROM clicks", changelog="parts"
    )

    check_views(app, compile_pipeline(app, spark))
    assert cores_needed(app) == 9


def test_every_other_view_is_named_with_the_reason(spark: SparkSession) -> None:
    app = pipeline()

    @app.view(key="user")
    def latest(clicks: DataFrame) -> DataFrame:
        return clicks.select("user", "n")

    @app.view(key="user", changelog="sums")
    def sums(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy("user").agg(sf.sum("n").alias("n"))

    @app.view(key="user", changelog="above")
    def above(sums: DataFrame) -> DataFrame:
        return sums.where("n > 5")

    @app.view(changelog="both")
    def both(clicks: DataFrame, prices: DataFrame) -> DataFrame:
        return clicks.select("n").union(prices.select("n"))

    @app.view(changelog="twice")
    def twice(clicks: DataFrame) -> DataFrame:
        return clicks.select("n").union(clicks.select("n"))

    @app.view(changelog="python")
    def python(clicks: DataFrame) -> DataFrame:
        return clicks.select(sf.udf(lambda n: n + 1, "bigint")("n").alias("n"))

    @app.view(changelog="avro")
    def avro(binary: DataFrame) -> DataFrame:
        return binary.select("n")

    @app.view(changelog="told")
    def told(clicks: DataFrame) -> DataFrame:
        return clicks.select("n")

    app.alert("told", to="topic:alarms", when="n > 5")
    with pytest.raises(RealtimeRefused) as refused:
        check_views(app, compile_pipeline(app, spark))
    found = {each.view: each for each in refused.value.problems}
    reasons = {
        "latest": ("it has a key", "no changelog"),
        "sums": ("it has a key", "more than look at each record"),
        "above": ("it reads the view sums",),
        "both": ("it reads 2 topics: clicks, prices",),
        "twice": ("more than once",),
        "python": ("Python function",),
        "avro": ("topic 'binary' has its values in Avro",),
        "told": ("alert 'told'",),
    }
    assert set(found) == set(reasons)
    for view, words in reasons.items():
        assert all(word in found[view].message for word in words), found[view]
        assert found[view].place.file == __file__
        assert found[view].hint
        assert f"view {view!r}" in str(refused.value)
    assert 'add changelog="latest.changes"' in found["latest"].hint
    assert "without --trigger realtime" in str(refused.value)


def test_a_spark_that_runs_without_the_connector_is_told_from_one_without_jars(spark: SparkSession) -> None:
    with pytest.raises(ConnectorMissing, match=r"found: Spark runs with spark\.jars = nothing"):
        check_spark(pipeline(), spark)


@pytest.mark.parametrize(("zone", "is_taken"), [("Asia/Tokyo", False), ("+01:00", False), ("Etc/UTC", True)])
def test_a_spark_that_has_another_zone_than_utc_is_refused(spark: SparkSession, zone: str, is_taken: bool) -> None:
    with settings_for_now(spark, {"spark.sql.session.timeZone": zone}):
        with pytest.raises(ConnectorMissing if is_taken else ZoneNotUtc) as refused:
            check_spark(pipeline(), spark)
        assert is_taken or f"found: {zone}" in str(refused.value)


def test_a_changelog_in_avro_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    app = pipeline()
    app.view("all", sql="SELECT n FROM clicks", changelog="all.changes")
    app.view("some", sql="SELECT n FROM clicks", changelog="some.changes")
    views = compile_pipeline(app, spark)
    with Log(tmp_path) as log:
        for view in views:
            make_changelog(view, log)
        check_changelogs(app, views, log)
        made = log.topic("some.changes").definition
        log.delete("some.changes")
        log.create("some.changes", made.schemas[-1], key="key", values="avro")
        make_changelog(views[1], log)
        with pytest.raises(RealtimeRefused) as refused:
            check_changelogs(app, views, log)
    [problem] = refused.value.problems
    assert problem.view == "some"
    assert "its changelog 'some.changes' has its values in Avro" in problem.message
    assert 'changelog="some.changes.2"' in problem.hint


def test_a_cluster_must_have_a_core_for_each_partition() -> None:
    app = pipeline()
    app.view("all", sql="SELECT n FROM clicks", changelog="all")
    check_cores(app, "spark://host:7077", lambda: 6)
    check_cores(app, "local[2]", lambda: 2)
    with pytest.raises(TooFewCores) as refused:
        check_cores(app, "spark://host:7077", lambda: 5, within_seconds=0)
    assert (refused.value.needed, refused.value.found) == (6, 5)


def test_executors_that_come_one_after_the_other_are_waited_for() -> None:
    app = pipeline()
    app.view("all", sql="SELECT n FROM clicks", changelog="all")
    coming = iter([1, 3, 6])
    check_cores(app, "spark://host:7077", lambda: next(coming))
    assert next(coming, None) is None


def test_cores_are_those_that_tasks_run_on(spark: SparkSession) -> None:
    assert cores_there(spark) == 2


def test_checkpoints_are_in_the_folder_that_is_named(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "späte Läufe 100%25"
    url = checkpoints_url(SparkSettings(checkpoints=f"dir:{folder}"))
    assert not made_folder(spark, f"{url}/app", must_exist=True)
    assert not folder.exists()
    assert made_folder(spark, f"{url}/app", must_exist=False)
    assert (folder / "app").is_dir()
    assert made_folder(spark, f"{url}/app", must_exist=True)
    assert checkpoints_url(SparkSettings(checkpoints="hdfs://host/a/")) == "hdfs://host/a"


APP = """\
from penstock import Pipeline

app = Pipeline("small")
app.topic("clicks", "n int")
app.view("all", sql="SELECT n FROM clicks", changelog="all.changes")
"""


def test_a_log_in_a_folder_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    said = fails("run", str(tmp_path / "app.py"), "--trigger", "realtime", "--log", f"dir:{tmp_path}/log")
    assert f"view 'all': its log is dir:{tmp_path}/log" in said
    assert f"{tmp_path}/app.py:5" in said
    assert "penstock move-log" in said
    assert sorted(each.name for each in tmp_path.iterdir() if each.name != "__pycache__") == ["app.py"]


def test_without_the_jars_the_command_that_gets_them_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "app.py").write_text(APP)
    said = fails("run", str(tmp_path / "app.py"), "--trigger", "realtime", "--log", "kafka://127.0.0.1:1")
    assert "to get them: penstock jars" in said
    assert "spark.jars" in said
    folder = tmp_path / "penstock" / "jars"
    folder.mkdir(parents=True)
    (folder / CONNECTOR[0].name).touch()
    with pytest.raises(ConnectorMissing, match="found: 1 of 4 jars"):
        realtime_spark(pipeline(), SparkSettings())


def test_jars_are_found_where_they_are_put_and_threads_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "penstock" / "jars"
    folder.mkdir(parents=True)
    for each in CONNECTOR:
        (folder / each.name).touch()
    app = pipeline()
    app.view("all", sql="SELECT n FROM clicks", changelog="all")
    chosen = realtime_spark(app, SparkSettings(master="local[2]"))
    assert chosen.conf["spark.jars"].split(",") == [str(folder / each.name) for each in CONNECTOR]
    assert chosen.master == "local[7]"
    own = SparkSettings(master="local[64,2]", conf={"spark.jars": "mine.jar"})
    assert realtime_spark(app, own).master == own.master
    assert realtime_spark(app, own).conf["spark.jars"] == "mine.jar"
    assert realtime_spark(app, SparkSettings(master="spark://host:7077", conf=own.conf)).master == "spark://host:7077"


@pytest.mark.parametrize("words", [["--once"], ["--until", "clicks=5"], ["--max-rows", "5"], ["--mode", "kappa"]])
def test_what_ends_steps_is_refused(words: list[str]) -> None:
    assert "--trigger realtime has no steps" in fails("run", "app.py", "--trigger", "realtime", *words, code=2)


def test_what_ends_steps_is_refused_from_python_too() -> None:
    with pytest.raises(RealtimeOptionError, match="no once, until or max_rows"):
        penstock.run(pipeline(), once=True, trigger="realtime")
