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

from penstock.upkeep.changes import KEY, Changes, difference
from penstock.views import keys
from penstock.views.keys import halves, key_hash, key_hashes
from tests.views.stored_rows import UTC_US, WINDOW, listed, types, values


def hashes(*arrays: pa.Array) -> list[bytes]:
    names = [str(n) for n in range(len(arrays))]
    return key_hashes(pa.table(list(arrays), names=names), names).to_pylist()  # type: ignore[no-any-return]


def test_hashes_stay_what_they_are_for_they_are_on_disk() -> None:
    windows = pa.array([{"start": 0, "end": 60_000_000}, None], WINDOW)
    urls = pa.array(["/a", None])
    assert [each.hex() for each in hashes(windows, urls)] == [
        "00000000fd50b2860d4debca274b21ef",
        "000000004f14dbe1da4a8f3701abf73b",
    ]
    assert hashes(urls)[0].hex() == "301b7c64c7f624d5192460a94aa068d0"


@pytest.mark.parametrize("kind", [UTC_US, pa.timestamp("us"), WINDOW])
def test_rows_of_one_time_lie_together_whatever_else_is_in_their_keys(kind: pa.DataType) -> None:
    moments = [second * 1_000_000 for second in (0, 1, 1_767_225_600, 4_102_444_800)]
    times = [{"start": each, "end": each + 1} if kind == WINDOW else each for each in moments for _ in range(3)]
    names = pa.array([str(number) for number in range(len(times))])
    found = hashes(names, pa.array(times, kind))
    assert len(set(found)) == len(times)
    assert sorted(found, key=lambda each: each[:4]) == found
    in_threes = [{each[:4] for each in found[place : place + 3]} for place in range(0, len(found), 3)]
    assert [len(each) for each in in_threes] == [1] * len(moments)
    assert len(set.union(*in_threes)) == len(moments)


def test_a_time_before_1970_or_beyond_4_bytes_or_none_is_a_key_like_any_other() -> None:
    times = pa.array([-62_135_596_800_000_000, -1, None, 0, 5_000_000_000_000_000, 253_402_300_799_999_999], UTC_US)
    found = hashes(times)
    assert len(set(found)) == len(times)
    assert {each[:4] for each in found} == {b"\0\0\0\0", b"\xff\xff\xff\xff"}


def test_a_date_beyond_the_last_timestamp_is_a_key_like_any_other() -> None:
    days = pa.array([-(1 << 31), -1, 0, 20_000, 106_751_992, (1 << 31) - 1], pa.int32()).view(pa.date32())
    found = hashes(days)
    assert len(set(found)) == len(days)
    assert [each[:4].hex() for each in found] == ["00000000"] * 3 + ["66ff3000"] + ["ffffffff"] * 2


def test_only_short_keys_are_remembered_and_rows_that_are_compared_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[int, dict[bytes, bytes]] = {keys.HASH_BYTES: {}, keys.HASH_BYTES - keys.TIME_BYTES: {}}
    monkeypatch.setattr(keys, "_known", known)
    short, long = pa.table({"s": ["a", "b", "a"]}), pa.table({"s": ["a", "b" * 200]})
    key_hashes(short, ["s"], remembers=False)
    key_hashes(long, ["s"])
    assert not any(known.values())
    key_hashes(short, ["s"])
    assert [len(each) for each in known.values()] == [2, 0]
    same = Changes(*(each.append_column(KEY, key_hashes(each, ["s"])) for each in (short[:2], short[:2])))
    assert not len(difference(same.before, same.after))
    assert [len(each) for each in known.values()] == [2, 0]


@pytest.mark.parametrize(("rows", "different"), [(12_000, 12_000), (12_000, 900), (101_000, 101_000), (101_000, 900)])
def test_keys_of_many_rows_at_once_are_those_of_few(rows: int, different: int) -> None:
    numbers = [each % different for each in range(rows)]
    table = pa.table({"n": pa.array(numbers), "s": pa.array([f"{each % 7}" for each in numbers])})
    for columns in (["n"], ["n", "s"]):
        few = [key_hashes(table[start : start + 3000], columns) for start in range(0, rows, 3000)]
        assert key_hashes(table, columns).equals(pa.concat_arrays(few))


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


@given(keys=st.lists(st.binary(min_size=16, max_size=16)), cut=st.integers(0, 3))
def test_halves_of_hashes_sort_as_their_bytes_do(keys: list[bytes], cut: int) -> None:
    firsts, seconds = (half.tolist() for half in halves(pa.array(keys, pa.binary(16))[cut:]))
    pairs = [
        first.to_bytes(8, "big") + second.to_bytes(8, "big") for first, second in zip(firsts, seconds, strict=True)
    ]
    assert pairs == keys[cut:]
