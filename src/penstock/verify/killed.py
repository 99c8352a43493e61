"""A stream in processes of their own that are killed at random moments and restarted until the work is done.

A process tells on its standard output when it is ready, after each step, and when it is done. It is killed (SIGKILL,
with its JVM) a random while after a random one of these. Each restart continues from the fence that it finds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from penstock.access import make_file, make_folder
from penstock.errors import VerifyProcessFailed
from penstock.spark.cluster import is_local
from penstock.verify.cuts import Cut
from penstock.verify.runs import Run, Runner

KILLS = 3
"""So often the process is killed; the one after that may finish."""
STEPS_BEFORE_KILL = 3
"""It is killed after at most so many signs of life, less one: in the first step, or some steps later."""
MOMENT_SECONDS = 0.4
"""And at most so long after that: about as long as a step takes."""


def killed(runner: Runner, name: str, cuts: Sequence[Cut], random: Random) -> Run:
    """Runs the pipeline in child processes over one database, kills them, and reads what the last one left."""
    began = time.monotonic()
    job = _write_job(runner, cuts)
    database = Path(json.loads(job.read_text(encoding="utf-8"))["database"])
    moments = []
    for _ in range(KILLS):
        signs, seconds = random.randrange(STEPS_BEFORE_KILL), random.uniform(0, MOMENT_SECONDS)
        told = _run_child(job, signs, seconds)
        moments.append(told)
        if told == "done":
            break
    if "done" not in moments:
        _run_child(job, None, 0.0)
    run = runner.finished(Run(name, "stream"), database)
    run.seconds = {view: time.monotonic() - began for view in run.seconds}
    run.note = "killed " + ", ".join(f"after {each!r}" if each != "done" else "too late" for each in moments)
    return run


def _write_job(runner: Runner, cuts: Sequence[Cut]) -> Path:
    """Everything that a child needs to know. The pipeline's functions travel as code, as they do to Spark's workers."""
    from pyspark import cloudpickle

    folder = runner.folder / "killed"
    make_folder(folder)
    (folder / "pipeline.pickle").write_bytes(cloudpickle.dumps(runner.pipeline))  # type: ignore[no-untyped-call]
    settings = runner.spark.conf
    job = {
        "pipeline": str(folder / "pipeline.pickle"),
        "path": sys.path,
        "log": runner.log.url,
        "log_conf": runner.log.conf,
        "database": str(folder / "views.db"),
        "cuts": [{name: {str(n): offset for n, offset in each.items()} for name, each in cut.items()} for cut in cuts],
        "master": _master_of(runner.spark.sparkContext.master),
        "shuffle_partitions": int(settings.get("spark.sql.shuffle.partitions") or 4),
    }
    path = folder / "job.json"
    make_file(path)  # It may hold a password.
    path.write_text(json.dumps(job), encoding="utf-8")
    return path


def _master_of(master: str | None) -> str:
    """Where a child computes: on a cluster it would wait for cores that its parent holds."""
    return master if master is not None and is_local(master) else "local[2]"


def _run_child(job: Path, signs: int | None, seconds: float) -> str:
    """Starts a child and kills it after so many signs of life and so many seconds; None lets it finish.

    Returns its last sign of life. VerifyProcessFailed if it ended by itself without being done.
    """
    errors = job.with_name("errors.txt")
    with errors.open("w", encoding="utf-8") as said:
        # A group of its own: its JVM and Python workers end with it.
        child = subprocess.Popen(
            [sys.executable, "-m", "penstock.verify.child", str(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        )
    assert child.stdout is not None
    seen: list[str] = []
    try:
        for line in child.stdout:
            if line.startswith("penstock: "):
                seen.append(line.removeprefix("penstock: ").strip())
            if seen and (seen[-1] == "done" or (signs is not None and len(seen) > signs)):
                break
        if seen and seen[-1] == "done":
            return "done"
        if signs is None or len(seen) <= signs:
            raise VerifyProcessFailed(child.wait(), errors.read_text(encoding="utf-8"))
        time.sleep(seconds)
        return seen[-1]
    finally:
        _kill(child)


def _kill(child: subprocess.Popen[str]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
