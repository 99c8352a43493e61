"""Rich's console, for events that say what they like."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from penstock.printable import printable, terminal_of


class Terminal(Console):
    """A console of which only Rich itself steers the terminal: all text that it shows is printable."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(file=terminal_of(sys.stderr if stderr else sys.stdout), stderr=stderr, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of what is shown."""
        for each in super().render(renderable, options):
            yield each if each.control else Segment(printable(each.text), each.style)
