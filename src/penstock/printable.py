"""Text from outside that a terminal or a spreadsheet shows instead of obeying it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters of ASCII and C1, but for tab and line feed
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # marks that turn the direction of text, and line separators
    "\ud800-\udfff]"  # half characters, which no terminal can be sent
)

FORMULA = r"^[=+\-@\t\r]"
"""How a text begins that a spreadsheet would compute, but for numbers."""
NUMBER = r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"


def printable(text: str) -> str:
    """The text with every character that a terminal would obey written as JSON writes it.

    >>> print(printable("a line feed stays,\\nred text \\x1b[31m does not"))
    a line feed stays,
    red text \\u001b[31m does not
    """
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class PrintableStream:
    """A text stream that all writes reach printable. What is meant to steer the terminal goes to `terminal`."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Writes the text; as other streams do, it returns how many characters were given."""
        self.terminal.write(printable(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Writes all of them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


def terminal_of(stream: TextIO) -> TextIO:
    """The stream without the filter: for what makes its own text printable, and steers the terminal."""
    return stream.terminal if isinstance(stream, PrintableStream) else stream


@contextmanager
def printable_output() -> Iterator[None]:
    """Inside, whatever is printed to standard output or standard error is printable."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, PrintableStream(terminal_of(sys.stdout)))
    sys.stderr = cast(TextIO, PrintableStream(terminal_of(sys.stderr)))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
