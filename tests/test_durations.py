"""Lengths of time are read and written without loss."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.durations import format_duration, parse_duration
from penstock.errors import DurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 minutes", timedelta(minutes=10)),
        ("10m", timedelta(minutes=10)),
        ("500ms", timedelta(milliseconds=500)),
        ("5 µs", timedelta(microseconds=5)),
        ("1h", timedelta(hours=1)),
        ("1h 30m", timedelta(minutes=90)),
        ("1 hour, 30 minutes and 5 seconds", timedelta(minutes=90, seconds=5)),
        ("1.5 hours", timedelta(minutes=90)),
        ("0.1s", timedelta(milliseconds=100)),
        ("2 Weeks", timedelta(days=14)),
        ("7 days", timedelta(days=7)),
        ("0", timedelta(0)),
        (" 1d ", timedelta(days=1)),
    ],
)
def test_a_duration_reads_as_people_write_it(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "it is empty"),
        ("10", "'10' has no unit"),
        ("ten minutes", "cannot read 'ten minutes'"),
        ("-5s", "it is negative"),
        ("5 fortnights", "no unit is named 'fortnights'"),
        ("5M", "no unit is named 'M'"),
        ("0.1us", "it is finer than a microsecond"),
        ("1e3 s", "no unit is named 'e'"),
        ("999999999999 days", "it is longer than 999999999 days"),
    ],
)
def test_what_is_not_a_duration_is_refused_with_what_was_found(text: str, found: str) -> None:
    with pytest.raises(DurationError) as caught:
        parse_duration(text)
    assert caught.value.text == text
    assert caught.value.found == found
    assert "expected: a number and a unit" in str(caught.value)


def test_a_bare_number_is_refused_because_its_unit_is_anybodys_guess() -> None:
    with pytest.raises(DurationError, match="not a text; write the unit too"):
        parse_duration(10)  # type: ignore[arg-type]


def test_a_timedelta_is_taken_as_it_is_unless_negative() -> None:
    assert parse_duration(timedelta(seconds=3)) == timedelta(seconds=3)
    with pytest.raises(DurationError, match="negative"):
        parse_duration(timedelta(seconds=-3))


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(minutes=10), "10 minutes"),
        (timedelta(hours=1), "1 hour"),
        (timedelta(days=7), "7 days"),
        (timedelta(days=14), "2 weeks"),
        (timedelta(minutes=90), "90 minutes"),
        (timedelta(milliseconds=500), "500ms"),
        (timedelta(microseconds=1), "1us"),
        (timedelta(0), "0s"),
    ],
)
def test_a_duration_is_written_with_the_largest_unit_that_is_exact(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.timedeltas(min_value=timedelta(0)))
def test_what_is_written_reads_back_the_same(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration
