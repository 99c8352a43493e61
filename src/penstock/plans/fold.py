"""Fold is a whitelist: what may stand in a plan whose new rows alone are enough. Whatever is not listed is not folded.

nodes          inputs, SubqueryAlias, View, Project, Filter, Generate, Union, Expand for sliding windows, and Join
               where exactly one side changes (`JOINS`)
expressions    those that look at their own row only (`row_wise.py`), windows of time, plain Python UDFs
aggregation    at most one, by the view's key; each other column is directly one of `AGGREGATES`, not DISTINCT, or a
               state of `penstock.agg`
above it       only Projects that rename, or take `window.start` and `window.end`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.plans.decision import Fold, FoldColumn, Input
from penstock.plans.row_wise import GENERATORS, ROW_WISE
from penstock.plans.tree import Expression, Node, join_type, same, unaliased
from penstock.plans.windows import is_session, time_window, time_windows
from penstock.plans.words import in_words

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from penstock.pipeline.definition import ViewSpec

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
    "ApproximatePercentile": "agg.quantiles({0}, [0.5])",
    "Percentile": "agg.quantiles({0}, [0.5])",
    "PercentileCont": "agg.quantiles({0}, [0.5])",
    "PercentileDisc": "agg.quantiles({0}, [0.5])",
    "Median": "agg.quantiles({0}, [0.5])",
    "First": "min_by(...) by a column that orders the rows",
    "Last": "max_by(...) by a column that orders the rows",
    "AnyValue": "min({0})",
    **dict.fromkeys(["MaxBy", "MinBy", "Mode", "CollectList", "CollectSet", "ListAgg", "Skewness", "Kurtosis", "Corr"]),
    **dict.fromkeys(["CovSample", "CovPopulation", "HistogramNumeric", "Product", "PivotFirst", "ApproxTopK"]),
}
"""Aggregates that are known not to merge, and what merges instead, if anything. Those not named here are opaque."""

_STATE = re.compile(r"__penstock_([a-z_]+)")
_ROW_WISE_UDFS = {100, 101}
"""Python's eval types for functions that are called once for each row: batched, and batched over Arrow."""


@dataclass(frozen=True)
class Refusal:
    """Why a view is not folded, and what would let it be."""

    why: str
    advice: str | None = None
    is_wrong: bool = False
    """The definition contradicts itself: to keep the view another way would not help."""


def fold_of(plan: Node, spec: ViewSpec, inputs: Mapping[str, Input], schema: StructType, text: str) -> Fold | Refusal:
    """How the view is folded, or why it is not. `text` is the plan as Spark prints it."""
    above, aggregate = _split(plan)
    undo = any(inputs[name].kind == "view" for name in inputs_of(plan) if name in inputs)
    if aggregate is None:
        refusal = _first(_row_wise(plan, inputs))
        if refusal is None and spec.merge:
            column = next(iter(spec.merge))
            refusal = Refusal(f"merge= names {column!r}, but the view is row-wise: nothing is merged", is_wrong=True)
        return refusal or Fold("rows", (), undo)
    for refusal in (*_above(above), *_row_wise(aggregate.child, inputs), *_grouping(aggregate)):
        return refusal
    return _Columns(plan, above, aggregate, spec, schema, text, undo).fold()


def inputs_of(plan: Node) -> set[str]:
    """The inputs that a plan reads, subqueries included."""
    return {node.input for node in plan.everywhere() if node.input is not None}


def changes(plan: Node, inputs: Mapping[str, Input]) -> bool:
    """Whether a plan reads anything but static tables."""
    return any(name not in inputs or inputs[name].kind != "table" for name in inputs_of(plan))


def _split(plan: Node) -> tuple[list[Node], Node | None]:
    """The nodes above the topmost aggregation, and that; None where the only way down forks before it, or has none."""
    above: list[Node] = []
    node = plan
    if not any(each.kind == "Aggregate" for each in plan.walk()):
        return [], None
    while node.kind != "Aggregate":
        above.append(node)
        if node.input is not None or len(node.children) != 1:
            return [], None
        node = node.child
    return above, node


def _first(refusals: Iterator[Refusal]) -> Refusal | None:
    return next(refusals, None)


def _row_wise(plan: Node, inputs: Mapping[str, Input]) -> Iterator[Refusal]:
    """What in a plan looks at more than one row."""
    for node in plan.walk():
        if node.input is not None or node.kind in LEAVES:
            continue
        if node.kind == "Aggregate":
            yield Refusal("it aggregates below something else than the view's own aggregation")
        elif node.kind == "Join":
            yield from _join(node, inputs)
        elif node.kind == "Expand":
            yield from _expand(node)
        elif node.kind not in PASSING:
            yield _refused_node(node)
        for expression in node.expressions():
            yield from _expression(expression, is_generator=node.kind == "Generate")


