"""Blocking work, reading the database and the log, in a few threads and for a bounded time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from penstock.errors import RequestRefused
from penstock.views.store import Snapshot

T = TypeVar("T")


class Work:
    """Runs functions in threads, from the event loop. Nothing waits without end.

    A function that takes too long is no longer waited for. It cannot be stopped from outside: those that read a
    database give up by themselves, see `limited`.
    """

    def __init__(self, threads: int, seconds: float, *, waiting: int) -> None:
        """At most so many wait for a thread; more are told to come back."""
        self.seconds = seconds
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="penstock-serve")
        self._most = threads + waiting
        self._under_way = 0

    async def run(self, body: Callable[..., T], *arguments: Any, seconds: float | None = None) -> T:
        """What the function returns, or raises. RequestRefused (503) if the time is over, or too much waits already.

        `seconds` are what is left of the time, for work that has waited elsewhere.
        """
        if self._under_way >= self._most:
            raise busy("more is asked than can be answered at the moment")
        self._under_way += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, body, *arguments)
        future.add_done_callback(self._finished)
        try:
            # Shielded: a function that runs already cannot be cancelled, and counts until it ends.
            return await asyncio.wait_for(asyncio.shield(future), self.seconds if seconds is None else seconds)
        except TimeoutError:
            future.cancel()
            raise busy(f"no answer was found within {self.seconds:g} s") from None

    def begin(self, body: Callable[[], object]) -> None:
        """Runs the function when a thread is free; nobody waits for it."""
        with suppress(RuntimeError):  # The service stops.
            self._threads.submit(body)

    def close(self) -> None:
        """Waits for what is running; what has not begun is left undone."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _finished(self, future: asyncio.Future[Any]) -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()  # Nobody may be waiting for it any more.


def busy(found: str) -> RequestRefused:
    """An error that says: later."""
    return RequestRefused(503, found, "try again a little later, or ask for less", is_retryable=True)


@contextmanager
def limited(snapshot: Snapshot, seconds: float) -> Iterator[None]:
    """Statements on this snapshot are broken off after so many seconds: RequestRefused (503)."""
    driver: Any = snapshot.connection.connection.driver_connection
    break_off = driver.apsw.interrupt if hasattr(driver, "apsw") else driver.cancel
    with _watchdog.watching(seconds, break_off) as is_over:
        try:
            yield
        except Exception as error:
            if is_over():
                raise busy(f"the database found no answer within {seconds:g} s") from error
            raise


class _Watchdog:
    """One thread that breaks off whatever takes too long; a thread for each request costs more than the request."""

    LOOK_SECONDS = 0.1

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[object, tuple[float, Callable[[], object]]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, seconds: float, break_off: Callable[[], object]) -> Iterator[Callable[[], bool]]:
        """Calls `break_off` if the body takes longer; never after it has ended. Tells whether it did."""
        mark = object()
        with self._lock:
            self._watched[mark] = (time.monotonic() + seconds, break_off)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="penstock-watchdog", daemon=True)
                self._thread.start()
        try:
            yield lambda: mark not in self._watched
        finally:
            with self._lock:
                self._watched.pop(mark, None)

    def _watch(self) -> None:
        while True:
            time.sleep(self.LOOK_SECONDS)
            now = time.monotonic()
            with self._lock:
                for mark, (due, break_off) in list(self._watched.items()):
                    if due <= now:
                        del self._watched[mark]
                        with suppress(Exception):
                            break_off()
                if not self._watched:
                    self._thread = None
                    return


_watchdog = _Watchdog()
