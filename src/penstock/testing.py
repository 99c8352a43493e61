"""For tests: a clock that stands still until it is told to move."""

from __future__ import annotations

from datetime import timedelta


class ManualClock:
    """A clock for `Log(clock=...)`. It may be moved forwards and backwards."""

    def __init__(self, now_us: int = 1_767_225_600_000_000) -> None:
        """Starts on 1 January 2026, 00:00 UTC, unless told otherwise."""
        self.now_us = now_us

    def __call__(self) -> int:
        return self.now_us

    def move(self, by: timedelta) -> None:
        """Moves the clock by so much; negative moves it back."""
        self.now_us += by // timedelta(microseconds=1)
