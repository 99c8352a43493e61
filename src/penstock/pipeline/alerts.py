"""Reading what users say of an alert: to whom, how often, of which rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from penstock.errors import AlertFunctionError, NameTaken
from penstock.pipeline.definition import AlertFunction, AlertSpec
from penstock.pipeline.options import Asked, check_name
from penstock.pipeline.place import Place, place_of_caller, place_of_function
from penstock.pipeline.receivers import EXPECTED, ReceiverUnclear, parse_receiver, shown_receiver

Function = TypeVar("Function", bound=AlertFunction)


class Alerting:
    """What `Pipeline.alert` gives back: the alert as it was defined, and a decorator for a function of its rows."""

    def __init__(self, alerts: dict[str, AlertSpec], spec: AlertSpec, *, is_named: bool) -> None:
        self._alerts = alerts
        self._is_named = is_named
        self.spec = spec

    def __call__(self, function: Function, /) -> Function:
        """Lets the function say which rows are told, and how. It is given back as it was."""
        place = place_of_function(function)
        if not place.text.startswith("def "):
            place = _bare(place)
        name = self.spec.name if self._is_named else str(getattr(function, "__name__", ""))
        asked = Asked(f"alert {name!r}", place)
        if name == "<lambda>":
            asked.refuse("name", "a function with a name, or name=", name)
        check_name(asked, name)
        count = _parameters(function, name, place)
        del self._alerts[self.spec.name]
        spec = replace(self.spec, name=name, function=function, parameters=count, place=place)
        _enter(self._alerts, spec, asked)
        self.spec = spec
        return function


def define_alert(
    alerts: dict[str, AlertSpec],
    view: object,
    *,
    to: object,
    every: str | timedelta,
    when: str | None,
    name: str | None,
) -> Alerting:
    """Enters an alert among those of a pipeline. DefinitionError or NameTaken, at the user's line."""
    place = _bare(place_of_caller())
    shown = name if name is not None else view
    asked = Asked(f"alert {shown!r}", place)
    if not isinstance(view, str) or not view:
        asked.refuse("view", "the name of a view, such as 'errors'", view)
    length = asked.duration("every", every)
    if length is None:
        asked.refuse("every", "a length of time, such as '10 minutes'", every)
    spec = AlertSpec(
        name=check_name(asked, _free_name(view, alerts) if name is None else name),
        view=view,
        receivers=_receivers(asked, to),
        every=length,
        when=None if when is None else asked.text("when", when),
        function=None,
        place=place,
    )
    _enter(alerts, spec, asked)
    return Alerting(alerts, spec, is_named=name is not None)


def _bare(place: Place) -> Place:
    """Only the file and the line: what stands there may name a web hook, whose path is a secret."""
    return replace(place, text="")


def _enter(alerts: dict[str, AlertSpec], spec: AlertSpec, asked: Asked) -> None:
    other = alerts.get(spec.name)
    if other is not None:
        raise NameTaken(asked.thing, asked.place, spec.name, f"an alert of view {other.view!r}", other.place)
    alerts[spec.name] = spec


def _free_name(view: str, taken: Mapping[str, AlertSpec]) -> str:
    """The view's own name, or with the first number that is free."""
    names = [view, *(f"{view}_{number}" for number in range(2, len(taken) + 3))]
    return next(each for each in names if each not in taken)


def _receivers(asked: Asked, to: object) -> tuple[str, ...]:
    given = [to] if isinstance(to, str) else to
    if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
        asked.refuse("to", f"{EXPECTED}, or a list of them", type(to))
    found: list[str] = []
    for each in given:
        if not isinstance(each, str):
            asked.refuse("to", f"{EXPECTED}, or a list of them", type(each))
        try:
            address = parse_receiver(each).address
        except ReceiverUnclear as error:
            asked.refuse("to", error.expected, shown_receiver(each), error.hint)
        if address in found:
            asked.refuse("to", "each receiver once", shown_receiver(each))
        found.append(address)
    if not found:
        asked.refuse("to", f"somebody to tell: {EXPECTED}", to)
    return tuple(found)


def _parameters(function: Callable[..., Any], alert: str, place: Place) -> int:
    """How many values the function takes: the row, and perhaps what it was before. AlertFunctionError."""
    parameters = list(inspect.signature(function).parameters.values())
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.default is each.empty]
    given = [each for each in parameters if each.kind in plain][:2]
    if not given or len(needed) > len(given) or any(each.kind not in plain for each in needed):
        raise AlertFunctionError(alert, place, str(inspect.signature(function)))
    return len(given)
