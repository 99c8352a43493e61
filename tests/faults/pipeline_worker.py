"""A run of a small pipeline in a process of its own, which is struck by a signal at a chosen point.

The point is a function of the product; it is wrapped here, in the child alone. The process has no JVM of its own: it
uses that of whoever started it, so that it is at work within a second. What it leaves in the log and in the database
is what any killed process leaves.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

import penstock.modes.running
import penstock.plans.collect
from penstock import Pipeline
from penstock.errors import PenstockError
from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.folder_topic import FolderTopic
from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine, open_engine
from penstock.modes.replays import run_kappa
from penstock.modes.rounds import run_lambda
from penstock.modes.running import RunningSet
from penstock.modes.stream import StreamOptions, run_stream
from penstock.spark.private.prepared import InDriver
from penstock.upkeep.compiled import compile_pipeline
from penstock.views.catalog import Catalog, Generation
from penstock.views.outbox import Relay
from penstock.views.store import Transaction, open_store

STEP_ROWS = 3
CALL_SECONDS_MAX = 0.08
"""A long call is struck at some moment up to this."""

Point = Literal["slice", "job", "before", "in", "after", "changelog", "rebuild", "switch", "round", "replay"]
Mode = Literal["stream", "batch", "lambda", "kappa"]


def accounts() -> Pipeline:
    """One view of each kind: a fold, redos by window and by group, one over another, and changes sent to topics."""
    app = Pipeline("accounts")
    app.topic(
        "events",
        "time timestamp, account string, item bigint, amount bigint",
        key="account",
        event_time="time",
        lateness="1 hour",
        partitions=2,
    )

    @app.view(key="account", changelog="totals.changes")
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("account").agg(sf.count("*").alias("items"), sf.sum("amount").alias("amount"))

    @app.view(key="items", changelog="histogram.changes")
    def histogram(totals: DataFrame) -> DataFrame:
        return totals.groupBy("items").agg(sf.count("*").alias("accounts"), sf.sum("amount").alias("amount"))

    @app.view(key="window")
    def per_minute(events: DataFrame) -> DataFrame:
        return events.groupBy(sf.window("time", "1 minute")).agg(sf.countDistinct("account").alias("accounts"))

    @app.view(key="item", within="account")
    def steps(events: DataFrame) -> DataFrame:
        order = Window.partitionBy("account").orderBy("item")
        return events.select("account", "item", (sf.col("amount") - sf.lag("amount").over(order)).alias("step"))

    return app


@dataclass(frozen=True)
class Gateway:
    """Where a JVM listens for Python processes."""

    port: int
    secret: str

    @staticmethod
    def of(spark: SparkSession) -> Gateway:
        parameters = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
        return Gateway(parameters.port, parameters.auth_token)

    def session(self) -> SparkSession:
        """A session of this process's own, in that JVM."""
        os.environ.update(PYSPARK_GATEWAY_PORT=str(self.port), PYSPARK_GATEWAY_SECRET=self.secret)
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
        java = gateway.jvm.JavaSparkContext.fromSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
        context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()))
        return SparkSession(context).newSession()


@dataclass(frozen=True)
class Strike:
    """A signal that the process sends itself, the nth time it comes to a point."""

    point: Point
    nth: int
    chance: float
    """From 0 to below 1: at which function of the point, and on which side of the call or how far into it."""
    signal: signal.Signals = signal.SIGKILL


def _always(*_: Any, **__: Any) -> bool:
    return True


def _has_producer(*_: Any, producer: object = None, **__: Any) -> bool:
    return producer is not None


def _is_building(running: RunningSet, *_: Any, **__: Any) -> bool:
    return running.generation.state == "building"


def _are_building(_: Transaction, written: Sequence[tuple[Generation, Any, Any]], *__: Any) -> bool:
    return any(generation.state == "building" for generation, _, _ in written)


@dataclass(frozen=True)
class Place:
    """A function of the product. A strike comes before or after one of its calls."""

    holder: Any
    name: str
    counts: Callable[..., bool] = _always
    """Which calls count, by their arguments."""
    is_long: bool = False
    """The strike comes while the call is under way, or at its end if it is over sooner."""

    def __post_init__(self) -> None:
        assert hasattr(self.holder, self.name), self.name


