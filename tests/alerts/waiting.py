"""Entries as steps write them, made by hand: no Spark is needed to carry them."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import func, insert, select

from penstock.alerts.entries import Entry, recent
from penstock.views.database_clock import moment_us
from penstock.views.store import Store
from penstock.views.system_tables import ALERTS

NOON_US = 1_767_268_800_000_000
ROW: dict[str, Any] = {
    "window": {"start": "2026-01-01 12:00:00.000000", "end": "2026-01-01 12:01:00.000000"},
    "url": "/pay",
    "errors": 31,
    "share": "0.50",
}


def put(store: Store, receiver: str, *, text: str = "/pay failed 31 times", rows: Any = None, **values: Any) -> int:
    """One more entry of alert `too_many` in pipeline `shop`; returns its number."""
    told = [ROW] if rows is None else rows
    with store.transaction(None) as tx:
        now = moment_us(tx.connection)
        number = int(tx.connection.execute(select(func.coalesce(func.max(ALERTS.c.number), 0))).scalar_one()) + 1
        entry = {
            "pipeline": "shop", "alert": "too_many", "number": number, "view_name": "errors", "receiver": receiver,
            "text": text, "told_rows": json.dumps(told), "rows_total": len(told), "clock_us": NOON_US,
            "created_us": now, "state": "waiting", "attempts": 0, "next_us": now,
        }  # fmt: skip
        tx.connection.execute(insert(ALERTS).values({**entry, **values}))
    return number


def entries(store: Store) -> list[Entry]:
    """All of them, in the order of their numbers."""
    with store.snapshot() as snapshot:
        return sorted(recent(snapshot.connection, limit=10_000), key=lambda each: each.number)


def states(store: Store) -> list[str]:
    return [each.state for each in entries(store)]


def entry(**changed: Any) -> Entry:
    """One that is nowhere stored."""
    values: dict[str, Any] = {
        "pipeline": "shop", "alert": "too_many", "number": 7, "view": "errors", "receiver": "mailto:ops@example.com",
        "text": "/pay failed 31 times", "rows": [ROW], "rows_total": 1, "clock_us": NOON_US, "created_us": NOON_US,
        "state": "waiting", "attempts": 0, "next_us": NOON_US, "sent_us": None, "error": None,
    }  # fmt: skip
    return Entry(**{**values, **changed})
