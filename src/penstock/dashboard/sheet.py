"""A sheet: a table of texts, with links, badges and moments in its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from nicegui.element import Element

from penstock.dashboard.numbers import NOTHING, ago, exact

Cell = str | dict[str, Any]
"""A text, or what `link`, `badge`, `moment` and `spark` make."""
Tone = Literal["", "good", "warn", "bad"]


@dataclass(frozen=True)
class Column:
    """A column of a sheet."""

    name: str
    label: str
    is_right: bool = False
    """Numbers stand at the right."""
    is_sortable: bool = False
    is_mono: bool = False
    is_wide: bool = False
    is_steady: bool = False
    """Never broken into lines."""


class Sheet(Element, component="static/sheet.js"):
    """A table with a caption. Where it is empty it says why."""

    def __init__(
        self, caption: str, columns: Sequence[Column], empty: str, on_order: Callable[[str], Any] | None = None
    ) -> None:
        super().__init__()
        self._props.update({"caption": caption, "columns": [], "rows": [], "empty": empty, "order": ""})
        self.columns(columns)
        if on_order is not None:
            self.on("order", lambda event: on_order(str(event.args)))

    def columns(self, columns: Sequence[Column]) -> None:
        """Other columns. The first one names its row."""
        self._show(columns=[
            {"name": each.name, "label": each.label, "right": each.is_right, "sortable": each.is_sortable,
             "mono": each.is_mono, "wide": each.is_wide, "steady": each.is_steady}
            for each in columns
        ])  # fmt: skip

    def show(self, rows: Iterable[Sequence[Cell]], *, order: str = "", empty: str | None = None) -> None:
        """Other rows. Nothing is sent if they are the same."""
        changed: dict[str, Any] = {"rows": [list(row) for row in rows], "order": order}
        self._show(**changed, **({} if empty is None else {"empty": empty}))

    def _show(self, **props: Any) -> None:
        if any(self._props.get(name) != value for name, value in props.items()):
            self._props.update(props)
            self.update()


def link(text: str, *path: str, title: str = "") -> Cell:
    """A link within the dashboard: to a page and a name there."""
    return {"text": text, "href": address(*path), **({"title": title} if title else {})}


def address(*path: str) -> str:
    """
    >>> address("views", "a/b?")
    '/dashboard/views/a%2Fb%3F'
    """
    return "/".join(["/dashboard", *(quote(each, safe="") for each in path)])


def badge(text: str, tone: Tone = "") -> Cell:
    """A state."""
    return {"text": text, "badge": tone or "calm"}


def moment(us: int | None, now_us: int) -> Cell:
    """How long ago; the exact time is its tooltip."""
    if us is None:
        return NOTHING
    return {"text": ago(us, now_us), "title": exact(us), "at": exact(us).replace(" UTC", "Z").replace(" ", "T")}


def spark(values: Sequence[float], text: str) -> Cell:
    """A small line over its text."""
    return {"text": text, "spark": list(values)} if len(values) > 1 else text
