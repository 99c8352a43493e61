"""Reading what users give to topics, tables and views: either it is understood, or an error says what would be."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

from penstock.durations import parse_duration
from penstock.errors import (
    DefinitionError,
    DurationError,
    SchemaError,
    TopicDefinitionError,
    TopicNameError,
    ViewFunctionError,
    did_you_mean,
)
from penstock.pipeline.definition import ANY_INPUT, MERGE_RULES, bound_name
from penstock.pipeline.place import Place

VIEW_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
PIPELINE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
TOPIC_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
OWN_PREFIX = "_penstock"


@dataclass(frozen=True)
class Asked:
    """What is being defined, for errors: `thing` such as "view 'hits'", and where."""

    thing: str
    place: Place
    view: str | None = None

    def refuse(self, setting: str, expected: str, found: object, hint: str = "") -> NoReturn:
        """Raises the DefinitionError for a value that does not fit."""
        shown = found if isinstance(found, _Shown) else repr(found)
        raise DefinitionError(self.thing, self.place, setting, expected, shown, hint.strip("\n"), view=self.view)

    def choice(self, setting: str, value: Any, known: Sequence[str]) -> Any:
        """One of the known words."""
        if value not in known:
            expected = " or ".join(f'"{each}"' for each in known) if len(known) < 4 else f"one of {', '.join(known)}"
            self.refuse(setting, expected, value, did_you_mean(str(value), known).strip())
        return value

    def duration(self, setting: str, value: str | timedelta | None) -> timedelta | None:
        """A length of time of more than nothing, or None."""
        if value is None:
            return None
        length = self.any_duration(setting, value)
        if not length:
            self.refuse(setting, "more than zero, such as '10 minutes'", value)
        return length

    def text(self, setting: str, value: object) -> str:
        """A text with something in it."""
        if not isinstance(value, str) or not value.strip():
            self.refuse(setting, "a text", value)
        return value

    def number(self, setting: str, value: object) -> int:
        """A whole number; how great it may be is for others to say."""
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(setting, "a whole number", value)
        return value

    def any_duration(self, setting: str, value: str | timedelta) -> timedelta:
        """A length of time."""
        try:
            return parse_duration(value)
        except DurationError as error:
            self.refuse(setting, "a number and a unit, such as '500ms', '10 minutes' or '7 days'", value, error.found)

    def columns(self, setting: str, value: object) -> tuple[str, ...]:
        """Names of columns, or expressions: one text, or several."""
        given = (value,) if isinstance(value, str) else value
        if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
            self.refuse(setting, "a column's name or a list of them", value)
        found: list[str] = []
        for each in given:
            if not isinstance(each, str) or not each.strip():
                hint = "name columns as texts, not as Spark columns" if type(each).__name__ == "Column" else ""
                self.refuse(setting, "a column's name or a list of them", value, hint)
            if each in found:
                self.refuse(setting, "each column once", value)
            found.append(each)
        return tuple(found)

    def merge(self, value: object, key: tuple[str, ...] | None) -> dict[str, str]:
        """How columns merge: a rule for each."""
        if not isinstance(value, Mapping):
            self.refuse("merge", 'a rule for each column, such as {"total": "sum"}', value)
        for column, rule in value.items():
            if not isinstance(column, str):
                self.refuse("merge", 'a rule for each column, such as {"total": "sum"}', dict(value))
            self.choice(f"merge[{column!r}]", rule, MERGE_RULES)
            if column in (key or ()):
                self.refuse("merge", "columns that are not part of the key", column)
        return dict(value)

    def within(self, value: object, inputs: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """The columns whose groups never meet, by input."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            given = {ANY_INPUT: value}
        else:
            given = {bound_name(name) if isinstance(name, str) else name: each for name, each in value.items()}
            for name in given:
                if name not in inputs:
                    expected = f"an entry for inputs of the view: {', '.join(inputs)}"
                    self.refuse("within", expected, name, did_you_mean(str(name), inputs).strip())
        found = {name: self.columns("within", each) for name, each in given.items()}
        if not found or not all(found.values()):
            self.refuse("within", "at least one column for each input", value)
        if len({len(each) for each in found.values()}) > 1:
            self.refuse("within", "as many columns for each input, so that groups can be compared", value)
        return found


def matches(pattern: re.Pattern[str], name: object) -> bool:
    """Whether it is a text, and one that the pattern allows."""
    return isinstance(name, str) and pattern.fullmatch(name) is not None


def check_name(asked: Asked, name: object) -> str:
    """The name of a view or table: it becomes a name in a database and a parameter in Python."""
    if not isinstance(name, str) or not VIEW_NAME.fullmatch(name):
        expected = "a-z, 0-9 and '_', beginning with a letter or '_', at most 63 characters"
        near = re.sub(r"[^a-z0-9_]", "_", name.lower())[:63] if isinstance(name, str) else ""
        asked.refuse("name", expected, name, f"did you mean {near!r}?" if VIEW_NAME.fullmatch(near) else "")
    if name.startswith(OWN_PREFIX):
        asked.refuse("name", f"a name that does not begin with {OWN_PREFIX!r}, which is Penstock's own", name)
    if "__" in name:
        near = re.sub("__+", "_", name)
        expected = "a name without two underscores in a row, which stand in the names of Penstock's own tables"
        asked.refuse("name", expected, name, f"did you mean {near!r}?")
    return name


def parameters_of(function: Callable[..., Any], view: str, place: Place) -> tuple[str, ...]:
    """The names that a view's function reads. ViewFunctionError if not every parameter is plain."""
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        name, kind = parameter.name, parameter.kind
        if kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            star = "*" if kind is parameter.VAR_POSITIONAL else "**"
            raise ViewFunctionError(view, place, f"{star}{name}", "name each input by a parameter of its own")
        if parameter.default is not parameter.empty:
            raise ViewFunctionError(
                view,
                place,
                f"{name}={parameter.default!r}",
                f"an input has no default; if {name!r} is a setting, make it a constant of the file",
            )
        if kind is parameter.POSITIONAL_ONLY:
            raise ViewFunctionError(view, place, f"{name!r} before '/'", "leave out the '/': inputs are given by name")
    if not parameters:
        raise ViewFunctionError(view, place, "none", "name what it reads: def hits(access)")
    return tuple(parameter.name for parameter in parameters)


@contextmanager
def topic_errors(asked: Asked) -> Iterator[None]:
    """What the log would say of a topic, said at the user's line."""
    try:
        yield
    except TopicNameError as error:
        expected = "a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, at most 128 characters"
        asked.refuse("name", expected, error.name)
    except TopicDefinitionError as error:
        asked.refuse(error.setting, error.expected, _Shown(error.found), error.hint)
    except SchemaError as error:
        pointed = "\n".join(str(error).splitlines()[1:3])
        hint = f"\n{error.hint}" if error.hint else ""
        asked.refuse("ddl", error.expected, _Shown(f"... {error.found} ..."), f"{pointed}{hint}")


class _Shown(str):
    """A text that stands in messages as it is, without quotes."""

    __slots__ = ()