def _join(node: Node, inputs: Mapping[str, Input]) -> Iterator[Refusal]:
    changing = [side for side, child in zip(("left", "right"), node.children, strict=True) if changes(child, inputs)]
    kind = join_type(node)
    if len(changing) == 2:
        yield Refusal("it joins two inputs that both change, so a new row may meet an old one")
    elif changing and changing[0] not in JOINS.get(kind, ()):
        yield Refusal(f"a {kind} join with the changing input on the {changing[0]} takes rows back when a match comes")


def _expand(node: Node) -> Iterator[Refusal]:
    for projection in node.fields.get("projections") or [[]]:
        made = [each for each in projection if not each.is_attribute]
        if len(made) != 1 or time_window(made[0]) is None:
            yield Refusal(
                "rollup, cube and grouping sets count each row several times, under keys that are partly NULL",
                "write one view for each level",
            )
            return


def _expression(expression: Expression, *, is_generator: bool = False) -> Iterator[Refusal]:
    """What in an expression looks at more than its own row."""
    if time_window(expression) is not None:
        return
    if is_session(expression):
        yield Refusal("a session window joins rows that lie beside each other: a new row can join two sessions")
        return
    if is_generator and expression.kind in GENERATORS:
        pass
    elif expression.kind == "PythonUDF":
        if expression.fields.get("evalType") not in _ROW_WISE_UDFS:
            yield Refusal(
                f"{expression.name}() is a pandas or Arrow UDF, which sees a batch of rows at once",
                "write it as a plain udf, which sees one row",
            )
        elif expression.fields.get("udfDeterministic") is False:
            yield Refusal(f"{expression.name}() is marked as nondeterministic")
    elif expression.plan is not None or expression.kind == "InSubquery":
        yield Refusal("it has a subquery")
    elif expression.kind not in ROW_WISE:
        yield Refusal(f"{in_words(expression)} may look at more than its own row")
    for child in expression.children:
        yield from _expression(child, is_generator=is_generator)


def _above(nodes: list[Node]) -> Iterator[Refusal]:
    """What stands above the aggregation and does more than to rename."""
    for node in nodes:
        if node.kind == "Filter":
            condition = in_words(node.listed("condition")[0])
            yield Refusal(
                f"HAVING {condition}: a row that is left out now may come in later",
                "leave the condition to those who read the view, or to a second view over this one",
            )
        elif node.kind == "Project":
            for each in node.listed("projectList"):
                made = unaliased(each)
                if not made.is_attribute and bound_of(made) is None:
                    yield Refusal(f"{in_words(made)} is computed from aggregates", "compute it in a view over this one")
        elif node.kind not in ("SubqueryAlias", "View"):
            yield _refused_node(node)


def _grouping(aggregate: Node) -> Iterator[Refusal]:
    for each in aggregate.listed("groupingExpressions"):
        yield from _expression(each)
        if each.is_attribute and "collate" in str(each.fields.get("dataType")):
            yield Refusal(f"{each.name} has a collation, so that keys which differ count as one")


def bound_of(expression: Expression) -> Expression | None:
    """The window of which an expression takes the start or the end; None if it does not."""
    if expression.kind != "GetStructField" or not expression.children[0].is_attribute:
        return None
    window = expression.children[0]
    kind = window.fields.get("dataType")
    names = [each.get("name") for each in kind.get("fields", ())] if isinstance(kind, dict) else []
    return window if names == ["start", "end"] else None


