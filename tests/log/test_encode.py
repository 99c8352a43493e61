"""Every event is kept exactly as it was meant, or set aside with the reason; nothing is lost and nothing changed."""

from __future__ import annotations

import base64
import json
import math
from collections import OrderedDict, defaultdict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.columns import from_values
from penstock.log.encode import Encoded, encode
from penstock.log.json_lines import _encode_line_by_line, _read_at_once, encode_json_lines
from penstock.log.schema import format_ddl, parse_ddl
from penstock.log.values import converter
from tests.log.ddl_strategies import ODD_VALUES, SCHEMAS, TYPES, nullable, values_of

ACCESS = parse_ddl("time timestamp, ip string, status int NOT NULL, url string, seconds double")
GOOD: dict[str, Any] = {
    "time": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "ip": "10.0.0.1",
    "status": 200,
    "url": "/",
    "seconds": 0.25,
}
NOON_US = 1_769_860_800_000_000


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


def comparable(encoded: Encoded) -> tuple[str, list[tuple[str, str | None, int]], list[int]]:
    """An outcome as something that compares NaN as equal."""
    encoded.batch.validate(full=True)
    kept = range(encoded.batch.num_rows) if encoded.kept is None else encoded.kept.tolist()
    rejected = [(one.reason, one.column, one.index) for one in encoded.rejected]
    return repr(encoded.batch.to_pylist()), rejected, list(kept)


# What fits, and as what


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


# What does not fit, and why


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
            "2026-01-31T12:00:00.1234567Z",
            "expected timestamp, such as 2026-01-31T12:00:00.123456Z, found the text '2026-01-31T12:00:00.1234567Z'",
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
        ("timestamp", pd.Timestamp("2026-01-31T12:00:00.000000001Z")),
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


def test_an_unknown_field_is_a_rejection_and_not_dropped() -> None:
    encoded = encode([GOOD, {**GOOD, "statsu": 1}, {1: 2}, 5, None], ACCESS)
    assert encoded.batch.num_rows == 1
    assert [(one.index, one.column) for one in encoded.rejected] == [(1, "statsu"), (2, "1"), (3, None), (4, None)]
    assert encoded.rejected[0].reason == (
        "nothing is named 'statsu'; known: time, ip, status, url, seconds; did you mean 'status'?"
    )
    assert encoded.rejected[2].reason == (
        "expected an event with the columns time, ip, status, url, seconds, found the number 5"
    )


def test_a_null_in_a_not_null_column_is_a_rejection_in_every_form() -> None:
    rows = [GOOD, {**GOOD, "status": None}]
    table = pa.Table.from_pylist(rows)
    lines = b'{"status": 200}\n{"status": null}\n'
    for data in (rows, table, pd.DataFrame(rows), lines):
        encoded = encode(data, ACCESS)
        assert [(one.index, one.reason) for one in encoded.rejected] == [(1, "expected int NOT NULL, found nothing")]
        assert encoded.kept is not None
        assert encoded.kept.tolist() == [0]


def test_a_bad_record_never_spoils_its_neighbours() -> None:
    rows = [dict(GOOD, status=index) for index in range(1000)]
    rows[500] = {**GOOD, "status": "x"}
    encoded = encode(rows, ACCESS)
    assert encoded.batch.column("status").to_pylist() == [index for index in range(1000) if index != 500]
    assert encoded.batch.schema.equals(ACCESS, check_metadata=True)
    assert [one.index for one in encoded.rejected] == [500]
    assert json.loads(encoded.rejected[0].raw) == {**GOOD, "status": "x", "time": "2026-01-31T12:00:00+00:00"}


def test_an_event_that_fails_when_looked_at_is_rejected_too() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("broken")

    around: list[Any] = []
    around.append(around)
    encoded = encode([{"a": Broken()}, {"a": 1}, {"a": around}], parse_ddl("a int"))
    assert encoded.batch.to_pylist() == [{"a": 1}]
    assert [one.index for one in encoded.rejected] == [0, 2]
    assert all(one.raw for one in encoded.rejected)


def test_events_may_be_any_mapping_and_stay_untouched() -> None:
    event: defaultdict[str, int] = defaultdict(int, status=1)
    encoded = encode([event, OrderedDict(status=2)], ACCESS)
    assert encoded.batch.column("status").to_pylist() == [1, 2]
    assert encoded.batch.column("url").to_pylist() == [None, None]
    assert dict(event) == {"status": 1}


