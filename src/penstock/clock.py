"""What time it is, as the log counts it: whole microseconds since 1970, UTC."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

logger = logging.getLogger("penstock.log")

Clock = Callable[[], int]
"""Returns the current time in microseconds. Tests hand in their own."""

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
DAY_US = 24 * HOUR_US
JUMP_MAX_US = 60 * SECOND_US
"""A wall clock that goes ahead by more than this is not believed at once."""
BELIEVED_AFTER_US = 600 * SECOND_US
"""One that stays ahead for so long was set right."""


def now_us() -> int:
    """The wall clock. It may jump; whoever needs order takes the maximum of this and what was seen before."""
    return time.time_ns() // 1000


def since_boot_us() -> int:
    """A clock that nobody sets. It counts while the machine sleeps, where the system has such a one."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


class _Ahead(NamedTuple):
    """How far ahead the wall clock was, since when, and whether it was seen twice."""

    boot_us: int
    since_us: int
    is_confirmed: bool


class SteadyClock:
    """The wall clock, without its jumps ahead.

    A wrong reading would stay: arrivals never decrease, and retention deletes. So a reading counts at once only if it
    went on as the clock since boot did. One that is ahead of that counts after ten minutes, if the clock is still ahead
    by as much, or has jumped further since; until then time goes on from the last reading that counted. Readings that
    go back count at once.
    """

    def __init__(self, wall: Clock = now_us, since_boot: Clock = since_boot_us) -> None:
        self._wall = wall
        self._since_boot = since_boot
        self._boot_us = wall() - since_boot()
        """When the machine was started, by the readings that count."""
        self._ahead: tuple[_Ahead, ...] = ()
        """The same by readings that do not count yet: one for each jump, the later ones further ahead."""

    def __call__(self) -> int:
        since_boot, wall = self._since_boot(), self._wall()
        boot = wall - since_boot
        if boot <= self._boot_us + JUMP_MAX_US:
            self._boot_us, self._ahead = boot, ()
            return wall
        ahead = [each for each in self._ahead if each.boot_us <= boot + JUMP_MAX_US]  # It went back from the others.
        if ahead and boot <= ahead[-1].boot_us + JUMP_MAX_US:
            ahead[-1] = ahead[-1]._replace(is_confirmed=True)
        else:
            ahead = [*(each for each in ahead if each.is_confirmed), _Ahead(boot, since_boot, False)]
            logger.warning(
                "clock: the wall clock jumped ahead by %s, to %s\n  records arrive at %s for now; if it stays so for "
                "ten minutes, it is believed",
                timedelta(microseconds=boot - self._boot_us), moment(wall), moment(self._boot_us + since_boot),
            )  # fmt: skip
        believed = [each for each in ahead if each.is_confirmed and since_boot - each.since_us >= BELIEVED_AFTER_US]
        if believed:
            self._boot_us = boot if believed[-1] is ahead[-1] else believed[-1].boot_us
            now = moment(self._boot_us + since_boot)
            logger.warning("clock: the wall clock is still ahead after ten minutes: it is %s now", now)
        self._ahead = tuple(ahead[len(believed) :])
        return self._boot_us + since_boot


steady_now_us = SteadyClock()
"""The clock of logs: one for the whole process, which begins with its first reading."""


def moment(us: int) -> str:
    """A time for people."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat(sep=" ")
