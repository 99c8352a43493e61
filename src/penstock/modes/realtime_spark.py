"""Spark as a run record at a time needs it: with the Kafka connector, and a core for each partition that is read."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import ConnectorMissing, TooFewCores, ZoneNotUtc
from penstock.pipeline.pipeline import Pipeline
from penstock.settings import SparkSettings
from penstock.spark.cluster import is_local
from penstock.spark.executors import COME_WITHIN_SECONDS
from penstock.spark.jars import CONNECTOR, connector_in, jars_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMES_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
LOOK_SECONDS = 0.2
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def realtime_spark(pipeline: Pipeline, settings: SparkSettings) -> SparkSettings:
    """The same Spark, with the connector's jars and enough threads. ConnectorMissing if the jars are not here."""
    if not any(name in settings.conf for name in _NAMES_JARS):
        folder = jars_folder()
        jars = connector_in(folder)
        if not jars:
            there = sum((folder / each.name).is_file() for each in CONNECTOR)
            raise ConnectorMissing(folder, f"{there} of {len(CONNECTOR)} jars")
        settings = replace(settings, conf={**settings.conf, "spark.jars": ",".join(map(str, jars))})
    # Decoding makes long expressions: as one method for a whole stage, Java does not compile them.
    conf = {"spark.sql.codegen.wholeStage": "false", **settings.conf}
    return replace(settings, master=_with_threads(settings.master, cores_needed(pipeline) + 1), conf=conf)


def cores_needed(pipeline: Pipeline) -> int:
    """Every view holds a core for each partition of its topic, and so do the dead letters of each topic."""
    partitions = {spec.bound: int(spec.options.get("partitions", 1)) for spec in pipeline.topics.values()}
    read = [name for spec in pipeline.views.values() for name in spec.inputs if name in partitions]
    return sum(partitions[name] for name in [*read, *{*read}])


def _with_threads(master: str, least: int) -> str:
    """A local master with at least so many threads: most of them only wait for Kafka."""
    match = re.fullmatch(r"local(?:\[([0-9]+|\*)(,.+)?\])?", master)
    if match is None:
        return master
    asked = os.cpu_count() or 1 if match[1] == "*" else int(match[1] or 1)
    return f"local[{max(asked, least)}{match[2] or ''}]"


def check_spark(pipeline: Pipeline, spark: SparkSession) -> None:
    """ZoneNotUtc, ConnectorMissing if Spark does not know Kafka, TooFewCores if a cluster is too small."""
    from penstock.spark.private.context import has_class

    check_zone(pipeline, spark)
    context = spark.sparkContext
    if not has_class(context, _PROVIDER):
        found = f"Spark runs with spark.jars = {context.getConf().get('spark.jars', '') or 'nothing'}"
        raise ConnectorMissing(jars_folder(), found)
    check_cores(pipeline, str(context.master), lambda: cores_there(spark))


def check_zone(pipeline: Pipeline, spark: SparkSession) -> None:
    """ZoneNotUtc if times are read and written by another clock than that of the log."""
    from penstock.spark.private.context import is_utc

    if not is_utc(spark):
        raise ZoneNotUtc(pipeline.name, str(spark.conf.get("spark.sql.session.timeZone")))


def check_cores(
    pipeline: Pipeline, master: str, cores: Callable[[], int], within_seconds: float = COME_WITHIN_SECONDS
) -> None:
    """TooFewCores if a cluster gives fewer than the queries hold: the last of them would wait for ever.

    Executors come one after the other, so it has some time to give them.
    """
    needed = cores_needed(pipeline)
    deadline = time.monotonic() + within_seconds
    while not is_local(master) and (found := cores()) < needed:
        if time.monotonic() > deadline:
            raise TooFewCores(pipeline.name, needed, found)
        time.sleep(LOOK_SECONDS)


def cores_there(spark: SparkSession) -> int:
    """How many tasks can run at once on the executors that have come by now."""
    from penstock.spark.private.context import tasks_at_once

    return tasks_at_once(spark.sparkContext)