def test_no_events_are_an_empty_batch() -> None:
    for data in ([], b"", b"\n \n", ACCESS.empty_table(), ACCESS.empty_table().to_pandas()):
        encoded = encode(data, ACCESS)
        assert encoded.batch.num_rows == 0
        assert encoded.batch.schema == ACCESS
        assert encoded.rejected == []


def test_what_is_no_events_at_all_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="events cannot be given as int"):
        encode(5, ACCESS)  # type: ignore[arg-type]


# Tables


@pytest.mark.parametrize(
    ("array", "ddl", "stored"),
    [
        (pa.array([1, 300, None]), "tinyint", [1, None]),
        (pa.array([1, 2], pa.uint64()), "bigint", [1, 2]),
        (pa.array([1.0, 1.5, math.nan, None]), "int", [1, None]),
        (pa.array([1, (1 << 53) + 1]), "double", [1.0]),
        (pa.array([0.5, 1e300]), "float", [0.5]),
        (pa.array(["1.5", "x"]), "decimal(5,2)", [Decimal("1.50")]),
        (pa.array([Decimal("1.50"), Decimal("1.55")]), "decimal(5,1)", [Decimal("1.5")]),
        (pa.array(["2026-01-31T12:00:00Z", "2026-01-31 12:00", "noon"]), "timestamp", [GOOD["time"]] * 2),
        (pa.array([NOON_US * 1000, 1], pa.timestamp("ns")), "timestamp", [GOOD["time"]]),
        (pa.array([NOON_US, 1 << 62], pa.timestamp("us", "Asia/Tokyo")), "timestamp", [GOOD["time"]]),
        (pa.array([NOON_US], pa.timestamp("us", "UTC")), "timestamp_ntz", []),
        (pa.array([1, -1_000_000], pa.date32()), "date", [date(1970, 1, 2)]),
        (pa.array(["a", "b"]).dictionary_encode(), "string", ["a", "b"]),
        (pa.array(["a", "b"], pa.large_string()), "string", ["a", "b"]),
        (pa.array(["a", "b"], pa.string_view()), "string", ["a", "b"]),
        (pa.array([b"a"], pa.large_binary()), "binary", [b"a"]),
        (pa.array([b"a"]), "string", []),
        (pa.array([True]), "int", []),
        (pa.nulls(2), "map<string, int>", [None, None]),
        (pa.array([[1], [None, 2]], pa.large_list(pa.int32())), "array<int>", [[1], [None, 2]]),
        (pa.array([[1, 300]]), "array<tinyint>", []),
        (pa.array([{"x": 1}, {"x": None}, None]), "struct<x: bigint NOT NULL>", [{"x": 1}, None]),
        (pa.array([{"x": 1, "y": 1}]), "struct<x: bigint>", []),
    ],
)
def test_a_column_of_another_type_is_taken_where_nothing_is_lost(array: Any, ddl: str, stored: list[Any]) -> None:
    encoded = encode(pa.table({"a": array}), parse_ddl(f"a {ddl}"))
    encoded.batch.validate(full=True)
    assert encoded.batch.to_pydict() == {"a": stored}
    assert len(encoded.rejected) == len(array) - len(stored)


def test_an_unknown_or_doubled_column_rejects_every_row_with_its_content() -> None:
    encoded = encode(pa.table({"a": [1, 2], "b": [3, 4]}), parse_ddl("a int"))
    assert [(one.column, json.loads(one.raw)) for one in encoded.rejected] == [
        ("b", {"a": 1, "b": 3}),
        ("b", {"a": 2, "b": 4}),
    ]
    doubled = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert [one.reason for one in encode(doubled, parse_ddl("a int")).rejected] == [
        "expected each column once, found it twice"
    ]


def test_a_table_in_many_chunks_is_one_batch() -> None:
    table = pa.concat_tables([pa.table({"a": [1]}), pa.table({"a": [2, 3]})]).slice(1)
    assert encode(table, parse_ddl("a int")).batch.to_pydict() == {"a": [2, 3]}


def test_a_batch_of_the_right_schema_is_not_copied() -> None:
    batch = pa.RecordBatch.from_pylist([GOOD], ACCESS)
    encoded = encode(batch, ACCESS)
    assert encoded.batch.column("ip").buffers()[2].address == batch.column("ip").buffers()[2].address


def test_text_in_arrow_that_is_not_utf8_is_refused_as_a_whole() -> None:
    offsets, broken = pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")
    array = pa.Array.from_buffers(pa.string(), 1, [None, offsets, broken])
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        encode(pa.table({"a": array}), parse_ddl("a string"))


