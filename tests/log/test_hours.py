"""Hours of event time."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import HOUR_US
from penstock.log.hours import RANGES_MAX, hours_meet, hours_of, join_hours

LOWEST, HIGHEST = -62_135_596_800_000_000, 253_402_300_799_999_999


def stamps(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.timestamp("us", "UTC"))


def test_a_stray_event_from_1970_or_2099_widens_nothing() -> None:
    today, far = 490_000 * HOUR_US, 1_140_000 * HOUR_US
    hours = hours_of(stamps([today, today + 5, 17, far, None]))
    assert hours == ((0, 0), (490_000, 490_000), (1_140_000, 1_140_000))
    assert not hours_meet(hours, [(today + HOUR_US, far)])
    assert hours_meet(hours, [(today + HOUR_US, far + 1)])


def test_nulls_touch_no_hour() -> None:
    assert hours_of(stamps([None, None])) == ()
    assert hours_of(None) == ()
    assert not hours_meet((), [(None, None)])


@given(
    st.lists(st.lists(st.integers(LOWEST, HIGHEST), max_size=60), min_size=1, max_size=4),
    st.tuples(st.integers(LOWEST, HIGHEST), st.integers(LOWEST, HIGHEST)),
)
def test_a_piece_that_holds_an_event_is_never_skipped(pieces: list[list[int]], span: tuple[int, int]) -> None:
    hours = join_hours(hours_of(stamps([*piece])) for piece in pieces)
    low, high = sorted(span)
    assert len(hours) <= RANGES_MAX
    assert all(first <= last for first, last in hours)
    if any(low <= value < high for piece in pieces for value in piece):
        assert hours_meet(hours, [(low, high)])
        assert hours_meet(hours, [(None, high)])
        assert hours_meet(hours, [(low, None)])
