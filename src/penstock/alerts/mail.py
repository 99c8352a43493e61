"""An entry as an e-mail: a text for every reader, the same as HTML with a chart, and the rows as CSV.

Values of rows are text, wherever they stand: in a header they lose their line breaks, in HTML they are escaped, and in
CSV one that a spreadsheet would compute is quoted away.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from hashlib import blake2b
from typing import Any

from penstock.alerts.entries import Entry
from penstock.alerts.telling import cell
from penstock.pipeline.receivers import parse_receiver
from penstock.printable import FORMULA, NUMBER

SUBJECT_LENGTH_MAX = 150
ROWS_SHOWN_MAX = 50
"""So many rows are in the text; all that the entry holds are in the CSV."""
CELL_LENGTH_MAX = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMULA, _NUMBER = re.compile(FORMULA), re.compile(NUMBER)
"""A decimal is a text in JSON, and in a spreadsheet a number all the same."""
_CELL = "padding:4px 12px 4px 0;border-bottom:1px solid #8884;text-align:{};vertical-align:top"


def compose(entry: Entry, *, sender: str = "penstock@localhost", chart: bytes | None = None) -> EmailMessage:
    """The mail that tells of an entry. `chart` is a PNG: it is shown in the mail, and attached.

    The same entry always has the same Message-ID, so that a mail that is sent again can be known for what it is.
    """
    message = EmailMessage(policy=SMTP)
    message["Subject"] = subject(entry)
    message["From"] = sender
    if entry.receiver.startswith("mailto:"):
        message["To"] = ", ".join(parse_receiver(entry.receiver).addresses)
    message["Date"] = format_datetime(_moment(entry.created_us))
    message["Message-ID"] = f"<{identity(entry)}@penstock.invalid>"
    message["Auto-Submitted"] = "auto-generated"
    message["X-Penstock-Alert"] = f"{_one_line(entry.pipeline)}/{_one_line(entry.alert)}/{entry.number}"
    message.set_content(_text(entry), cte="quoted-printable")
    picture = f"chart.{identity(entry)}@penstock.invalid"
    message.add_alternative(_html(entry, picture if chart else None), subtype="html", cte="quoted-printable")
    if chart:
        body = [*message.iter_parts()][1]
        assert isinstance(body, EmailMessage), type(body)
        body.add_related(chart, "image", "png", cid=f"<{picture}>", disposition="inline", filename="chart.png")
    if entry.rows:
        message.add_attachment(
            csv_of(entry.rows).encode(), "text", "csv", filename=f"{entry.view}.csv", params={"charset": "utf-8"}
        )
    if chart:
        message.add_attachment(chart, "image", "png", filename=f"{entry.view}.png")
    return message


def identity(entry: Entry) -> str:
    """The same for the same entry, and for no other: what a receiver can know a repetition by."""
    digest = blake2b(f"{entry.pipeline}\0{entry.created_us}".encode(), digest_size=8).hexdigest()
    return f"{entry.alert}.{entry.number}.{digest}"


def subject(entry: Entry) -> str:
    """One line: the alert, its first row, and how many more there are."""
    first = _one_line(entry.text)
    more = f" (and {entry.rows_total - 1:,} more)" if entry.rows_total > 1 else ""
    start = f"[{_one_line(entry.pipeline)}] {_one_line(entry.alert)}: "
    room = SUBJECT_LENGTH_MAX - len(start) - len(more)
    return f"{start}{first if len(first) <= room else first[: room - 3] + '...'}{more}"


def csv_of(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV. A text that a spreadsheet would take for a formula begins with an apostrophe."""
    target = io.StringIO()
    names = _names(rows)
    writer = csv.writer(target)
    writer.writerow([_harmless(each) for each in names])
    for row in rows:
        writer.writerow([_harmless(row.get(name)) for name in names])
    return target.getvalue()


def _harmless(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    text = cell(value)
    is_formula = isinstance(value, str) and _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def _text(entry: Entry) -> str:
    lines = [entry.text.strip(), "", *_table(entry.rows[:ROWS_SHOWN_MAX]), ""]
    return "\n".join([*lines, *_about(entry)]) + "\n"


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows in columns of one width, as a terminal shows them."""
    names = _names(rows)
    cells = [names, *([_one_line(_short(row.get(name))) for name in names] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(names))]
    lines = [
        "   ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip() for line in cells
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]] if names else []


def _about(entry: Entry) -> list[str]:
    shown = min(len(entry.rows), ROWS_SHOWN_MAX)
    count = f"{entry.rows_total:,} row{'' if entry.rows_total == 1 else 's'} of {entry.view}"
    some = f", {shown:,} shown here" if shown < entry.rows_total else ""
    clock = _moment(entry.clock_us).isoformat(timespec="seconds").replace("+00:00", "Z")
    return [
        f"{count}{some}, as of {clock}",
        f"alert {entry.alert}, number {entry.number}, of pipeline {entry.pipeline}",
        f"penstock alert show {entry.pipeline} {entry.alert} {entry.number}",
    ]


def _html(entry: Entry, picture: str | None) -> str:
    """No colours but greys that show on light and on dark, no scripts, nothing from elsewhere."""
    lines = entry.text.strip().splitlines() or [entry.alert]
    told = "<br>".join(html.escape(line) for line in lines)
    rows = entry.rows[:ROWS_SHOWN_MAX]
    names = _names(rows)
    numbers = {name for name in names if all(isinstance(row.get(name), int | float | None) for row in rows)}
    sides = {name: _CELL.format("right" if name in numbers else "left") for name in names}
    head = "".join(f'<th style="{sides[name]};font-weight:600">{html.escape(name)}</th>' for name in names)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{sides[name]}">{html.escape(_short(row.get(name)))}</td>' for name in names)
        + "</tr>"
        for row in rows
    )
    table = f'<table style="border-collapse:collapse;font-size:14px"><tr>{head}</tr>{body}</table>' if names else ""
    image = (
        f'<p><img src="cid:{html.escape(picture)}" alt="chart of {html.escape(entry.view)}" width="560" '
        'style="max-width:100%;height:auto;border-radius:6px"></p>'
        if picture
        else ""
    )
    about = "<br>".join(html.escape(line) for line in _about(entry))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="color-scheme" content="light dark"><meta name="supported-color-schemes" content="light dark">'
        f"<title>{html.escape(subject(entry))}</title></head>"
        '<body style="font-family:system-ui,-apple-system,Segoe UI,Roboto,sans-serif;line-height:1.45;'
        'max-width:720px;margin:0 auto;padding:16px">'
        f'<p style="font-size:17px;margin:0 0 12px">{told}</p>{image}{table}'
        f'<p style="font-size:12px;opacity:.7;margin:16px 0 0">{about}</p></body></html>\n'
    )


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _short(value: Any) -> str:
    text = cell(value)
    return text if len(text) <= CELL_LENGTH_MAX else text[: CELL_LENGTH_MAX - 3] + "..."


def _one_line(text: str) -> str:
    """The first line, without anything that could begin another one."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return "".join(each if each.isprintable() else " " for each in first).strip()


def _moment(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
