"""Rows and records as JSON, CSV and Arrow. What is in them is text for whoever reads it, never markup."""

from __future__ import annotations

import base64
import io
import json
import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.types as types

from penstock.views.csv_rows import csv_rows
from penstock.views.find import StoredView

JSON, CSV, ARROW = "application/json", "text/csv; charset=utf-8", "application/vnd.apache.arrow.stream"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dumps(document: object) -> bytes:
    """A document as JSON, in which NaN and infinity are texts already (`as_json`)."""
    return _ENCODER.encode(document).encode()


def moment(us: int | None) -> str | None:
    """A time in UTC; None stays None.

    >>> moment(0)
    '1970-01-01T00:00:00Z'
    """
    return None if us is None else _in_words(_EPOCH + timedelta(microseconds=us))


def as_json(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON knows them. Decimals and times are texts, bytes are base64, NaN and infinity are texts.

    A time beyond the year 9999, which Python cannot hold, stays in microseconds.
    """
    columns = [[_plain(value) for value in _values(column)] for column in rows.columns]
    names = rows.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def as_csv(view: StoredView, rows: pa.Table, *, raw: bool) -> bytes:
    """Rows as CSV; `raw` leaves texts as they are that a spreadsheet would compute."""
    columns = [each for each in view.table.columns if each.logical in rows.column_names]
    target = io.BytesIO()
    pyarrow.csv.write_csv(csv_rows(columns, rows, raw=raw), target)
    return target.getvalue()


def as_arrow(rows: pa.Table, about: dict[str, Any]) -> bytes:
    """Rows as an Arrow stream; what is known about them is in the metadata of its schema."""
    rows = rows.replace_schema_metadata({"penstock": dumps(about)})
    target = io.BytesIO()
    with pa.ipc.new_stream(target, rows.schema) as writer:
        writer.write_table(rows)
    return target.getvalue()


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        if not types.is_timestamp(column.type):
            raise
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_plain(key)): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else _in_words(value)


def _in_words(value: Any) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
