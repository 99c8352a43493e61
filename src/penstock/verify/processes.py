"""Processes that verify starts: each runs the pipeline in a Spark of its own (`child`).

A child gets what it has to do as a file, and keeps all it writes in that file's folder. It is the leader of a process
group with its JVM in it, and ends with its parent.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from penstock.access import make_file, make_folder
from penstock.spark.cluster import is_local
from penstock.verify.cuts import Cut
from penstock.verify.runs import Runner

_OF_ONE_PROCESS = (
    *("spark.app.", "spark.master", "spark.driver.host", "spark.driver.port", "spark.driver.bindAddress"),
    *("spark.blockManager.port", "spark.executor.id", "spark.executorEnv.PYTHONHASHSEED", "spark.local.dir"),
    *("spark.submit.", "spark.ui.", "spark.sql.warehouse.dir", "spark.authenticate", "spark.network.crypto."),
)
"""Spark settings that a child has of its own, or that are for a cluster: it computes on this machine."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_running: set[subprocess.Popen[str]] = set()


def write_job(runner: Runner, folder: Path, cuts: Sequence[Cut], application: str | None, **more: Any) -> Path:
    """Everything that a child needs to know.

    It loads the pipeline as commands do, if `application` says from where. Otherwise the pipeline's functions travel as
    code, as they do to Spark's workers; raises what keeps them from that.
    """
    from pyspark import cloudpickle

    make_folder(folder)
    if application is None:
        (folder / "pipeline.pickle").write_bytes(cloudpickle.dumps(runner.pipeline))  # type: ignore[no-untyped-call]
    spark = runner.spark
    master = spark.sparkContext.master
    job = {
        "application": application,
        "pipeline": str(folder / "pipeline.pickle"),
        "views": [view.name for view in runner.compiled],
        "path": sys.path,
        "log": runner.log.url,
        "log_conf": runner.log.conf,
        "database": str(folder / "views.db"),
        "errors": str(folder / "errors.jsonl"),
        "cuts": [{name: {str(n): offset for n, offset in each.items()} for name, each in cut.items()} for cut in cuts],
        # On a cluster it would wait for cores that its parent holds.
        "master": master if master is not None and is_local(master) else "local[2]",
        "spark": child_settings({**dict(spark.sparkContext.getConf().getAll()), **dict(spark.conf.getAll)}, folder),
        **more,
    }
    path = folder / "job.json"
    make_file(path)  # It may hold a password.
    path.write_text(json.dumps(job), encoding="utf-8")
    return path


def child_settings(known: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The Spark settings of a session, for a child that keeps its scratch files in this folder.

    A child that is killed leaves them behind, and they go with the folder.
    """
    found = {name: value for name, value in known.items() if not name.startswith(_OF_ONE_PROCESS)}
    found[_JAVA_OPTIONS] = f'{found.get(_JAVA_OPTIONS, "")} "-Djava.io.tmpdir={folder}"'.strip()
    return {**found, "spark.local.dir": str(folder)}


@contextmanager
def started(job: Path, errors: IO[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A child that does this job with these variables besides ours; it is killed at the end of the `with`."""
    child = subprocess.Popen(
        [sys.executable, "-m", "penstock.verify.child", str(job)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
            "TMPDIR": str(job.parent),
            **environment,
        },
    )
    _running.add(child)
    try:
        yield child
    finally:
        _kill(child)
        child.wait()
        _running.discard(child)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


def kill_children() -> None:
    """Kills every child that runs now. May be called by a handler of signals."""
    for child in [*_running]:
        _kill(child)


def _kill(child: subprocess.Popen[str]) -> None:
    """The whole group, even if the child itself is gone: its JVM may not be yet."""
    if child.returncode is None:  # Not reaped, so its pid is still its own.
        os.killpg(child.pid, signal.SIGKILL)
