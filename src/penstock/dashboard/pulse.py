"""The pulse of a service: one reading a second for all who watch, and the last fifteen minutes of them.

It costs nothing while nobody watches. What was before somebody began to watch comes from the log itself, which knows
when its records arrived, and from what runs have noted of themselves.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.clock import now_us
from penstock.dashboard.beat import Beat, read_beat, told
from penstock.dashboard.history import Point, earlier_points, point_of
from penstock.dashboard.windows import Corrections
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.service.service import Service

T = TypeVar("T")

BEAT_SECONDS = 1.0
KEPT_SECONDS = 900
LINGER_SECONDS = 10.0
"""After the last one has gone it goes on for so long: a page that is loaded again finds it at work."""
FULL_EVERY = 4
"""Every so many beats runs and alerts are read too."""
RATE_SECONDS = 5.0
FORGET_SECONDS = 30.0
ANSWERS_MAX = 128
ANSWERS_BYTES_MAX = 64 << 20
"""So many answers are kept, and so much of rows in them; those that were not asked for the longest go first."""
REST = 10
"""What took a second to read is read again after so many seconds."""


class Pulse:
    """Reads once a second while somebody watches. Any thread may watch and look; the reading is the service's."""

    def __init__(self, service: Service, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._lock = threading.Lock()
        self._watchers = 0
        self._is_running = False
        self._task: asyncio.Task[None] | None = None
        self._points: deque[Point] = deque(maxlen=int(KEPT_SECONDS / BEAT_SECONDS))
        self._shared: dict[Any, _Shared] = {}
        self._corrections: dict[str, Corrections] = {}
        self.beat: Beat | None = None
        """The latest one; None before the first."""
        self.number = 0
        """Grows with each beat."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The pulse beats at least for the length of the `with`."""
        with self._lock:
            self._watchers += 1
            is_needed, self._is_running = not self._is_running, True
        loop = self._service.loop
        try:
            if is_needed and loop is not None:
                asyncio.run_coroutine_threadsafe(self._run(), loop)
            yield
        finally:
            with self._lock:
                self._watchers -= 1

    @property
    def watchers(self) -> int:
        return self._watchers

    @property
    def is_running(self) -> bool:
        """Whether it reads: from the first watcher on until a while after the last one."""
        return self._is_running

    def points(self, seconds: float = KEPT_SECONDS) -> list[Point]:
        """What is known of the last so many seconds, the oldest first."""
        points = list(self._points)
        first = bisect_left(points, now_us() - int(seconds * 1e6), key=lambda each: each.at_us)
        return points[first:]

    def rate(self, topic: str) -> float | None:
        """Events a second of a topic over the last seconds; None as long as that cannot be known."""
        return self.rates([topic])[topic]

    def rates(self, topics: Sequence[str]) -> dict[str, float | None]:
        """The same for several."""
        points = self.points(RATE_SECONDS + 1.5)
        if len(points) < 2:
            return dict.fromkeys(topics)
        first, last = points[0], points[-1]
        seconds = max((last.at_us - first.at_us) / 1e6, 1e-3)
        return {
            name: max(last.totals[name] - first.totals[name], 0) / seconds
            if name in first.totals and name in last.totals
            else None
            for name in topics
        }

    def corrections(self, view: str) -> Corrections:
        """What all who watch a view have seen of windows that changed after they were closed."""
        with self._lock:
            return self._corrections.setdefault(view, Corrections())

    async def shared(self, key: Any, body: Callable[[], T], version: object = None) -> T:
        """What the body reads in a work thread; those who ask for the same within a beat share one answer.

        It is kept for longer while the `version` stays what it was, and if reading it took long: never is more than a
        tenth of the time spent on one question. It is read again sooner if many others are asked for, see ANSWERS_MAX.
        Called in the event loop of the service.
        """
        now = self._clock()
        known = self._shared.get(key)
        if known is None or not known.is_good(self.number, now, version):
            known = _Shared(self.number, version, asyncio.ensure_future(self._service.work.run(body)), self._clock)
            known.answer.add_done_callback(known.finish)
            known.answer.add_done_callback(lambda _: self._tidy())
        known.asked = now
        self._shared.pop(key, None)
        self._shared[key] = known  # At the end: they are in the order in which they were asked for.
        found: T = await asyncio.shield(known.answer)
        return found

    async def close(self) -> None:
        """No more readings. Called in the event loop of the service."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        unwatched_since: float | None = None
        is_first = True
        while not self._service.bell.is_stopping:
            began = self._clock()
            with self._lock:
                unwatched_since = None if self._watchers else unwatched_since or began
                if unwatched_since is not None and began - unwatched_since > LINGER_SECONDS:
                    self._is_running = False
                    self._shared.clear()
                    return
            await self._take(is_first)
            self._tidy()
            is_first = False
            await asyncio.sleep(max(BEAT_SECONDS - (self._clock() - began), 0.05))
        self._is_running = False

    def _tidy(self) -> None:
        """Forgets answers nobody asks for, and the oldest of too many. What is being read is bounded elsewhere."""
        now = self._clock()
        count = size = 0
        for key, of in reversed([*self._shared.items()]):
            if not of.answer.done():
                continue
            count, size = count + 1, size + of.size
            if now - of.asked >= FORGET_SECONDS or count > ANSWERS_MAX or size > ANSWERS_BYTES_MAX:
                del self._shared[key]

    async def _take(self, is_first: bool) -> None:
        before, is_full = self.beat, is_first or self.number % FULL_EVERY == 0
        try:
            beat = await self._service.work.run(lambda: read_beat(self._service, before, is_full=is_full))
            if is_first:
                points = await self._service.work.run(lambda: earlier_points(self._service, beat, KEPT_SECONDS))
                self._points.clear()
                self._points.extend(points)
        except PenstockError as error:  # All threads are busy, or too much is waiting.
            beat = Beat(now_us(), log_problem=told(error))
        except RuntimeError:  # The service is being closed.
            return
        if not beat.log_problem and not beat.views_problem:
            self._points.append(point_of(beat))
        self.beat, self.number = beat, self.number + 1


class _Shared:
    """An answer that several share."""

    def __init__(self, number: int, version: object, answer: asyncio.Future[Any], clock: Callable[[], float]) -> None:
        self.answer = answer
        self.asked = began = clock()
        self.size = 0
        """Of its rows, in bytes, once they are there."""
        self._number = number
        self._version = version
        self._clock = clock
        self._began = began
        self._fresh_until = began

    def is_good(self, number: int, now: float, version: object) -> bool:
        """Whether it can be given again."""
        if number == self._number or not self.answer.done():
            return True
        if self.answer.cancelled() or self.answer.exception() is not None:
            return False
        return now < self._fresh_until or (version is not None and version == self._version)

    def finish(self, answer: asyncio.Future[Any]) -> None:
        """It is there now."""
        now = self._clock()
        self._fresh_until = now + REST * (now - self._began)
        if not answer.cancelled() and answer.exception() is None:
            found = answer.result()
            self.size = getattr(getattr(found, "rows", found), "nbytes", 0)
