"""A key stays in its partition: in every process, in every version, after every widening."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.keys import is_keyable, key_hash, key_hashes, partition_of
from penstock.events.schema import TIMESTAMP, TIMESTAMP_NTZ, parse_ddl, upgrade

GOLDEN: list[tuple[tuple[object, ...], int]] = [
    ((None,), 0x0E3F7ED131EA786E),
    ((0,), 0xFEC55AE5EED7E8FD),
    ((1,), 0x65988A09BC01F2B1),
    ((-1,), 0xE3AC4EA819E5A2E7),
    ((1 << 62,), 0xF991C99F31940C64),
    ((-(1 << 63),), 0xBCEEB260013E6E74),
    ((10**30,), 0x8D9DA36059E6359C),
    ((True,), 0x65988A09BC01F2B1),
    (("",), 0xE68CC67A2499BAA6),
    (("10.0.0.1",), 0xE0BE84CFA44DE0C8),
    (("Straße",), 0x97689F3B32702FE8),
    ((b"\x00\xff",), 0xF820BBA8D1E45A15),
    ((1.5,), 0x4A240E377482F1B0),
    ((-0.0,), 0xFEC55AE5EED7E8FD),
    ((1e300,), 0x7C765CF1402C393F),
    ((math.nan,), 0x2567B803D75C0F9F),
    ((-math.inf,), 0x97668539D62B6E77),
    ((Decimal("12.50"),), 0x535DA3A5387D7D88),
    ((date(2026, 1, 31),), 0x0D4177531C37F139),
    ((datetime(2026, 1, 31, 12, tzinfo=UTC),), 0x9F78BCD1FC80860E),
    ((datetime(1901, 1, 1, 0, 0, 0, 1, tzinfo=UTC),), 0x554279F946F1FE5C),
    (("10.0.0.1", 80), 0x9F0ADDC2472E925C),
    ((None, "a", 2.5), 0x0CC6F06ABA9A30DC),
    ((), 0x50656E73746F636B),
]


def batch_of(*columns: tuple[pa.DataType, list[Any]]) -> pa.RecordBatch:
    arrays = [pa.array(values, kind) for kind, values in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{number}" for number in range(len(arrays))])


def hash_in_batch(kind: pa.DataType, value: object) -> int:
    return int(key_hashes(batch_of((kind, [value])), ["c0"])[0])


@pytest.mark.parametrize(("key", "expected"), GOLDEN)
def test_the_hash_of_a_key_never_changes(key: tuple[object, ...], expected: int) -> None:
    assert key_hash(key) == expected


def test_the_partition_of_a_key_never_changes() -> None:
    batch = batch_of((pa.string(), [f"10.0.0.{number}" for number in range(12)]), (pa.int32(), list(range(12))))
    assert partition_of(batch, ["c0"], 4).tolist() == [2, 0, 0, 0, 1, 3, 3, 0, 1, 0, 0, 3]
    assert partition_of(batch, ["c0", "c1"], 7).tolist() == [0, 3, 4, 5, 5, 6, 0, 0, 2, 2, 2, 5]


VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-(1 << 7), (1 << 7) - 1)),
    (pa.int16(), st.integers(-(1 << 15), (1 << 15) - 1)),
    (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(38, 10), st.decimals(allow_nan=False, places=10, min_value=-(10**27), max_value=10**27)),
    (pa.decimal128(38, 0), st.decimals(allow_nan=False, places=0, min_value=-(10**37), max_value=10**37)),
    (pa.string(), st.text()),
    (pa.binary(), st.binary()),
    (pa.date32(), st.dates()),
    (TIMESTAMP, st.datetimes(timezones=st.just(UTC))),
    (TIMESTAMP_NTZ, st.datetimes()),
]


@given(st.data())
def test_one_key_and_a_batch_of_keys_hash_the_same(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | values for _, values in kinds))
    rows = data.draw(st.lists(row, min_size=1, max_size=8))
    batch = batch_of(*((kind, [row[at] for row in rows]) for at, (kind, _) in enumerate(kinds)))
    names = batch.schema.names
    assert key_hashes(batch, names).tolist() == [key_hash(row) for row in rows]
    assert partition_of(batch, names, 7).tolist() == [key_hash(row) % 7 for row in rows]


@given(st.data())
def test_a_slice_of_a_batch_hashes_as_the_batch_does(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(VALUES))
    batch = batch_of((kind, data.draw(st.lists(st.none() | values, min_size=3, max_size=8))))
    assert key_hashes(batch.slice(1, 2), ["c0"]).tolist() == key_hashes(batch, ["c0"])[1:3].tolist()


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        ("tinyint", "smallint", [-128, -1, 0, 127, None]),
        ("smallint", "int", [-32768, 5, None]),
        ("int", "bigint", [-(1 << 31), 5, None]),
        ("float", "double", [0.1, -0.0, 1.5, 3e38, math.nan, math.inf, None]),
        ("int", "decimal(12,2)", [-5, 0, 1 << 30, None]),
        ("decimal(10,2)", "decimal(14,4)", [Decimal("1.50"), Decimal("-0.01"), Decimal("7.00"), None]),
    ],
)
def test_widening_a_column_moves_no_key(before: str, after: str, values: list[object]) -> None:
    narrow = pa.RecordBatch.from_arrays(
        [pa.array(values, parse_ddl(f"k {before}").field(0).type)], schema=parse_ddl(f"k {before}")
    )
    wide = upgrade(narrow, parse_ddl(f"k {after}"))
    assert wide.schema != narrow.schema
    assert key_hashes(wide, ["k"]).tolist() == key_hashes(narrow, ["k"]).tolist()


def test_equal_numbers_are_one_key_whatever_their_type() -> None:
    assert len({key_hash([five]) for five in (5, 5.0, Decimal("5.00"), np.int8(5), np.float32(5))}) == 1
    assert hash_in_batch(pa.float64(), -0.0) == hash_in_batch(pa.float64(), 0.0) == key_hash([0])
    payload = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    assert len(set(key_hashes(batch_of((pa.float64(), list(payload))), ["c0"]).tolist())) == 1


def test_the_programs_decimal_precision_moves_no_key() -> None:
    long = Decimal("1234567890123456789012345678.0123456789")
    before = key_hash([long]), hash_in_batch(pa.decimal128(38, 10), long)
    with localcontext(prec=5):
        assert (key_hash([long]), hash_in_batch(pa.decimal128(38, 10), long)) == before
    assert key_hash([long + 1]) != key_hash([long])


def test_null_is_a_key_of_its_own() -> None:
    others = [key_hash([value]) for value in (0, "", b"", 0.5, False)]
    assert key_hash([None]) not in others
    assert key_hash([None, 1]) != key_hash([1, None])


def test_the_same_moment_is_one_key_in_every_zone() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert key_hash([elsewhere]) == key_hash([moment]) == hash_in_batch(TIMESTAMP, moment)
    assert key_hash([date(2026, 1, 31)]) == hash_in_batch(pa.date32(), date(2026, 1, 31))


def test_where_one_column_ends_and_the_next_begins_is_part_of_the_key() -> None:
    assert key_hash(["ab", "c"]) != key_hash(["a", "bc"])
    assert key_hash(["a", "b"]) != key_hash(["b", "a"])


@pytest.mark.parametrize("partitions", [2, 3, 4, 8, 12, 64])
@pytest.mark.parametrize("kind", ["counted", "stepped", "address", "fraction"])
def test_keys_spread_evenly(kind: str, partitions: int) -> None:
    count = 20_000
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "counted": (pa.int64(), list(range(count))),
        "stepped": (pa.int64(), list(range(0, count * 4096, 4096))),
        "address": (pa.string(), [f"10.0.{number >> 8}.{number & 255}" for number in range(count)]),
        "fraction": (pa.float64(), [number + 0.5 for number in range(count)]),
    }
    sizes = np.bincount(partition_of(batch_of(values[kind]), ["c0"], partitions), minlength=partitions)
    mean = count / partitions
    assert abs(sizes - mean).max() < 6 * math.sqrt(mean)


def test_arrays_maps_and_structs_are_no_keys() -> None:
    schema = parse_ddl("a int, b array<int>, c map<int, int>, d struct<x: int>, e decimal(5,2), f string")
    assert [is_keyable(field.type) for field in schema] == [True, False, False, False, True, True]
    with pytest.raises(TypeError, match="a key cannot hold a list"):
        key_hash([[1]])
