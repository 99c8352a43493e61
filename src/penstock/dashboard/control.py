"""Controls: a choice, a field, a button; each with its label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui.element import Element


class Control(Element, component="static/control.js"):
    """Something to choose with. What was chosen is checked by whoever is told."""

    def __init__(self, kind: str, label: str, on_choose: Callable[[str], Any], **props: Any) -> None:
        super().__init__()
        self._props.update({"kind": kind, "label": label, "value": "", "options": [], **props})
        self.on("choose", lambda event: on_choose(str(event.args)[:1000]))

    def show(self, **props: Any) -> None:
        """Changes what is shown. Nothing is sent if it is the same."""
        if any(self._props.get(name) != value for name, value in props.items()):
            self._props.update(props)
            self.update()


def choice(label: str, options: Sequence[tuple[str, str]], value: str, on_choose: Callable[[str], Any]) -> Control:
    """One of several."""
    return Control("choice", label, on_choose, options=[list(each) for each in options], value=value)


def field(label: str, on_choose: Callable[[str], Any], placeholder: str = "") -> Control:
    """A text."""
    return Control("field", label, on_choose, placeholder=placeholder)


def button(label: str, on_press: Callable[[], Any]) -> Control:
    """Something to press."""
    return Control("button", label, lambda _: on_press())
