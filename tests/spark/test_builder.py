"""The Spark session is set up as designed, seen from what it does rather than from what it was told."""

from __future__ import annotations

import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import JavaMissing
from penstock.settings import SparkSettings
from penstock.spark.builder import LOOPBACK, configuration, session
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# Not in Spark's own list of settings, though read by Spark or Parquet; each has a test of its effect below.
NOT_LISTED = {
    "spark.penstock.small_plans",
    "spark.sql.streaming.checkpointFileManagerClass",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
    "spark.hadoop.fs.permissions.umask-mode",
    "spark.hadoop.parquet.page.verify-checksum.enabled",
}


def test_a_cluster_is_not_bound_to_loopback() -> None:
    found = configuration(SparkSettings(master="spark://cluster:7077"))
    assert found["spark.master"] == "spark://cluster:7077"
    assert not any("127.0.0.1" in value for value in found.values())


def test_settings_by_sparks_own_names_win() -> None:
    found = configuration(SparkSettings(conf={"spark.sql.session.timeZone": "Asia/Tokyo"}))
    assert found["spark.sql.session.timeZone"] == "Asia/Tokyo"


@pytest.mark.spark
def test_every_name_is_one_that_spark_knows(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    entries = jvm.org.apache.spark.internal.config.ConfigEntry
    cluster = SparkSettings(master="spark://cluster:7077", secret="known")
    names = {*configuration(SparkSettings()), *configuration(cluster)} - NOT_LISTED - {"spark.master"}
    assert {name for name in names if entries.findEntry(name) is None} == set()


@pytest.mark.spark
def test_files_of_the_jvm_and_its_workers_are_their_owners_alone(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.spark.private.context import made_folder

    def write(number: int) -> int:
        Path(tmp_path, "worker").write_text("")
        return number

    assert spark.sparkContext.parallelize([1], 1).map(write).collect() == [1]
    spark.range(1).write.parquet(f"{tmp_path}/jvm")
    assert made_folder(spark, f"file:{tmp_path}/checkpoints/view", must_exist=False)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert tmp_path / "checkpoints" / "view" in found
    assert tmp_path / "worker" in found
    assert {path: oct(mode) for path, mode in found.items() if mode & 0o077} == {}


@pytest.mark.spark
def test_ctrl_c_while_spark_starts_leaves_no_jvm_behind() -> None:
    """Interrupted between the start of the JVM and its first word, PySpark would leave one that never ends."""
    # A suite in the background of a shell ignores Ctrl-C, and so would whatever it starts.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from penstock.spark.builder import session; session()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def is_starting() -> bool:
        assert process.poll() is None
        return any(each.partition("\0")[0].endswith("java") and "SparkSubmit" in each for each in _children(process))

    eventually(is_starting)
    time.sleep(0.3)  # Java runs, but has not reported its port yet.
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()  # Ends only once the JVM, which shares its output, has ended too.
    assert "KeyboardInterrupt" in said


@pytest.mark.spark
def test_other_processes_cannot_speak_with_the_driver(spark: SparkSession) -> None:
    """The driver answers a message without a login by the words of its authentication, and does not read it."""
    message = struct.pack(">bqi", 3, 7, 5) + b"hello"
    with socket.create_connection((LOOPBACK, int(spark.conf.get("spark.driver.port") or 0))) as connection:
        connection.sendall(struct.pack(">q", 8 + len(message)) + message)
        answer = connection.recv(1 << 16)
    assert b"Expected SaslMessage" in answer
    assert spark.conf.get("spark.authenticate.secret", None) is None  # Only the JVM has it.


SECRETS_SCRIPT = """
import sys
from penstock.settings import load_settings
from penstock.spark import session

spark = session(load_settings({"spark.master": "local[1]"}).spark)
print(spark.sparkContext.parallelize([1], 1).map(lambda number: number + 1).collect(), flush=True)
sys.stdin.read()
"""


@pytest.mark.spark
def test_no_process_shows_a_secret_on_its_command_line() -> None:
    conf = '{ "spark.ssl.keyPassword" = "hush4711", "spark.x.url" = "https://me:hush4711@jars/" }'
    secrets = {"LOG_PASSWORD": "hush4711", "VIEWS_PASSWORD": "hush4711", "SPARK_SECRET": "hush4711", "SPARK_CONF": conf}
    environment = {f"PENSTOCK_{name}": value for name, value in secrets.items()}
    environment["PENSTOCK_VIEWS_URL"] = "postgresql://me:hush4711@db/views"
    process = subprocess.Popen(
        [sys.executable, "-c", SECRETS_SCRIPT],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[2]\n"
        shown = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.getsid(int(folder.name)) == process.pid:
                    shown[int(folder.name)] = (folder / "cmdline").read_bytes().decode()
        assert any("pyspark-shell" in command for command in shown.values())
        assert any("pyspark.daemon" in command or "pyspark/daemon" in command for command in shown.values()), shown
        assert {pid for pid, command in shown.items() if "hush4711" in command} == set()


def _children(process: subprocess.Popen[str]) -> list[str]:
    """The commands that a process has started and that still run."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    found = [number for task in tasks for number in task.read_text().split()]
    commands = []
    for number in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # It has ended meanwhile.
            commands.append(Path(f"/proc/{number}/cmdline").read_bytes().decode())
    return commands


@pytest.mark.spark
def test_workers_run_the_same_python(spark: SparkSession) -> None:
    def executable(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"executable": [sys.executable]})

    assert spark.range(1, numPartitions=1).mapInArrow(executable, "executable string").first() == (sys.executable,)


@pytest.mark.spark
def test_times_are_utc(spark: SparkSession) -> None:
    row = spark.sql("SELECT CAST(TIMESTAMP '2026-01-01 00:00:00' AS LONG) AS seconds").first()
    assert row == (int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()),)


@pytest.mark.spark
def test_second_call_returns_the_running_session(spark: SparkSession) -> None:
    again = session(SparkSettings(master="local[7]"))
    assert again.sparkContext is spark.sparkContext
    assert again.sparkContext.master == "local[2]"


@pytest.mark.spark
def test_flipped_bit_in_a_parquet_page_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "numbers.parquet"
    table = pa.table({"number": range(10_000)})
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False, compression="none")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    assert spark.read.parquet(str(path)).selectExpr("sum(number)").first() == (sum(range(10_000)),)
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    with pytest.raises(Exception, match="checksum verification failed"):
        spark.read.parquet(str(tmp_path / "damaged.parquet")).selectExpr("sum(number)").first()


@pytest.mark.spark
def test_state_is_kept_as_changelogs(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.parquet(str(tmp_path / "input"))
    counts = spark.readStream.schema("id long").parquet(str(tmp_path / "input")).groupBy("id").count()
    query = (
        counts.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [*(tmp_path / "checkpoint" / "state").rglob("*.changelog")]


@pytest.mark.spark
def test_checkpoints_are_written_without_forking(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark.sparkContext._jvm
    manager = getattr(jvm.org.apache.spark.sql.execution.streaming.checkpointing, "CheckpointFileManager$")
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    made = getattr(manager, "MODULE$").create(jvm.org.apache.hadoop.fs.Path(str(tmp_path)), hadoop)
    assert made.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"


@pytest.mark.spark
def test_session_is_quiet_local_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """In a process of its own: no line on standard error, no socket beyond loopback, no file in the current folder."""
    script = """
from penstock.settings import SparkSettings
from penstock.spark import session
started = session(SparkSettings(master="local[1]", ui=True))
assert started.range(10).repartition(2).mapInArrow(lambda batches: batches, "id long").count() == 10
jvm = started.sparkContext._gateway.proc.pid
sockets = {line.split()[9]: line.split()[1] for name in ("tcp", "tcp6")
           for line in open(f"/proc/{jvm}/net/{name}").readlines()[1:] if line.split()[3] == "0A"}
import os
for number in os.listdir(f"/proc/{jvm}/fd"):
    try:
        target = os.readlink(f"/proc/{jvm}/fd/{number}")
    except FileNotFoundError:
        continue
    if target.startswith("socket:[") and target[8:-1] in sockets:
        print(sockets[target[8:-1]].split(":")[0])
"""
    (tmp_path / "here").mkdir()
    answer = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "here", capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    # 127.0.0.1 as the kernel writes it, for IPv4 and for IPv4 inside IPv6.
    assert set(answer.stdout.split()) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert len(answer.stdout.split()) >= 3
    assert os.listdir(tmp_path / "here") == []


def test_without_java_nothing_is_started() -> None:
    script = "from penstock.spark.builder import session\nsession()"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith(f"penstock.errors.{JavaMissing.__name__}: Spark needs Java 17")