def test_pandas_nothings_are_null_and_a_named_index_is_a_column() -> None:
    frame = pd.DataFrame(
        {
            "a": [1.0, math.nan, 2.5],
            "b": ["x", None, math.nan],
            "c": pd.to_datetime(["2026-01-31T12:00:00Z", None, None]),
            "d": [{"x": 1}, {"y": 1}, None],
            "e": pd.array([1, None, 3], dtype="Int64"),
        },
        index=pd.Index(["i", "j", "k"], name="name"),
    )
    schema = parse_ddl("name string, a double, b string, c timestamp, d struct<x: int>, e int")
    encoded = encode(frame, schema)
    assert encoded.batch.to_pylist() == [
        {"name": "i", "a": 1.0, "b": "x", "c": GOOD["time"], "d": {"x": 1}, "e": 1},
        {"name": "k", "a": 2.5, "b": None, "c": None, "d": None, "e": 3},
    ]
    assert [(one.index, one.column) for one in encoded.rejected] == [(1, "d")]
    assert json.loads(encoded.rejected[0].raw)["d"] == {"y": 1}


# JSON lines


def test_json_lines_are_read_at_once_when_all_are_well() -> None:
    data = b'{"status":1,"time":"2026-01-31T12:00:00Z"}\r\n{"status":2,"seconds":1}\n'
    assert _read_at_once(data, ACCESS) is not None
    assert encode(data, ACCESS).batch.to_pylist() == [
        {"time": GOOD["time"], "ip": None, "status": 1, "url": None, "seconds": None},
        {"time": None, "ip": None, "status": 2, "url": None, "seconds": 1.0},
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"null", "expected an event with the columns a, b, c, found a NoneType, None"),
        (b'{"a":1} null', "expected a JSON object, found an error at character 9: Extra data"),
        (b'{"a":1} {"a":2}', "expected a JSON object, found an error at character 9: Extra data"),
        (b'{"a":1', "expected a JSON object, found an error at character 7: Expecting ',' delimiter"),
        (b"[1]", "expected an event with the columns a, b, c, found a list, [1]"),
        (b'{"a":1,"a":2}', "expected each name once, found 'a' twice"),
        (b'{"c":"\xff"}', "expected UTF-8, found the byte 0xff at byte 7"),
        (b'{"c":"\\ud800"}', "expected string, found half a character (surrogate) at 0"),
        (b'{"a":1.5}', "expected int, found the number 1.5"),
        (b'{"a":99999999999}', "expected int, from -2147483648 to 2147483647, found the number 99999999999"),
        (b'{"b":1e400}', "expected double, found the number 1E+400, which is too large for it"),
        (
            b'{"b":9007199254740993}',
            "expected double, which keeps whole numbers up to 9007199254740992 exactly, found 9007199254740993",
        ),
        (b'{"d":1}', "nothing is named 'd'; known: a, b, c"),
        (b'{"c":' + b"[" * 100_000, "expected a JSON object, found one nested too deeply"),
        (b'{"b":1e99999999999999999999}', "expected a JSON object, found a number that cannot be read"),
    ],
)
def test_a_bad_line_is_rejected_as_it_is_and_its_neighbours_are_kept(line: bytes, reason: str) -> None:
    schema = parse_ddl("a int, b double, c string")
    for before, after in ((b"", b""), (b'{"a":1}\n', b'\n\n{"a":2}\n')):
        encoded = encode(before + line + after, schema)
        assert [one.raw for one in encoded.rejected] == [line]
        assert encoded.rejected[0].reason.startswith(reason)
        assert encoded.rejected[0].index == (1 if before else 0)
        assert encoded.batch.column("a").to_pylist() == ([1, 2] if before else [])
        assert encoded.kept is not None
        assert encoded.kept.tolist() == ([0, 2] if before else [])


def test_json_numbers_keep_every_digit_in_a_decimal_column() -> None:
    schema = parse_ddl("a decimal(38,18), b map<string, decimal(5,2)>")
    data = b'{"a":12345678901234567890.123456789012345678}\n{"a":0.10,"b":{"x":1.50}}\n'
    assert encode(data, schema).batch.to_pylist() == [
        {"a": Decimal("12345678901234567890.123456789012345678"), "b": None},
        {"a": Decimal("0.100000000000000000"), "b": [("x", Decimal("1.50"))]},
    ]


