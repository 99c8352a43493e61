"""Merging means what Spark would have said of both slices together."""

from __future__ import annotations

import datetime as dt
import math
import os
import time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MergeOverflow
from penstock.upkeep.merge import RULES, align, merge_rows, unmerge_rows

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)
NAN = math.nan
BIG = Decimal("9" * 38)
EARLY, LATE = dt.datetime(1969, 12, 31, tzinfo=dt.UTC), dt.datetime(2099, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def merged(rule: str, kind: pa.DataType, old: list[Any], new: list[Any]) -> list[Any]:
    return RULES[rule].merge(pa.array(old, kind), pa.array(new, kind)).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("rule", "kind", "old", "new", "expected"),
    [
        ("count", pa.int64(), 2, 3, 5),
        ("sum", pa.int64(), INT_MAX, -1, INT_MAX - 1),
        ("sum", pa.float64(), 0.1, 0.2, 0.1 + 0.2),
        ("sum", pa.float64(), math.inf, -math.inf, NAN),
        ("sum", pa.decimal128(38, 0), BIG, Decimal(-1), Decimal("9" * 37 + "8")),
        ("sum", pa.decimal128(20, 10), Decimal("1.0000000001"), Decimal("2.0000000002"), Decimal("3.0000000003")),
        ("sum", pa.duration("us"), DAY, DAY, 2 * DAY),
        ("min", pa.float64(), NAN, 1.0, 1.0),
        ("min", pa.float64(), 1.0, NAN, 1.0),
        ("min", pa.float64(), NAN, NAN, NAN),
        ("max", pa.float64(), NAN, math.inf, NAN),
        ("max", pa.float32(), math.inf, NAN, NAN),
        ("max", pa.float64(), -0.0, -0.0, 0.0),
        ("min", pa.float64(), 0.0, -0.0, 0.0),
        ("max", pa.string(), "Z", "a", "a"),
        ("max", pa.string(), "\uffff", "\U00010000", "\U00010000"),
        ("min", pa.binary(), b"\x00", b"\xff", b"\x00"),
        ("max", pa.binary(), b"a\x00", b"a", b"a\x00"),
        ("max", pa.bool_(), False, True, True),
        ("min", pa.bool_(), False, True, False),
        ("max", pa.date32(), dt.date(2020, 1, 1), dt.date(1900, 1, 1), dt.date(2020, 1, 1)),
        ("min", pa.timestamp("us", "UTC"), EARLY, LATE, EARLY),
        ("max", pa.duration("us"), -DAY, DAY, DAY),
        ("max", pa.decimal128(38, 2), Decimal("1.10"), Decimal("1.09"), Decimal("1.10")),
        ("max", pa.int8(), -128, 127, 127),
        ("every", pa.bool_(), True, False, False),
        ("any", pa.bool_(), True, False, True),
        ("bit_and", pa.int32(), 6, 3, 2),
        ("bit_or", pa.int64(), 6, -8, -2),
        ("bit_xor", pa.int16(), 6, 3, 5),
    ],
)
def test_merge_is_what_one_step_would_have_given(
    rule: str, kind: pa.DataType, old: object, new: object, expected: object
) -> None:
    both, only_old, only_new, neither = merged(rule, kind, [old, old, None, None], [new, None, new, None])
    assert [shown(both), neither] == [shown(expected), None]
    zero = {"-0.0": "0.0"}
    assert [shown(only_old), shown(only_new)] == [zero.get(str(each), shown(each)) for each in (old, new)]


def shown(value: object) -> object:
    """Floats as text, so that NaN equals NaN and -0.0 does not equal 0.0."""
    return str(value) if isinstance(value, float) else value


@pytest.mark.parametrize(
    ("rule", "kind", "old", "new"),
    [
        ("sum", pa.int64(), INT_MAX, 1),
        ("sum", pa.int64(), INT_MIN, -1),
        ("count", pa.int64(), INT_MAX, 1),
        ("sum", pa.decimal128(38, 0), BIG, Decimal(1)),
        ("sum", pa.decimal128(4, 2), Decimal("99.99"), Decimal("0.01")),
    ],
)
def test_overflow_is_an_error_that_names_column_and_row(rule: str, kind: pa.DataType, old: object, new: object) -> None:
    zero = 0 if kind == pa.int64() else Decimal(0)
    kept = pa.table({"total": pa.array([zero, None, old, old], kind)})
    came = pa.table({"total": pa.array([zero, zero, new, new], kind)})
    with pytest.raises(MergeOverflow, match="'total'") as caught:
        merge_rows(kept, came, {"total": RULES[rule]})
    assert (caught.value.column, caught.value.rule, caught.value.row) == ("total", rule, 2)


