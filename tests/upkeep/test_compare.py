"""Two tables are the same exactly when every row is, on the key; only added-up floats have a little room."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.upkeep.compare import Comparison, compare

NAN = float("nan")


def numbers(kind: pa.DataType, *values: Any) -> pa.Table:
    return pa.table({"id": list(range(len(values))), "value": pa.array(values, kind)})


def counts(found: Comparison) -> tuple[int, int, int, int]:
    return found.equal, found.different, found.missing, found.extra


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.float64(), NAN, NAN),
        (pa.float64(), 0.0, -0.0),
        (pa.float64(), None, None),
        (pa.float64(), float("inf"), float("inf")),
        (pa.list_(pa.float64()), [NAN, -0.0], [NAN, 0.0]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]),
    ],
)
def test_equal_values_are_equal(kind: pa.DataType, one: Any, other: Any) -> None:
    assert counts(compare(numbers(kind, one), numbers(kind, other), ["id"])) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.int64(), 2**60, 2**60 + 1),
        (pa.decimal128(38, 2), Decimal("12345678901234567890.01"), Decimal("12345678901234567890.02")),
        (pa.string(), "a", "a "),
        (pa.string(), "", None),
        (pa.float64(), NAN, None),
        (pa.float64(), float("inf"), 1e308),
        (pa.float64(), 1.0, 1.00001),
        (pa.struct([("x", pa.float64())]), {"x": 1.0}, {"x": 2.0}),
    ],
)
def test_tolerance_hides_nothing_that_is_different(kind: pa.DataType, one: Any, other: Any) -> None:
    found = compare(numbers(kind, one), numbers(kind, other), ["id"], is_tolerant=True)
    assert counts(found) == (0, 1, 0, 0)
    assert found.examples[0].columns == ("value",)
    assert found.examples[0].key == {"id": 0}


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.float64(), [0.1 + 0.2, 5.0], [0.3, 5.0]),
        (pa.float64(), [1e-5, 1e9], [1.1e-5, 1e9]),
        (pa.list_(pa.float64()), [[0.1 + 0.2]], [[0.3]]),
        (pa.struct([("x", pa.float64())]), [{"x": 0.1 + 0.2}], [{"x": 0.3}]),
    ],
)
def test_only_sums_may_differ_in_their_last_digits(kind: pa.DataType, one: list[Any], other: list[Any]) -> None:
    sides = numbers(kind, *one), numbers(kind, *other)
    assert compare(*sides, ["id"], is_tolerant=True).agrees
    assert compare(*sides, ["id"]).different == 1


def test_rows_that_are_missing_or_extra_are_counted_and_shown_with_their_key() -> None:
    expected = pa.table({"name": ["a", "b", "c", None], "n": [1, 2, 3, 4]})
    found = pa.table({"name": [None, "c", "d", "a"], "n": [4, 30, 5, 1]})
    seen = compare(expected, found, ["name"])
    assert counts(seen) == (2, 1, 1, 1)
    assert seen.rows == 4
    assert [(each.kind, each.key["name"]) for each in seen.examples] == [
        ("different", "c"),
        ("missing", "b"),
        ("extra", "d"),
    ]
    assert seen.examples[0].expected == {"name": "c", "n": 3}
    assert seen.examples[0].found == {"name": "c", "n": 30}


def test_examples_are_few_and_counts_are_whole() -> None:
    seen = compare(numbers(pa.int64(), *range(100)), numbers(pa.int64(), *range(1, 101)), ["id"], examples_max=2)
    assert (seen.different, len(seen.examples)) == (100, 2)


def test_a_view_without_a_key_is_a_multiset() -> None:
    rows = pa.table({"x": [1, 1, 2]})
    assert compare(rows, pa.table({"x": [2, 1, 1]}), None).agrees
    assert not compare(rows, pa.table({"x": [1, 2, 2]}), None).agrees


def test_a_view_of_one_row_has_the_empty_key() -> None:
    assert counts(compare(pa.table({"n": [1]}), pa.table({"n": [2]}), [])) == (0, 1, 0, 0)
    assert counts(compare(pa.table({"n": [1]}), pa.table({"n": pa.array([], pa.int64())}), [])) == (0, 0, 1, 0)
