"""A key's hash: the same for the same key, another one for every other, and never changed."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.views.keys import key_hash, key_hashes
from tests.views.stored_rows import UTC_US, WINDOW, listed, types, values


def hashes(*arrays: pa.Array) -> list[bytes]:
    names = [str(n) for n in range(len(arrays))]
    return key_hashes(pa.table(list(arrays), names=names), names).to_pylist()  # type: ignore[no-any-return]


def test_hashes_stay_what_they_are_for_they_are_on_disk() -> None:
    windows = pa.array([{"start": 0, "end": 60_000_000}, None], WINDOW)
    urls = pa.array(["/a", None])
    assert [each.hex() for each in hashes(windows, urls)] == [
        "885a95090a80cd5486c62333c3523505",
        "71d0aacb690b61280d0c97c6b6a66664",
    ]


def test_a_view_of_one_row_has_one_key() -> None:
    rows = key_hashes(pa.table({"n": pa.array([1, 2, 3])}), [])
    assert rows.type == pa.binary(16)
    assert len(set(rows.to_pylist())) == 1
    assert len(rows) == 3


def test_rows_in_slices_and_chunks_have_the_keys_they_have_alone() -> None:
    kind = pa.struct([("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.decimal128(9, 2)))])
    rows: list[Any] = [
        {"l": ["a", None], "m": [("k", Decimal("1.50"))]},
        None,
        {"l": [], "m": []},
        {"l": None, "m": None},
    ]
    table = pa.table({"s": pa.array(rows, kind), "t": pa.array(["x", None, "", "y"])})
    whole = key_hashes(table, ["s", "t"]).to_pylist()
    assert len(set(whole)) == 4
    assert key_hashes(table[1:], ["s", "t"]).to_pylist() == whole[1:]
    assert key_hashes(pa.concat_tables([table[2:], table[:2]]), ["s", "t"]).to_pylist() == whole[2:] + whole[:2]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([math.nan]), pa.array([struct.unpack("<d", b"\1\0\0\0\0\0\xf8\xff")[0]])),
        (pa.array([1], pa.int8()), pa.array([1], pa.int64())),
        (pa.array([1.5], pa.float32()), pa.array([1.5], pa.float64())),
        (pa.array([Decimal("1.5")], pa.decimal128(9, 2)), pa.array([Decimal("1.50")], pa.decimal128(38, 2))),
        (pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int32())),) * 2,
        (
            pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int32())),
            pa.array([[("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int32())),
        ),
        (pa.array([None], pa.string()), pa.array([None], pa.int64())),
    ],
)
def test_the_same_key_has_the_same_hash(left: pa.Array, right: pa.Array) -> None:
    assert hashes(left) == hashes(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([pa.array([None], pa.string())], [pa.array([""])]),
        ([pa.array(["a"]), pa.array(["bc"])], [pa.array(["ab"]), pa.array(["c"])]),
        ([pa.array(["a", None][:1]), pa.array([None], pa.string())], [pa.array([None], pa.string()), pa.array(["a"])]),
        ([pa.array([[["a"], []]])], [pa.array([[[], ["a"]]])]),
        ([pa.array(["1"])], [pa.array([1])]),
        ([pa.array(["a"])], [pa.array([b"a"])]),
        ([pa.array([0], UTC_US)], [pa.array([0], pa.timestamp("us"))]),
        ([pa.array([None], pa.list_(pa.string()))], [pa.array([[None]], pa.list_(pa.string()))]),
    ],
)
def test_other_keys_have_other_hashes(left: list[pa.Array], right: list[pa.Array]) -> None:
    assert hashes(*left) != hashes(*right)


@settings(max_examples=80)
@given(data=st.data())
def test_two_values_of_any_type_have_the_same_hash_exactly_if_they_are_equal(data: st.DataObject) -> None:
    data_type = data.draw(types())
    array = pa.array(data.draw(st.lists(values(data_type), min_size=2, max_size=5)), data_type)
    canonical = [_canonical(each) for each in listed(array)]
    found = hashes(array)
    for one in range(len(array)):
        for other in range(one):
            assert (found[one] == found[other]) is (canonical[one] == canonical[other])


@settings(max_examples=80)
@given(data=st.data())
def test_one_key_has_the_hash_that_it_has_among_others(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(types(), min_size=1, max_size=3))
    key = [data.draw(values(kind)) for kind in kinds]
    assert key_hash(key, kinds) == hashes(*(pa.array([value], kind) for value, kind in zip(key, kinds, strict=True)))[0]


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return {name: _canonical(each) for name, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return sorted(repr((_canonical(key), _canonical(item))) for key, item in value)
    if isinstance(value, list):
        return [_canonical(each) for each in value]
    return value