PLACES: dict[Point, tuple[Place, ...]] = {
    "slice": (Place(FolderTopic, "slice"),),
    "job": (Place(InDriver, "compute", is_long=True), Place(penstock.plans.collect, "_by_spark", is_long=True)),
    "before": (Place(RunningSet, "transaction"),),  # Only makes it; its first statement comes later.
    "in": (Place(Transaction, "write"), Place(Catalog, "set_fences")),
    "after": (Place(RunningSet, "moved"),),
    "changelog": (Place(FolderPartition, "append", _has_producer), Place(Relay, "_next")),
    "rebuild": (Place(RunningSet, "write", _is_building), Place(RunningSet, "moved", _is_building)),
    "switch": (Place(Catalog, "switch"), Place(Transaction, "exchange"), Place(Engine, "switch")),
    "round": (
        Place(Engine, "on_top_of"),
        Place(penstock.modes.running, "write_rows", _are_building),
        Place(RunningSet, "write", _is_building),
        Place(Transaction, "exchange"),
        Place(Engine, "switch"),
    ),
    "replay": (Place(RunningSet, "moved", _is_building), Place(Transaction, "exchange"), Place(Engine, "switch")),
}
"""The functions behind each point. Chance chooses one, and the side of the call."""


@dataclass(frozen=True)
class Job:
    """What a process does."""

    log: Path
    url: str
    gateway: Gateway
    mode: Mode = "stream"
    """As a batch a new generation is built and switched in first, then it streams."""
    version: str = ""
    """Of the code: views of another version are replayed by kappa."""
    strike: Strike | None = None
    is_endless: bool = False
    """It streams until somebody ends it."""
    lease: timedelta = timedelta(seconds=10)
    at: float = 0.0
    """When to take the pipeline, as time.time() tells."""


def work(job: Job, answers: Connection | None = None) -> None:
    """Does the job. What it has to say goes to `answers`: "owns", "stepped", or an error with the pid it names."""
    tell = answers.send if answers is not None else _nothing
    spark = job.gateway.session()
    if job.strike is not None:
        arm(job.strike)
    try:
        with FolderLog(job.log, background=False) as log, open_store(job.url, lease=job.lease) as store:
            tell(("ready", os.getpid()))
            time.sleep(max(job.at - time.time(), 0))
            compiled = compile_pipeline(accounts(), spark)
            views = [replace(view, fingerprint=view.fingerprint + job.version) for view in compiled]
            with open_engine(accounts(), log=log, store=store, spark=spark, views=views) as engine:
                tell(("owns", os.getpid()))
                options: StreamOptions = {
                    "once": not job.is_endless,
                    "max_rows": STEP_ROWS,
                    "on_step": lambda _, __, left: tell(("stepped", left)),
                }
                if job.mode == "lambda":
                    run_lambda(engine, every=timedelta(0), **options)
                elif job.mode == "kappa":
                    run_kappa(engine, **options)
                else:
                    if job.mode == "batch":
                        run_batch(engine, max_rows=STEP_ROWS)
                    run_stream(engine, **options)
    except PenstockError as error:
        tell((type(error).__name__, getattr(error, "pid", None)))
        if answers is None:
            raise
    tell(("ended", os.getpid()))


def arm(strike: Strike) -> None:
    """Wrap the function that the strike chooses, in this process."""
    places = PLACES[strike.point]
    number, side = divmod(strike.chance * len(places), 1)
    place = places[int(number)]
    real = getattr(place.holder, place.name)
    calls = itertools.count(1)

    def hit() -> None:
        os.kill(os.getpid(), strike.signal)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        is_hit = place.counts(*arguments, **named) and next(calls) == strike.nth
        if is_hit and place.is_long:
            threading.Timer(side * CALL_SECONDS_MAX, hit).start()
        elif is_hit and side < 0.5:
            hit()
        result = real(*arguments, **named)
        if is_hit and (place.is_long or side >= 0.5):
            hit()
        return result

    setattr(place.holder, place.name, wrapped)


def _nothing(_: object) -> None:
    pass
