"""The page Alerts: what was noticed, who was told, and whether it reached them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.alerts.entries import Entry
from penstock.dashboard.beat import Beat
from penstock.dashboard.markup import card
from penstock.dashboard.numbers import count, shortened
from penstock.dashboard.screen import Screen
from penstock.dashboard.sheet import Cell, Column, Sheet, Tone, badge, link, moment

COLUMNS = [
    Column("alert", "Alert", is_steady=True),
    Column("when", "When"),
    Column("view", "View"),
    Column("receiver", "Receiver", is_wide=True),
    Column("state", "State"),
    Column("attempts", "Attempts", is_right=True),
    Column("error", "Error", is_wide=True),
]
_TONES: dict[str, Tone] = {"sent": "good", "waiting": "warn", "failed": "bad"}


def build(screen: Screen) -> None:
    """The latest entries, the newest first."""
    with screen.main, card("Latest alerts"):
        sheet = Sheet("Alerts, the newest first", COLUMNS, "No alert was raised.")

    def refresh(beat: Beat) -> None:
        sheet.show(entry_rows(beat.entries, beat.at_us))

    screen.live(refresh)


def entry_rows(entries: Sequence[Entry], now_us: int) -> list[list[Cell]]:
    """Entries as rows of a sheet with COLUMNS."""
    return [
        [
            link(f"{each.alert} #{each.number}", "alerts", each.pipeline, each.alert, str(each.number)),
            moment(each.created_us, now_us),
            link(each.view, "views", each.view),
            shortened(each.receiver),
            badge(each.state, _TONES.get(each.state, "")),
            count(each.attempts),
            shortened(each.error or ""),
        ]
        for each in entries
    ]
