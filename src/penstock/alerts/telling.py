"""What is written of an alert in the transaction of its step: who is told what, and which keys were told by now.

An entry is there exactly if the rows are that it tells of: both are in one transaction. The clock is the fence's, that
is the log's clock of arrival, so that it does not matter when a step was made. An alert tells nobody of a step that
begins before the last one that it was asked about: after a rollback the same events are read again, and not told again.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlalchemy import Connection, delete, insert, select, update

from penstock.events.schema import parse_ddl
from penstock.pipeline.receivers import parse_receiver
from penstock.upkeep.changes import KEY
from penstock.views.database_clock import moment_us
from penstock.views.json_values import to_json
from penstock.views.outbox import enqueue
from penstock.views.system_tables import ALERTS, ALERTS_LAST, ALERTS_TOLD
from penstock.views.texts import error_text, storable
from penstock.views.values import one_array

if TYPE_CHECKING:
    from penstock.alerts.looking import Found

_log = logging.getLogger("penstock.alerts")

ROWS_MAX = 1_000
"""So many rows are in an entry; how many there were is told as well."""
ROWS_LENGTH_MAX = 2_000_000
"""And no more than this as JSON: a mail with more would be refused."""
CELL_LENGTH_MAX = 200
LINES_MAX = 20
"""So many of them are worded."""
TOPIC_DDL = "time timestamp, pipeline string, alert string, view string, key string, text string, row string"
"""What a record in a topic of alerts looks like: `key` and `row` are JSON."""
TOPIC_KEY = "key"

_FAILED = b"failed"
"""Stands for a key: an alert that fails in every step says so once in a period."""
_WHOLE_SECONDS = re.compile(r"[+-]?\d{4,}-\d\d-\d\d \d\d:\d\d:\d\d\.000000")
_KEYS_AT_ONCE = 500
_ROWS_AT_ONCE = 5_000
_L, _T = ALERTS_LAST.c, ALERTS_TOLD.c


def prepared(found: Found) -> Found:
    """With what topics are told of each row, made before the step's transaction: of many rows that takes seconds.

    Which of them were told before is known only in the transaction, so it is made of all.
    """
    is_for_topics = any(parse_receiver(each).kind == "topic" for each in found.alert.spec.receivers)
    if not is_for_topics or not found.rows.num_rows:
        return found
    visible = found.alert.shape.visible(found.rows)
    parts = [
        _records(found, visible.slice(start, _ROWS_AT_ONCE), found.texts[start : start + _ROWS_AT_ONCE])
        for start in range(0, visible.num_rows, _ROWS_AT_ONCE)
    ]
    return replace(found, records=pa.concat_tables(parts))


def tell(connection: Connection, pipeline: str, found: Sequence[Found], *, begun_us: int, clock_us: int) -> bool:
    """Writes who has to be told what, within the caller's transaction. False if nobody has to.

    The step goes from one clock to the other. The caller has claimed the pipeline, so one does this at a time.
    """
    if not found:
        return False
    mine = (_L.pipeline == pipeline, _L.alert.in_([each.alert.name for each in found]))
    known = {row.alert: row for row in connection.execute(select(ALERTS_LAST).where(*mine))}
    is_told = False
    for each in found:
        last = known.get(each.alert.name)
        number, reached_us = (0, begun_us) if last is None else (last.number, last.clock_us)
        is_again = begun_us < reached_us
        if is_again and clock_us > reached_us and each.rows.num_rows:
            _log.warning(
                "alerts: alert %r tells nobody of %s rows: their step begins with what was read before, and goes on",
                each.alert.name,
                f"{each.rows.num_rows:,}",
            )
        count = 0 if is_again else _tell(connection, pipeline, each, number, clock_us)
        is_told = is_told or count > 0
        # Also where it told nobody: a step that reads this again is not the first to do so.
        reached = {"number": number + count, "clock_us": max(clock_us, reached_us)}
        place = {"pipeline": pipeline, "alert": each.alert.name}
        if last is None:
            connection.execute(insert(ALERTS_LAST).values(**place, **reached))
        else:
            this = (_L.pipeline == pipeline, _L.alert == each.alert.name)
            connection.execute(update(ALERTS_LAST).where(*this).values(reached))
    return is_told


def _tell(connection: Connection, pipeline: str, found: Found, number: int, clock_us: int) -> int:
    """Writes the entries of one alert, numbered from the one after `number` on; returns how many there are."""
    spec = found.alert.spec
    if not found.rows.num_rows and found.error is None:
        return 0
    mine = (_T.pipeline == pipeline, _T.alert == spec.name)
    begin_us = clock_us - spec.every // timedelta(microseconds=1)
    connection.execute(delete(ALERTS_TOLD).where(*mine, _T.told_us <= begin_us))
    keys = [_FAILED] if found.error is not None else one_array(found.rows.column(KEY)).to_pylist()
    told: set[bytes] = set()
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        asked = select(_T.key).where(*mine, _T.key.in_(keys[start : start + _KEYS_AT_ONCE]))
        told.update(bytes(each) for each in connection.scalars(asked))
    new = [place for place, key in enumerate(keys) if key not in told]
    if not new:
        return 0
    now = moment_us(connection)
    try:
        entries = [_failed(found)] if found.error is not None else _entries(found, new, now)
    except Exception as error:
        failed = replace(found, rows=found.rows.slice(0, 0), error=failure(error))
        return _tell(connection, pipeline, failed, number, clock_us)
    for start in range(0, len(new), _ROWS_AT_ONCE):  # A database ends a transaction that it hears nothing of.
        places = new[start : start + _ROWS_AT_ONCE]
        remembered = [{"pipeline": pipeline, "alert": spec.name, "key": keys[at], "told_us": clock_us} for at in places]
        connection.execute(insert(ALERTS_TOLD), remembered)
    if found.error is None:
        _send_to_topics(connection, pipeline, found, new, clock_us)
    common = {"pipeline": pipeline, "alert": spec.name, "view_name": spec.view, "clock_us": clock_us}
    connection.execute(
        insert(ALERTS),
        [
            {**common, "number": number + place, "created_us": now, "attempts": 0, "sent_us": None, "next_us": None,
             "error": None, **_timed(entry, now)}
            for place, entry in enumerate(entries, start=1)
        ],
    )  # fmt: skip
    return len(entries)


def _timed(entry: dict[str, Any], now: int) -> dict[str, Any]:
    """When an entry is due, or was done."""
    return entry | ({"next_us": now} if entry["state"] == "waiting" else {})


def _failed(found: Found) -> dict[str, Any]:
    """An alert that could not be asked: nobody is told but those who look."""
    spec = found.alert.spec
    # Only the place: what stands there may name a web hook, whose path is a secret.
    _log.warning("alerts: alert %r is left out of this step\n  %s\n  %s", spec.name, spec.place, found.error)
    text = f"alert {spec.name} could not be asked about {spec.view}"
    error = storable(str(found.error))
    return {"receiver": "", "text": text, "told_rows": "[]", "rows_total": 0, "state": "failed", "error": error}


def _entries(found: Found, new: Sequence[int], now: int) -> list[dict[str, Any]]:
    """One for each receiver, and for each address of a mail."""
    spec, shape = found.alert.spec, found.alert.shape
    first = found.rows.take(pa.array(new[:ROWS_MAX], pa.int64()))
    shown = documents(shape.visible(first))
    texts = [found.texts[place] for place in new[:LINES_MAX]]
    lines = [text or usual_text(row) for text, row in zip(texts, shown, strict=False)]
    if len(new) > len(lines):
        lines.append(f"... and {len(new) - len(lines):,} more")
    written = _bounded([json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in shown])
    common = {
        "text": storable("\n".join(lines)),
        "told_rows": f"[{','.join(written)}]",
        "rows_total": len(new),
    }
    receivers = dict.fromkeys(one for each in spec.receivers for one in parse_receiver(each).single)
    # What goes to a topic is handed to the outbox, and so it is as good as there.
    sent = {"state": "sent", "sent_us": now}
    return [
        {**common, "receiver": each.address, **(sent if each.kind == "topic" else {"state": "waiting"})}
        for each in receivers
    ]


def _send_to_topics(connection: Connection, pipeline: str, found: Found, new: Sequence[int], clock_us: int) -> None:
    """Hands all rows to the outbox, for each topic."""
    topics = [each.topic for each in map(parse_receiver, found.alert.spec.receivers) if each.kind == "topic"]
    if not topics:
        return
    assert found.records is not None, f"{found.alert.name} was not prepared"
    made = found.records.take(pa.array(new, pa.int64()))
    spec, count = found.alert.spec, made.num_rows
    columns = [
        pa.repeat(pa.scalar(clock_us, pa.int64()), count).cast(pa.timestamp("us", "UTC")),
        *(pa.repeat(pa.scalar(each), count) for each in (pipeline, spec.name, spec.view)),
        *made.columns,
    ]
    records = pa.table(columns, schema=parse_ddl(TOPIC_DDL))
    for topic in topics:
        enqueue(connection, pipeline, topic, records)


def failure(error: BaseException, where: str = "") -> str:
    """What went wrong, in a line of bounded length."""
    return f"{type(error).__name__}{where}: {error_text(error):.300}"


def _bounded(texts: Sequence[str]) -> list[str]:
    """The first of them, as many as an entry may hold."""
    sizes = accumulate(map(len, texts))
    return [text for text, size in zip(texts, sizes, strict=True) if size <= ROWS_LENGTH_MAX]


def documents(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON knows them: times and decimals are texts."""
    if not rows.num_rows:
        return []
    arrays = [one_array(each) for each in rows.columns]
    texts = to_json(pa.StructArray.from_arrays(arrays, fields=list(rows.schema))).array.to_pylist()
    # What cannot be written down cannot be stored either; its row is on its way to the dead letters.
    return [{} if text is None else _named(json.loads(text), rows.schema.names) for text in texts]


