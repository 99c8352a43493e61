"""Timers for `serving(call_later=...)` that fire only when a test advances them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.eventually import LIMIT_SECONDS


class ManualTimer:
    """A call that is due once the test has advanced the clock to its time."""

    def __init__(self, due: float, call: Callable[[], object]) -> None:
        self.due = due
        self.call = call
        self.is_pending = True

    def cancel(self) -> None:
        self.is_pending = False


class ManualTimers:
    """The timers of one service. Its time starts at 0 and stands still unless `advance` is called."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[ManualTimer] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[..., object], *args: Any
    ) -> ManualTimer:
        self._loop = loop
        timer = ManualTimer(self.now + seconds, lambda: function(*args))
        self._timers.append(timer)
        return timer

    @property
    def pending(self) -> int:
        """How many are neither cancelled nor fired."""
        return sum(each.is_pending for each in list(self._timers))

    def advance(self, seconds: float) -> None:
        """Lets time pass. Returns when all that is due has been called and what it wrote has been sent."""
        self._in_loop(lambda: self._fire(seconds))
        for _ in range(2):  # uvloop sends what was written at the end of a round of its loop.
            self._in_loop(lambda: None)

    def _fire(self, seconds: float) -> None:
        self.now += seconds
        for each in sorted(self._timers, key=lambda timer: timer.due):
            if each.is_pending and each.due <= self.now:
                each.is_pending = False
                each.call()

    def _in_loop(self, function: Callable[[], None]) -> None:
        assert self._loop is not None, "no timer was ever set"
        done: Future[None] = Future()

        def call() -> None:
            try:
                function()
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(call)
        done.result(LIMIT_SECONDS)
