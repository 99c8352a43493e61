"""Plain elements of a page: headings, paragraphs, links. Text is text: no element here can hold markup."""

from __future__ import annotations

from typing import Any

from nicegui.element import Element

from penstock.dashboard.numbers import NOTHING


class Tag(Element):
    """One element of HTML, with a text that can be changed."""

    def __init__(self, name: str, text: str = "", classes: str = "", **attributes: Any) -> None:
        """`class_` and `for_` are written without their underscore, and `aria_label` with a hyphen."""
        super().__init__(name)
        if classes:
            self.classes(classes)
        for key, value in attributes.items():
            if value is not None:
                self._props[key.rstrip("_").replace("_", "-")] = value
        self._text = text

    def say(self, text: str) -> None:
        """Changes the text. Nothing is sent if it is the same."""
        if text != self._text:
            self._text = text
            self.update()

    def set(self, key: str, value: Any) -> None:
        """Changes an attribute. Nothing is sent if it is the same."""
        if self._props.get(key) != value:
            self._props[key] = value
            self.update()


def card(title: str, note: str = "", *, level: int = 2) -> Tag:
    """A part of a page with its heading; what follows in a `with` stands in it."""
    section = Tag("section", classes="card")
    with section:
        heading = Tag(f"h{level}", title)
        section.set("aria-labelledby", f"c{heading.id}")
        if note:
            Tag("p", note, "note")
    return section


class Tile:
    """A number that people look for first, with its name and its unit."""

    def __init__(self, name: str, unit: str = "") -> None:
        with Tag("div", classes="tile"):
            Tag("dt", name)
            self.value = Tag("dd", NOTHING)
            self.unit = Tag("dd", unit, "unit")

    def say(self, value: str, unit: str | None = None) -> None:
        self.value.say(value)
        if unit is not None:
            self.unit.say(unit)


class Facts:
    """Names and values, one below the other."""

    def __init__(self) -> None:
        self._list = Tag("dl", classes="facts")
        self._values: dict[str, Tag] = {}

    def say(self, name: str, text: str, title: str = "") -> None:
        """Sets a value; it is added at its first time."""
        if name not in self._values:
            with self._list:
                Tag("dt", name)
                self._values[name] = Tag("dd", text)
        self._values[name].say(text)
        if title:
            self._values[name].set("title", title)
