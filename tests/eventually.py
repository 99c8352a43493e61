"""The one way tests wait for something that another thread, process or server does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

LIMIT_SECONDS = 120.0
"""Long enough for the busiest machine. A test that waits this long is broken, not slow."""

PAUSE_SECONDS = 0.01


def eventually(
    probe: Callable[[], Result], *, explain: Callable[[], object] | None = None, seconds: float = LIMIT_SECONDS
) -> Result:
    """Call `probe` until it returns something true, and return that.

    Fails after `seconds` with what `explain` returns, such as the output of the process that was waited for.
    """
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        if time.monotonic() > deadline:
            detail = explain() if explain else f"last result: {found!r}"
            raise AssertionError(f"still not true after {seconds:g} s; {detail}")
        time.sleep(PAUSE_SECONDS)
    return found
