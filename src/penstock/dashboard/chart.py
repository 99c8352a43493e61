"""Charts: lines, dots and bars, with a summary in words for those who do not see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nicegui.element import Element

Shape = Literal["line", "dashed", "dots", "triangles"]
Points = Sequence[tuple[int, float | None]]
"""Values by their time, in microseconds; where there is none the line is broken."""


@dataclass(frozen=True)
class Series:
    """One line, or one kind of dots."""

    name: str
    points: Points
    color: int = 0
    shape: Shape = "line"
    marks: Points = ()
    """Points of it that are marked."""


class Chart(Element, component="static/chart.js"):
    """A chart over time, or of bars. It has no height of its own while it is empty."""

    def __init__(self, empty: str, *, unit: str = "", height: int = 220, x_name: str = "") -> None:
        super().__init__()
        self._props.update(
            {"kind": "lines", "label": "", "series": [], "unit": unit, "size": height, "empty": empty, "y-time": False}
        )
        if x_name:
            self._props["x-name"] = x_name

    def lines(self, label: str, series: Sequence[Series], *, span: tuple[int, int] | None = None) -> None:
        """Lines over time; `label` is their summary in words, `span` the time that is shown."""
        limits = {} if span is None else {"from": span[0] // 1000, "to": span[1] // 1000}
        self._show(kind="lines", label=label, series=[_drawn(each) for each in series], **limits)

    def dots(self, label: str, series: Sequence[Series]) -> None:
        """Times against times."""
        drawn = [
            {**_drawn(each), "points": [[at // 1000, int(y or 0) // 1000] for at, y in each.points]} for each in series
        ]
        self._show(kind="scatter", label=label, series=drawn, **{"y-time": True})

    def bars(self, label: str, bars: Sequence[tuple[str, float]], unit: str = "") -> None:
        """The values of names, one below the other."""
        self._show(kind="bars", label=label, series=[{"name": name, "value": value} for name, value in bars], unit=unit)

    def _show(self, **props: Any) -> None:
        if any(self._props.get(name) != value for name, value in props.items()):
            self._props.update(props)
            self.update()


def _drawn(series: Series) -> dict[str, Any]:
    drawn = {"name": series.name, "color": series.color, "shape": series.shape, "points": _points(series.points)}
    return {**drawn, "marks": _points(series.marks)} if series.marks else drawn


def _points(points: Points) -> list[list[float | None]]:
    """In milliseconds, as browsers count, and no more digits than can be seen."""
    return [[at // 1000, None if value is None else float(f"{value:.5g}")] for at, value in points]
