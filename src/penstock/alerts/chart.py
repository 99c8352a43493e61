"""The picture in a mail: how a number went over the last windows, or the numbers of the rows beside one another.

Needs matplotlib (`pip install 'penstock[alerts]'`); without it, or where there is no number to draw, there is none.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from penstock.alerts.entries import Entry
from penstock.alerts.telling import cell, documents
from penstock.errors import PenstockError
from penstock.views.find import NULL, StoredView, conditions, find_rows, stored_view
from penstock.views.store import Snapshot, Store

_log = logging.getLogger("penstock.alerts")

WINDOWS_MAX = 60
BARS_MAX = 20
LABEL_LENGTH_MAX = 24


@dataclass(frozen=True)
class Series:
    """What is drawn."""

    title: str
    labels: Sequence[str]
    values: Sequence[float]
    is_line: bool
    """A number over time; else bars."""


def chart_of(store: Store, entry: Entry) -> bytes | None:
    """A PNG for the entry, as the view is now. None where none can be drawn: a mail never waits for its picture."""
    if find_spec("matplotlib") is None:
        return None
    try:
        series = store.reading(lambda snapshot: series_of(snapshot, entry))
        return None if series is None else draw(series)
    except Exception as error:  # Whatever it is, the mail is worth more than the picture.
        _log.warning("alerts: the mail of alert %r goes without a chart: %s", entry.alert, error)
        return None


def series_of(snapshot: Snapshot, entry: Entry) -> Series | None:
    """The first number of the view: of the first row's key over its last windows, or of all rows that are told."""
    if not entry.rows:
        return None
    try:
        view = stored_view(snapshot, entry.view)
    except PenstockError:
        return None
    key = view.known.key or ()
    number = next((each.name for each in view.known.schema if each.name not in key and is_number(each.type)), None)
    if number is None:
        return None
    window = next((name for name in key if name in view.windows), None)
    if window is None:
        return _bars(entry, key, number)
    return _line(snapshot, view, entry.rows[0], window, number)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column can be drawn."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def draw(series: Series) -> bytes:
    """The series as a PNG on white: it is read as it is, in light and in dark."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.8), dpi=160, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    places = range(len(series.values))
    if series.is_line:
        axes.plot(places, series.values, color="#2563eb", linewidth=1.8)
        axes.fill_between(places, series.values, color="#2563eb", alpha=0.12)
        axes.plot(places[-1:], series.values[-1:], "o", color="#dc2626", markersize=5)
    else:
        axes.bar(places, series.values, color="#2563eb")
    step = max(1, -(-len(series.labels) // 6)) if series.is_line else 1
    axes.set_xticks(
        [*places][::step], series.labels[::step], fontsize=8, rotation=0 if len(places) <= 6 or series.is_line else 30
    )
    # As text: a dollar sign in a value would begin a formula.
    axes.set_title(series.title, fontsize=10, loc="left", parse_math=False)
    for label in axes.get_xticklabels():
        label.set_parse_math(False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors="#374151", labelsize=8)
    target = io.BytesIO()
    figure.savefig(target, format="png", metadata={"Software": None})
    return target.getvalue()


def _line(snapshot: Snapshot, view: StoredView, row: Mapping[str, Any], window: str, number: str) -> Series | None:
    others = [name for name in view.known.key or () if name != window]
    texts = [f"{name}={NULL if row.get(name) is None else cell(row[name])}" for name in others]
    found = find_rows(snapshot, view, conditions(view, texts), order=f"-{window}", limit=WINDOWS_MAX)
    rows = [each for each in reversed(documents(found.select([window, number]))) if each[number] is not None]
    if not rows:
        return None
    name = ", ".join([number, *(_short(each) for each in texts)])
    starts = [cell(each[window]["start"]) if each[window] else "-" for each in rows]
    is_one_day = len({each[:10] for each in starts}) == 1
    labels = [each[11:16] if is_one_day else each[5:16] for each in starts]
    return Series(f"{name} ({starts[0][:10]})" if is_one_day else name, labels, [float(e[number]) for e in rows], True)


def _bars(entry: Entry, key: Sequence[str], number: str) -> Series | None:
    rows = [each for each in entry.rows if each.get(number) is not None][:BARS_MAX]
    if not rows:
        return None
    labels = [_short(", ".join(cell(each.get(name)) for name in key)) or entry.view for each in rows]
    return Series(f"{number} of {entry.view}", labels, [float(each[number]) for each in rows], False)


def _short(text: str) -> str:
    text = "".join(each if each.isprintable() else " " for each in text)
    return text if len(text) <= LABEL_LENGTH_MAX else text[: LABEL_LENGTH_MAX - 3] + "..."
