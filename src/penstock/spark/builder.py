"""Spark, set up well: the one place that builds a session.

Each setting stands beside the reason for it. What is set here can be changed by `[spark]` in `penstock.toml`,
and anything at all by its full name under `[spark.conf]`.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.access import PRIVATE_UMASK
from penstock.errors import ClusterUnreachable
from penstock.java import require_java
from penstock.redacted import shown_values
from penstock.settings import SparkSettings
from penstock.spark.cluster import AUTHENTICATE, check_cluster, is_local, is_on_this_machine, security
from penstock.spark.executors import check_executors
from penstock.spark.private.process import Gateway, has_context, has_jvm, launch
from penstock.spark.shipping import ship

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
LOG4J_FILE = Path(__file__).with_name("log4j2.properties")

# The JVM says the first of the vector module that Spark always asks for, Spark's sketches say the second of a kind of
# memory that they do not use here; neither is news, and neither can be turned off.
NOISE = (
    b"WARNING: Using incubator modules: jdk.incubator.vector\n",
    b"Warning: Java versions > Java 11 can only operate in restricted mode where no off-heap operations are allowed!\n",
)

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_starting = threading.Lock()


def session(settings: SparkSettings | None = None, *, name: str = "penstock") -> SparkSession:
    """The Spark session of this process, started if there is none yet.

    A process has one JVM: where a session runs already, it is returned as it is and `settings` change nothing.
    With a local master nothing listens on any other address than loopback. Raises JavaMissing before anything starts.
    The executors of a cluster are sent Penstock and the application, and are asked whether they lack anything; each
    ClusterError says what, and leaves no session. `stop()` ends the jobs, and a later call starts anew in the same JVM,
    which ends with the process.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    settings = settings or SparkSettings()
    with _starting:
        if not has_context():
            chosen = configuration(settings)
            check_cluster(settings, chosen)
            _prepare_environment(settings)
            # PySpark prints every error of a plan as kilobytes of JSON, before anybody can catch it.
            for kind in ("DataFrame", "SQL"):
                logging.getLogger(f"{kind}QueryContextLogger").setLevel(logging.CRITICAL)
            conf = SparkConf(loadDefaults=False).setAppName(name).setAll([*chosen.items()])
            gateway = None if has_jvm() else _start_jvm(_without_secrets(chosen, name))
            if is_local(settings.master):
                SparkContext(conf=conf, gateway=gateway)
            else:
                _join_cluster(settings.master, conf, gateway)
        return SparkSession.builder.getOrCreate()


def configuration(settings: SparkSettings) -> dict[str, str]:
    """What the session is started with, by Spark's own names."""
    driver_options = (
        f"-Xss{settings.thread_stack}",
        f"-Dlog4j2.configurationFile={LOG4J_FILE.as_uri()}",
        f"-Dpenstock.log_level={settings.log_level}",
        f"-Dpenstock.log_level_tasks={'OFF' if settings.log_level == 'ERROR' else settings.log_level}",
    )
    found = {
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(driver_options),
        "spark.executor.extraJavaOptions": f"-Xss{settings.thread_stack}",
        # 200 pieces, Spark's default, cost more to schedule than a laptop's data costs to compute.
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # The same log gives the same answer on every machine, whatever its zone.
        "spark.sql.session.timeZone": "UTC",
        # With Spark's 4 MB a slice of one file of 10 MB is cut unevenly, and one core waits for the other.
        "spark.sql.files.openCostInBytes": str(512 << 10),
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.penstock.small_plans": settings.small_plans,
        # Up to Spark's 48 MB of Arrow would be made objects of the driver's heap, copied into the plan and every task.
        "spark.sql.execution.arrow.localRelationThreshold": str(8 << 20),
        # Sealed segments carry a checksum per page; a flipped bit is an error, never a wrong row.
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # Hadoop sets the modes of what Spark writes, such as checkpoints, whatever the umask of the process.
        "spark.hadoop.fs.permissions.umask-mode": f"{PRIVATE_UMASK:03o}",
        # State on disk with small changelogs, instead of in the heap with whole snapshots.
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if is_local(settings.master):
        found["spark.driver.host"] = found["spark.driver.bindAddress"] = LOOPBACK
        # Else any process of this machine could speak with the driver, which deserializes what it is sent. Spark makes
        # a secret for the session by itself here, and keeps it in the JVM.
        found[AUTHENTICATE] = "true"
        # The default forks `readlink` a hundred times per micro-batch on a local disk.
        found["spark.sql.streaming.checkpointFileManagerClass"] = _CHECKPOINTS
    else:
        found |= security(settings)
        if is_on_this_machine(settings.master):
            found["spark.driver.host"] = found["spark.driver.bindAddress"] = LOOPBACK
    return found | dict(settings.conf)


def _without_secrets(chosen: Mapping[str, str], name: str) -> SparkConf:
    """What the JVM is started with: it stands on its command line, which everybody on the machine can read."""
    from pyspark import SparkConf

    shown = [(key, value) for key, value in chosen.items() if value == shown_values({key: value})[key]]
    return SparkConf(loadDefaults=False).setAppName(name).setAll(shown)


def _join_cluster(master: str, conf: SparkConf, gateway: Gateway | None) -> None:
    """Starts the application on a cluster, and takes it back if its executors cannot do their part."""
    from pyspark import SparkContext

    from penstock.spark.private.context import JavaError

    context = None
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        ship(context)
        check_executors(context)
    except BaseException as error:
        if context is not None:
            context.stop()
        if isinstance(error, JavaError):
            raise ClusterUnreachable(master, _refusal(str(error.java_exception))) from error
        raise


def _refusal(said: str) -> str:
    """Why a cluster did not take the application. Spark gives up after a minute and stumbles over what is not there."""
    if re.search("stopped SparkContext|unresponsive|NullPointerException", said):
        return "its master answers, but does not take this application"
    return said.splitlines()[0]


def _prepare_environment(settings: SparkSettings) -> None:
    """What Spark reads from the environment instead of its configuration."""
    if is_on_this_machine(settings.master):
        # Without it Spark's web pages listen on every address, and a host name is looked up with two warnings.
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    # Else workers start the system's Python and find no pyarrow.
    if is_local(settings.master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif "spark.pyspark.python" in settings.conf:
        os.environ["PYSPARK_PYTHON"] = settings.conf["spark.pyspark.python"]
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _start_jvm(conf: SparkConf) -> Gateway:
    """Starts the JVM with its standard error passed on line by line, except for the lines that are noise."""
    require_java()
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), name="spark-stderr", daemon=True).start()
    try:
        # In a thread, which no signal interrupts: half started, a JVM whose Python is gone would live for ever.
        with ThreadPoolExecutor(1, thread_name_prefix="spark-start") as starter:
            return starter.submit(launch, conf, writing).result()
    finally:
        os.close(writing)


def _pass_on(reading: int) -> None:
    with open(reading, "rb") as lines:
        for line in lines:
            if line not in NOISE:
                os.write(2, line)
