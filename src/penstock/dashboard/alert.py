"""The page of one alert: the rows that raised it, and the mail as it was sent, as text."""

from __future__ import annotations

from email.message import EmailMessage

from penstock.alerts.entries import Entry, find
from penstock.alerts.mail import compose
from penstock.dashboard.beat import Beat
from penstock.dashboard.markup import Facts, Tag, card
from penstock.dashboard.numbers import NOTHING, ago, cell, count, exact, plural
from penstock.dashboard.screen import Screen
from penstock.dashboard.sheet import Column, Sheet


def build(screen: Screen, pipeline: str, alert: str, number: str) -> None:
    """One entry, as it is now."""
    with screen.main:
        with card("What happened"):
            facts = Facts()
        with card("Rows"):
            rows = Sheet("Rows that raised it", [Column("row", "Row")], "It has no rows.")
        with card("Mail", "As text. What else it holds is not shown here."):
            mail = Tag("pre", "")

    async def refresh(beat: Beat) -> None:
        entry, message = await screen.read(
            ("alert", pipeline, alert, number), lambda: _find(screen, pipeline, alert, number)
        )
        if entry is None:
            screen.about.say("There is no such alert, or it is no longer kept.")
            return
        facts.say("Alert", f"{entry.alert} of pipeline {entry.pipeline}")
        facts.say("View", entry.view)
        facts.say("Text", entry.text)
        facts.say("Noticed", ago(entry.created_us, beat.at_us), exact(entry.created_us))
        facts.say("Receiver", entry.receiver)
        facts.say("State", f"{entry.state}, {plural(entry.attempts, 'attempt')}")
        facts.say("Sent", ago(entry.sent_us, beat.at_us), exact(entry.sent_us))
        facts.say("Error", entry.error or NOTHING)
        names = list(dict.fromkeys(name for row in entry.rows for name in row))
        if names:
            rows.columns([Column(name, name) for name in names])
        rows.show([[cell(row.get(name)) for name in names] for row in entry.rows])
        screen.about.say(_told(entry))
        mail.say(message)

    screen.live(refresh)


def _told(entry: Entry) -> str:
    if len(entry.rows) == entry.rows_total:
        return plural(entry.rows_total, "row")
    return f"the first {count(len(entry.rows))} of {plural(entry.rows_total, 'row')}"


def _find(screen: Screen, pipeline: str, alert: str, number: str) -> tuple[Entry | None, str]:
    if not (number.isascii() and number.isdigit() and len(number) < 16) or screen.service.store() is None:
        return None, ""
    if screen.service.pipeline is not None and screen.service.pipeline.name != pipeline:
        return None, ""
    entry = screen.service.reading(lambda snapshot: find(snapshot.connection, pipeline, alert, int(number)))
    return (None, "") if entry is None else (entry, _text(compose(entry, sender=screen.service.sender)))


def _text(message: EmailMessage) -> str:
    """Its head and its text; never its HTML."""
    head = "\n".join(f"{name}: {message[name]}" for name in ("From", "To", "Subject", "Date") if message[name])
    body = message.get_body(("plain",))
    return f"{head}\n\n{body.get_content() if body is not None else '(it has no text)'}"
