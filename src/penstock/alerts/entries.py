"""What was told, to whom, and how it went: the entries that steps write and couriers carry.

An entry waits, is claimed by one courier for a while, and is then sent, failed, or waits again. A courier that dies
leaves a claim behind that runs out.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, case, delete, func, or_, select, update

from penstock.pipeline.receivers import shown_receiver
from penstock.views.system_tables import ALERTS

State = Literal["waiting", "sent", "failed"]
Moment = int | ColumnElement[int]
"""In microseconds: `DATABASE_NOW_US`, which all machines have in common, or what a test says."""
_A = ALERTS.c


@dataclass(frozen=True)
class Entry:
    """What one receiver is told by one alert of one step."""

    pipeline: str
    alert: str
    number: int
    view: str
    receiver: str
    """For people to see: of a web hook only the host. Empty where the alert itself failed, and nobody is told."""
    text: str
    """One line for each row, at most twenty of them."""
    rows: list[dict[str, Any]]
    """The first thousand, ready for JSON: times and decimals are texts."""
    rows_total: int
    clock_us: int
    """The log's clock of arrival in the step that it tells of."""
    created_us: int
    state: State
    attempts: int
    next_us: int | None
    """When it is tried next; None once it is sent or failed."""
    sent_us: int | None
    error: str | None


@dataclass(frozen=True)
class Claimed:
    """An entry that one courier is sending, with the full address of its receiver."""

    entry: Entry
    address: str
    first_us: int
    """When it was first tried."""
    claimed_us: int
    """When it was tried now."""


def recent(connection: Connection, *, pipeline: str | None = None, limit: int = 50) -> list[Entry]:
    """The newest entries, of one pipeline or of all, the newest first."""
    query = select(ALERTS).order_by(_A.created_us.desc(), _A.pipeline, _A.alert, _A.number.desc()).limit(limit)
    return [_entry(row) for row in connection.execute(query if pipeline is None else query.where(_mine(pipeline)))]


def find(connection: Connection, pipeline: str, alert: str, number: int) -> Entry | None:
    """One entry; None if there is none, or it is so old that it was forgotten."""
    row = connection.execute(select(ALERTS).where(_this(pipeline, alert, number))).one_or_none()
    return None if row is None else _entry(row)


def retry(connection: Connection, now: Moment, pipeline: str | None = None, alert: str | None = None) -> int:
    """Lets what has failed wait again, from the start. Returns how many there were."""
    wanted = [_A.state == "failed", _A.receiver != ""]
    wanted += [] if pipeline is None else [_A.pipeline == pipeline]
    wanted += [] if alert is None else [_A.alert == alert]
    values = {"state": "waiting", "attempts": 0, "first_us": None, "next_us": now, "holder": None, "lease_us": None}
    return connection.execute(update(ALERTS).where(*wanted).values(values)).rowcount


def forget(connection: Connection, until_us: Moment) -> int:
    """Removes what was settled before; what waits stays. Returns how many there were."""
    return connection.execute(delete(ALERTS).where(_A.state != "waiting", _A.created_us < until_us)).rowcount


# --- for couriers ---


def due(connection: Connection, now: Moment, schemes: Collection[str], limit: int) -> list[tuple[str, str, int]]:
    """Entries that could be claimed now, the longest waiting first: pipeline, alert and number of each."""
    query: Select[Any] = (
        select(_A.pipeline, _A.alert, _A.number)
        .where(_is_free(now), _goes_to(schemes))
        .order_by(_A.next_us, _A.pipeline, _A.alert, _A.number)
        .limit(limit)
    )
    return [(row.pipeline, row.alert, row.number) for row in connection.execute(query)]


def next_due(connection: Connection, schemes: Collection[str]) -> int | None:
    """When the next entry can be claimed; None if none waits. One that somebody is sending, when that claim ends."""
    free_us = case((_A.lease_us > _A.next_us, _A.lease_us), else_=_A.next_us)
    found: int | None = connection.execute(
        select(func.min(free_us)).where(_A.state == "waiting", _goes_to(schemes))
    ).scalar()
    return found


def claim(
    connection: Connection, place: tuple[str, str, int], holder: str, now: Moment, lease_us: int
) -> Claimed | None:
    """Makes an entry this courier's for a while; None if another one was faster. One statement decides."""
    values: dict[str, Any] = {"holder": holder, "lease_us": now + lease_us, "attempts": _A.attempts + 1}
    taken = connection.execute(update(ALERTS).where(_this(*place), _is_free(now)).values(values))
    if taken.rowcount != 1:
        return None
    row = connection.execute(select(ALERTS).where(_this(*place))).one()
    claimed_us: int = row.lease_us - lease_us
    return Claimed(_entry(row), row.receiver, claimed_us if row.first_us is None else row.first_us, claimed_us)


def renew(connection: Connection, claimed: Claimed, holder: str, until_us: Moment) -> bool:
    """Keeps a claim for longer. False if it had run out and was taken by another."""
    entry = claimed.entry
    mine = (_this(entry.pipeline, entry.alert, entry.number), _A.holder == holder, _A.state == "waiting")
    return connection.execute(update(ALERTS).where(*mine).values(lease_us=until_us)).rowcount == 1


def settle(connection: Connection, claimed: Claimed, holder: str, **values: Any) -> bool:
    """Writes how it went, and gives the claim back. False if the claim had run out and was taken by another."""
    entry = claimed.entry
    mine = (_this(entry.pipeline, entry.alert, entry.number), _A.holder == holder, _A.state == "waiting")
    given = {"holder": None, "lease_us": None, "first_us": claimed.first_us, **values}
    return connection.execute(update(ALERTS).where(*mine).values(given)).rowcount == 1


def _is_free(now: Moment) -> ColumnElement[bool]:
    return and_(_A.state == "waiting", _A.next_us <= now, or_(_A.lease_us.is_(None), _A.lease_us <= now))


def _goes_to(schemes: Collection[str]) -> ColumnElement[bool]:
    return or_(*(_A.receiver.like(f"{scheme}:%") for scheme in schemes))


def _this(pipeline: str, alert: str, number: int) -> ColumnElement[bool]:
    return and_(_A.pipeline == pipeline, _A.alert == alert, _A.number == number)


def _mine(pipeline: str) -> ColumnElement[bool]:
    return _A.pipeline == pipeline


def _entry(row: Row[Any]) -> Entry:
    return Entry(
        pipeline=row.pipeline,
        alert=row.alert,
        number=row.number,
        view=row.view_name,
        receiver=shown_receiver(row.receiver),
        text=row.text,
        rows=json.loads(row.told_rows),
        rows_total=row.rows_total,
        clock_us=row.clock_us,
        created_us=row.created_us,
        state=row.state,
        attempts=row.attempts,
        next_us=row.next_us,
        sent_us=row.sent_us,
        error=row.error,
    )
