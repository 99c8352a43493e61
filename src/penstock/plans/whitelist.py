"""Fold is a whitelist: what may stand in a plan whose new rows alone are enough. Whatever is not listed is not folded.

nodes          inputs, SubqueryAlias, View, Project, Filter, Generate, Union of inputs that change, Expand for sliding
               windows, and Join where exactly one side changes (`JOINS`)
expressions    those that look at their own row only (`row_wise.py`), windows of time, plain Python UDFs
aggregation    at most one, by the view's key; each other column is directly one of `AGGREGATES`, not DISTINCT, or a
               state of `penstock.agg`
above it       only Projects that rename, or take `window.start` and `window.end`

This file holds the tables; `fold.py` reads a plan by them, `fold_columns.py` the columns of an aggregation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PASSING = {"SubqueryAlias", "View", "Project", "Filter", "Generate", "Union"}
"""Nodes that make rows of rows, each of its own."""
LEAVES = {"LocalRelation", "LogicalRDD", "OneRowRelation", "Range"}
"""Rows that the function itself wrote down."""
JOINS = {
    "Inner": ("left", "right"),
    "Cross": ("left", "right"),
    "LeftOuter": ("left",),
    "LeftSemi": ("left",),
    "LeftAnti": ("left",),
    "RightOuter": ("right",),
}
"""By type of join: the sides that may change, if the other one is static."""
AGGREGATES = {
    "Count": "count",
    "CountIf": "count",
    "Sum": "sum",
    "Min": "min",
    "Max": "max",
    "BoolAnd": "every",
    "BoolOr": "any",
    "BitAndAgg": "bit_and",
    "BitOrAgg": "bit_or",
    "BitXorAgg": "bit_xor",
}
"""By Catalyst class: the rule by which two values become one."""
IN_STATES = {*AGGREGATES, "CollectList", "ThetaSketchAgg"}
"""What a state of penstock.agg may be made of."""
UNDONE = {"count", "sum"}
"""Rules that can take a row back: over a view, whose rows change."""
FITS = {
    "count": {"Count", "CountIf"},
    "sum": {"Sum", "Count", "CountIf"},
    "min": {"Min", "BoolAnd"},
    "max": {"Max", "BoolOr"},
    "every": {"BoolAnd", "Min"},
    "any": {"BoolOr", "Max"},
    "bit_and": {"BitAndAgg"},
    "bit_or": {"BitOrAgg"},
    "bit_xor": {"BitXorAgg"},
}
"""By rule of `merge=`: the aggregates it is right for."""
INSTEAD = {
    "Average": "agg.mean({0})",
    "StddevSamp": "agg.stddev({0})",
    "StddevPop": "agg.stddev({0}, sample=False)",
    "VarianceSamp": "agg.variance({0})",
    "VariancePop": "agg.variance({0}, sample=False)",
    "HyperLogLogPlusPlus": "agg.distinct({0})",
    "HllSketchAgg": "agg.distinct({0})",
    "ApproximatePercentile": "agg.quantiles({0}, [{1}])",
    "Percentile": "agg.quantiles({0}, [{1}])",
    "PercentileCont": "agg.quantiles({0}, [{1}])",
    "PercentileDisc": "agg.quantiles({0}, [{1}])",
    "Median": "agg.quantiles({0}, [{1}])",
    "First": "min_by(...) by a column that orders the rows",
    "Last": "max_by(...) by a column that orders the rows",
    "AnyValue": "min({0})",
    **dict.fromkeys(["MaxBy", "MinBy", "Mode", "CollectList", "CollectSet", "ListAgg", "Skewness", "Kurtosis", "Corr"]),
    **dict.fromkeys(["CovSample", "CovPopulation", "HistogramNumeric", "Product", "PivotFirst", "ApproxTopK"]),
}
"""Aggregates that are known not to merge, and what merges instead, if anything. Those not named here are opaque.

{0} is the column, {1} the share of a quantile."""

ROW_WISE_UDFS = {100, 101}
"""Python's eval types for functions that are called once for each row: batched, and batched over Arrow."""


WHY_NOT = {
    "Window": "OVER looks at the rows beside each row",
    "Deduplicate": "dropDuplicates compares each row with all others",
    "Distinct": "distinct compares each row with all others",
    "GlobalLimit": "limit picks rows among all others",
    "LocalLimit": "limit picks rows among all others",
    "Offset": "offset picks rows among all others",
    "Tail": "tail picks rows among all others",
    "Sample": "sample picks rows by chance",
    "Except": "EXCEPT compares each row with all others",
    "Intersect": "INTERSECT compares each row with all others",
    "FlatMapGroupsInPandas": "applyInPandas sees a whole group at once",
    "MapInPandas": "mapInPandas sees a batch of rows at once",
    "MapInArrow": "mapInArrow sees a batch of rows at once",
}
WHAT_THEN = {
    "Sort": "leave out orderBy: a view has no order, those who read it sort",
    "Repartition": "leave out repartition: it changes no answer",
    "ResolvedHint": "leave out hint: it changes no answer",
}


@dataclass(frozen=True)
class Refusal:
    """Why a view is not folded, and what would let it be."""

    why: str
    advice: str | None = None
    is_wrong: bool = False
    """The definition contradicts itself: to keep the view another way would not help."""
    instead: str | None = None
    """What to write instead of the refused column so that it merges."""
    word: str | None = None
    """A word of the user's function that locates the line."""


def first_of(refusals: Iterator[Refusal]) -> Refusal | None:
    """The first reason, if there is one."""
    return next(refusals, None)
