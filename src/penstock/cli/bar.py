"""What `penstock run --mode batch` and `penstock view rebuild` show: a bar on a terminal, lines or JSON elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.cli.output import counted, rate_text

if TYPE_CHECKING:
    from penstock.modes.running import RunningSet

POLL_SECONDS = 0.5
LINE_SECONDS = 5.0
STEP_ALMOST_DONE = 0.95
"""Of a step whose jobs are all done, so much: its rows have yet to be written."""


class BatchDisplay:
    """Shows how a batch gets on; this one shows nothing. One set of views after the other."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def begun(self, views: list[str], total: int) -> None:
        """A set is begun, with so many records to read."""

    def progressed(self, running: RunningSet, left: int) -> None:
        """A step of the set is stored."""

    def close(self) -> None:
        """The batch is over."""


class Bar(BatchDisplay):
    """A bar per set of views, with records per second and the time left.

    A step may be as long as the batch, so within one the bar follows the tasks that Spark has done.
    """

    def __init__(self, spark: Any, step_rows: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from penstock.cli.terminal import Terminal

        self._spark = spark
        self._step_rows = step_rows
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Terminal(highlight=False),
        )
        self._bar.start()
        self._task: Any = None
        self._began = time.monotonic()
        self._done = self._total = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="penstock-bar", daemon=True)
        self._thread.start()

    def begun(self, views: list[str], total: int) -> None:
        self._began, self._done, self._total = time.monotonic(), 0, total
        self._task = self._bar.add_task(", ".join(views), total=max(total, 1), rate="")

    def progressed(self, running: RunningSet, left: int) -> None:  # noqa: ARG002
        self._done = self._total - left
        self._show(self._total if not left else self._done)
        if not left:
            self._bar.update(self._task, completed=max(self._total, 1))

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._bar.stop()

    def _show(self, done: float) -> None:
        shown = max(int(done), int(self._bar.tasks[self._task].completed))
        rate = rate_text(shown, time.monotonic() - self._began)
        self._bar.update(self._task, completed=shown, rate=rate)

    def _follow(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            if self._task is not None and self._done < self._total:
                step = min(self._step_rows, self._total - self._done)
                self._show(self._done + step * STEP_ALMOST_DONE * tasks_done(self._spark))


class BatchLines(BatchDisplay):
    """A line every few seconds, and one at the end of each set."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._names = ""
        self._total = 0
        self._began = self._due = 0.0

    def begun(self, views: list[str], total: int) -> None:
        self._names, self._total, self._began = ", ".join(views), total, self._clock()
        self._due = self._began + LINE_SECONDS

    def progressed(self, running: RunningSet, left: int) -> None:  # noqa: ARG002
        now = self._clock()
        if left and now < self._due:
            return
        self._due = now + LINE_SECONDS
        seconds, done = now - self._began, self._total - left
        ahead = f", about {seconds * left / done:,.0f} s left" if left and done else ""
        print(
            f"{self._names}: {done:,} of {counted(self._total, 'record')}, {rate_text(done, seconds)}{ahead}",
            flush=True,
        )


class BatchJson(BatchDisplay):
    """One JSON object per step."""

    def __init__(self) -> None:
        self._total = 0

    def begun(self, views: list[str], total: int) -> None:
        self._total = total
        print(json.dumps({"event": "begin", "views": views, "records": total}), flush=True)

    def progressed(self, running: RunningSet, left: int) -> None:
        document = {
            "event": "step",
            "views": {view.name: {"rows": running.generation.counters[view.name].rows} for view in running.views},
            "records": self._total - left,
            "left": left,
        }
        print(json.dumps(document), flush=True)


def tasks_done(spark: Any) -> float:
    """Which part of the tasks of Spark's running jobs is done; 0 where there is none, or it cannot be asked."""
    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [
            stage
            for job in tracker.getActiveJobsIds()
            if (found := tracker.getJobInfo(job)) is not None
            for number in found.stageIds
            if (stage := tracker.getStageInfo(number)) is not None
        ]
    except Exception:  # Only for show: whatever it is, the batch itself will tell.
        return 0.0
    total = sum(stage.numTasks for stage in stages)
    return sum(stage.numCompletedTasks for stage in stages) / total if total else 0.0
