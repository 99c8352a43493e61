"""Expressions of a plan in the user's words: `avg(seconds)`, `sum(n) + 1`, `count(DISTINCT ip)`."""

from __future__ import annotations

import re

from penstock.plans.tree import Expression
from penstock.plans.windows import time_window

_LENGTH_MAX = 80

_SIGNS = {
    "Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/", "Remainder": "%", "EqualTo": "=",
    "EqualNullSafe": "<=>", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=",
    "And": "AND", "Or": "OR",
}  # fmt: skip

_SQL_NAMES = {
    "Average": "avg", "Sum": "sum", "StddevSamp": "stddev", "VarianceSamp": "variance", "VariancePop": "var_pop",
    "HyperLogLogPlusPlus": "approx_count_distinct", "ApproximatePercentile": "percentile_approx", "BoolAnd": "bool_and",
    "BoolOr": "bool_or", "BitAndAgg": "bit_and", "BitOrAgg": "bit_or", "BitXorAgg": "bit_xor", "ListAgg": "listagg",
    "MonotonicallyIncreasingID": "monotonically_increasing_id", "SparkPartitionID": "spark_partition_id",
    "DateFormatClass": "date_format", "RandStr": "randstr", "PythonUDAF": "pandas_udf",
    "LocalTimestamp": "localtimestamp",     "StringTrim": "trim", "CreateNamedStruct": "struct", "CreateArray": "array",
}  # fmt: skip


def sql_name(kind: str) -> str:
    """The name under which people know a Catalyst class."""
    return _SQL_NAMES.get(kind) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()


def in_words(expression: Expression) -> str:
    """The expression as its author would write it, cut short where it is long."""
    text = _words(expression)
    return text if len(text) <= _LENGTH_MAX else text[: _LENGTH_MAX - 3] + "..."


def _words(expression: Expression) -> str:
    kind, children = expression.kind, expression.children
    if kind in ("Alias", "Cast", "KnownNullable", "OuterReference", "SortOrder") and children:
        return _words(children[0])
    if expression.is_attribute:
        return expression.name
    if kind == "Literal":
        value = expression.fields.get("value")
        return "NULL" if value is None else repr(value) if expression.fields.get("dataType") == "string" else str(value)
    if kind == "AggregateExpression":
        return _aggregate(expression)
    if kind == "GetStructField":
        return f"{_words(children[0])}.{expression.name or ('start', 'end')[expression.fields.get('ordinal', 0) % 2]}"
    if kind in _SIGNS and len(children) == 2:
        return f"{_words(children[0])} {_SIGNS[kind]} {_words(children[1])}"
    if kind == "Not":
        return f"NOT {_words(children[0])}"
    window = time_window(expression)
    if window is not None:
        return window.sql(window.column)
    if kind == "WindowExpression":
        return f"{_words(children[0])} OVER (...)"
    name = expression.name if kind in ("PythonUDF", "PythonUDAF", "ScalaUDF") else sql_name(kind)
    return f"{name}({', '.join(map(_words, children))})"


def _aggregate(expression: Expression) -> str:
    function = expression.children[0]
    if function.kind == "Count" and [each.kind for each in function.children] == ["Literal"]:
        return "count(*)"
    text = _words(function)
    return text.replace("(", "(DISTINCT ", 1) if expression.fields.get("isDistinct") else text
