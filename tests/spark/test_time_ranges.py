"""Ranges of time as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.errors import TimeRangeError
from penstock.spark.time_ranges import MomentRanges, time_ranges

NOON_US = 1_767_268_800_000_000
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "moment",
    [
        NOON_US,
        NOON,
        datetime(2026, 1, 1, 12),  # noqa: DTZ001 (a time without a zone is UTC)
        datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        "2026-01-01T12:00:00Z",
        "2026-01-01 12:00:00",
        "2026-01-01T14:00:00+02:00",
    ],
)
def test_a_moment_may_be_written_in_many_ways(moment: int | datetime | str) -> None:
    assert time_ranges((moment, None), "arrived") == [(NOON_US, None)]
    assert time_ranges([(None, moment)], "arrived") == [(None, NOON_US)]


def test_no_limit_is_not_an_empty_limit() -> None:
    assert time_ranges(None, "arrived") is None
    assert time_ranges([], "arrived") == []
    assert time_ranges((5, 5), "arrived") == []
    assert time_ranges((None, None), "arrived") == [(None, None)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([(10, 20), (0, 5)], [(0, 5), (10, 20)]),
        ([(0, 5), (5, 9), (3, 4)], [(0, 9)]),
        ([(0, None), (7, 9)], [(0, None)]),
        ([(3, 9), (None, 4)], [(None, 9)]),
        ([(None, 4), (None, 2)], [(None, 4)]),
        ([(0, 5), (6, 9)], [(0, 5), (6, 9)]),
        ([(-7, -5), (-6, 0)], [(-7, 0)]),
    ],
)
def test_ranges_are_sorted_and_joined(given: MomentRanges, expected: MomentRanges) -> None:
    assert time_ranges(given, "arrived") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T12:00:00Z/", [(NOON_US, None)]),
        ("/2026-01-01T12:00:00Z", [(None, NOON_US)]),
        ("2026-01-01T11:00:00Z / 2026-01-01T12:00:00Z", [(NOON_US - 3_600_000_000, NOON_US)]),
        (f"[{NOON_US}, null]", [(NOON_US, None)]),
        ('[["2026-01-01T12:00:00Z", null], [1, 2]]', [(1, 2), (NOON_US, None)]),
    ],
)
def test_text_says_the_same(text: str, expected: MomentRanges) -> None:
    assert time_ranges(text, "arrived") == expected


@pytest.mark.parametrize(
    "given", ["2026", "a/b", "1/2/3", "[1", "[1, 2, 3]", (1, 2, 3), 5, (True, None), (1.5, None), [("soon", None)]]
)
def test_anything_else_is_refused_and_named(given: MomentRanges) -> None:
    with pytest.raises(TimeRangeError, match=r"^arrived cannot be .*\n  expected: a pair") as caught:
        time_ranges(given, "arrived")
    assert caught.value.found == given
