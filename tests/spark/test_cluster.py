"""A pipeline on a Spark cluster gives what it gives on one machine, whatever dies on the way."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.errors import ClusterSecretMissing, ClusterUnreachable, LogNotShared
from penstock.log.folder_log import FolderLog
from penstock.modes.topics import make_topics
from penstock.pipeline.loading import load_pipeline
from penstock.settings import LogSettings, Settings, SparkSettings
from penstock.spark.builder import configuration
from penstock.spark.cluster import check_cluster, check_log, is_on_this_machine
from penstock.views.store import open_store
from tests.eventually import eventually
from tests.services.driver import COMMAND_SECONDS, Driver
from tests.services.process import port_of, reserve_port
from tests.services.shop import settings
from tests.services.spark_cluster import SparkCluster

FAR = "spark://cluster.example.org:7077"
EVENTS = 1_500

APP = """
import contextlib
import pathlib
import time

from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import shelves
from penstock import Pipeline

app = Pipeline("clicks")
app.topic("clicks", "time timestamp, page string, cents bigint", event_time="time", lateness="1 hour")

# While this folder is there, each task leaves the name of its worker in it, and takes its time.
SIGNS = pathlib.Path(__file__).parent / "signs"


@F.udf(StringType())
def shelf(page):
    from prices import CURRENCY  # Imported where it runs, and nowhere else.

    if SIGNS.is_dir():
        with contextlib.suppress(OSError):
            (SIGNS / pathlib.Path.cwd().parent.parent.name).touch()
        time.sleep(0.01)
    return f"{shelves.shelf_of(page)} in {CURRENCY}"


@app.view(key="shelf")
def takings(clicks):
    return clicks.groupBy(shelf("page").alias("shelf")).agg(F.count("*").alias("clicks"), F.sum("cents").alias("cents"))


@app.view(key="page")
def dearest(clicks):
    costs = clicks.groupBy("page").agg(F.collect_set("cents").alias("costs"))
    return costs.select("page", F.array_max("costs").alias("cents"), F.size("costs").alias("costs"))


@app.view(key="window")
def hourly(clicks):
    return clicks.groupBy(F.window("time", "1 hour")).agg(F.count("*").alias("clicks"))
