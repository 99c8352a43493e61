"""What a child process of `killed` does: takes a pipeline from cut to cut, and says so after each step.

Nobody else ends it: when its parent is gone, which closes its standard input, it ends itself and its JVM.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
from pathlib import Path
from typing import Any


def main(path: str) -> None:
    """Does the job that is described in this file."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    sys.path[:] = job["path"]
    from penstock.log.log import Log
    from penstock.modes.engine import open_engine
    from penstock.settings import SparkSettings
    from penstock.spark import session
    from penstock.verify.runs import take_steps
    from penstock.views.store import open_store

    pipeline = pickle.loads(Path(job["pipeline"]).read_bytes())
    cuts = [{name: {int(n): offset for n, offset in each.items()} for name, each in cut.items()} for cut in job["cuts"]]
    spark = session(SparkSettings(master=job["master"], shuffle_partitions=job["shuffle_partitions"]), name="verify")
    with (
        Log(job["log"], background=False, conf=job["log_conf"]) as log,
        open_store(f"sqlite:{job['database']}") as store,
        open_engine(pipeline, log=log, store=store, spark=spark, is_silent=True) as engine,
    ):
        running = [engine.open(views) for views in engine.sets]
        _tell("ready")
        for number, cut in enumerate(cuts, start=1):
            if sum(take_steps(each, [cut]) for each in running):
                _tell(f"step {number}")
    _tell("done")


def _end_with_parent() -> None:
    # Not through sys.stdin: its lock would be held while Python ends.
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def _tell(what: str) -> None:
    print(f"penstock: {what}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
