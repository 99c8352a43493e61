"""What is asked of a running JVM, beside plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError as JavaError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["JavaError", "block_managers", "has_class", "is_utc", "made_folder", "tasks_at_once"]


def block_managers(context: SparkContext) -> list[str]:
    """The addresses of the driver and of the executors that have come by now."""
    known = _scala(context).getExecutorMemoryStatus().keys().mkString(",")
    return [each for each in known.split(",") if each]


def tasks_at_once(context: SparkContext) -> int:
    """How many tasks can run at once on the executors that have come by now."""
    scala = _scala(context)
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def has_class(context: SparkContext, name: str) -> bool:
    """Whether Spark finds a class among its jars."""
    java = _java(context)
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        java.java.lang.Class.forName(name, False, loader)
    except JavaError:
        return False
    return True


def is_utc(spark: SparkSession) -> bool:
    """Whether the time zone of the session is UTC, by whatever name."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    zones = _java(spark.sparkContext).org.apache.spark.sql.catalyst.util.DateTimeUtils
    return bool(zones.getZoneId(zone).normalized().getId() == "Z")


def made_folder(spark: SparkSession, folder: str, *, must_exist: bool) -> bool:
    """Makes a folder in the file system that its URL names. False, with nothing made, if it must exist and does not."""
    context = spark.sparkContext
    path = _java(context).org.apache.hadoop.fs.Path(folder)
    files = path.getFileSystem(context._jsc.hadoopConfiguration())
    if must_exist and not files.exists(path):
        return False
    files.mkdirs(path)
    return True


def _scala(context: SparkContext) -> Any:
    return context._jsc.sc()


def _java(context: SparkContext) -> Any:
    return context._jvm