"""
BESIDE = {
    "shelves.py": "def shelf_of(page):\n    return 'shelf ' + str(len(page) % 3)\n",
    "prices.py": "CURRENCY = 'cents'\n",
}
VIEWS = {
    "takings": "SELECT shelf, clicks, cents FROM takings ORDER BY shelf",
    "dearest": "SELECT page, cents, costs FROM dearest ORDER BY page",
    "hourly": "SELECT window_start, clicks FROM hourly ORDER BY window_start",
}
Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Shop:
    """A folder with an application and a log of which one half is sealed; each run has a database of its own."""

    folder: Path
    expected: Rows

    @contextmanager
    def signs(self) -> Iterator[Path]:
        """The folder in which tasks show that they are at work."""
        folder = self.folder / "signs"
        folder.mkdir()
        try:
            yield folder
        finally:
            # Not deleted: the tasks of a driver that was killed go on for a moment, and show it.
            folder.rename(self.folder / f"signs seen {time.monotonic_ns()}")

    def command(self, database: str, *flags: str) -> tuple[str, ...]:
        """Runs the pipeline, with its views in this database."""
        return ("run", "app.py", "--views", f"sqlite:{self.folder / database}.db", "--json", *flags)

    def rows(self, database: str) -> Rows:
        return rows_of(self.folder / f"{database}.db")


def rows_of(database: Path) -> Rows:
    with open_store(f"sqlite:{database}") as store, store.snapshot() as snapshot:
        return {
            view: [tuple(row) for row in snapshot.connection.exec_driver_sql(query)] for view, query in VIEWS.items()
        }


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark_cluster: SparkCluster) -> Shop:
    folder = tmp_path_factory.mktemp("shop")
    for name, text in {"app.py": APP, **BESIDE}.items():
        (folder / name).write_text(text)
    with FolderLog(folder / "log", background=False) as log:
        make_topics(load_pipeline(str(folder / "app.py")), log)
        topic = log.topic("clicks")
        topic.append(clicks(0, topic.schema))
        topic.seal(active=True)
        topic.append(clicks(1, topic.schema))
    (folder / "penstock.toml").write_text(settings(f"dir:{folder / 'log'}", "sqlite:views.db", spark_cluster.master))
    here = Shop(folder, {})
    environment = {**os.environ, "PENSTOCK_SPARK_MASTER": "local[2]"}
    words = [sys.executable, "-m", "penstock.cli", *here.command("local", "--mode", "batch")]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = here.rows("local")
    assert sum(row[1] for row in expected["takings"]) == 2 * EVENTS
    return Shop(folder, expected)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, spark_cluster: SparkCluster) -> Iterator[Driver]:
    made = Driver(tmp_path_factory.mktemp("driver"), spark_cluster.secret)
    yield made
    made.kill()


def clicks(half: int, schema: pa.Schema) -> pa.Table:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {"time": start + timedelta(seconds=number), "page": f"/{number % 97}", "cents": number % 1009}
        for number in range(half * EVENTS, (half + 1) * EVENTS)
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def worker_at_work(driver: Driver, signs: Path) -> str:
    """The name of a worker on which a task of the running pipeline is at work now."""

    def find() -> list[str]:
        assert driver.is_busy, driver.said()
        return sorted(path.name for path in signs.iterdir())

    return eventually(find, explain=driver.said, seconds=COMMAND_SECONDS)[0]


@pytest.mark.services
@pytest.mark.spark
@pytest.mark.parametrize("flags", [("--mode", "batch"), ("--once", "--max-rows", "1000")], ids=["batch", "stream"])
def test_the_same_file_gives_the_same_rows(shop: Shop, driver: Driver, flags: tuple[str, ...]) -> None:
    database = flags[0].strip("-")
    driver.do(shop.folder, *shop.command(database, *flags))
    assert shop.rows(database) == shop.expected


@pytest.mark.services
@pytest.mark.spark
def test_a_worker_killed_inside_a_stage_changes_no_answer(
    shop: Shop, driver: Driver, spark_cluster: SparkCluster
) -> None:
    with shop.signs() as signs:
        driver.begin(shop.folder, *shop.command("worker", "--mode", "batch"))
        worker = int(worker_at_work(driver, signs).removeprefix("worker-"))
        spark_cluster.kill(worker)
        try:
            assert driver.is_busy, "the run was over before the worker died"
            driver.finish()
        finally:
            spark_cluster.restart(worker)
    assert shop.rows("worker") == shop.expected


@pytest.mark.services
@pytest.mark.spark
def test_a_driver_killed_and_run_again_changes_no_answer(shop: Shop, driver: Driver) -> None:
    command = shop.command("driver", "--once", "--max-rows", "1000")
    with shop.signs() as signs:
        driver.begin(shop.folder, *command)
        worker_at_work(driver, signs)
        driver.kill()
    driver.do(shop.folder, *command)
    assert shop.rows("driver") == shop.expected


def test_a_log_in_a_folder_is_refused_unless_it_is_shared() -> None:
    cluster = SparkSettings(master=FAR, secret="known")
    with pytest.raises(LogNotShared, match="shared = true under \\[log\\]") as refused:
        check_log(Settings(log=LogSettings(url="dir:/srv/log"), spark=cluster))
    assert (refused.value.url, refused.value.master) == ("dir:/srv/log", FAR)
    check_log(Settings(log=LogSettings(url="dir:/srv/log", shared=True), spark=cluster))
    check_log(Settings(log=LogSettings(url="kafka://broker:9092"), spark=cluster))
    check_log(Settings(log=LogSettings(url="dir:/srv/log")))


def test_a_run_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    places = {"log.url": f"dir:{tmp_path / 'log'}", "views.url": f"sqlite:{tmp_path / 'views.db'}"}
    with pytest.raises(LogNotShared):
        penstock.run(penstock.Pipeline("empty"), mode="batch", settings={"spark.master": FAR, **places})
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_without_a_secret_is_refused() -> None:
    settings = SparkSettings(master=FAR)
    with pytest.raises(ClusterSecretMissing, match="PENSTOCK_SPARK_SECRET"):
        check_cluster(settings, configuration(settings))


@pytest.mark.parametrize("master", ["yarn", "k8s://https://cluster:6443"])
def test_a_cluster_that_makes_secrets_itself_needs_none(master: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = SparkSettings(master=master)
    found = configuration(settings)
    assert (found["spark.authenticate"], found["spark.network.crypto.enabled"]) == ("true", "true")
    check_cluster(settings, found)
    assert caplog.text == ""


def test_the_secret_is_in_no_output_and_on_no_command_line() -> None:
    from penstock.spark.builder import _without_secrets

    settings = SparkSettings(master=FAR, secret="hidden", conf={"spark.ssl.keyPassword": "hidden too"})
    assert "hidden'" not in repr(settings)
    found = configuration(settings)
    assert found["spark.authenticate.secret"] == "hidden"
    shown = dict(_without_secrets(found, "test").getAll())
    assert not any("hidden" in value for value in shown.values())
    assert shown["spark.authenticate"] == "true"


def test_a_plain_connection_that_leaves_the_machine_is_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.cluster._check_answers", lambda master: None)
    monkeypatch.setattr("penstock.loopback._warned", set())
    plain = {"spark.authenticate": "false"}
    with caplog.at_level(logging.WARNING):
        for master in ("spark://127.0.0.1:7077", "spark://localhost:7077", "local[2]"):
            settings = SparkSettings(master=master, conf=plain)
            check_cluster(settings, configuration(settings))
        assert caplog.text == ""
        check_cluster(SparkSettings(master=FAR, conf=plain), configuration(SparkSettings(master=FAR, conf=plain)))
    assert f"{FAR} leaves this machine without a secret and without encryption" in caplog.text


def test_a_master_that_does_not_answer_is_named() -> None:
    with reserve_port() as reserved:  # Nothing listens on it.
        port = port_of(reserved)
        silent = SparkSettings(master=f"spark://127.0.0.1:{port}", secret="known")
        with pytest.raises(ClusterUnreachable, match=f"nothing answers at 127.0.0.1:{port} "):
            check_cluster(silent, configuration(silent))
    odd = SparkSettings(master="spark://nowhere", secret="known")
    with pytest.raises(ClusterUnreachable, match="'nowhere' is not of the form HOST:PORT"):
        check_cluster(odd, configuration(odd))


def test_a_cluster_on_this_machine_is_spoken_to_over_loopback() -> None:
    near = configuration(SparkSettings(master="spark://[::1]:7077,localhost:7078", secret="known"))
    assert near["spark.driver.host"] == "127.0.0.1"
    assert not is_on_this_machine("spark://localhost:7077,elsewhere:7077")
    assert not is_on_this_machine("yarn")
