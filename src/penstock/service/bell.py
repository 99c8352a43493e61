"""The bell: wakes those who wait for records, as soon as some are appended, by this process or another one."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.consume.wakeup import Wakeup

logger = logging.getLogger("penstock.service")

LOOK_SECONDS = 30.0
"""Even if the kernel tells nothing, everybody looks so often: some network file systems tell nobody."""


class Bell:
    """One thread that sleeps until a watched file changes, for any number of waiters in the event loop.

    `listening` gives an event that is set at every change. Clear it, look, then wait: nothing is missed, for it is also
    set once the kernel has begun to watch.
    """

    def __init__(self) -> None:
        self._wakeup = Wakeup()
        self._wanted: deque[tuple[str, Path]] = deque()
        self._counts: Counter[Path] = Counter()
        self._waiters: dict[asyncio.Event, frozenset[Path]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-bell", daemon=True)
        self.is_stopping = False

    def start(self) -> None:
        """Begins to listen, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @contextmanager
    def listening(self, paths: Iterable[Path]) -> Iterator[asyncio.Event]:
        """An event that is set when one of the files changes, and when the service stops."""
        rung, wanted = asyncio.Event(), frozenset(paths)
        self._waiters[rung] = wanted
        self._ask("watch", wanted)
        try:
            yield rung
        finally:
            del self._waiters[rung]
            self._ask("unwatch", wanted)

    def stop(self) -> None:
        """Wakes everybody for the last time. They see `is_stopping`."""
        self.is_stopping = True
        self._ring(None)

    def close(self) -> None:
        """Ends the thread."""
        self.is_stopping = True
        if self._thread.is_alive():
            self._wakeup.notify()
            self._thread.join()
        self._wakeup.close()

    def _ask(self, what: str, paths: Iterable[Path]) -> None:
        self._wanted.extend((what, path) for path in paths)
        self._wakeup.notify()

    def _run(self) -> None:
        assert self._loop is not None
        while not self.is_stopping:
            began = time.monotonic()
            changed: set[Path] | None = set(self._wakeup.wait(LOOK_SECONDS)) | self._take_over()
            if not changed and time.monotonic() - began >= LOOK_SECONDS:
                changed = None
            try:
                self._loop.call_soon_threadsafe(self._ring, changed)
            except RuntimeError:  # The loop is closed: nobody waits any more.
                return

    def _take_over(self) -> set[Path]:
        """Watches what is wanted now. Returns what is new: it may have changed before it was watched."""
        new = set()
        while self._wanted:
            what, path = self._wanted.popleft()
            self._counts[path] += 1 if what == "watch" else -1
            if what == "watch":
                self._wakeup.watch(path)
                new.add(path)
            elif self._counts[path] <= 0:
                del self._counts[path]
                self._wakeup.unwatch(path)
        return new

    def _ring(self, changed: set[Path] | None) -> None:
        for rung, paths in self._waiters.items():
            if changed is None or paths & changed:  # None: everybody looks.
                rung.set()
