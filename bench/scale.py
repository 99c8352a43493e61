"""What the parts cost that one machine does not need: Kafka, PostgreSQL, a Spark cluster; beside those that it has.

    python -m bench.scale [--json] [--quick] [--only NAME ...]

Everything is started here and runs on this machine: one Kafka broker, a Spark master with two workers of one core each,
a PostgreSQL that waits for its disk. Both sides of every ratio take turns after a warm-up; medians. Needs what
`make service-tools` installs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from bench.measuring import in_turns, main
from bench.pipeline import KEYS, counting
from bench.pipeline_data import DDL, FILE_ROWS, events, filled_topic
from bench.scale_elsewhere import PARTITIONS
from bench.structured_streaming import counts
from penstock import Log, Pipeline
from penstock.log.topic import Topic
from penstock.modes.engine import open_engine
from penstock.modes.stream import run_stream
from penstock.spark.jars import connector_in
from penstock.views.store import open_store
from tests.postgresql import running as running_postgresql
from tests.services.connector import CONNECTOR
from tests.services.kafka import running as running_kafka
from tests.services.spark_cluster import running as running_spark

AIMS = {"kafka_vs_connector": (">=", 1.3)}
APPEND_ROWS = 100_000
MANY = 4
"""So many times the rows where they are read from sealed files: else most of the time is not reading."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rows: int = 2_000_000
    single: int = 100_000
    keys: int = 500_000
    rounds: int = 5

    @staticmethod
    def quick() -> Size:
        return Size(400_000, 20_000, 50_000, 3)


class Bench:
    """One Spark session, one folder and one broker for all measurements."""

    def __init__(self, folder: Path, spark: SparkSession, size: Size) -> None:
        self.folder = folder
        self.spark = spark
        self.size = size
        self._number = 0
        self._brokers = running_kafka(brokers=1)

    # --- the log ---

    def kafka_vs_connector(self) -> dict[str, float]:
        """JSON events in Kafka into a windowed count: our source, and Spark's own connector with from_json."""
        topic = self.kafka_topic
        schema = self.spark.createDataFrame([], DDL).schema

        def connector() -> DataFrame:
            read = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
            records = read.option("subscribe", topic.name).load()
            return records.select(sf.from_json(sf.col("value").cast("string"), schema).alias("event")).select("event.*")

        sides: dict[str, Callable[[], DataFrame]] = {
            "ours": lambda: topic.read(self.spark),
            "ours_columns": lambda: topic.read(self.spark, columns=["time", "key", "value"]),
            "connector": connector,
        }
        answers = {str(counts(side()).agg(sf.sum("hits"), sf.count("*")).first()) for side in sides.values()}
        assert len(answers) == 1, answers
        taken = in_turns({name: _computed(side) for name, side in sides.items()}, self.size.rounds)
        return {
            "kafka_vs_connector": taken["connector"] / taken["ours"],
            "kafka_columns_vs_connector": taken["connector"] / taken["ours_columns"],
            "kafka_rows_per_second": self.size.rows / taken["ours"],
            "connector_rows_per_second": self.size.rows / taken["connector"],
        }

    def log_to_view(self) -> dict[str, float]:
        """Catching up with a windowed count per key: from a sealed folder, from a hot one, from Kafka."""
        logs = {
            "sealed": self._folder_log("sealed", self.size.rows),
            "hot": self._folder_log("hot", self.size.rows, is_sealed=False),
            "kafka": self.kafka_topic.log,
        }
        answers = set()

        def caught_up(log: Log) -> Callable[[], None]:
            app = counting(partitions=PARTITIONS)
            return lambda: answers.add(self._catch_up(app, log, self._new_database()))

        taken = in_turns({name: caught_up(log) for name, log in logs.items()}, self.size.rounds)
        assert len(answers) == 1, answers
        return {
            **{f"view_rows_per_second_{name}": self.size.rows / seconds for name, seconds in taken.items()},
            "view_kafka_vs_hot": taken["hot"] / taken["kafka"],
            "view_kafka_vs_sealed": taken["sealed"] / taken["kafka"],
        }

    def producers_and_consumers(self) -> dict[str, float]:
        """One producer and one consumer on each log: single events as dicts, and batches of Arrow."""
        figures: dict[str, float] = {}
        for name, log in (("folder", Log(self.folder / "clients", background=False)), ("kafka", self.kafka_log)):
            topic = log.create("clients", DDL, event_time="time", key="key", partitions=PARTITIONS)
            single, rows = self.size.single, self.size.rows // 2
            stored = rows + single
            figures |= {
                f"send_per_second_{name}": single / _seconds(_send, topic, single),
                f"append_per_second_{name}": rows / _seconds(_append, topic, rows),
                f"consume_batches_per_second_{name}": stored / _seconds(_consume_batches, log, stored),
                f"consume_events_per_second_{name}": single / _seconds(_consume_events, log, single),
            }
        return figures

    # --- computing ---

    def cores(self) -> dict[str, float]:
        """Catching up in a process of its own with one core, and with two."""
        many = MANY * self.size.rows
        logs = {
            "folder": (self._folder_log("cores", many).url, many),
            "kafka": (self.kafka_topic.log.url, self.size.rows),
        }
        figures: dict[str, float] = {}
        for name, (url, rows) in logs.items():
            one, two = (self._elsewhere(f"local[{cores}]", url, rows) for cores in (1, 2))
            figures |= {
                f"two_cores_vs_one_{name}": one / two,
                f"rows_per_second_1_core_{name}": rows / one,
                f"rows_per_second_2_cores_{name}": rows / two,
            }
        return figures

    def workers(self) -> dict[str, float]:
        """Catching up from Kafka on a Spark cluster with one worker of one core, and with two such."""
        taken = {}
        for count in (1, 2):
            with contextmanager(running_spark)(workers=count) as cluster:
                taken[count] = self._elsewhere(
                    cluster.master, self.kafka_topic.log.url, self.size.rows, cluster.settings()
                )
        return {
            "two_workers_vs_one": taken[1] / taken[2],
            **{f"rows_per_second_{count}_workers": self.size.rows / seconds for count, seconds in taken.items()},
        }

    # --- the database ---

    def touched_keys(self) -> dict[str, float]:
        """Rows written per second where each event touches a key of its own: first new rows, then changed ones."""
        figures: dict[str, float] = {}
        with contextmanager(running_postgresql)(is_durable=True) as server:
            for name, url in (("sqlite", self._new_database()), ("postgresql", server.new_database())):
                with Log(self.folder / f"keys-{name}", background=False) as log:
                    log.create("events", DDL, event_time="time", key="key")
                    for kind in ("new", "changed"):
                        _append_keys(log.topic("events"), self.size.keys)
                        seconds = _seconds(self._catch_up, totals(), log, url)
                        figures[f"{kind}_keys_per_second_{name}"] = self.size.keys / seconds
        return figures

    # --- helpers ---

    @cached_property
    def bootstrap(self) -> str:
        return next(self._brokers).bootstrap

    @cached_property
    def kafka_log(self) -> Log:
        return Log(f"kafka://{self.bootstrap}")

    @cached_property
    def kafka_topic(self) -> Topic:
        """The events of `filled_topic`, in Kafka."""
        topic = self.kafka_log.create("events", DDL, event_time="time", key="key", partitions=PARTITIONS)
        for first in range(0, self.size.rows, FILE_ROWS):
            topic.append(events(first, min(FILE_ROWS, self.size.rows - first), KEYS, seed=len(topic.name)))
        return topic

    def _folder_log(self, name: str, rows: int, *, is_sealed: bool = True) -> Log:
        return filled_topic(self.folder / name, rows, KEYS, is_sealed=is_sealed, partitions=PARTITIONS).log

    def _new_database(self) -> str:
        self._number += 1
        return f"sqlite:{self.folder / f'views{self._number}.db'}"

    def _catch_up(self, app: Pipeline, log: Log, database: str) -> tuple[int, ...]:
        """Rows and hits of the view, when a stream has come to the end of the log."""
        with open_store(database) as store, open_engine(app, log=log, store=store, spark=self.spark) as engine:
            [running] = run_stream(engine, once=True)
            [view] = running.views
            hits = store.read(view.shape.table(running.generation.layers), columns=["hits"]).column("hits")
            return len(hits), sum(hits.to_pylist())

    def _elsewhere(self, master: str, log: str, rows: int, environment: Mapping[str, str] | None = None) -> float:
        """How many seconds the same takes in a process of its own, warmed up, with another Spark."""
        command = [sys.executable, "-m", "bench.scale_elsewhere", master, log, str(self.folder), str(rows)]
        done = subprocess.run(
            command, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, text=True, check=True
        )
        taken: list[float] = json.loads(done.stdout.splitlines()[-1])
        return statistics.median(taken)


