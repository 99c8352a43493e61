"""The states of penstock.agg merge exactly: the same bytes in every order and with every cut."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.aggregates.moments import _of_decimals
from penstock.errors import AggregateTypeError
from penstock.upkeep.merge import RULES
from penstock.upkeep.states import compact_table, finish_table, finished_schema, state_column
from tests.aggregates import partials

Build = Callable[..., pa.Array]

FLOATS = st.none() | st.floats()
WHOLE = st.none() | st.integers(-(2**63), 2**63 - 1)
MONEY = st.none() | st.decimals(-(10**30), 10**30, places=4, allow_nan=False)
KINDS: dict[str, tuple[str, st.SearchStrategy[Any], Build]] = {
    "mean of floats": ("mean", FLOATS, lambda *g: partials.moments("mean", pa.float64(), *g)),
    "mean of integers": ("mean", WHOLE, lambda *g: partials.moments("mean", pa.int64(), *g)),
    "mean of decimals": ("mean", MONEY, lambda *g: partials.moments("mean", pa.decimal128(38, 4), *g)),
    "variance of floats": ("variance", FLOATS, lambda *g: partials.moments("variance", pa.float64(), *g)),
    "variance of integers": ("variance", WHOLE, lambda *g: partials.moments("variance", pa.int64(), *g)),
    "variance of decimals": ("variance", MONEY, lambda *g: partials.moments("variance", pa.decimal128(38, 4), *g)),
    "distinct": ("distinct", WHOLE, lambda *g: partials.distinct(4, *g)),
    "quantiles": ("quantiles", FLOATS, lambda *g: partials.quantiles([0.0, 0.5, 1.0], 0.01, *g)),
}


def folded(rule: str, build: Build, pieces: list[list[Any]]) -> pa.Array:
    """The state after one step for each piece."""
    state = pa.nulls(1, pa.binary())
    for piece in pieces:
        state = RULES[rule].merge(state, RULES[rule].compact(build(piece)))
    return state


def result(rule: str, build: Build, values: list[Any]) -> Any:
    return RULES[rule].finish(folded(rule, build, [values]))[0].as_py()


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_no_order_and_no_cut_changes_a_bit(kind: str, data: st.DataObject) -> None:
    rule, values, build = KINDS[kind]
    rows = data.draw(st.lists(values, min_size=1, max_size=40))
    shuffled = data.draw(st.permutations(rows))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=6)) | {0, len(rows)})
    pieces = [shuffled[start:end] for start, end in pairwise(cuts)]
    assert folded(rule, build, pieces).equals(folded(rule, build, [rows]))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_mean_and_variance_are_the_exact_ones_rounded_once(values: list[float]) -> None:
    exact = [Fraction(each) for each in values]
    mean = sum(exact) / len(exact)
    spread = sum((each - mean) ** 2 for each in exact) / len(exact)
    build = lambda *g: partials.moments("variance", pa.float64(), *g, sample=False)  # noqa: E731
    assert result("mean", KINDS["mean of floats"][2], values) == float(mean)
    assert result("variance", build, values) == (float(spread) if spread < Fraction(2) ** 1024 else math.inf)


def test_nothing_is_lost_between_large_numbers_that_are_nearly_equal() -> None:
    values = [1e15 + each / 8 for each in range(9)]
    assert result("variance", KINDS["variance of floats"][2], values) == statistics.variance(range(9)) / 64
    assert result("mean", KINDS["mean of floats"][2], [1e300, 1.0, -1e300]) == 1 / 3


def test_root_of_the_variance_is_the_standard_deviation() -> None:
    build = lambda *g: partials.moments("variance", pa.int32(), *g, sample=False, root=True)  # noqa: E731
    assert result("variance", build, [2, 4, 4, 4, 5, 5, 7, 9]) == 2.0
    build = lambda *g: partials.moments("variance", pa.float64(), *g, sample=False, root=True)  # noqa: E731
    assert [result("variance", build, [0.0, each]) for each in (2e300, 2e-300, 0.0)] == [1e300, 1e-300, 0.0]


@pytest.mark.parametrize(
    ("values", "mean", "variance"),
    [
        ([], None, None),
        ([None], None, None),
        ([3.0], 3.0, None),
        ([1.0, math.nan], math.nan, math.nan),
        ([1.0, math.inf], math.inf, math.nan),
        ([math.inf, -math.inf], math.nan, math.nan),
        ([-0.0, None, 0.0], 0.0, 0.0),
        ([5e-324, 5e-324], 5e-324, 0.0),
        ([1.7e308, 1.7e308], 1.7e308, 0.0),
    ],
)
def test_special_values_and_none(values: list[float | None], mean: float | None, variance: float | None) -> None:
    found = (result(rule, KINDS[f"{rule} of floats"][2], values) for rule in ("mean", "variance"))
    assert [repr(each) for each in found] == [repr(mean), repr(variance)]


def test_decimals_stay_exact() -> None:
    values = [Decimal("0.1001"), Decimal("0.2002"), Decimal(10**30)]
    exact = [Fraction(each) for each in values]
    assert result("mean", KINDS["mean of decimals"][2], values) == float(sum(exact) / 3)
    assert result("variance", KINDS["variance of decimals"][2], values) == float(statistics.variance(exact))


def test_distinct_is_exact_up_to_k_and_close_above() -> None:
    build = lambda *g: partials.distinct(10, *g)  # noqa: E731
    assert [result("distinct", build, [*range(n), 0, None]) for n in (1, 2, 1023, 1024)] == [1, 2, 1023, 1024]
    assert result("distinct", build, []) == 0
    # Five standard errors of 1 / sqrt(1024).
    assert result("distinct", build, list(range(50_000))) == pytest.approx(50_000, rel=5 / 32)


@pytest.mark.parametrize("relative_error", [0.1, 0.01, 0.0001])
def test_quantiles_are_within_the_stated_error(relative_error: float) -> None:
    chance = random.Random(1)
    values = sorted([0.0, *(chance.choice([-1, 1]) * 10 ** chance.uniform(-30, 30) for _ in range(1000))])
    at = [0.0, 0.001, 0.25, 0.5, 0.99, 1.0]
    found = result("quantiles", lambda *g: partials.quantiles(at, relative_error, *g), values)
    ranks = [max(1, math.ceil(Fraction(str(share)) * len(values))) for share in at]
    assert found == [pytest.approx(values[rank - 1], rel=relative_error * (1 + 1e-9)) for rank in ranks]


def test_quantiles_of_special_values() -> None:
    build = lambda *g: partials.quantiles([0.0, 0.4, 0.6, 0.8, 1.0], 0.01, *g)  # noqa: E731
    found = result("quantiles", build, [math.nan, math.inf, 0.0, -0.0, -math.inf])
    assert str(found) == "[-inf, 0.0, 0.0, inf, nan]"
    assert result("quantiles", build, [None]) is None


def test_a_table_is_finished_by_what_its_columns_are() -> None:
    table = pa.table(
        {
            "url": ["a", "b"],
            "seconds": partials.moments("mean", pa.float32(), [1.0, 2.0], []),
            "visitors": partials.distinct(12, ["x", "y"], ["x"]),
        }
    )
    assert [state_column(field) for field in table.schema] == [None, "mean", "distinct"]
    visible, states = finish_table(table)
    assert visible.to_pydict() == {"url": ["a", "b"], "seconds": [1.5, None], "visitors": [2, 1]}
    assert states.schema == pa.schema({"seconds": pa.binary(), "visitors": pa.binary()})
    assert finish_table(compact_table(table), {"seconds": "mean", "visitors": "distinct"}) == (visible, states)
    assert finished_schema(table.schema) == visible.schema


def test_a_column_that_is_no_number_is_refused_before_there_is_a_row() -> None:
    table = pa.table({"mean": partials.moments("mean", pa.string())})
    with pytest.raises(AggregateTypeError, match=r"agg\.mean: .*string") as caught:
        finished_schema(table.schema)
    assert caught.value.rule == "mean"


def test_decimals_of_which_there_are_none_may_come_with_a_buffer_of_any_size() -> None:
    values = pa.Array.from_buffers(pa.decimal128(10, 2), 0, [None, pa.py_buffer(b"x")])
    assert _of_decimals(np.array([], np.int64), values, 2, True) == ([0, 0], [0, 0])
