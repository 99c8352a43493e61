"""Dates and times into their columns.

A timestamp has microseconds, as in Spark; finer digits, which many programs log, are cut off. A time without a zone is
UTC in a timestamp column; a time with a zone has no place in a timestamp_ntz column. A number is never a time, because
nobody can tell seconds from microseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.events.unfit import Unfit, described

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Python and Spark know the years 1 to 9999, and so does the log.
DATE_LEAST = date.min.toordinal() - EPOCH.toordinal()
DATE_MOST = date.max.toordinal() - EPOCH.toordinal()
_FINER = re.compile(r"(\.\d{6})\d{1,3}(?!\d)")
"""Digits of a second beyond microseconds."""
TIME_LEAST_US = DATE_LEAST * 86_400_000_000
TIME_MOST_US = (DATE_MOST + 1) * 86_400_000_000 - 1


def to_date(value: Any) -> int:
    """Days since 1970."""
    if isinstance(value, str):
        try:
            days = int(pa.scalar(value).cast(pa.date32()).value)
        except (pa.ArrowException, UnicodeEncodeError):
            raise Unfit(f"expected date, such as 2026-01-31, found {described(value)}") from None
        if days < DATE_LEAST:
            raise Unfit(f"expected date in the years 1 to 9999, found {described(value)}")
        return days
    if isinstance(value, datetime):
        if value.tzinfo is not None or value.time() != time.min or _nanoseconds(value):
            raise Unfit(f"expected date, found {described(value)}, which has a time of day")
        value = value.date()
    if isinstance(value, date):
        return value.toordinal() - EPOCH.toordinal()
    raise Unfit(f"expected date, such as 2026-01-31, found {described(value)}")


def to_timestamp(value: Any) -> int:
    """Microseconds since 1970, UTC."""
    if isinstance(value, str):
        return _time_of_text(value, "timestamp", ("UTC", None))
    return _time_us(value, "timestamp")


def to_timestamp_ntz(value: Any) -> int:
    """Microseconds since 1970, wherever that was."""
    if isinstance(value, str):
        return _time_of_text(value, "timestamp_ntz", (None,))
    if isinstance(value, datetime) and value.tzinfo is not None:
        raise Unfit(f"expected timestamp_ntz (without a zone), found {described(value)}")
    return _time_us(value, "timestamp_ntz")


def _time_of_text(text: str, name: str, zones: tuple[str | None, ...]) -> int:
    kept = _FINER.sub(r"\1", text)
    for zone in zones:
        try:
            return _in_range(pa.scalar(kept).cast(pa.timestamp("us", zone)).value, name, text)
        except (pa.ArrowException, UnicodeEncodeError):
            continue
    example = "2026-01-31T12:00:00.123456" + ("Z" if "UTC" in zones else "")
    raise Unfit(f"expected {name}, such as {example}, found {described(text)}")


def _time_us(value: Any, name: str) -> int:
    if not isinstance(value, date):
        hint = "; write it as text, such as 2026-01-31T12:00:00Z" if isinstance(value, int | float | Decimal) else ""
        raise Unfit(f"expected {name}, found {described(value)}{hint}")
    if not isinstance(value, datetime):
        return (value.toordinal() - EPOCH.toordinal()) * 86_400_000_000
    since = value.replace(tzinfo=UTC) - EPOCH - (value.utcoffset() or timedelta(0))
    return _in_range((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds, name, value)


def _in_range(time_us: int, name: str, value: object) -> int:
    if TIME_LEAST_US <= time_us <= TIME_MOST_US:
        return time_us
    raise Unfit(f"expected {name} in the years 1 to 9999, found {described(value)}")


def _nanoseconds(value: Any) -> int:
    """What a pandas Timestamp holds beyond microseconds."""
    return getattr(value, "nanosecond", 0)
