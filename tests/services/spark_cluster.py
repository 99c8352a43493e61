"""A real Spark standalone cluster for the tests of this process: a master and workers, each a process on loopback.

It comes with pyspark: nothing else has to be installed.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.java import require_java
from tests.eventually import LIMIT_SECONDS, eventually
from tests.services.process import Service

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
        self.master = ""
        """What `spark.master` is set to; known once the cluster has started."""
        self._page_port = 0
        self._master: Service | None = None
        self._running: dict[int, Service] = {}

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
            "spark.master.rest.enabled false\n"  # It would listen on a fixed port.
        )
        ports = ["--port", "0", "--webui-port", "0"]
        self._master = self._launch("master", "org.apache.spark.deploy.master.Master", *ports)
        self.master = f"spark://127.0.0.1:{self._port_of('sparkMaster')}"
        self._page_port = self._port_of("MasterUI")
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
        self._wait_for_workers()  # Until the master knows that it was killed.
        self._launch_worker(worker)
        self._wait_for_workers()

    def state(self) -> dict[str, Any]:
        """What the master knows of the cluster, as its own page shows it."""
        # Never through a proxy: it is this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self._page_port}/json/", timeout=LIMIT_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _launch_worker(self, worker: int) -> None:
        name = f"worker-{worker}"
        size = ["--cores", str(CORES), "--memory", MEMORY, "--work-dir", str(self._folder / name), "--webui-port", "0"]
        self._running[worker] = self._launch(name, "org.apache.spark.deploy.worker.Worker", *size, self.master)

    def _launch(self, name: str, main: str, *arguments: str) -> Service:
        import pyspark  # Not above: quick tests import this module too.

        home = Path(pyspark.__file__).parent
        # Nothing of this process's Python may reach the executors: what they need, they must be sent.
        environment = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PYTHONPATH": "",
        }
        properties = ["--properties-file", str(self._folder / "daemons.conf")]
        command = [str(home / "bin" / "spark-class"), main, "--host", "127.0.0.1", *properties, *arguments]
        return Service(f"Spark {name}", command, self._folder / f"{name}.log", environment)

    def _port_of(self, service: str) -> int:
        """The port that the master says one of its services listens on."""
        master = self._master
        assert master is not None

        def find() -> list[str]:
            assert master.is_running, master.said()
            return re.findall(rf"started service '{service}' on port (\d+)", master.output.read_text(errors="replace"))

        return int(eventually(find, explain=master.said)[0])

    def _wait_for_workers(self) -> None:
        def are_alive() -> bool:
            for service in self._running.values():
                assert service.is_running, service.said()
            try:
                workers = self.state()["workers"]
            except OSError:  # Its page answers a moment after it listens.
                return False
            # A killed worker stays listed, as dead.
            return len([each for each in workers if each["state"] == "ALIVE"]) == len(self._running)

        assert self._master is not None
        eventually(are_alive, explain=self._master.said)


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
