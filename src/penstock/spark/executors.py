"""Can the executors of a cluster do their part? Asked once, before the first step, with an answer for each machine."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.errors import ExecutorUnfit, NoExecutors

if TYPE_CHECKING:
    from pyspark import SparkContext

COME_WITHIN_SECONDS = 120
"""So long a cluster may take to start the first executor."""
NEEDED = ("pyarrow", "pandas", "penstock.spark.read")
"""What a task imports: for the user's functions, and to read the log."""


def check_executors(context: SparkContext, within_seconds: float = COME_WITHIN_SECONDS) -> None:
    """Runs one small task on every core that has come by now. Raises NoExecutors or ExecutorUnfit."""
    _wait_for_one(context, within_seconds)
    cores = max(context.defaultParallelism, 1)
    asked = context.parallelize(range(cores), cores).mapPartitions(_question())
    try:
        answers = asked.collect()
    except Exception as error:
        raise _unfit(_hosts(context), context.pythonExec, str(error)) from error
    for host, python, missing in sorted(answers):
        if missing:
            hint = f"install it there, in the version that is here: {python} -m pip install {_package(missing)}"
            raise ExecutorUnfit(host, python, f"{missing} is missing", hint)


def _wait_for_one(context: SparkContext, seconds: float) -> None:
    from penstock.spark.private.context import block_managers

    deadline = time.monotonic() + seconds
    # The driver is in the list too.
    while len(block_managers(context)) < 2:
        if time.monotonic() > deadline:
            asked = context.getConf()
            cores = asked.get("spark.executor.cores", "all")
            memory = asked.get("spark.executor.memory", "1g")
            assert context.master is not None
            raise NoExecutors(context.master, seconds, str(memory), f"{cores} cores")
        time.sleep(0.05)


def _question() -> Callable[[Iterable[int]], Iterable[tuple[str, str, str]]]:
    """A function that knows nothing but the standard library: all else may be what is missing."""
    needed = NEEDED

    def answer(_: Iterable[int]) -> Iterable[tuple[str, str, str]]:
        import importlib
        import socket
        import sys

        missing = ""
        for name in needed:
            try:
                importlib.import_module(name)
            except ImportError as error:
                missing = error.name or str(error)
                break
        yield socket.gethostname(), sys.executable, missing

    return answer


def _hosts(context: SparkContext) -> list[str]:
    """The machines that executors run on."""
    from penstock.spark.private.context import block_managers

    hosts = [address.rpartition(":")[0] for address in block_managers(context)]
    # Once for itself: executors may run on the same machine.
    driver = context.getConf().get("spark.driver.host")
    if driver in hosts:
        hosts.remove(driver)
    return sorted(set(hosts))


def _unfit(hosts: list[str], python: str, said: str) -> ExecutorUnfit:
    """What Spark says of a task that could not even begin, in words. It does not always say where that was."""
    named = re.search(r"\(TID \d+\) \((\S+) executor", said)
    where = named[1] if named else " or ".join(hosts)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if versions := re.search(r"PYTHON_VERSION_MISMATCH\][^\d]*(\d+\.\d+)", said):
        hint = f"expected: Python {here}, as it is here; install it there"
        return ExecutorUnfit(where, python, f"it is Python {versions[1]}", hint)
    if "Cannot run program" in said:
        hint = f"install Python {here} there under that path"
        return ExecutorUnfit(where, python, "there is no such program", hint)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return ExecutorUnfit(where, python, lines[-1] if lines else "a task failed", f"Spark said:\n{said[:2000]}")


def _package(module: str) -> str:
    """The name on PyPI of a module that tasks import."""
    top = module.partition(".")[0]
    return {"google": "google-crc32c", "google_crc32c": "google-crc32c", "dateutil": "python-dateutil"}.get(top, top)