def _named(row: Any, names: Sequence[str]) -> dict[str, Any]:
    return row if isinstance(row, dict) else dict(zip(names, row, strict=True))


def usual_text(row: dict[str, Any]) -> str:
    """A row in one line.

    >>> usual_text({"url": "/pay", "errors": 21})
    'url=/pay, errors=21'
    """
    cells = ((name, cell(value)) for name, value in row.items())
    return ", ".join(
        f"{name}={text if len(text) <= CELL_LENGTH_MAX else text[:CELL_LENGTH_MAX] + '...'}" for name, text in cells
    )


def cell(value: Any) -> str:
    """One value of a row for people: a window by its start and end, a time of whole seconds without a fraction.

    >>> cell({"start": "2026-01-01 12:00:00.000000", "end": "2026-01-01 12:01:00.000000"})
    '2026-01-01 12:00:00 .. 2026-01-01 12:01:00'
    """
    if value is None:
        return "-"
    if isinstance(value, dict) and list(value) == ["start", "end"]:
        return f"{cell(value['start'])} .. {cell(value['end'])}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    text = str(value)
    return text.removesuffix(".000000") if _WHOLE_SECONDS.fullmatch(text) else text


def _records(found: Found, visible: pa.Table, texts: Sequence[str | None]) -> pa.Table:
    """Of one record for each row what differs between rows: the key, the text and the row."""
    rows = documents(visible)
    key = found.alert.shape.key
    columns = {
        "key": [json.dumps([row.get(name) for name in key], ensure_ascii=False) for row in rows],
        "text": [text or usual_text(row) for text, row in zip(texts, rows, strict=True)],
        "row": [json.dumps(row, ensure_ascii=False) for row in rows],
    }
    return pa.table({name: pa.array(column, pa.string()) for name, column in columns.items()})
