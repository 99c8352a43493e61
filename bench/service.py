"""All promises about the speed of the service, measured in one go.

    python -m bench.service [--json] [--quick] [--only NAME ...]

The service runs in a process of its own, as `penstock serve` does, the clients in another one. Times count from the
moment a request was due, not from when it could be sent: a service that falls behind cannot hide it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from bench import service_clients as clients
from bench.measuring import main
from bench.pipeline_data import DDL, events
from bench.service_clients import in_a_process
from penstock import Log, Pipeline
from penstock.modes.engine import open_engine
from penstock.modes.stream import Stop, run_stream
from penstock.views.store import open_store

AIMS = {"get_by_key_ms_p99": ("<=", 20.0)}
MEASUREMENTS = ("get_by_key", "post", "sse")
KEYS = 1000
GETS_PER_SECOND = 1000
POSTING = 64
"""So many clients post at the same time."""
LISTENERS = 500


@dataclass(frozen=True)
class Size:
    """How long each measurement takes."""

    seconds: float = 20.0

    @staticmethod
    def quick() -> Size:
        return Size(5.0)


def totals_of_keys() -> Pipeline:
    """A count and a sum per key."""
    app = Pipeline("service")
    app.topic("events", DDL, event_time="time", key="key", lateness="1000 days")

    @app.view(key="key")
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("key").agg(sf.count("*").alias("events"), sf.sum("value").alias("value"))

    return app


class Bench:
    """A log, a database, and the service over them."""

    def __init__(self, folder: Path, spark: SparkSession, size: Size) -> None:
        self.folder = folder.absolute()
        self.spark = spark
        self.size = size
        self.log = Log(self.folder / "log", background=False)
        self.url = f"sqlite:{self.folder / 'views.db'}"

    def get_by_key(self) -> dict[str, float]:
        """Single rows by their key, a thousand times a second, while a stream writes the view."""
        seconds = self.size.seconds
        with self._streaming(), self._serving() as service:
            waits = in_a_process(clients.get_by_key, service.port, seconds, GETS_PER_SECOND, KEYS)
            sent = int(GETS_PER_SECOND * (seconds + clients.warm_seconds(seconds)))
            return {**_in_ms("get_by_key_ms", waits), "get_by_key_cpu_us": service.cpu_us(sent)}

    def post(self) -> dict[str, float]:
        """Single events, each answered when it is on disk, as fast as so many clients can send them."""
        self.log.create("posted", DDL, event_time="time", key="key", exist_ok=True)
        with self._serving() as service:
            waits = in_a_process(clients.post, service.port, self.size.seconds, POSTING)
            figures = _in_ms("post_ms", waits)
            figures["post_events_per_second"] = len(waits) / self.size.seconds
            figures["post_cpu_us"] = service.cpu_us(len(waits))
        return figures

    def sse(self) -> dict[str, float]:
        """From the append of an event to each of 500 listeners having it, and to the last of them having it."""
        self.log.create("told", "sent double", exist_ok=True)
        with self._serving(streams=LISTENERS + 10) as service:
            waits = in_a_process(clients.listen, service.port, self.size.seconds, str(self.folder / "log"), LISTENERS)
        last = [max(waits[start : start + LISTENERS]) for start in range(0, len(waits), LISTENERS)]
        return {**_in_ms("sse_delivery_ms", waits), **_in_ms("sse_last_ms", last)}

    @contextmanager
    def _streaming(self) -> Iterator[None]:
        """A stream that keeps the view, with a few hundred events a second coming in."""
        stop = Stop()
        app = totals_of_keys()
        with (
            open_store(self.url) as store,
            open_engine(app, log=self.log, store=store, spark=self.spark) as engine,
        ):
            topic = self.log.topic("events")
            topic.append(events(0, 100_000, KEYS))
            run_stream(engine, once=True)
            streaming = threading.Thread(target=run_stream, args=(engine,), kwargs={"stop": stop})
            coming = threading.Thread(target=_come_in, args=(topic, stop))
            for each in (streaming, coming):
                each.start()
            try:
                yield
            finally:
                stop()
                for each in (streaming, coming):
                    each.join()

    @contextmanager
    def _serving(self, streams: int = 64) -> Iterator[Served]:
        """The service in a process of its own."""
        environment = {
            **os.environ,
            "PENSTOCK_SERVE_STREAMS_MAX": str(streams),
            "PENSTOCK_SERVE_CONNECTIONS_MAX": str(streams + 200),
        }
        command = [sys.executable, "-m", "penstock.cli", "serve", "--port", "0", "--views", self.url]
        with subprocess.Popen(
            [*command, "--log", f"dir:{self.folder / 'log'}"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.folder,
        ) as server:
            assert server.stdout is not None
            found = re.search(r":(\d+)", server.stdout.readline().partition("//")[2])
            assert found is not None
            try:
                yield Served(int(found[1]), server.pid)
            finally:
                server.terminate()


class Served:
    """A service that runs: where, and what it costs."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self._pid = pid
        self._before = self._cpu_seconds()

    def cpu_us(self, requests: int) -> float:
        """The time of a core that it has used for each of so many requests, whatever runs beside it."""
        return (self._cpu_seconds() - self._before) * 1e6 / requests

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _come_in(topic: Any, stop: Stop) -> None:
    number = 100_000
    while not stop.is_asked:
        topic.append(events(number, 50, KEYS))
        number += 50
        stop.wait(0.1)


def _in_ms(name: str, waits: list[float]) -> dict[str, float]:
    ordered = sorted(waits)
    return {
        f"{name}_p50": ordered[len(ordered) // 2] * 1000,
        f"{name}_p99": ordered[int(len(ordered) * 0.99)] * 1000,
    }


if __name__ == "__main__":
    main(__doc__, Bench, Size(), Size.quick(), MEASUREMENTS, AIMS)
