"""Patience with a database that is away: a server that is restarted, a disk that is full, another writer.

A stream need not end for that. It says so, waits, reads its fence again, for a commit whose answer was lost may have
come through, and goes on from there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import StoreUnavailable

if TYPE_CHECKING:
    from penstock.modes.stream import Stop

logger = logging.getLogger("penstock.modes")

FIRST_WAIT_SECONDS = 0.1
WAIT_SECONDS_MAX = 10.0
"""Each wait is twice as long as the one before, up to this."""
GIVE_UP_SECONDS = 300.0
"""A database that has been away for so long is somebody's problem: the run ends, and a new one goes on at the fence."""

T = TypeVar("T")
OnRetry = Callable[[StoreUnavailable, float], None]
"""Is told what went wrong, and in how many seconds it is tried again."""


class Patience:
    """How long to wait before the next attempt, and when to give up. One per run."""

    def __init__(self, stop: Stop, on_retry: OnRetry | None = None) -> None:
        self._stop = stop
        self._on_retry = on_retry or _warn
        self._wait = FIRST_WAIT_SECONDS
        self._failing_since: float | None = None

    def succeeded(self) -> None:
        """The database answers: the next failure is a new one."""
        self._wait, self._failing_since = FIRST_WAIT_SECONDS, None

    def failed(self, error: StoreUnavailable) -> None:
        """Waits before the next attempt. Raises the error if another one cannot help, or none has for too long."""
        now = time.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if not error.is_retryable or self._stop.is_asked or now - self._failing_since > GIVE_UP_SECONDS:
            raise error
        self._on_retry(error, self._wait)
        self._stop.wait(self._wait)
        self._wait = min(2 * self._wait, WAIT_SECONDS_MAX)

    def until_done(self, work: Callable[[], T]) -> T:
        """What the work gives, as soon as the database lets it. It may be done more than once."""
        while True:
            try:
                done = work()
            except StoreUnavailable as error:
                self.failed(error)
            else:
                self.succeeded()
                return done


def retry_text(error: StoreUnavailable, seconds: float) -> str:
    """What people are told while a run waits."""
    return f"{error}\n  the views are whole as of the last step; trying again in {seconds:.1f} s"


def _warn(error: StoreUnavailable, seconds: float) -> None:
    logger.warning(retry_text(error, seconds))
