"""Kafka, PostgreSQL and a Spark cluster under one pipeline: whatever dies in the middle, the views are the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from penstock.kafka.log import KafkaLog
from penstock.kafka.partition import RECORD_BYTES
from penstock.log.folder_log import FolderLog
from penstock.log.log import Log
from penstock.modes.topics import make_topics
from penstock.pipeline.loading import load_pipeline
from penstock.spark.read import SMALL_BYTES, SMALL_ROWS
from tests.eventually import LIMIT_SECONDS
from tests.kafka.foreign import committed
from tests.postgresql import OwnServer
from tests.services.driver import Driver
from tests.services.kafka import KafkaCluster
from tests.services.shop import QUERIES, Shop, expected, fill, folded
from tests.services.spark_cluster import SparkCluster

pytestmark = [pytest.mark.services, pytest.mark.spark]
OpenShop = Callable[[str], Shop]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shop")


@pytest.fixture(scope="module")
def driver(folder: Path, spark_cluster: SparkCluster) -> Iterator[Driver]:
    made = Driver(folder, spark_cluster.secret)
    yield made
    made.kill()


@pytest.fixture(scope="module")
def before(folder: Path, driver: Driver, own_postgresql: OwnServer, spark_cluster: SparkCluster) -> Shop:
    """The shop before it was moved: its history is in a folder."""
    log_url = f"dir:{folder / 'log'}"
    shop = Shop(folder / "before", driver, log_url, own_postgresql.new_database(), spark_cluster.master)
    with FolderLog(folder / "log", background=False) as log:
        make_topics(load_pipeline(str(shop.folder / "app.py")), log)
        fill(log)
        # Records are moved partition by partition, and come to steps in that order: late, and not among the last.
        last = log.topic("sales").partitions[-1]
        [chosen] = last.read(last.end().offset * 2 // 3, last.end().offset * 2 // 3 + 1)
    return replace(shop, gate_at=chosen.column("number")[0].as_py())


@pytest.fixture(scope="module")
def open_shop(before: Shop, kafka3: KafkaCluster, own_postgresql: OwnServer) -> OpenShop:
    """Opens the shop with the same history on three brokers; nothing is computed yet."""
    kafka_url = f"kafka://{kafka3.bootstrap}"
    before.do("move-log", before.log_url, kafka_url)

    def opened(name: str) -> Shop:
        return replace(
            before,
            folder=before.folder.with_name(name),
            log_url=kafka_url,
            views_url=own_postgresql.new_database(),
            changelog=f"{name}.changes",
        )

    return opened


def check(shop: Shop, cluster: KafkaCluster) -> None:
    """The views hold what they should, and the changelog tells each change of them once."""
    assert shop.rows() == expected()
    assert folded(committed(cluster, shop.changelog)) == expected()["takings"]


def test_the_same_history_gives_the_same_views_in_a_folder_and_moved_to_kafka(
    before: Shop, open_shop: OpenShop, kafka3: KafkaCluster
) -> None:
    before.run()
    assert before.rows() == expected()
    moved = open_shop("moved")
    moved.run()
    check(moved, kafka3)
    assert moved.rows() == before.rows()


@pytest.mark.long
def test_a_broker_killed_in_the_middle_changes_no_answer(open_shop: OpenShop, kafka3: KafkaCluster) -> None:
    shop = open_shop("broker")
    with shop.halted_between_steps():
        broker = leader_of(kafka3, "sales")
        kafka3.kill(broker)
    assert leader_of(kafka3, "sales") != broker
    kafka3.restart(broker)
    check(shop, kafka3)


@pytest.mark.long
def test_a_worker_killed_in_the_middle_of_a_stage_changes_no_answer(
    open_shop: OpenShop, kafka3: KafkaCluster, spark_cluster: SparkCluster
) -> None:
    shop = open_shop("worker")
    with shop.halted_between_steps() as worker:
        number = int(worker.removeprefix("worker-"))
        spark_cluster.kill(number)
    spark_cluster.restart(number)
    check(shop, kafka3)


@pytest.mark.long
def test_a_database_restarted_in_the_middle_changes_no_answer(
    open_shop: OpenShop, kafka3: KafkaCluster, own_postgresql: OwnServer
) -> None:
    shop = open_shop("database")
    with shop.halted_between_steps():
        own_postgresql.restart()
    check(shop, kafka3)


@pytest.mark.long
def test_a_driver_killed_and_run_again_changes_no_answer(
    open_shop: OpenShop, kafka3: KafkaCluster, driver: Driver
) -> None:
    shop = open_shop("driver")
    with shop.halted_between_steps():
        driver.kill()
    shop.run()
    check(shop, kafka3)


SCANS = """
import pathlib
import time

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from penstock import Pipeline

