"""Events are what a person would write down for the record."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from penstock.consume.events import events_of


def test_every_type_becomes_the_python_value_that_arrow_gives() -> None:
    moment = datetime(2026, 1, 31, 12, 30, 0, 123456, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "at": pa.array([moment, None, moment], pa.timestamp("us", "UTC")),
            "local": pa.array([moment.replace(tzinfo=None), None, None], pa.timestamp("us")),
            "text": ["a", None, "c"],
            "price": pa.array([Decimal("1.50"), None, Decimal("2.00")], pa.decimal128(9, 2)),
            "day": pa.array([date(2026, 1, 31), None, None], pa.date32()),
            "nested": pa.array([{"x": [1, 2]}, None, {"x": None}], pa.struct({"x": pa.list_(pa.int32())})),
        }
    )
    assert events_of(batch) == batch.to_pylist()
    assert events_of(batch)[0]["at"].tzinfo is UTC


def test_a_slice_gives_only_its_own_rows() -> None:
    batch = pa.record_batch({"at": pa.array([1, 2, 3], pa.timestamp("us", "UTC")), "n": [1, 2, 3]})
    assert events_of(batch.slice(1, 1)) == batch.to_pylist()[1:2]
    assert events_of(batch.slice(3)) == []


def test_a_time_that_python_cannot_hold_does_not_stop_the_others() -> None:
    beyond = 400_000_000_000_000_000
    batch = pa.record_batch({"at": pa.array([0, beyond, None], pa.timestamp("us", "UTC"))})
    assert [event["at"] for event in events_of(batch)] == [datetime(1970, 1, 1, tzinfo=UTC), beyond, None]


def test_columns_may_share_no_row_and_rows_no_column() -> None:
    assert events_of(pa.record_batch({"n": pa.array([], pa.int64())})) == []
