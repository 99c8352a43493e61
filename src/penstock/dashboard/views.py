"""The page Views: what there is, how it is kept, how many rows it has and how fresh they are."""

from __future__ import annotations

from penstock.dashboard.beat import Beat, ViewState
from penstock.dashboard.markup import card
from penstock.dashboard.numbers import NOTHING, count, plural
from penstock.dashboard.screen import Screen
from penstock.dashboard.sheet import Cell, Column, Sheet, badge, link, moment

COLUMNS = [
    Column("view", "View"),
    Column("pipeline", "Pipeline"),
    Column("key", "Key", is_wide=True),
    Column("kept", "Kept by"),
    Column("rows", "Rows", is_right=True),
    Column("late", "Late", is_right=True),
    Column("corrected", "Corrected", is_right=True),
    Column("lag", "Lag", is_right=True),
    Column("fresh", "As of"),
]


def build(screen: Screen) -> None:
    """All views that people read."""
    with screen.main, card("All views"):
        sheet = Sheet("Views", COLUMNS, "There is no view yet: it comes with the first run, penstock run app.py")

    def refresh(beat: Beat) -> None:
        waiting = [] if screen.service.pipeline is None else [
            name for name in screen.service.pipeline.views if name not in beat.views
        ]  # fmt: skip
        rows = [view_row(name, each, beat) for name, each in sorted(beat.views.items())]
        rows += [[name, screen.service.pipeline.name if screen.service.pipeline else "", NOTHING,
                  badge("no rows yet", "warn"), *[NOTHING] * 5] for name in waiting]  # fmt: skip
        sheet.show(rows)
        screen.about.say(plural(len(rows), "view"))

    screen.live(refresh)


def view_row(name: str, view: ViewState, beat: Beat) -> list[Cell]:
    """A view as a row of a sheet with COLUMNS."""
    counters = view.counters
    return [
        link(name, "views", name),
        view.generation.pipeline,
        key_text(view),
        view.known.kept,
        count(counters.rows),
        count(counters.late),
        count(counters.corrected),
        badge(count(view.lag), "warn") if view.lag else count(view.lag),
        moment(view.generation.fence.clock_us or None, beat.at_us),
    ]


def key_text(view: ViewState) -> str:
    """Its key in words."""
    if view.known.key is None:
        return "each row its own"
    return ", ".join(view.known.key) or "one row"
