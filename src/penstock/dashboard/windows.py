"""Rows of a view as lines over time or as bars, and which of their windows were corrected after their end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from penstock.dashboard.numbers import cell, microseconds, shortened
from penstock.views.catalog import KnownView
from penstock.views.values import is_window

Group = tuple[Any, ...]
"""The values of the key beside the window, as text."""


def window_of(known: KnownView) -> str | None:
    """The window in the key of a view; None if it has none."""
    return next((name for name in known.key or () if is_window(known.schema.field(name).type)), None)


def number_columns(known: KnownView) -> list[str]:
    """The columns that can be drawn: numbers that are not in the key."""
    kinds = (types.is_integer, types.is_floating, types.is_decimal)
    return [each.name for each in known.schema
            if each.name not in (known.key or ()) and any(is_kind(each.type) for is_kind in kinds)]  # fmt: skip


@dataclass(frozen=True)
class Lines:
    """Values by group and window."""

    groups: Mapping[Group, Mapping[int, float]]
    """The greatest groups; the values of each by the start of their window, in microseconds."""
    left_out: int
    """So many groups are not among them."""


def lines_of(rows: Sequence[Mapping[str, Any]], known: KnownView, window: str, column: str, most: int) -> Lines:
    """One line for each of the groups that have most in all."""
    others = [name for name in known.key or () if name != window]
    groups: dict[Group, dict[int, float]] = {}
    for row in rows:
        start, value = start_of(row[window]), as_number(row[column])
        if start is not None and value is not None:
            groups.setdefault(tuple(cell(row[name]) for name in others), {})[start] = value
    ranked = sorted(groups, key=lambda group: (-sum(abs(value) for value in groups[group].values()), group))
    chosen = {group: dict(sorted(groups[group].items())) for group in ranked[:most]}
    return Lines(chosen, max(len(ranked) - most, 0))


def group_name(group: Group, column: str) -> str:
    """What a line is called."""
    return shortened(" · ".join(group), 60) if group else column


def as_number(value: Any) -> float | None:
    """A value that can be drawn; None for what cannot."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < 1e300 else None  # False for NaN as well.


def start_of(window: Any) -> int | None:
    """Where a window begins, in microseconds."""
    start = window.get("start") if isinstance(window, Mapping) else None
    return microseconds(start) if isinstance(start, datetime) else None


@dataclass
class Corrections:
    """Which rows changed after their window was closed, as far as the dashboard has seen it."""

    seen: dict[tuple[str, int], tuple[int, tuple[Any, ...]]] = field(default_factory=dict)
    """By group and window: the generation, and the row of a window that was closed already."""
    marked: set[tuple[str, int]] = field(default_factory=set)

    def watch(
        self, rows: Sequence[Mapping[str, Any]], known: KnownView, window: str, closed_us: int | None, generation: int
    ) -> None:
        """Looks at rows as they are now. Those of closed windows that differ from before are corrected ones."""
        if closed_us is None:
            return
        for row in rows:
            start = start_of(row[window])
            end = row[window].get("end") if row[window] else None
            if start is None or not isinstance(end, datetime) or microseconds(end) > closed_us:
                continue
            place = (group_text(row, known, window), start)
            values = (generation, tuple(repr(row[name]) for name in known.schema.names))
            before = self.seen.get(place)
            if before is not None and before[0] == generation and before != values:
                self.marked.add(place)
            self.seen[place] = values
        if len(self.seen) > 50_000:
            self.seen.clear()


def group_text(row: Mapping[str, Any], known: KnownView, window: str) -> str:
    """The rest of the key, in a form that can be compared."""
    return json.dumps([cell(row[name]) for name in known.key or () if name != window])


def corrected_in(changes: pa.Table, known: KnownView, window: str, lateness_us: int) -> set[tuple[str, int]]:
    """The rows that changed after their window was closed, from records of the view's changelog, in their order.

    A window is closed if the step before had passed its end by the lateness. The first step among the records has none
    before it, so nothing of it counts.
    """
    found = set()
    before_us, step_us, step = 0, 0, ""
    for change in changes.select(["before", "after", "offsets"]).to_pylist():
        row, offsets = change["after"] or change["before"], change["offsets"] or "{}"
        if offsets != step:
            before_us, step_us, step = step_us, int(json.loads(offsets).get("clock_us", 0)), offsets
        if not row or not row.get(window):
            continue
        start, end = start_of(row[window]), row[window].get("end")
        if start is not None and isinstance(end, datetime) and microseconds(end) + lateness_us <= before_us:
            found.add((group_text(row, known, window), start))
    return found
