"""Where a definition stands in the user's file: what error messages point at."""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.redacted import redacted

_PACKAGE = str(Path(__file__).parent.parent) + os.sep
TEXT_SHOWN_MAX = 100
_DEMO = _PACKAGE + "demo" + os.sep
_DEF_LINES_MAX = 200
"""So many lines of decorators are looked through for the `def` under them."""


@dataclass(frozen=True)
class Place:
    """A line of the user's code. `file` is a full path, or a name such as `<stdin>` where there is no file."""

    file: str
    line: int
    text: str
    """What stands there, for people; empty where the source is not known."""

    def __str__(self) -> str:
        return f"{_short(self.file)}:{self.line}"

    @property
    def shown(self) -> str:
        """The place and what stands there, as messages show it."""
        text = self.text if len(self.text) <= TEXT_SHOWN_MAX else self.text[:TEXT_SHOWN_MAX] + "..."
        return f"{self}   {text}" if text else str(self)

    @property
    def folder(self) -> str | None:
        """The folder of the file; None for code that stands in no file, such as a notebook's."""
        return os.path.dirname(self.file) if os.path.isfile(self.file) else None


def place_of_caller() -> Place:
    """The nearest line on the stack that is not Penstock's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return _place(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def place_of_function(function: Callable[..., Any]) -> Place:
    """The `def` of a function, under its decorators; for a callable that has no code of its own, who called us."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return place_of_caller()
    module_globals = getattr(inspect.unwrap(function), "__globals__", {})
    place = _place(code.co_filename, code.co_firstlineno, module_globals)
    wanted = re.compile(rf"\s*(async\s+)?def\s+{re.escape(code.co_name)}\b")
    for line in range(place.line, place.line + _DEF_LINES_MAX):
        if wanted.match(linecache.getline(code.co_filename, line, module_globals)):
            return Place(place.file, line, _signature(function))
    return Place(place.file, place.line, place.text if code.co_name == "<lambda>" else _signature(function))


def _place(file: str, line: int, module_globals: dict[str, Any]) -> Place:
    text = redacted(linecache.getline(file, line, module_globals).strip())
    # The name of a notebook's cell or of exec's code is no path, and stays as it is.
    return Place(file if file.startswith("<") else os.path.abspath(file), line, text)


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_DEMO)


def _signature(function: Callable[..., Any]) -> str:
    """`def hits(access)`: without annotations, which are long and change nothing."""
    signature = inspect.signature(function)
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    shown = signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    return f"def {getattr(function, '__name__', 'view')}{shown}"


def _short(file: str) -> str:
    """The path as people would type it: from the current folder, if it lies below."""
    try:
        here = os.getcwd() + os.sep
    except FileNotFoundError:
        return file
    return file.removeprefix(here)
