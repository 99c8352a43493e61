"""Numbers and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from penstock.dashboard import numbers
from penstock.dashboard.numbers import THIN, ago, cell, count, duration, exact, rate, size


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (count(None), "\u2013"), (count(-1234), f"-1{THIN}234"), (rate(None), "\u2013"), (rate(99.96), "100.0"),
        (size(0), "0 B"), (size(10**15), "1000.0 TB"), (duration(0), "0 ms"), (duration(59.9), "60 s"),
        (duration(86_400), "1 d"), (duration(90_061), "1 d 1 h"), (ago(10_000_000, 0), "in 10 s"), (exact(None), ""),
        (exact(10**19), f"{10**19} \u00b5s since 1970"), (cell(True), "yes"), (cell(None), "\u2013"),
        (cell(Decimal("1234.50")), f"1{THIN}234.50"), (cell(1234.5), f"1{THIN}234.5"), (cell("<b>"), "<b>"),
        (cell(1e-9), "1e-09"), (cell("x" * 300), "x" * 200 + "\u2026"),
        (cell({"start": "2026-01-01T12:00:00Z", "end": "2026-01-01T12:01:00Z"}),
         "2026-01-01 12:00:00 \u2013 12:01:00"),
    ],
)  # fmt: skip
def test_values_are_written_for_people(shown: str, expected: str) -> None:
    assert shown == expected


def test_a_moment_without_a_zone_is_utc() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    assert numbers.microseconds(naive) == numbers.microseconds(datetime(2026, 1, 1, tzinfo=UTC))
