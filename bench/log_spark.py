"""How fast Spark reads a topic, against bare Parquet files that hold the same rows.

python -m bench.log_spark [--rows 8000000] [--json]

One job, hits and the slowest answer per minute and page, over the same access-log rows four times: from Parquet files
by plain Spark, from a sealed topic, from a topic that is all hot tail, and from that with only the columns needed. The
sides take turns after a warm-up, each in a frame of its own from planning to the last row; the medians are compared.
A ratio of 1 means as fast as plain Spark.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.access_log import SCHEMA, access_log
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.settings import SparkSettings
from penstock.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 8_000_000
ROUNDS = 5
WARM_UPS = 2
CORES = 2
PARTITIONS = 4
NEEDED = ["time", "url", "seconds"]

Source = Callable[[], "DataFrame"]


def measure(directory: Path, rows: int = ROWS) -> dict[str, float]:
    """All figures of this file, in a temporary folder inside `directory`. Uses the process's Spark session."""
    with tempfile.TemporaryDirectory(dir=directory) as root:
        hot_root, sealed_root = Path(root) / "hot", Path(root) / "sealed"
        _fill(hot_root, rows)
        shutil.copytree(hot_root, sealed_root)
        with FolderLog(hot_root, background=False) as hot, FolderLog(sealed_root, background=False) as sealed:
            sealed.topic("access").seal(active=True)
            return _compare(hot.topic("access"), sealed.topic("access"), rows)


def hits(access: DataFrame) -> DataFrame:
    """The job: a window aggregation as the design's example has it."""
    from pyspark.sql import functions as sf

    grouped = access.groupBy(sf.window("time", "1 minute"), "url")
    return grouped.agg(sf.count("*").alias("hits"), sf.max("seconds").alias("slowest"))


def _compare(hot: FolderTopic, sealed: FolderTopic, rows: int) -> dict[str, float]:
    spark = session(SparkSettings(master=f"local[{CORES}]", shuffle_partitions=CORES), name="bench")
    files = sorted(str(path) for path in sealed.directory.glob("*/*.parquet"))
    # The schema is given, so that plain Spark need not look for it first.
    schema = spark.read.parquet(*files).schema
    sources: dict[str, Source] = {
        "parquet": lambda: spark.read.schema(schema).parquet(*files),
        "sealed": lambda: sealed.read(spark),
        "hot": lambda: hot.read(spark),
        "hot_columns": lambda: hot.read(spark, columns=NEEDED),
    }
    answers = {name: _answer(source) for name, source in sources.items()}
    assert len(set(answers.values())) == 1, answers
    seconds = _alternate(sources)
    figures = {f"spark_{name}_rows_per_second": rows / taken for name, taken in seconds.items()}
    for name in ("sealed", "hot", "hot_columns"):
        figures[f"spark_{name}_vs_parquet"] = seconds["parquet"] / seconds[name]
    return figures


def _answer(source: Source) -> tuple[object, ...]:
    """Sums over the whole result: a fast answer that is wrong does not count."""
    row = hits(source()).selectExpr("count(*)", "sum(hits)", "sum(slowest)", "max(window.end)").first()
    assert row is not None
    groups, total, slowest, end = row
    return groups, total, round(slowest, 6), end


def _alternate(sources: dict[str, Source]) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in sources}
    for _ in range(WARM_UPS + ROUNDS):
        for name, source in sources.items():
            start = time.perf_counter()
            hits(source()).write.format("noop").mode("overwrite").save()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds[WARM_UPS:]) for name, seconds in taken.items()}


def _fill(root: Path, rows: int) -> None:
    with FolderLog(root, background=False) as log:
        topic = log.create("access", SCHEMA, key="ip", event_time="time", partitions=PARTITIONS)
        for batch in access_log(rows):
            topic.append(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as directory:
        figures = measure(Path(directory), arguments.rows)
    for name, value in figures.items():
        print(f"{name:36} {value:14,.3f}")
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