app = Pipeline("scans")
app.topic("scans", "number bigint", partitions=2)

GATE = pathlib.Path(__file__).parent / "gate"


@F.udf(LongType())
def shelf(number):
    if number == {gate_at} and GATE.is_dir():
        (GATE / pathlib.Path.cwd().parent.parent.name).touch()
        while GATE.is_dir():
            time.sleep(0.02)
    return number % 10


@app.view(key="shelf")
def shelves(scans):
    return scans.groupBy(shelf("number").alias("shelf")).agg(F.count("*").alias("scans"), F.sum("number").alias("sum"))
"""
BATCH = ("run", "app.py", "--mode", "batch", "--json")


def scanned(count: int) -> list[tuple[int, int, int]]:
    return [(each, len(range(each, count, 10)), sum(range(each, count, 10))) for each in range(10)]


def fill_with_scans(log: Log, count: int) -> None:
    topic = log.create("scans", "number bigint", partitions=2)
    for start in range(0, count, 100_000):
        numbers = pa.array(range(start, min(start + 100_000, count)), pa.int64())
        topic.append(pa.table({"number": numbers}))


@pytest.mark.long
def test_a_large_tail_is_read_by_the_executors(before: Shop, own_postgresql: OwnServer, folder: Path) -> None:
    """Nothing is sealed: what is too much for the driver to hand over, tasks read from the open files."""
    shop = replace(
        before,
        folder=folder / "tail",
        log_url=f"dir:{folder / 'tail-log'}",
        views_url=own_postgresql.new_database(),
        app=SCANS,
    )
    count = SMALL_ROWS + 1_000
    with FolderLog(folder / "tail-log", background=False) as log:
        fill_with_scans(log, count)
    shop.do(*BATCH)
    assert shop.query("SELECT shelf, scans, sum FROM shelves ORDER BY shelf") == scanned(count)


@pytest.mark.long
def test_a_broker_killed_while_executors_read_from_it_changes_no_answer(
    before: Shop, kafka3: KafkaCluster, own_postgresql: OwnServer, folder: Path
) -> None:
    log_url = f"kafka://{kafka3.bootstrap}"
    count = SMALL_BYTES // RECORD_BYTES + 1_000
    with KafkaLog(log_url) as log:
        fill_with_scans(log, count)
    shop = replace(
        before,
        folder=folder / "scans",
        log_url=log_url,
        views_url=own_postgresql.new_database(),
        app=SCANS,
        gate_at=50_000,
    )
    with shop.halted(*BATCH):
        broker = leader_of(kafka3, "scans")
        kafka3.kill(broker)
    assert leader_of(kafka3, "scans") != broker
    kafka3.restart(broker)
    assert shop.query("SELECT shelf, scans, sum FROM shelves ORDER BY shelf") == scanned(count)


@pytest.mark.long
@pytest.mark.parametrize("place", ["a folder", "Kafka"])
def test_verify_agrees_on_the_cluster(before: Shop, open_shop: OpenShop, place: str) -> None:
    shop = before if place == "a folder" else open_shop("verified")
    said = shop.do("verify", "app.py", "--rows", "12", "--cuts", "0", "--seed", "5", "--json")
    report = json.loads(said[said.index("{") :])
    assert report["agrees"]
    compared = {(each["run"], each["view"]) for each in report["runs"]}
    assert len(compared) == len({run for run, _ in compared}) * len(QUERIES)


def leader_of(cluster: KafkaCluster, topic: str) -> int:
    """The broker that leads the last partition."""
    known = AdminClient(cluster.client()).list_topics(topic, timeout=LIMIT_SECONDS).topics[topic].partitions
    return int(known[max(known)].leader)
