"""Arrow tables and pandas frames are taken where nothing is lost."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.errors import BatchTooLarge
from penstock.events.encode import encode
from penstock.events.encoded import sort_out
from penstock.events.schema import parse_ddl
from tests.events.access_events import ACCESS, GOOD, NOON_US


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
        (pa.array([NOON_US * 1000, NOON_US * 1000 + 1], pa.timestamp("ns")), "timestamp", [GOOD["time"]] * 2),
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


def texts(*values: bytes) -> pa.Array:
    """An array of strings that holds any bytes."""
    return pa.array(values, pa.binary()).view(pa.string())


BROKEN = texts(b"a", b"caf\xe9", b"b", b"\xff", b"c")
NESTED = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4, 5]), BROKEN)


@pytest.mark.parametrize(
    ("column", "ddl", "rows"),
    [
        (BROKEN, "a string", [1, 3]),
        (BROKEN.dictionary_encode(), "a string", [1, 3]),
        (BROKEN.cast(pa.large_binary()).view(pa.large_string()), "a string", [1, 3]),
        (pa.StructArray.from_arrays([BROKEN], ["x"]), "a struct<x: string>", [1, 3]),
        (NESTED, "a array<string>", [1, 2]),
        (BROKEN, "a timestamp", [0, 1, 2, 3, 4]),
    ],
    ids=["text", "coded", "large", "struct", "array", "not text"],
)
def test_a_record_with_text_that_is_not_utf8_is_rejected(column: pa.Array, ddl: str, rows: list[int]) -> None:
    encoded = encode(pa.table({"a": column}), parse_ddl(ddl))
    assert [each.index for each in encoded.rejected] == rows
    assert all(each.column == "a" for each in encoded.rejected)
    assert encoded.batch.num_rows == len(column) - len(rows)
    encoded.batch.validate(full=True)
    assert b"caf\\\\xe9" in encoded.rejected[rows.index(1)].raw


def test_pandas_text_that_is_not_utf8_is_rejected() -> None:
    frame = pd.DataFrame({"a": pd.arrays.ArrowExtensionArray(pa.chunked_array([BROKEN]))})
    assert [each.index for each in encode(frame, parse_ddl("a string")).rejected] == [1, 3]


def test_an_array_that_is_broken_is_refused_as_a_whole() -> None:
    offsets = pa.py_buffer(np.array([0, 3, 1, 3], np.int32))
    array = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(pa.ArrowInvalid):
        encode(pa.table({"a": array}), parse_ddl("a string"))


def test_pandas_nothings_are_null_and_a_named_index_is_a_column() -> None:
    frame = pd.DataFrame(
        {
            "a": [1.0, math.nan, 2.5],
            "b": ["x", None, math.nan],
            "c": pd.to_datetime(pd.Series(["2026-01-31T12:00:00Z", None, None], index=["i", "j", "k"])),
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


def test_more_text_than_one_batch_holds_is_refused_and_named() -> None:
    pieces = pa.chunked_array([["x"], ["y"]])
    with pytest.raises(BatchTooLarge) as caught:
        sort_out([pieces], parse_ddl("a string"), {}, lambda indexes: [])
    assert (caught.value.column, caught.value.rows) == ("a", 2)
