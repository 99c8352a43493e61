"""JSON lines are read at once where all is well, and with care where it is not; the outcome is the same."""

from __future__ import annotations

import json
import time
import tracemalloc
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.encode import encode
from penstock.events.json_lines import _encode_one_by_one, _read_at_once, encode_json_lines
from penstock.events.schema import parse_ddl
from tests.events.access_events import ACCESS, GOOD, comparable


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


def test_a_few_bad_lines_among_many_are_found_at_their_places() -> None:
    lines = [b'{"a":%d}' % number for number in range(2000)]
    bad = {0: b"{", 700: b'{"a":1}{"a":2}', 701: b'{"a":"x"}', 1999: b'{"a":1.5}'}
    for index, line in bad.items():
        lines[index] = line
    encoded = encode(b"\n\n".join(lines), parse_ddl("a int"))
    assert {one.index: one.raw for one in encoded.rejected} == bad
    good = [number for number in range(2000) if number not in bad]
    assert encoded.batch.column("a").to_pylist() == good
    assert encoded.kept is not None
    assert encoded.kept.tolist() == good


def test_blank_lines_do_not_count_and_all_kept_means_all_kept() -> None:
    encoded = encode(b"\n \n".join(b'{"a":%d}' % number for number in range(600)), parse_ddl("a int"))
    assert encoded.batch.column("a").to_pylist() == list(range(600))
    assert encoded.kept is None


def test_reading_ends_soon_after_the_last_rejected_line_that_was_asked_for() -> None:
    good, bad = b'{"a":1}\n', b"x\n"
    encoded = encode_json_lines(good + bad * 3 + good * 1000 + bad, parse_ddl("a int"), rejected_most=3)
    assert [one.index for one in encoded.rejected] == [1, 2, 3]
    assert 1 <= encoded.batch.num_rows < 1000


@pytest.mark.parametrize("at", [65_535, 65_536, 65_537])
def test_lines_are_split_where_they_end_and_not_where_a_block_does(at: int) -> None:
    data = b'{"c":"%s"}\nx\n{"c":"z"}\n' % (b"y" * (at - 9))
    encoded = encode(data, parse_ddl("c string"))
    assert [len(text) for text in encoded.batch.column("c").to_pylist()] == [at - 9, 1]
    assert [one.index for one in encoded.rejected] == [1]


def test_an_unknown_name_is_echoed_only_in_part() -> None:
    [rejected] = encode(b'{"%s":1}' % (b"n" * 300_000), parse_ddl("a int")).rejected
    assert rejected.column == "n" * 77 + "..."
    assert len(rejected.reason) < 200
    [rejected] = encode(b'{"%s":1,"%s":2}' % (b"n" * 300_000, b"n" * 300_000), parse_ddl("a int")).rejected
    assert len(rejected.reason) < 200


HOSTILE = {
    "lines that are no JSON": b"x\n" * (4 << 20),
    "blank lines and one that is no JSON": b"\n" * (8 << 20) + b"x",
    "one name again and again": b'{"a":1' + b',"a":1' * ((8 << 20) // 6) + b"}",
    "many names, one of them twice": b"{" + b",".join(b'"%x":1' % each for each in range(800_000)) + b',"0":1}',
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_body_made_to_be_refused_needs_little_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        assert encode_json_lines(data, parse_ddl("a int"), rejected_most=10).rejected
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.timing
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_body_made_to_be_refused_takes_little_time(data: bytes) -> None:
    before = time.process_time()
    assert encode_json_lines(data, parse_ddl("a int"), rejected_most=10).rejected
    assert time.process_time() - before < 2


def test_a_large_input_is_read_in_blocks_and_stays_in_order() -> None:
    data = b"".join(b'{"a":%d,"b":"%s"}\n' % (number, b"x" * 90) for number in range(60_000))
    assert len(data) > 5_000_000
    encoded = encode(data, parse_ddl("a int, b string"))
    assert encoded.batch.column("a").to_pylist() == list(range(60_000))


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
            [
                b"null",
                b"{}",
                b"",
                b'{"a":1} {"a":2}',
                b'{"a":\n1}',
                b"{",
                b"}",
                b'{"a":1}\r',
                b'{"b":1.0e2}',
                b'{"a":-0,"b":-0,"f":-0}',
            ]
        ),
        max_size=5,
    ),
    st.sampled_from(JSON_SCHEMA.names),
)
def test_json_lines_read_at_once_are_as_if_read_line_by_line(lines: list[bytes], only: str) -> None:
    data = b"\n".join(lines)
    for schema in (JSON_SCHEMA, pa.schema([JSON_SCHEMA.field(only)])):
        assert comparable(encode_json_lines(data, schema)) == comparable(
            _encode_one_by_one([line for line in data.split(b"\n") if line.strip()], schema)
        )


@given(
    st.lists(st.binary(max_size=30) | st.text('{}[]",:0123456789.eE-nulltruefalse\\ \n', max_size=30).map(str.encode))
)
def test_any_bytes_are_kept_or_rejected_line_by_line(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    encoded = encode(data, parse_ddl("a int, b array<double>"))
    count = sum(1 for line in data.split(b"\n") if line.strip())
    assert encoded.batch.num_rows + len(encoded.rejected) == count