def totals() -> Pipeline:
    """A count per key, without a window."""
    app = Pipeline("totals")
    app.topic("events", DDL, event_time="time", key="key")

    @app.view(key="key")
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("key").agg(sf.count("*").alias("hits"), sf.sum("key").alias("sum"))

    return app


def _computed(side: Callable[[], DataFrame]) -> Callable[[], None]:
    return lambda: counts(side()).write.format("noop").mode("overwrite").save()


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    began = time.monotonic()
    work(*arguments)
    return time.monotonic() - began


def _send(topic: Topic, rows: int) -> None:
    """One dict at a time; all are acknowledged at the end."""
    with topic.producer() as producer:
        for row in events(0, rows, KEYS).to_pylist():
            producer.send(row)
        producer.flush()


def _append(topic: Topic, rows: int) -> None:
    for first in range(0, rows, APPEND_ROWS):
        topic.append(events(first, min(APPEND_ROWS, rows - first), KEYS))


def _append_keys(topic: Topic, keys: int) -> None:
    """As many events as there are keys, in no order of the keys."""
    table = events(0, keys, keys)
    numbers = [number * 7919 % keys for number in range(keys)]
    topic.append(table.set_column(1, "key", pa.array(numbers, pa.int64())))


def _consume_batches(log: Log, rows: int) -> None:
    """All records, as Arrow batches, committed on the way."""
    seen = 0
    with log.consumer("clients", group="batches", start="earliest") as consumer:
        for records in consumer.batches(timeout=30):
            seen += len(records)
            if seen >= rows:
                break
    assert seen == rows, (seen, rows)


def _consume_events(log: Log, rows: int) -> None:
    """So many records, one at a time as dicts."""
    with log.consumer("clients", group="events", start="earliest") as consumer:
        for number, _ in enumerate(consumer.events(timeout=30), 1):
            if number == rows:
                return
    raise AssertionError("the topic has fewer events")


MEASUREMENTS = ("kafka_vs_connector", "log_to_view", "producers_and_consumers", "cores", "workers", "touched_keys")


if __name__ == "__main__":
    main(
        __doc__,
        Bench,
        Size(),
        Size.quick(),
        MEASUREMENTS,
        AIMS,
        conf={"spark.jars": ",".join(map(str, connector_in(CONNECTOR)))},
    )
