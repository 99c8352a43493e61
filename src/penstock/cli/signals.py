"""Ctrl-C and SIGTERM while a pipeline runs: the first asks for a clean end, the second ends at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

SHOW_CURSOR = "\x1b[?25h"
CANCEL_SECONDS = 0.5


class StoppedEarly(BaseException):
    """A signal came before anything had begun. Not an Exception: nobody on the way should try to deal with it."""


class Signals:
    """While it is entered, signals are ours. Before `begun` the first raises StoppedEarly, from then on it calls back.

    Nothing happens in a thread that is not the main one: Python delivers signals only there.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self._on_stop: Callable[[], None] | None = None
        self._before: dict[int, Any] = {}
        self.is_asked = False

    def __enter__(self) -> Self:
        self._arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def begun(self, on_stop: Callable[[], None]) -> None:
        """From now on there is something to end cleanly: the first signal calls `on_stop`."""
        self._on_stop = on_stop
        self._arm()  # Again: Spark has put a handler of its own in between.

    def _arm(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self.NUMBERS:
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.is_asked:
            if sys.stdout.isatty():
                os.write(1, SHOW_CURSOR.encode())
            # What is committed is safe, and whoever comes next goes on there: that is what fences are for.
            os._exit(128 + number)
        self.is_asked = True
        if self._on_stop is None:
            raise StoppedEarly
        self._on_stop()


def cancel_jobs(spark: Any, done: threading.Event) -> None:
    """Cancels Spark's jobs, also those to come, until `done`; in a thread, for the main one may wait for Spark."""

    def cancel() -> None:
        while not done.is_set():
            spark.sparkContext.cancelAllJobs()
            done.wait(CANCEL_SECONDS)

    threading.Thread(target=cancel, name="penstock-cancel", daemon=True).start()
