"""One thread for calls that are too short for a thread each, and that must not be made on the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from penstock.service.work import busy

T = TypeVar("T")


class Lane:
    """Calls in the order in which they come. Those that come while it works go together: one change of threads.

    It belongs to the event loop.
    """

    def __init__(self, name: str, seconds: float) -> None:
        """`seconds`: the longest that a call waits for its answer."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._seconds = seconds
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._is_under_way = False

    async def run(self, body: Callable[[], T]) -> T:
        """What the function returns, or raises. RequestRefused (503) if the time is over."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._waiting.append((body, answer))
        if not self._is_under_way:
            self._begin(loop)
        try:
            async with asyncio.timeout(self._seconds):
                return await answer
        except TimeoutError:
            raise busy(f"no answer was found within {self._seconds:g} s") from None

    def close(self) -> None:
        """Waits for what is running."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        group = [each for each in self._waiting if not each[1].done()]
        self._waiting.clear()
        self._is_under_way = bool(group)
        if group:
            self._thread.submit(self._work, loop, group)

    def _work(
        self, loop: asyncio.AbstractEventLoop, group: list[tuple[Callable[[], Any], asyncio.Future[Any]]]
    ) -> None:
        outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        for body, answer in group:
            try:
                outcomes.append((answer, body(), None))
            except BaseException as error:
                outcomes.append((answer, None, error))
        with suppress(RuntimeError):  # The loop is closed: no call waits any more.
            loop.call_soon_threadsafe(self._deliver, loop, outcomes)

    def _deliver(
        self,
        loop: asyncio.AbstractEventLoop,
        outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]],
    ) -> None:
        for answer, found, error in outcomes:
            if answer.done():  # Its client is gone.
                continue
            if error is None:
                answer.set_result(found)
            else:
                answer.set_exception(error)
        self._begin(loop)
