"""A stream in processes of their own that are killed at random moments and restarted until the work is done.

A process tells on its standard output when it is ready, after each step, and when it is done. It is killed (SIGKILL,
with its JVM) a random while after a random one of these. Each restart continues from the fence that it finds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from penstock.errors import FailedElsewhere, VerifyProcessFailed
from penstock.verify.cuts import Cut
from penstock.verify.processes import started, write_job
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
    job = write_job(runner, runner.folder / "killed", cuts, None)
    written = json.loads(job.read_text(encoding="utf-8"))
    moments = []
    for _ in range(KILLS):
        signs, seconds = random.randrange(STEPS_BEFORE_KILL), random.uniform(0, MOMENT_SECONDS)
        told = _run_child(job, signs, seconds)
        moments.append(told)
        if told == "done":
            break
    if "done" not in moments:
        _run_child(job, None, 0.0)
    run = runner.finished(Run(name, "stream"), Path(written["database"]))
    for view, text in _errors(Path(written["errors"])).items():
        run.errors[view] = FailedElsewhere(text)
        run.rows.pop(view, None)
    run.seconds = {view: time.monotonic() - began for view in run.seconds}
    run.note = "killed " + ", ".join(f"after {each!r}" if each != "done" else "too late" for each in moments)
    return run


def _errors(path: Path) -> dict[str, str]:
    """What stopped views, as the children have written it down. The last line may be cut off: its child was killed."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []:
        if line.endswith("]\n"):
            view, text = json.loads(line)
            found[view] = text
    return found


def _run_child(job: Path, signs: int | None, seconds: float) -> str:
    """Starts a child and kills it after so many signs of life and so many seconds; None lets it finish.

    Returns its last sign of life. VerifyProcessFailed if it ended by itself without being done.
    """
    errors = job.with_name("errors.txt")
    seen: list[str] = []
    with errors.open("w", encoding="utf-8") as said, started(job, said, {}) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("penstock: "):
                seen.append(line.removeprefix("penstock: ").strip())
            if seen and (seen[-1] == "done" or (signs is not None and len(seen) > signs)):
                break
        if seen and seen[-1] == "done":
            return "done"
        if signs is None or len(seen) <= signs:
            told = errors.read_text(encoding="utf-8", errors="replace")
            raise VerifyProcessFailed(child.wait(), told, "without --faults no process is killed")
        time.sleep(seconds)
        return seen[-1]
