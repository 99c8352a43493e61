"""Starting the JVM: a process has one, which ends with it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, TypeAlias

from penstock.access import PRIVATE_UMASK

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf

Gateway: TypeAlias = "JavaGateway"
"""The way to a JVM."""


def has_context() -> bool:
    """Whether Spark runs in this process."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def has_jvm() -> bool:
    """Whether there is a JVM, where Spark runs or could be started again."""
    from pyspark import SparkContext

    return bool(SparkContext._gateway)


def launch(conf: SparkConf, stderr: int) -> Gateway:
    """Starts the JVM; what it writes to its standard error goes to that descriptor.

    Its files, and those of the Python workers that it starts, are for their owner alone.
    """
    from pyspark.java_gateway import launch_gateway

    gateway: Gateway = launch_gateway(conf, {"stderr": stderr, "umask": PRIVATE_UMASK})  # type: ignore[no-untyped-call]
    return gateway


def end_jvm(seconds: float) -> None:
    """Ends the JVM, and waits for it; kills it if it takes longer than that. This process cannot use Spark any more."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return
    process.terminate()  # Unlike the end of its input, this lets it remove its scratch files.
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
