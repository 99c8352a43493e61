"""What time it is, as the log counts it: whole microseconds since 1970, UTC."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns the current time in microseconds. Tests hand in their own."""

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US


def now_us() -> int:
    """The wall clock. It may jump; whoever needs order takes the maximum of this and what was seen before."""
    return time.time_ns() // 1000
