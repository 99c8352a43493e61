"""A value is stored exactly as it was meant, or refused with the reason."""

from __future__ import annotations

import base64
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.columns import from_values
from penstock.events.encode import encode
from penstock.events.schema import format_ddl, parse_ddl
from penstock.events.values import converter
from tests.events.access_events import NOON_US
from tests.events.ddl_strategies import ODD_VALUES, TYPES, nullable


def one(ddl: str, value: Any) -> Any:
    """What becomes of one value in a column `a`: the stored value, which must come without a rejection."""
    encoded = encode([{"a": value}], parse_ddl(f"a {ddl}"))
    assert encoded.rejected == []
    encoded.batch.validate(full=True)
    return encoded.batch.to_pylist()[0]["a"]


def reason(ddl: str, value: Any) -> str:
    """Why one value does not fit a column `a`."""
    encoded = encode([{"a": value}], parse_ddl(f"a {ddl}"))
    assert encoded.batch.num_rows == 0
    assert len(encoded.rejected) == 1
    return encoded.rejected[0].reason


@pytest.mark.parametrize(
    ("ddl", "value", "stored"),
    [
        ("int", 5, 5),
        ("int", 5.0, 5),
        ("int", Decimal("5.00"), 5),
        ("int", np.int64(5), 5),
        ("tinyint", -128, -128),
        ("bigint", (1 << 63) - 1, (1 << 63) - 1),
        ("double", 5, 5.0),
        ("double", Decimal("0.1"), 0.1),
        ("double", math.inf, math.inf),
        ("float", 0.1, float(np.float32(0.1))),
        ("decimal(10,2)", "12.50", Decimal("12.50")),
        ("decimal(10,2)", "1e3", Decimal("1000.00")),
        ("decimal(10,2)", 12, Decimal("12.00")),
        ("decimal(10,2)", 12.1, Decimal("12.10")),
        ("decimal(10,2)", Decimal("12.5000"), Decimal("12.50")),
        ("decimal(38,38)", Decimal("-0." + "9" * 38), Decimal("-0." + "9" * 38)),
        ("boolean", True, True),
        ("string", "Straße \0 😀", "Straße \0 😀"),
        ("binary", b"\xff\0", b"\xff\0"),
        ("binary", bytearray(b"ab"), b"ab"),
        ("binary", base64.b64encode(b"ab").decode(), b"ab"),
        ("date", date(2026, 1, 31), date(2026, 1, 31)),
        ("date", "2026-01-31", date(2026, 1, 31)),
        ("timestamp_ntz", "2026-01-31T12:00:00.5", datetime(2026, 1, 31, 12, 0, 0, 500_000)),  # noqa: DTZ001
        ("array<int>", (1, None, 3.0), [1, None, 3]),
        ("array<int>", np.array([1, 2]), [1, 2]),
        ("map<string, int>", {"x": 1, "y": None}, [("x", 1), ("y", None)]),
        ("map<string, int>", [("x", 1)], [("x", 1)]),
        ("map<date, int>", {"2026-01-31": 1}, [(date(2026, 1, 31), 1)]),
        ("struct<x: int, y: string>", {"y": "only"}, {"x": None, "y": "only"}),
        ("int", pd.NA, None),
        ("timestamp", pd.NaT, None),
    ],
)
def test_a_value_is_stored_as_it_was_meant(ddl: str, value: Any, stored: Any) -> None:
    assert one(ddl, value) == stored
    assert one(ddl, None) is None


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        datetime(2026, 1, 31, 12),  # noqa: DTZ001
        datetime(2026, 1, 31, 17, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.000000+00:00",
        "2026-01-31 17:30+0530",
        "2026-01-31T12:00:00",
        "2026-01-31 12",
        pd.Timestamp("2026-01-31 13:00", tz="Europe/Berlin"),
        np.datetime64("2026-01-31T12:00:00.000000000"),
    ],
)
def test_the_same_moment_is_stored_however_it_is_written(value: Any) -> None:
    encoded = encode([{"a": value}], parse_ddl("a timestamp"))
    assert encoded.rejected == []
    assert encoded.batch.column(0).cast(pa.int64()).to_pylist() == [NOON_US]


