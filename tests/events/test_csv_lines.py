"""CSV becomes columns: the quick way and the careful way read the same."""

from __future__ import annotations

import csv
import io
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.events.csv_lines import encode_csv, end_of_records, read_header
from penstock.events.schema import parse_ddl

SCHEMA = parse_ddl(
    "text string, whole int, real double, flag boolean, time timestamp, day date, price decimal(10,2), "
    "raw binary, tags array<string>, place struct<x: int>"
)


def encode(text: str, columns: list[str]) -> tuple[list[dict[str, Any]], list[tuple[int, str | None, str]]]:
    encoded = encode_csv(text.encode(), columns, SCHEMA)
    found = [{name: event[name] for name in columns} for event in encoded.batch.to_pylist()]
    return found, [(one.index, one.column, one.reason) for one in encoded.rejected]


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("text", "plain", "plain"),
        ("text", "", None),
        ("text", '""', ""),
        ("text", '"a ""b"", c\nd"', 'a "b", c\nd'),
        ("text", ' 5" pipe ', ' 5" pipe '),
        ("whole", "-12", -12),
        ("whole", "+12", 12),
        ("whole", '"12"', 12),
        ("real", "1.5e3", 1500.0),
        ("real", "7", 7.0),
        ("real", "inf", math.inf),
        ("flag", "TRUE", True),
        ("flag", "0", False),
        ("time", "2026-01-01T12:00:00Z", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ("time", "2026-01-01 12:00:00", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ("day", "2026-01-31", date(2026, 1, 31)),
        ("price", "12.50", Decimal("12.50")),
        ("raw", "AAE=", b"\0\1"),
        ("tags", '"[""a"", null]"', ["a", None]),
        ("place", '"{""x"": 1}"', {"x": 1}),
    ],
)
def test_value_is_read_as_its_column_wants(column: str, text: str, value: object) -> None:
    columns = [column, "text"] if column != "text" else ["text", "whole"]
    line = f"{text},\n"
    assert encode(line, columns)[0][0][column] == value
    # Beside a bad record the careful way is gone, and must read the same.
    assert encode(f"{line}x,y,z\n", columns)[0][0][column] == value


@pytest.mark.parametrize(
    ("column", "text", "reason"),
    [
        ("whole", "1.5", "expected int, found the text '1.5'"),
        ("whole", "99999999999", "expected int, from -2147483648 to 2147483647, found the number 99999999999"),
        ("real", "9007199254740993", "which keeps whole numbers up to 9007199254740992 exactly"),
        ("real", "much", "expected double, found the text 'much'"),
        ("flag", "yes", "expected boolean, found the text 'yes'"),
        ("time", "noon", "expected timestamp"),
        ("price", "1.234", "more than 2 decimal places"),
        ("tags", "[a", "expected array<string>, found the text '[a'"),
    ],
)
def test_value_that_does_not_fit_rejects_its_record_alone(column: str, text: str, reason: str) -> None:
    found, rejected = encode(f"a,\nb,{text}\nc,\n", ["text", column])
    assert [event["text"] for event in found] == ["a", "c"]
    ((index, at, why),) = rejected
    assert (index, at) == (1, column)
    assert reason in why


def test_record_with_too_many_or_too_few_values_is_rejected_as_it_came() -> None:
    encoded = encode_csv(b"a,1\nb\nc,1,2\n\nd,2\n", ["text", "whole"], SCHEMA)
    assert encoded.batch.column("text").to_pylist() == ["a", "d"]
    assert [(one.index, one.raw, one.reason) for one in encoded.rejected] == [
        (1, b"b", "expected 2 values, found 1"),
        (2, b"c,1,2", "expected 2 values, found 3"),
    ]
    assert encoded.kept is not None
    assert encoded.kept.tolist() == [0, 3]


def test_quote_that_is_never_closed_costs_only_its_line() -> None:
    encoded = encode_csv(b'a,1\n"b,2\nc,3\n', ["text", "whole"], SCHEMA)
    assert encoded.batch.column("text").to_pylist() == ["a", "c"]
    assert encoded.rejected[0].raw == b'"b,2'


def test_bytes_that_are_not_utf8_are_rejected_as_they_came() -> None:
    encoded = encode_csv(b"a,1\n\xff,2\n", ["text", "whole"], SCHEMA)
    assert encoded.batch.column("text").to_pylist() == ["a"]
    assert encoded.rejected[0].raw == b"\xff,2"


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"", 0),
        (b"a,b", 0),
        (b"a,b\nc", 4),
        (b'a,"b\nc"\nd', 8),
        (b'a,"b\nc', 0),
        (b'a,5" pipe\nb\nc', 12),
        (b'a,"b ""x\n"\n', 11),
    ],
)
def test_record_ends_at_a_line_break_outside_quotes(data: bytes, end: int) -> None:
    assert end_of_records(data) == end


def test_header_may_begin_with_a_byte_order_mark() -> None:
    assert read_header(b'\xef\xbb\xbftime,"a, b", c \r\n') == ["time", "a, b", "c"]


@settings(deadline=None)  # The machine may be busy.
@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")), st.integers(-9, 9))
    )
)
def test_what_python_writes_is_read_back(events: list[tuple[str, int]]) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(events)
    data = buffer.getvalue().encode()
    assert end_of_records(data) == len(data)
    expected = [(text or None, number) for text, number in events]
    for more, rejected in ((b"", 0), (b"1,2,3\n", 1)):
        encoded = encode_csv(data + more, ["text", "whole"], SCHEMA)
        found = encoded.batch.select(["text", "whole"]).to_pylist()
        assert [(event["text"], event["whole"]) for event in found] == expected
        assert len(encoded.rejected) == rejected