def test_a_large_input_is_read_in_blocks_and_stays_in_order() -> None:
    data = b"".join(b'{"a":%d,"b":"%s"}\n' % (number, b"x" * 90) for number in range(60_000))
    assert len(data) > 5_000_000
    encoded = encode(data, parse_ddl("a int, b string"))
    assert encoded.batch.column("a").to_pylist() == list(range(60_000))


# Properties


@given(st.data())
def test_events_that_fit_are_all_kept_and_come_back_the_same(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    rows = data.draw(st.lists(values_of(pa.struct(list(schema))), max_size=4))
    encoded = encode(rows, schema)
    assert encoded.rejected == []
    assert encoded.kept is None
    assert encoded.batch.schema.equals(schema, check_metadata=True)
    assert comparable(encode(encoded.batch.to_pylist(), schema)) == comparable(encoded)
    assert comparable(encode(encoded.batch, schema)) == comparable(encoded)
    assert comparable(encode(pa.Table.from_batches([encoded.batch]), schema)) == comparable(encoded)


@given(st.data())
def test_no_record_is_lost_and_none_changes_another(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    row = st.fixed_dictionaries({}, optional={field.name: nullable(field.type) | ODD_VALUES for field in schema})
    rows = data.draw(st.lists(row | ODD_VALUES | st.just({"_unknown": 1}), max_size=6))
    encoded = encode(rows, schema)
    encoded.batch.validate(full=True)
    kept = list(range(len(rows))) if encoded.kept is None else encoded.kept.tolist()
    assert sorted([*kept, *(one.index for one in encoded.rejected)]) == list(range(len(rows)))
    assert len(kept) == encoded.batch.num_rows
    alone = [encode([row], schema) for row in rows]
    assert repr(encoded.batch.to_pylist()) == repr([row for one in alone for row in one.batch.to_pylist()])
    assert [one.reason for one in encoded.rejected] == [one.reason for many in alone for one in many.rejected]


@given(st.data())
def test_a_whole_column_is_taken_exactly_as_its_values_are_one_by_one(data: st.DataObject) -> None:
    kind = data.draw(TYPES)
    values = data.draw(st.lists(nullable(kind), max_size=4) | st.lists(ODD_VALUES, max_size=3))
    array = from_values(values, pa.field("a", kind))
    if array is not None:
        convert = converter(kind, True)
        assert repr(array.to_pylist()) == repr(pa.array([convert(value) for value in values], kind).to_pylist())


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-300, 300)
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.datetimes().map(str)
    | st.dates().map(str)
    | st.sampled_from(["2026-01-31T12:00:00Z", "1.5", "YWI="]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.sampled_from("xyz"), children, max_size=3),
    max_leaves=4,
)
JSON_SCHEMA = parse_ddl(
    "a int, b double, c string, d timestamp, e date, f decimal(10,2), g array<float>, h struct<x: bigint, y: string>, "
    "i boolean, j timestamp_ntz"
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(JSON_SCHEMA.names), JSON_VALUES, max_size=4).map(
            lambda row: json.dumps(row).encode()
        )
        | st.sampled_from(
            [b"null", b"{}", b"", b'{"a":1} {"a":2}', b'{"a":\n1}', b"{", b"}", b'{"a":1}\r', b'{"b":1.0e2}']
        ),
        max_size=5,
    ),
    st.sampled_from(JSON_SCHEMA.names),
)
def test_json_lines_read_at_once_are_as_if_read_line_by_line(lines: list[bytes], only: str) -> None:
    data = b"\n".join(lines)
    for schema in (JSON_SCHEMA, pa.schema([JSON_SCHEMA.field(only)])):
        assert comparable(encode_json_lines(data, schema)) == comparable(_encode_line_by_line(data, schema))


@given(
    st.lists(st.binary(max_size=30) | st.text('{}[]",:0123456789.eE-nulltruefalse\\ \n', max_size=30).map(str.encode))
)
def test_any_bytes_are_kept_or_rejected_line_by_line(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    encoded = encode(data, parse_ddl("a int, b array<double>"))
    count = sum(1 for line in data.split(b"\n") if line.strip())
    assert encoded.batch.num_rows + len(encoded.rejected) == count


def test_the_reason_names_the_schema_as_people_wrote_it() -> None:
    schema = parse_ddl("a struct<x: array<map<string, decimal(5,2)>>>")
    assert reason("struct<x: array<map<string, decimal(5,2)>>>", 5).startswith(
        f"expected {format_ddl(schema).removeprefix('a ')}, found the number 5"
    )
