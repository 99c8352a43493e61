"""A process that verify starts: takes a pipeline from cut to cut.

For `killed` it says so after each step; for `elsewhere` it writes what readers would see to a file. It ends itself and
its JVM when its parent is gone, which closes its standard input.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.log.log import Log
    from penstock.pipeline.pipeline import Pipeline
    from penstock.upkeep.compiled import CompiledView
    from penstock.verify.cuts import Cut


def main(path: str) -> None:
    """Does the job that is described in this file."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    sys.path[:] = job["path"]
    from penstock.log.log import Log
    from penstock.settings import SparkSettings
    from penstock.spark import session

    pipeline = _pipeline(job)
    cuts = [{name: {int(n): offset for n, offset in each.items()} for name, each in cut.items()} for cut in job["cuts"]]
    spark = session(SparkSettings(master=job["master"], conf=job["spark"]), name="verify")
    with Log(job["log"], background=False, conf=job["log_conf"]) as log:
        if "result" in job:
            _run(job, pipeline, log, spark, cuts)
        else:
            _step(job, pipeline, log, spark, cuts)
    _tell("done")


def _pipeline(job: dict[str, Any]) -> Pipeline:
    """The pipeline with those views only that its parent could compile."""
    from penstock.pipeline.loading import load_pipeline
    from penstock.verify.runs import only

    if job["application"] is not None:
        pipeline = load_pipeline(job["application"])
    else:
        pipeline = pickle.loads(Path(job["pipeline"]).read_bytes())
    return only(pipeline, job["views"])


def _run(job: dict[str, Any], pipeline: Pipeline, log: Log, spark: SparkSession, cuts: list[Cut]) -> None:
    """One stream; an error is reported for the set of views that it stops."""
    from penstock.modes.topics import recorded_topics
    from penstock.upkeep.compiled import try_compile
    from penstock.verify.cuts import Recorded
    from penstock.verify.runs import Runner, error_text, only

    compiled, problems = try_compile(pipeline, spark)
    topics = recorded_topics(pipeline, log)
    recorded = Recorded(topics, {name: topic.start() for name, topic in topics.items()}, cuts[-1])
    folder = Path(job["result"]).parent
    runner = Runner(only(pipeline, [view.name for view in compiled]), log, spark, recorded, folder, compiled)
    run = runner.stream("stream", cuts)
    errors = {view: error_text(error) for view, error in run.errors.items()}
    errors |= {each.view: f"{each.message}\n{each.hint}".strip() for each in problems}
    result = {"rows": run.rows, "seconds": run.seconds, "errors": errors, "note": run.note}
    Path(job["result"]).write_bytes(pickle.dumps(result))


def _step(job: dict[str, Any], pipeline: Pipeline, log: Log, spark: SparkSession, cuts: list[Cut]) -> None:
    """One stream that tells how far it is."""
    from penstock.modes.engine import open_engine
    from penstock.verify.runs import take_steps
    from penstock.views.store import open_store

    with (
        open_store(f"sqlite:{job['database']}") as store,
        open_engine(pipeline, log=log, store=store, spark=spark, is_silent=True) as engine,
    ):
        running = []
        for views in engine.sets:
            with _told(job, views):
                running.append(engine.open(views))
        _tell("ready")
        for number, cut in enumerate(cuts, start=1):
            taken = 0
            for each in [*running]:
                with _told(job, each.views) as told:
                    taken += take_steps(each, [cut])
                if told:
                    running.remove(each)
            if taken:
                _tell(f"step {number}")


@contextmanager
def _told(job: dict[str, Any], views: Sequence[CompiledView]) -> Iterator[list[str]]:
    """What stops a set of views is written down, so that the others go on. The list is not empty then."""
    from penstock.verify.runs import error_text

    found: list[str] = []
    try:
        yield found
    except Exception as error:
        found.append(error_text(error))
        with Path(job["errors"]).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps([view.name, found[0]]) + "\n" for view in views)


def _end_with_parent() -> None:
    # Not through sys.stdin: its lock would be held while Python ends.
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def _tell(what: str) -> None:
    print(f"penstock: {what}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
