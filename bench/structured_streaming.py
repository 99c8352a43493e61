"""The same job by hand on Structured Streaming: a windowed count per key, upserted into SQLite by foreachBatch.

State in RocksDB, update mode. `tuned` sets what we know to help; without it everything else is Spark's default.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
TUNED = {
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}
DEFAULTS = {
    "spark.sql.streaming.checkpointFileManagerClass": None,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
UPSERT = (
    "INSERT INTO counts VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (start, key) DO UPDATE SET stop = excluded.stop, hits = excluded.hits, most = excluded.most"
)


class Target:
    """The SQLite table that a hand-written job fills, as durable as a view's."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.pragma("journal_mode", "wal")
        self.connection.pragma("synchronous", "full")
        self.connection.execute(
            "CREATE TABLE counts (start TEXT, key INTEGER, stop TEXT, hits INTEGER, most REAL, "
            "PRIMARY KEY (start, key)) WITHOUT ROWID"
        )

    def write(self, frame: DataFrame) -> None:
        """Upserts the rows of one micro-batch in one transaction."""
        table = frame.select(
            sf.col("window.start").cast("string"), "key", sf.col("window.end").cast("string"), "hits", "most"
        ).toArrow()
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        with self.connection:
            self.connection.executemany(UPSERT, rows)

    def count(self) -> tuple[int, int]:
        """Rows, and the sum of all hits."""
        found = self.connection.execute("SELECT count(*), sum(hits) FROM counts").fetchone()
        assert found is not None
        return int(found[0]), int(found[1])


def counts(events: DataFrame) -> DataFrame:
    """The job, the same for everybody."""
    grouped = events.groupBy(sf.window("time", "1 minute"), "key")
    return grouped.agg(sf.count("*").alias("hits"), sf.max("value").alias("most"))


def catch_up(spark: SparkSession, files: Sequence[Path], folder: Path, *, files_per_step: int = 1) -> tuple[int, int]:
    """Runs over all files, so many per micro-batch, to the end. Returns what is in the table then."""
    _set(spark, TUNED)
    source = folder / "source"
    shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    for number, file in enumerate(files):
        (source / f"{number:06}.parquet").hardlink_to(file)
    target = Target(folder / "target.db")
    stream = spark.readStream.schema(spark.read.parquet(str(source)).schema).option(
        "maxFilesPerTrigger", files_per_step
    )
    query = (
        counts(stream.parquet(str(source)))
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(lambda frame, _: target.write(frame))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return target.count()


def step_seconds(spark: SparkSession, files: Sequence[Path], folder: Path, *, tuned: bool) -> list[float]:
    """How long each micro-batch took, given one small file after the other."""
    _set(spark, TUNED if tuned else DEFAULTS)
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"
    source.mkdir(parents=True)
    target = Target(folder / "target.db")
    schema = spark.read.parquet(str(files[0])).schema
    query = (
        counts(spark.readStream.schema(schema).parquet(str(source)))
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(lambda frame, _: target.write(frame))
        .start()
    )
    try:
        for number, file in enumerate(files):
            (source / f".{number:06}").hardlink_to(file)
            (source / f".{number:06}").rename(source / f"{number:06}.parquet")
            query.processAllAvailable()
        done = [each for each in query.recentProgress if each["numInputRows"]]
    finally:
        query.stop()
    return [each["durationMs"]["triggerExecution"] / 1000 for each in done]


def _set(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
