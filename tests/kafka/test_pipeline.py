"""A pipeline over Kafka: the same file, the same answers as over a folder, also after a move in the middle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

import penstock
from penstock import Pipeline, agg
from penstock.kafka.log import KafkaLog
from penstock.load.moving import move_log
from penstock.log.folder_log import FolderLog
from penstock.log.log import Log
from penstock.log.partition import ARRIVED
from penstock.modes.topics import make_topics
from penstock.settings import LogSettings, Settings, SparkSettings, ViewsSettings
from penstock.verify.verify import verify
from penstock.views.store import open_store
from tests.services.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]

START_US = 1_767_225_600_000_000
SECOND = 1_000_000
QUERIES = {
    "minutes": "SELECT * FROM minutes ORDER BY window_start, user",
    "users": "SELECT * FROM users ORDER BY user",
    "pairs": "SELECT * FROM pairs ORDER BY user, n",
}


def shop() -> Pipeline:
    """A folded view, one over it, and a join that is redone by user."""
    app = Pipeline("shop")
    app.topic("clicks", "time timestamp, user string, n bigint", key="user", event_time="time", partitions=2)
    app.topic("prices", "user string, n bigint, cents bigint", key="user", partitions=2)

    @app.view(key=["window", "user"], changelog="shop.changes")
    def minutes(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy(sf.window("time", "1 minute"), "user").agg(
            sf.count("*").alias("clicks"), agg.mean("n").alias("mean")
        )

    @app.view(key=["user"])
    def users(minutes: DataFrame) -> DataFrame:
        return minutes.groupBy("user").agg(sf.sum("clicks").alias("clicks"))

    @app.view(key=["user", "n"], within="user")
    def pairs(clicks: DataFrame, prices: DataFrame) -> DataFrame:
        return clicks.join(prices, ["user", "n"]).groupBy("user", "n").agg(sf.max("cents").alias("cents"))

    return app


def fill(log: Log, numbers: Sequence[int]) -> None:
    """Events that depend on their number alone, arrival included: the same history in every log."""
    users = pa.array([f"u{each % 7}" for each in numbers])
    counts = pa.array(numbers, pa.int64())
    times = pa.array([START_US + (each % 400) * SECOND for each in numbers]).view(pa.timestamp("us", "UTC"))
    clicks = pa.table({"time": times, "user": users, "n": counts})
    prices = pa.table({"user": users, "n": counts, "cents": pa.array([each % 13 for each in numbers], pa.int64())})
    arrived = pa.array([START_US + each * SECOND for each in numbers]).view(ARRIVED)
    log.topic("clicks").append(clicks, arrived=arrived)
    log.topic("prices").append(prices, arrived=arrived)


def settings(log: Log, database: Path) -> Settings:
    spark = SparkSettings(master="local[2]", shuffle_partitions=2)
    return Settings(log=LogSettings(url=log.url), views=ViewsSettings(url=f"sqlite:{database}"), spark=spark)


def run(log: Log, database: Path) -> None:
    penstock.run(shop(), mode="stream", once=True, settings=settings(log, database))


def rows_of(database: Path) -> Mapping[str, Any]:
    with open_store(f"sqlite:{database}") as store:
        return {view: store.query(query) for view, query in QUERIES.items()}


def changes_of(log: Log) -> list[dict[str, Any]]:
    own = ("_partition", "_offset", "_arrived", "_late")
    rows = log.topic("shop.changes").slice().to_pylist()
    return sorted(({name: row[name] for name in row if name not in own} for row in rows), key=str)


def test_a_pipeline_goes_on_in_kafka_where_it_was_in_a_folder(
    tmp_path: Path, spark: SparkSession, kafka: KafkaCluster
) -> None:
    with (
        FolderLog(tmp_path / "log", background=False) as folder,
        FolderLog(tmp_path / "other") as other,
        KafkaLog(f"kafka://{kafka.bootstrap}") as brokers,
    ):
        for log in (folder, other):
            make_topics(shop(), log)
            fill(log, range(600))
        run(folder, tmp_path / "views.db")
        move_log(folder, brokers)
        both: tuple[Log, ...] = (brokers, other)
        for each in both:
            fill(each, range(600, 900))
        run(brokers, tmp_path / "views.db")
        run(other, tmp_path / "other.db")
        assert rows_of(tmp_path / "views.db") == rows_of(tmp_path / "other.db")
        assert len(rows_of(tmp_path / "views.db")["pairs"][1]) == 900
        found = changes_of(brokers)
        assert len(found) == len({str(each) for each in found}), "a change was stored twice"
        report = verify(shop(), brokers, spark, cuts=1, seed=3, singles=5)
        assert not report.failures, report
        # Many records go through Spark's tasks, few through the driver: the same ones.
        topic = brokers.topic("clicks")
        order = ["_partition", "_offset"]
        many = topic.read(spark, small_rows=0).orderBy(order).toArrow()
        few = topic.read(spark).orderBy(order).toArrow()
        assert many.num_rows == 900
        assert many.equals(few)
