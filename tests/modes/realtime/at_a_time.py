"""A pipeline that runs in real-time mode in a process of its own, and the records it writes to Kafka."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.kafka.log import KafkaLog
from tests.eventually import eventually
from tests.services.kafka import KafkaCluster
from tests.services.process import Service

APP = """\
from pyspark.sql import functions as F

from penstock import Pipeline

app = Pipeline("{name}")
app.topic(
    "{topic}",
    "time timestamp, user string, n int, ratio double, price decimal(10,2), tags array<string>, raw binary, "
    "value int, `a``b` int, rate decimal(18,8), "
    "place struct<x: float, day: date>, seen map<string, bigint>, local timestamp_ntz",
    key="user", event_time="time", lateness="10 minutes", partitions=2,
)
app.table("names", "names.csv", schema="user string, full_name string")


@app.view(changelog="{name}.all")
def every({bound}):
    return {bound}.select("*", F.col("_late").alias("was_late"), F.col("_arrived").alias("came"))


@app.view(changelog="{name}.some", late="drop")
def some({bound}, names):
    tagged = {bound}.where("n % 2 = 0").select("user", (F.col("n") * 10).alias("ten"), F.explode("tags").alias("tag"))
    return tagged.join(names, "user", "left")
"""
BATCH_SECONDS = 5
LIMIT_SECONDS = 300.0
"""How long to wait for a run that starts a JVM first."""


class Place:
    """A folder with a pipeline, its settings, and processes that run it."""

    def __init__(self, folder: Path, kafka: KafkaCluster, jars: str, *, app: str = APP, **names: str) -> None:
        self.folder = folder
        self.app = folder / "app.py"
        self.app.write_text(app.format(**names))
        (folder / "names.csv").write_text("user,full_name\nu0,Ada\nu1,Grace\n")
        (folder / "penstock.toml").write_text(
            f'[log]\nurl = "kafka://{kafka.bootstrap}"\n'
            f'[spark]\nmaster = "local[2]"\nrealtime_batch = "{BATCH_SECONDS}s"\nshuffle_partitions = 1\n'
            f'[spark.conf]\n"spark.jars" = "{jars}"\n'
        )

    def start(self, number: int = 0) -> Service:
        """Starts it in real-time mode, and returns when it reads."""
        output = self.folder / f"run-{number}.log"
        command = [sys.executable, "-m", "penstock.cli", "run", str(self.app), "--trigger", "realtime", "--json"]
        service = Service("penstock run", command, output, self._environment())

        def is_started() -> bool:
            assert service.is_running, service.said()
            return b'"started"' in output.read_bytes()

        eventually(is_started, explain=service.said, seconds=LIMIT_SECONDS)
        return service

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        command = [sys.executable, "-m", "penstock.cli", *words]
        environment = {**os.environ, **self._environment()}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def _environment(self) -> dict[str, str]:
        return {"PENSTOCK_CONFIG": str(self.folder / "penstock.toml")}


def ended(service: Service) -> list[dict[str, Any]]:
    """Asks a run to stop, and returns all its output."""
    os.kill(service.pid, signal.SIGTERM)
    eventually(lambda: not service.is_running, explain=service.said)
    lines = service.output.read_text().splitlines()
    assert service.code == 0, service.said()
    return [json.loads(line) for line in lines if line.startswith("{")]


def records(log: KafkaLog, topic: str) -> list[dict[str, Any]]:
    """The records of a topic in a fixed order, without their offsets and what depends on when they were written."""
    left_out = ("_partition", "_offset", "_arrived", "_late", "offsets")
    rows = log.topic(topic).slice().to_pylist()
    return sorted(({name: row[name] for name in row if name not in left_out} for row in rows), key=repr)
