"""A pipeline on a Spark cluster gives what it gives on one machine, whatever dies on the way."""

from __future__ import annotations

import json
import logging
import os
import signal
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
from tests.conftest import SHORT_LIVED
from tests.services.process import free_ports
from tests.services.spark_cluster import SparkCluster

JAVA_OPTIONS = SHORT_LIVED["spark.driver.defaultJavaOptions"]
SPARK_CONF = json.dumps({f"spark.{side}.defaultJavaOptions": JAVA_OPTIONS for side in ("driver", "executor")})
FAR = "spark://cluster.example.org:7077"
WITHIN_SECONDS = 300
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

    def environment(self, database: str, cluster: SparkCluster | None = None) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
            **(cluster.settings() if cluster else {"PENSTOCK_SPARK_MASTER": "local[2]"}),
            "PENSTOCK_LOG_URL": f"dir:{self.folder / 'log'}",
            "PENSTOCK_LOG_SHARED": "true",
            "PENSTOCK_SPARK_CONF": SPARK_CONF.replace('": "', '" = "'),
            "PENSTOCK_VIEWS_URL": f"sqlite:{self.folder / database}.db",
        }

    @contextmanager
    def running(self, *flags: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
        """`penstock run app.py` in a process group of its own, which is gone afterwards."""
        started = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", "run", "app.py", "--json", *flags],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()

    def run(self, *flags: str, environment: dict[str, str]) -> None:
        with self.running(*flags, environment=environment) as started:
            said, _ = started.communicate(timeout=WITHIN_SECONDS)
            assert started.returncode == 0, said

    def rows(self, database: str) -> Rows:
        return rows_of(self.folder / f"{database}.db")


def rows_of(database: Path) -> Rows:
    with open_store(f"sqlite:{database}") as store, store.snapshot() as snapshot:
        return {
            view: [tuple(row) for row in snapshot.connection.exec_driver_sql(query)] for view, query in VIEWS.items()
        }


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("shop")
    for name, text in {"app.py": APP, **BESIDE}.items():
        (folder / name).write_text(text)
    with FolderLog(folder / "log", background=False) as log:
        make_topics(load_pipeline(str(folder / "app.py")), log)
        topic = log.topic("clicks")
        topic.append(clicks(0, topic.schema))
        topic.seal(active=True)
        topic.append(clicks(1, topic.schema))
    alone = Shop(folder, {})
    alone.run("--mode", "batch", environment=alone.environment("local"))
    expected = alone.rows("local")
    assert sum(row[1] for row in expected["takings"]) == 2 * EVENTS
    return Shop(folder, expected)


def clicks(half: int, schema: pa.Schema) -> pa.Table:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {"time": start + timedelta(seconds=number), "page": f"/{number % 97}", "cents": number % 1009}
        for number in range(half * EVENTS, (half + 1) * EVENTS)
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def wait_for_a_sign(started: subprocess.Popen[str], signs: Path) -> str:
    """The name of a worker on which a task of the running pipeline is at work now."""
    deadline = time.monotonic() + WITHIN_SECONDS
    while not (found := sorted(path.name for path in signs.iterdir())):
        assert started.poll() is None, started.communicate()[0]
        assert time.monotonic() < deadline, "no task has begun"
        time.sleep(0.05)
    return found[0]


@pytest.mark.services
@pytest.mark.spark
@pytest.mark.parametrize("flags", [("--mode", "batch"), ("--once", "--max-rows", "1000")], ids=["batch", "stream"])
def test_the_same_file_gives_the_same_rows(shop: Shop, spark_cluster: SparkCluster, flags: tuple[str, ...]) -> None:
    database = flags[0].strip("-")
    shop.run(*flags, environment=shop.environment(database, spark_cluster))
    assert shop.rows(database) == shop.expected


@pytest.mark.services
@pytest.mark.spark
def test_a_worker_killed_inside_a_stage_changes_no_answer(shop: Shop, spark_cluster: SparkCluster) -> None:
    environment = shop.environment("worker", spark_cluster)
    with shop.signs() as signs, shop.running("--mode", "batch", environment=environment) as started:
        worker = int(wait_for_a_sign(started, signs).removeprefix("worker-"))
        spark_cluster.kill(worker)
        try:
            assert started.poll() is None, "the run was over before the worker died"
            said, _ = started.communicate(timeout=WITHIN_SECONDS)
        finally:
            spark_cluster.restart(worker)
    assert started.returncode == 0, said
    assert shop.rows("worker") == shop.expected


@pytest.mark.services
@pytest.mark.spark
def test_a_driver_killed_and_run_again_changes_no_answer(shop: Shop, spark_cluster: SparkCluster) -> None:
    flags = ("--once", "--max-rows", "1000")
    environment = shop.environment("driver", spark_cluster)
    with shop.signs() as signs, shop.running(*flags, environment=environment) as started:
        wait_for_a_sign(started, signs)
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    assert started.returncode == -signal.SIGKILL
    shop.run(*flags, environment=environment)
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


def test_a_master_that_does_not_answer_is_named_at_once() -> None:
    port = free_ports(1)[0]
    settings = SparkSettings(master=f"spark://127.0.0.1:{port}", secret="known")
    with pytest.raises(ClusterUnreachable, match=f"nothing answers at 127.0.0.1:{port} "):
        check_cluster(settings, configuration(settings))
    odd = SparkSettings(master="spark://nowhere", secret="known")
    with pytest.raises(ClusterUnreachable, match="'nowhere' is not of the form HOST:PORT"):
        check_cluster(odd, configuration(odd))


def test_a_cluster_on_this_machine_is_spoken_to_over_loopback() -> None:
    near = configuration(SparkSettings(master="spark://[::1]:7077,localhost:7078", secret="known"))
    assert near["spark.driver.host"] == "127.0.0.1"
    assert not is_on_this_machine("spark://localhost:7077,elsewhere:7077")
    assert not is_on_this_machine("yarn")
