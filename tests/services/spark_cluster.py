"""A real Spark standalone cluster for the tests of this process: a master and workers, each a process on loopback.

It comes with pyspark: nothing else has to be installed.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from penstock.java import require_java
from tests.services.process import Service, free_ports

HOME = Path(pyspark.__file__).parent
STARTED_WITHIN_SECONDS = 90
CORES = 1
MEMORY = "1g"


class SparkCluster:
    """A master and workers of one core and one gibibyte each, numbered from 1; both sides know `secret`.

    A worker that is killed takes its executors with it, as a machine does that loses its power.
    """

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        self.secret = secrets.token_hex(16)
        self.workers = range(1, workers + 1)
        self._folder = folder
        self._port, self._page = free_ports(2)
        self._master: Service | None = None
        self._running: dict[int, Service] = {}

    @property
    def master(self) -> str:
        """What `spark.master` is set to."""
        return f"spark://127.0.0.1:{self._port}"

    def settings(self) -> dict[str, str]:
        """What Penstock is told of this cluster, by the names of the environment."""
        return {"PENSTOCK_SPARK_MASTER": self.master, "PENSTOCK_SPARK_SECRET": self.secret}

    def start(self) -> None:
        """Starts the master and all workers, and waits until the master knows each of them."""
        # A file only its owner may read: what stands on a command line, anybody may.
        configuration = self._folder / "daemons.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(
            f"spark.authenticate true\nspark.authenticate.secret {self.secret}\nspark.network.crypto.enabled true\n"
        )
        ports = ["--port", str(self._port), "--webui-port", str(self._page)]
        self._master = self._launch("master", "org.apache.spark.deploy.master.Master", *ports)
        for worker in self.workers:
            self._launch_worker(worker)
        self._wait_for_workers()

    def stop(self) -> None:
        """Ends all of it at once, and the executors with it."""
        for service in (*self._running.values(), *([self._master] if self._master else [])):
            service.kill()
        self._running.clear()
        self._master = None

    def kill(self, worker: int) -> None:
        """SIGKILL for a worker and the executors on it."""
        self._running.pop(worker).kill()

    def restart(self, worker: int) -> None:
        """Starts a worker that was killed, and waits until the master knows it."""
        self._launch_worker(worker)
        self._wait_for_workers()

    def state(self) -> dict[str, Any]:
        """What the master knows of the cluster, as it tells it on its own page."""
        # Never through a proxy: it is this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self._page}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _launch_worker(self, worker: int) -> None:
        name = f"worker-{worker}"
        size = ["--cores", str(CORES), "--memory", MEMORY, "--work-dir", str(self._folder / name), "--webui-port", "0"]
        self._running[worker] = self._launch(name, "org.apache.spark.deploy.worker.Worker", *size, self.master)

    def _launch(self, name: str, main: str, *arguments: str) -> Service:
        # Nothing of this process's Python may reach the executors: what they need, they must be sent.
        environment = {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PYTHONPATH": "",
        }
        properties = ["--properties-file", str(self._folder / "daemons.conf")]
        command = [str(HOME / "bin" / "spark-class"), main, "--host", "127.0.0.1", *properties, *arguments]
        return Service(f"Spark {name}", command, self._folder / f"{name}.log", environment)

    def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + STARTED_WITHIN_SECONDS
        while self._alive() != len(self._running):
            for service in (self._master, *self._running.values()):
                assert service is not None
                assert service.is_running, service.said()
                assert time.monotonic() < deadline, f"not ready after {STARTED_WITHIN_SECONDS} s; {service.said()}"
            time.sleep(0.1)

    def _alive(self) -> int:
        try:
            state = self.state()
        except OSError:
            return -1
        # One that was killed stays listed, as dead.
        return sum(worker["state"] == "ALIVE" for worker in state["workers"])


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A Spark master with two workers. A test that asks for it carries the mark `services`."""
    yield from running()


def running(*, workers: int = 2) -> Iterator[SparkCluster]:
    """A cluster in a temporary folder, up to the end of the iteration."""
    require_java()
    with tempfile.TemporaryDirectory(prefix="penstock-spark-", ignore_cleanup_errors=True) as folder:
        cluster = SparkCluster(Path(folder), workers=workers)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
