"""A pipeline that runs record at a time in a process of its own, and what it leaves in Kafka."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.kafka.log import KafkaLog
from tests.conftest import SHORT_LIVED
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
STARTED_WITHIN_SECONDS = 120
ANSWERS_WITHIN_SECONDS = 150


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
            + "".join(f'"{name}" = "{value}"\n' for name, value in SHORT_LIVED.items())
        )

    def start(self, number: int = 0) -> Service:
        """Begins to run it record at a time, and returns when it reads."""
        output = self.folder / f"run-{number}.log"
        command = [sys.executable, "-m", "penstock.cli", "run", str(self.app), "--trigger", "realtime", "--json"]
        service = Service("penstock run", command, output, self._environment())
        wait_for(lambda: b'"started"' in output.read_bytes() or not service.is_running, STARTED_WITHIN_SECONDS)
        assert service.is_running, service.said()
        return service

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command about the pipeline, to its end."""
        command = [sys.executable, "-m", "penstock.cli", *words]
        environment = {**os.environ, **self._environment()}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)

    def _environment(self) -> dict[str, str]:
        return {"PENSTOCK_CONFIG": str(self.folder / "penstock.toml")}


def ended(service: Service) -> list[dict[str, Any]]:
    """Asks a run to stop; what it has told, from the first line on."""
    os.kill(service.pid, signal.SIGTERM)
    wait_for(lambda: not service.is_running, BATCH_SECONDS + 40)
    lines = service.output.read_text().splitlines()
    assert service.code == 0, service.said()
    return [json.loads(line) for line in lines if line.startswith("{")]


def records(log: KafkaLog, topic: str) -> list[dict[str, Any]]:
    """What a topic holds, without where it holds it and how far the log was then; in an order of its own."""
    left_out = ("_partition", "_offset", "_arrived", "_late", "offsets")
    rows = log.topic(topic).slice().to_pylist()
    return sorted(({name: row[name] for name in row if name not in left_out} for row in rows), key=repr)


def wait_for(is_so: Callable[[], bool], seconds: float = ANSWERS_WITHIN_SECONDS) -> None:
    """Until it is so, or for so long."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.2)
