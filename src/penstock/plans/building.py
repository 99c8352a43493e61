"""Calling the user's function, and what it does meanwhile that its plan would not show.

`df.count()` becomes a number in the plan, `withWatermark` vanishes from it, `datetime.now()` becomes a literal. Python
itself tells of each call while the function runs (`sys.setprofile`, in this thread only), with the line that made it;
nothing is replaced, and any number of threads may build at once.
"""

from __future__ import annotations

import dis
import linecache
import os
import random
import re
import sys
import sysconfig
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import pyspark

from penstock.pipeline.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipeline.definition import ViewSpec

_ACTIONS = """
    collect count first head take tail show isEmpty toPandas toArrow toLocalIterator foreach foreachPartition rdd
    checkpoint localCheckpoint cache persist approxQuantile corr cov crosstab freqItems summary describe write writeTo
    writeStream insertInto save saveAsTable
"""
ACTIONS = frozenset(_ACTIONS.split())
"""What a frame does at once, instead of writing it into the plan."""

CLOCKS = {
    "datetime.now": "datetime.now()",
    "datetime.utcnow": "datetime.utcnow()",
    "datetime.today": "datetime.today()",
    "date.today": "date.today()",
    "time": "time.time()",
    "time_ns": "time.time_ns()",
    "localtime": "time.localtime()",
    "gmtime": "time.gmtime()",
    "Random.random": "random.random()",
    "Random.getrandbits": "random",
    "urandom": "os.urandom()",
}
"""By qualified name, functions of C that read the clock or throw dice: what users know them as."""

_CLOCK_MODULES = ("datetime", "time", "posix", "builtins", "random", "type")
_CHANCE = getattr(random, "_inst", None)
"""Whose methods the functions of `random` are; a `Random(seed)` of the user's own is as good as a constant."""
_PYSPARK = os.path.join(os.path.dirname(pyspark.__file__), "sql") + os.sep
_LIBRARIES = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "purelib", "platlib")}
    | {os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep}
)
_NAMING = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD"}
_INSTALLED = {"site-packages", "dist-packages"}
"""Where packages are installed, also the user's own and the system's."""


@dataclass(frozen=True)
class Seen:
    """Something that the function did while it was called."""

    what: str
    place: Place
    kind: str
    """`action`, `watermark`, `pivot` or `clock`."""


@dataclass
class Watch:
    """Notes what a function does."""

    seen: list[Seen] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            name = getattr(argument, "__qualname__", "")
            module = getattr(argument, "__module__", None) or getattr(type(argument.__self__), "__module__", "")
            is_seeded = module == "random" and argument.__self__ is not _CHANCE
            if name in CLOCKS and module in _CLOCK_MODULES and not is_seeded:
                place = _user_line(frame)
                if place is not None:
                    self._note(CLOCKS[name], place, "clock")
        elif event == "call" and _is_chance(frame):
            place = _user_line(frame.f_back) if frame.f_back is not None else None
            if place is not None:
                self._note(f"{frame.f_globals['__name__']}.{frame.f_code.co_name}()", place, "clock")
        elif event == "call" and frame.f_code.co_filename.startswith(_PYSPARK):
            self._called(frame)

    def _called(self, frame: FrameType) -> None:
        name = frame.f_code.co_name
        caller = frame.f_back
        if caller is None or is_library(caller.f_code.co_filename):
            return
        place = _user_line(caller)
        if place is None:
            return
        if name == "withWatermark":
            self._note("withWatermark", place, "watermark")
        elif name == "pivot" and frame.f_locals.get("values") is None:
            self._note("pivot without values", place, "pivot")
        elif name in ACTIONS and "dataframe.py" in frame.f_code.co_filename:
            self._note(f"{name}()", place, "action")

    def _note(self, what: str, place: Place, kind: str) -> None:
        found = Seen(what, place, kind)
        if found not in self.seen:
            self.seen.append(found)


def _is_chance(frame: FrameType) -> bool:
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    if file == random.__file__:
        return frame.f_locals.get("self") is _CHANCE
    return file == uuid.__file__ and name in ("uuid1", "uuid4")


def build(spec: ViewSpec, frames: Mapping[str, DataFrame]) -> tuple[DataFrame, list[Seen]]:
    """The view over these frames, and what its function did besides. Raises what the function raises."""
    watch = Watch()
    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(watch)
    try:
        built = spec.build(frames)
    finally:
        sys.setprofile(before)
    return built, watch.seen


def line_of(error: BaseException, spec: ViewSpec) -> Place:
    """The deepest line of the user's own code that an error came through; the view's place where there is none."""
    found = spec.place
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not is_library(file):
            found = place_of_line(file, trace.tb_lineno)
        trace = trace.tb_next
    return found


def line_with(spec: ViewSpec, word: str, *, names_column: bool = False) -> Place | None:
    """The first line of the view's function, or of a function inside it, that uses the word: as a name, or in SQL.

    With `names_column` also as a string of its own, as in `alias("word")`. What the line only mentions does not count:
    the function's own name, those of variables, a comment.
    """
    code = getattr(spec.function, "__code__", None)
    if code is None:
        return None
    line = min(_lines_with(word, code, names_column), default=None)
    return None if line is None else place_of_line(code.co_filename, line)


def _lines_with(word: str, code: CodeType, names_column: bool) -> Iterator[int]:
    in_sql = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    for each in dis.get_instructions(code):
        first, last = (each.positions.lineno, each.positions.end_lineno) if each.positions else (None, None)
        if first is None or last is None:
            continue
        if each.opname in _NAMING and each.argval == word:
            yield last  # Of a name behind a dot on a line of its own the expression begins further up.
        elif names_column and each.opname == "LOAD_CONST" and each.argval == word:
            yield last
        elif each.opname == "LOAD_CONST" and isinstance(each.argval, str) and re.search(r"[\s(]", each.argval):
            lines = range(first, last + 1)
            yield from (line for line in lines if in_sql.search(linecache.getline(code.co_filename, line)))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines_with(word, constant, names_column)


def _user_line(frame: FrameType) -> Place | None:
    """The line, if it is the user's: the clock is read all the time by others."""
    file = frame.f_code.co_filename
    return None if is_library(file) else place_of_line(file, frame.f_lineno)


@lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
    """Whether a file is Python's, an installed package's or our own."""
    path = os.path.realpath(file)
    is_installed = not _INSTALLED.isdisjoint(path.split(os.sep))
    return file.startswith("<frozen") or path.startswith(_LIBRARIES) or is_installed


def place_of_line(file: str, line: int) -> Place:
    """A line of a file, with its text."""
    return Place(file if file.startswith("<") else os.path.abspath(file), line, linecache.getline(file, line).strip())