_NODES = {
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
_NODE_ADVICE = {
    "Sort": "leave out orderBy: a view has no order, those who read it sort",
    "Repartition": "leave out repartition: it changes no answer",
    "ResolvedHint": "leave out hint: it changes no answer",
}


def _refused_node(node: Node) -> Refusal:
    return Refusal(
        _NODES.get(node.kind, f"{node.kind} is not on the list of what can be folded"), _NODE_ADVICE.get(node.kind)
    )


class _Columns:
    """The columns of a view with one aggregation: which make its key, and how each other one is merged."""

    def __init__(
        self, plan: Node, above: list[Node], aggregate: Node, spec: ViewSpec, schema: StructType, text: str, undo: bool
    ) -> None:
        self._spec = spec
        self._schema = schema
        self._text = text
        self._undo = undo
        self._grouping = aggregate.listed("groupingExpressions")
        self._windows = time_windows(aggregate.child)
        self._named = {each.id: each for each in aggregate.listed("aggregateExpressions")}
        renamed = {
            each.id: unaliased(each)
            for node in above
            if node.kind == "Project"
            for each in node.listed("projectList")
            if each.kind == "Alias"
        }
        names = set(schema.fieldNames())
        self._made = {name: self._source(number, renamed) for number, name in plan.outputs() if name in names}

    def fold(self) -> Fold | Refusal:
        grouped = {name: self._grouped(made) for name, made in self._made.items()}
        by_name = [name for name, group in grouped.items() if group is not None]
        if self._spec.key is None:
            return Refusal(f"it groups by {_listed(by_name)} and has no key", f"add key={by_name}", is_wrong=True)
        key = [grouped.get(name) for name in self._spec.key]
        if None in key:
            other = self._spec.key[key.index(None)]
            return Refusal(f"{other!r} in the key is not one of the columns it groups by ({_listed(by_name)})")
        missing = [each for number, each in enumerate(self._grouping) if number not in key and each.kind != "Literal"]
        if missing:
            return self._repeats(missing[0], grouped)
        found: list[FoldColumn] = []
        for name, made in self._made.items():
            if name in self._spec.key:
                if name in self._spec.merge:
                    return Refusal(f"merge= names {name!r}, which is part of the key", is_wrong=True)
                continue
            rule = self._rule(name, made, grouped[name])
            if isinstance(rule, Refusal):
                return rule
            found.append(FoldColumn(name, rule, _argument_type(made)))
        return Fold("groups", tuple(found), self._undo)

    def _source(self, number: int, renamed: Mapping[int | None, Expression]) -> Expression:
        """What an output is at the aggregation: follows renaming down, and keeps `window.start` around it."""
        made = renamed.get(number)
        if made is None:
            return self._named[number]
        if made.is_attribute:
            return self._source(made.id or 0, renamed)
        inner = self._source(made.children[0].id or 0, renamed)
        return Expression(made.kind, (inner,), made.fields)

    def _grouped(self, made: Expression) -> int | None:
        """Which of the grouping expressions an output is, or is the start or the end of."""
        bare = unaliased(made)
        if bare.kind == "GetStructField":
            inner = unaliased(bare.children[0])
            if inner.is_attribute and inner.id in self._windows:
                bare = inner  # All windows have the same length, so a bound tells the window.
        return next((number for number, each in enumerate(self._grouping) if same(each, bare)), None)

    def _repeats(self, missing: Expression, grouped: Mapping[str, int | None]) -> Refusal:
        number = self._grouping.index(missing)
        name = next((name for name, group in grouped.items() if group == number), None)
        if name is not None:
            key = [*(self._spec.key or ()), name]
            return Refusal(
                f"rows can repeat: it groups by {in_words(missing)} too, which is not in the key",
                f"add it: key={key}",
                is_wrong=True,
            )
        return Refusal(
            f"rows can repeat: it groups by {in_words(missing)}, which is not in the output",
            "select it, and add it to the key",
            is_wrong=True,
        )

    def _rule(self, name: str, made: Expression, grouped: int | None) -> str | Refusal:
        bare = unaliased(made)
        if grouped is not None:
            if self._undo or not _is_atomic(self._schema[name].dataType):
                return Refusal(
                    f"{name!r} belongs to the key but is not in it", f"add it: key={[*(self._spec.key or ()), name]}"
                )
            return "max"  # It is the same in all rows of its key.
        wanted = self._spec.merge.get(name)
        if wanted is not None:
            return self._by_user(name, bare, wanted)
        state = _state(bare)
        if state is not None:
            inside = [each for each in bare.walk() if each.kind == "AggregateExpression"]
            bad = [each for each in inside if each.children[0].kind not in IN_STATES or each.fields.get("isDistinct")]
            if bad:
                return Refusal(f"{in_words(bad[0])} does not belong into a state of penstock.agg")
            refusal = _first(each for whole in inside for child in whole.walk() for each in _argument(child))
            if refusal is not None:
                return refusal
            if self._undo:
                return Refusal(f"agg.{state} cannot take a row back when a row of another view changes")
            return state
        return self._by_plan(name, bare)

    def _by_plan(self, name: str, bare: Expression) -> str | Refusal:
        if bare.kind != "AggregateExpression":
            inner = next((each for each in bare.walk() if each.kind == "AggregateExpression"), None)
            if inner is not None and inner.children[0].kind in INSTEAD:
                return _not_merging(inner)
            return Refusal(f"{in_words(bare)} is computed from aggregates", "compute it in a view over this one")
        function = bare.children[0]
        refusal = _first(_argument(bare))
        if refusal is not None:
            return refusal
        rule = AGGREGATES.get(function.kind)
        if rule is None or bare.fields.get("isDistinct"):
            return _not_merging(bare)
        kind = self._schema[name].dataType
        if rule in ("min", "max") and not _is_atomic(kind):
            return Refusal(f"{in_words(bare)} compares values of type {kind.simpleString()}, which is not folded")
        if rule == "sum" and not _is_number(kind):
            return Refusal(f"{in_words(bare)} adds values of type {kind.simpleString()}, which is not folded")
        if rule == "sum" and is_try_sum(self._text, bare, self._named):
            return Refusal(f"try_{in_words(bare)} forgets what overflowed", "write sum")
        if self._undo and (rule not in UNDONE or (rule == "sum" and not _is_exact(kind))):
            return Refusal(f"{in_words(bare)} cannot take a row back when a row of another view changes")
        return rule

    def _by_user(self, name: str, bare: Expression, rule: str) -> str | Refusal:
        """The user's rule, unless it is known to be wrong. What is opaque is trusted; verify judges it."""
        for each in bare.walk():
            if each.kind != "AggregateExpression":
                continue
            kind = each.children[0].kind
            is_distinct = bool(each.fields.get("isDistinct")) and rule not in ("min", "max", "every", "any")
            is_other = kind in AGGREGATES and kind not in FITS.get(rule, ())
            if is_distinct or kind in INSTEAD or (is_other and each is bare):
                advice = _not_merging(each).advice
                return Refusal(f"merge={{{name!r}: {rule!r}}} does not fit {in_words(each)}", advice, is_wrong=True)
        if self._undo and rule not in UNDONE:
            return Refusal(f"merge={{{name!r}: {rule!r}}} cannot take a row back when a row of another view changes")
        return rule


def _argument(aggregate: Expression) -> Iterator[Refusal]:
    """What in the arguments and the filter of an aggregate looks at more than its own row."""
    if aggregate.kind == "AggregateExpression":
        for child in (*aggregate.children[0].children, *aggregate.children[1:]):
            yield from _expression(child)


def is_try_sum(text: str, aggregate: Expression, named: Mapping[int | None, Expression]) -> bool:
    """Whether a sum is written try_sum: the plan's JSON does not tell, its text does."""
    if "try_sum(" not in text:
        return False
    alias = next((each for each in named.values() if unaliased(each) is aggregate), None)
    end = text.find(f" AS {alias.name}#{alias.id}") if alias is not None else -1
    depth, start = 0, end
    while start > 0 and not (depth == 0 and text[start - 1] in ",["):
        start -= 1
        depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(text[start], 0)
    return end < 0 or "try_sum(" in text[start:end]


def _not_merging(aggregate: Expression) -> Refusal:
    function = aggregate.children[0]
    words = in_words(aggregate)
    argument = repr(in_words(function.children[0])) if function.children else ""
    instead = INSTEAD.get(function.kind)
    if aggregate.fields.get("isDistinct") and function.kind == "Count":
        instead = "agg.distinct({0})"
    advice = f"write {instead.format(argument)} and the view is folded" if instead else None
    if instead and not instead.startswith("agg."):
        advice = f"write {instead.format(argument)}"
    return Refusal(f"{words} does not merge", advice)


def _state(expression: Expression) -> str | None:
    """The rule of a state of penstock.agg: a struct with one field, whose name says it."""
    if expression.kind != "CreateNamedStruct" or len(expression.children) != 2:
        return None
    match = _STATE.fullmatch(str(expression.children[0].fields.get("value")))
    return match[1] if match else None


def _argument_type(made: Expression) -> DataType | None:
    from pyspark.sql.types import StructType

    bare = unaliased(made)
    arguments = bare.children[0].children if bare.kind == "AggregateExpression" else ()
    if len(arguments) != 1 or not arguments[0].is_attribute:
        return None
    field = {"name": "x", "type": arguments[0].fields["dataType"], "nullable": True, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [field]})[0].dataType


def _is_atomic(kind: DataType) -> bool:
    from pyspark.sql import types as t

    if isinstance(kind, t.StringType):
        return kind.simpleString() == "string"  # A collation has an order of its own.
    atomic = (t.NumericType, t.BooleanType, t.DateType, t.TimestampType, t.TimestampNTZType, t.BinaryType)
    return isinstance(kind, atomic)


def _is_number(kind: DataType) -> bool:
    from pyspark.sql.types import NumericType

    return isinstance(kind, NumericType)


def _is_exact(kind: DataType) -> bool:
    from pyspark.sql.types import DecimalType, IntegralType

    return isinstance(kind, (DecimalType, IntegralType))


def _listed(names: list[str]) -> str:
    return ", ".join(names) if names else "nothing"