@given(st.lists(st.tuples(*[st.none() | st.floats(width=64)] * 2), max_size=20))
def test_the_order_of_two_slices_changes_no_least_and_no_greatest(
    pairs: list[tuple[float | None, float | None]],
) -> None:
    old, new = ([pair[side] for pair in pairs] for side in (0, 1))
    for rule in ("min", "max"):
        assert repr(merged(rule, pa.float64(), old, new)) == repr(merged(rule, pa.float64(), new, old))


def test_rows_are_aligned_by_key_with_nulls_where_there_is_none() -> None:
    keys = [bytes([each]) * 16 for each in range(3)]
    existing = pa.table({"_key": pa.array(keys[:2], pa.binary(16)), "hits": [1, 2], "url": ["a", "b"]})
    wanted = pa.array([keys[1], keys[2], keys[0]], pa.binary(16))
    assert align(existing, wanted).to_pydict() == {
        "_key": wanted.to_pylist(),
        "hits": [2, None, 1],
        "url": ["b", None, "a"],
    }
    assert align(existing.slice(0, 0), wanted)["hits"].to_pylist() == [None] * 3


@pytest.mark.timing
def test_a_million_rows_are_aligned_within_ten_seconds() -> None:
    keys = pa.array(np.frombuffer(os.urandom(16_000_000), "V16"), pa.binary(16))
    existing = pa.table({"_key": keys, "hits": np.arange(len(keys))})
    began = time.perf_counter()
    assert align(existing, keys[::-1])["hits"][0].as_py() == len(keys) - 1
    assert time.perf_counter() - began < 10


def test_columns_without_a_rule_are_those_of_the_new_rows() -> None:
    new = pa.table({"url": ["a", "b"], "hits": [1, 2]})
    old = pa.table({"hits": pa.array([None, 3], pa.int64()), "url": [None, "b"]})
    rules = {"hits": RULES["count"]}
    assert merge_rows(old, new, rules).to_pydict() == {"url": ["a", "b"], "hits": [1, 5]}
    assert merge_rows(None, new, rules).equals(new)


def test_rows_that_leave_a_group_are_taken_back() -> None:
    rules = {"total": RULES["sum"], "hits": RULES["count"], "price": RULES["sum"]}
    kinds = {"total": pa.int64(), "hits": pa.int64(), "price": pa.decimal128(38, 2)}

    def table(**columns: list[Any]) -> pa.Table:
        return pa.table({name: pa.array(values, kinds.get(name, pa.int64())) for name, values in columns.items()})

    old = table(
        total=[10, 10, None, 7],
        hits=[2, 3, 1, 1],
        price=[Decimal("0.30"), None, None, Decimal("7.00")],
        _rows=[2, 3, 1, 1],
        _count_total=[2, 1, 0, 1],
        _count_price=[2, 0, 0, 1],
    )
    gone = table(
        total=[4, 10, None, None],
        hits=[1, 1, 1, None],
        price=[Decimal("0.10"), None, None, None],
        _rows=[1, 1, 1, None],
        _count_total=[1, 1, 0, None],
        _count_price=[1, 0, 0, None],
    )
    left, is_empty = unmerge_rows(old, gone, rules)
    assert left.to_pydict() == {
        "total": [6, None, None, 7],
        "hits": [1, 2, 0, 1],
        "price": [Decimal("0.20"), None, None, Decimal("7.00")],
        "_rows": [1, 2, 0, 1],
        "_count_total": [1, 0, 0, 1],
        "_count_price": [1, 0, 0, 1],
    }
    assert is_empty.to_pylist() == [False, False, True, False]


def test_only_exact_rules_can_be_undone() -> None:
    assert {name for name, rule in RULES.items() if rule.undoes(pa.int64())} == {"count", "sum"}
    assert not RULES["sum"].undoes(pa.float64())
    assert RULES["sum"].undoes(pa.decimal128(38, 2))