def test_a_date_is_midnight_utc_in_a_timestamp_column() -> None:
    assert one("timestamp", date(2026, 1, 31)) == datetime(2026, 1, 31, tzinfo=UTC)
    assert one("timestamp", "2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ddl", "value", "expected"),
    [
        ("int", "5", "expected int, found the text '5'"),
        ("int", 1.5, "expected int, found the number 1.5"),
        ("int", True, "expected int, found the boolean True"),
        ("int", 1 << 31, "expected int, from -2147483648 to 2147483647, found the number 2147483648"),
        ("tinyint", 300, "expected tinyint, from -128 to 127, found the number 300"),
        ("int", math.nan, "expected int, found the number nan"),
        ("int", Decimal("sNaN"), "expected int, found ValueError('cannot convert signaling NaN to float')"),
        ("int", Decimal("1e9999999"), "expected int, found the number 1E+9999999"),
        ("boolean", 1, "expected boolean, found the number 1"),
        ("double", "1.5", "expected double, found the text '1.5'"),
        (
            "double",
            (1 << 53) + 1,
            "expected double, which keeps whole numbers up to 9007199254740992 exactly, found 9007199254740993",
        ),
        ("float", 1e300, "expected float, found the number 1e+300, which is too large for it"),
        ("double", Decimal("1e400"), "expected double, found the number 1E+400, which is too large for it"),
        ("decimal(5,2)", "1234", "expected decimal(5,2), found the text '1234', which is too large for it"),
        ("decimal(5,2)", 0.125, "expected decimal(5,2), found the number 0.125, which has more than 2 decimal places"),
        ("decimal(5,2)", "1,5", "expected decimal(5,2), found the text '1,5'"),
        ("decimal(5,2)", Decimal("NaN"), "expected decimal(5,2), found the number NaN"),
        ("string", 5, "expected string, found the number 5"),
        ("string", b"x", "expected string, found a bytes, b'x'"),
        ("string", "\ud800", "expected string, found half a character (surrogate) at 0"),
        ("binary", "not base64!", "expected binary (bytes, or base64 text), found the text 'not base64!'"),
        ("date", "31.1.2026", "expected date, such as 2026-01-31, found the text '31.1.2026'"),
        ("date", "0000-01-01", "expected date in the years 1 to 9999, found the text '0000-01-01'"),
        ("date", 5, "expected date, such as 2026-01-31, found the number 5"),
        (
            "timestamp",
            1_769_860_800,
            "expected timestamp, found the number 1769860800; write it as text, such as 2026-01-31T12:00:00Z",
        ),
        (
            "timestamp",
            "noon",
            "expected timestamp, such as 2026-01-31T12:00:00.123456Z, found the text 'noon'",
        ),
        (
            "timestamp",
            "2026-01-31T12:00:00.1234567890Z",
            "expected timestamp, such as 2026-01-31T12:00:00.123456Z, found the text '2026-01-31T12:00:00.1234567890Z'",
        ),
        (
            "timestamp_ntz",
            "2026-01-31T12:00:00Z",
            "expected timestamp_ntz, such as 2026-01-31T12:00:00.123456, found the text '2026-01-31T12:00:00Z'",
        ),
        ("array<int>", "12", "expected array<int>, found the text '12'"),
        ("array<int>", {1}, "expected array<int>, found a set, {1}"),
        ("map<string, int>", [("x", 1), ("x", 2)], "expected each key once in map<string, int>, found 'x' twice"),
        ("map<string, int>", [1], "expected map<string, int>, found a list, [1]"),
        ("struct<x: int>", (1,), "expected struct<x: int>, found a tuple, (1,)"),
        ("int NOT NULL", None, "expected int NOT NULL, found nothing"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_reason(ddl: str, value: Any, expected: str) -> None:
    assert reason(ddl, value) == expected


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("timestamp", np.datetime64("2026-01-31T12:00:00.000000001")),
        ("timestamp", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
        ("timestamp", "9999-12-31T23:59:59-02:00"),
        ("timestamp_ntz", datetime(2026, 1, 31, tzinfo=UTC)),
        ("date", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_a_time_that_would_lose_something_is_refused(ddl: str, value: Any) -> None:
    assert reason(ddl, value).startswith(f"expected {'a time' if isinstance(value, np.datetime64) else ddl}")


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-31T12:00:00.1234567Z",
        "2026-01-31 14:00:00.123456789+02:00",
        "2026-01-31T12:00:00.123456999",
        pd.Timestamp("2026-01-31T12:00:00.123456789Z"),
    ],
)
def test_digits_beyond_microseconds_are_cut_off(value: Any) -> None:
    stored = encode([{"a": value}], parse_ddl("a timestamp")).batch.column("a")[0].as_py()
    assert stored == datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ddl", "value", "column"),
    [
        ("struct<x: struct<y: int NOT NULL>>", {"x": {}}, "a.x.y"),
        ("struct<x: int>", {"z": 1}, "a"),
        ("array<struct<x: int>>", [{"x": 1}, {"x": "no"}], "a[1].x"),
        ("map<string, int>", {"k": "no"}, "a['k']"),
        ("map<int, int>", {None: 1}, "a[None]"),
    ],
)
def test_the_place_of_a_fault_is_named_inside_nested_values(ddl: str, value: Any, column: str) -> None:
    rejected = encode([{"a": value}], parse_ddl(f"a {ddl}")).rejected
    assert [one.column for one in rejected] == [column]


def test_the_reason_names_the_schema_as_people_wrote_it() -> None:
    schema = parse_ddl("a struct<x: array<map<string, decimal(5,2)>>>")
    assert reason("struct<x: array<map<string, decimal(5,2)>>>", 5).startswith(
        f"expected {format_ddl(schema).removeprefix('a ')}, found the number 5"
    )


@given(st.data())
def test_a_whole_column_is_taken_exactly_as_its_values_are_one_by_one(data: st.DataObject) -> None:
    kind = data.draw(TYPES)
    values = data.draw(st.lists(nullable(kind), max_size=4) | st.lists(ODD_VALUES, max_size=3))
    array = from_values(values, pa.field("a", kind))
    if array is not None:
        convert = converter(kind, True)
        assert repr(array.to_pylist()) == repr(pa.array([convert(value) for value in values], kind).to_pylist())
