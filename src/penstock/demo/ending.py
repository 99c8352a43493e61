"""Ctrl-C, SIGTERM and SIGHUP while the demo runs."""

from __future__ import annotations

import signal
from types import FrameType


class Ending:
    """Whether somebody asked for the end. The first signal only asks; the next raises KeyboardInterrupt.

    Were the first one raised wherever it comes, it could be lost in a callback, or a process that is being started
    would be left behind.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.is_asked = False

    def listen(self) -> None:
        """From here on signals come here. Call it in the main thread."""
        for number in self.NUMBERS:
            signal.signal(number, self._handle)

    def check(self) -> None:
        """KeyboardInterrupt if the end was asked for."""
        if self.is_asked:
            raise KeyboardInterrupt

    def ask(self) -> None:
        """From here on a signal ends everything at once."""
        self.is_asked = True

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.check()
        self.ask()
