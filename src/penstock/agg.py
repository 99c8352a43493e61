"""Aggregates that merge exactly, so that a view which uses them is folded: use them like Spark's own.

    from penstock import agg

    access.groupBy("url").agg(agg.mean("seconds").alias("seconds"), agg.distinct("ip").alias("visitors"))

Spark's avg, stddev, approx_count_distinct and percentile return finished numbers, from which two steps cannot make one.
These return what is needed to go on; Penstock keeps that hidden, and readers see the finished number. Values that are
NULL do not count. In any order of events and with any cuts between steps the result is the same, to the last bit.

Outside of a pipeline, for example in a unit test of a view's function, the columns hold structs instead of numbers;
`finish(dataframe)` makes an Arrow table of numbers out of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors.running import AggregateOptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["distinct", "finish", "mean", "quantiles", "stddev", "variance"]

LG_K_RANGE = (4, 20)
RELATIVE_ERROR_RANGE = (1e-5, 0.5)


def mean(col: Column | str) -> Column:
    """The mean of whole numbers, decimals or floats, as a double: the exact mean, rounded once. Of nothing, NULL."""
    return _state("mean", values=_values(col))


def variance(col: Column | str, sample: bool = True) -> Column:
    """The variance as a double: the exact one, rounded once. Of a sample of one value, and of nothing, NULL."""
    from pyspark.sql import functions

    return _state("variance", values=_values(col), sample=functions.lit(sample), root=functions.lit(False))


def stddev(col: Column | str, sample: bool = True) -> Column:
    """The standard deviation as a double: the root of `variance`."""
    from pyspark.sql import functions

    return _state("variance", values=_values(col), sample=functions.lit(sample), root=functions.lit(True))


def distinct(col: Column | str, lg_k: int = 12) -> Column:
    """How many different values there are, of any type: exact up to 2**lg_k, above it with an error.

    The standard error is 1 / sqrt(2**lg_k), 1.6 % for 12. A group keeps at most 8 * 2**lg_k bytes. Of nothing, 0.
    """
    from pyspark.sql import functions

    _check("distinct", "lg_k", lg_k, LG_K_RANGE)
    value = _column(col)
    hashed = functions.when(value.isNotNull(), functions.xxhash64(value))
    return _state("distinct", sketch=functions.theta_sketch_agg(hashed, lg_k), lg_k=functions.lit(lg_k))


def quantiles(col: Column | str, at: Sequence[float], relative_error: float = 0.01) -> Column:
    """Quantiles as a list of doubles, one for each share in `at`, such as [0.5, 0.99]. Of nothing, NULL.

    Each is the smallest value that this share of all values does not exceed, as in percentile_disc, to within
    `relative_error` of that value. NaN counts as the greatest value.
    """
    from pyspark.sql import functions

    from penstock.aggregates.buckets import INFINITY, MIDDLE, NAN, ZERO, log_gamma

    shares = [float(each) for each in at]
    if not shares or not all(0 <= each <= 1 for each in shares):
        raise AggregateOptionError("quantiles", "at", at, "shares from 0 to 1, such as [0.5, 0.99]")
    _check("quantiles", "relative_error", relative_error, RELATIVE_ERROR_RANGE)
    value = _column(col).cast("double")
    # Spark's ln is StrictMath's: the same bits on every machine.
    index = functions.ceil(functions.ln(functions.abs(value)) / functions.lit(log_gamma(relative_error))).cast("int")
    bucket = (
        functions.when(functions.isnan(value), NAN)
        .when(value == math.inf, INFINITY)
        .when(value == -math.inf, -INFINITY)
        .when(value == 0.0, ZERO)
        .when(value > 0.0, functions.lit(MIDDLE) + index)
        .when(value < 0.0, -functions.lit(MIDDLE) - index)
    )
    return _state(
        "quantiles",
        buckets=functions.collect_list(bucket),
        relative_error=functions.lit(float(relative_error)),
        at=functions.array(*[functions.lit(each) for each in shares]),
    )


def finish(result: DataFrame) -> pa.Table:
    """The rows of a dataframe with the finished numbers, as a table of Arrow: for tests of a view's function."""
    from penstock.upkeep.states import finished

    return finished(result.toArrow())


def _state(rule: str, **parts: Column) -> Column:
    from pyspark.sql import functions

    from penstock.aggregates.partials import PREFIX

    inner = functions.struct(*[column.alias(name) for name, column in parts.items()])
    return functions.struct(inner.alias(PREFIX + rule))


def _values(col: Column | str) -> Column:
    from pyspark.sql import functions

    # The values themselves: exact sums of them are made in Arrow, which is quicker than any sum of decimals in Spark.
    return functions.collect_list(_column(col))


def _column(col: Column | str) -> Column:
    from pyspark.sql import functions

    return functions.col(col) if isinstance(col, str) else col


def _check(rule: str, option: str, value: Any, between: tuple[float, float]) -> None:
    low, high = between
    if isinstance(value, bool) or not isinstance(value, type(low) | int) or not low <= value <= high:
        raise AggregateOptionError(rule, option, value, f"a number from {low:g} to {high:g}")
