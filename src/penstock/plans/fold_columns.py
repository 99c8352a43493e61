"""The columns of a view with one aggregation: which make its key, and by which rule each other one is merged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.plans.decision import Fold, FoldColumn
from penstock.plans.row_wise import row_wise_only
from penstock.plans.tree import Expression, Node, same, unaliased
from penstock.plans.whitelist import AGGREGATES, FITS, IN_STATES, INSTEAD, UNDONE, Refusal, first_of
from penstock.plans.windows import time_windows
from penstock.plans.words import in_words

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from penstock.pipeline.definition import ViewSpec

_STATE = re.compile(r"__penstock_([a-z_]+)")


class Columns:
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
        refused: list[Refusal] = []
        for name, made in self._made.items():
            if name in self._spec.key:
                if name in self._spec.merge:
                    return Refusal(f"merge= names {name!r}, which is part of the key", is_wrong=True)
                continue
            rule = self._rule(name, made, grouped[name])
            if isinstance(rule, Refusal):
                refused.append(rule)
            else:
                found.append(FoldColumn(name, rule, _argument_type(made)))
        if refused:
            return self._refusal(refused)
        return Fold("groups", tuple(found), self._undo)

    def _refusal(self, refused: list[Refusal]) -> Refusal:
        """The first of them, with advice only if taking it makes the view fold: all of them have a substitute."""
        first = next((each for each in refused if each.is_wrong), refused[0])
        if self._undo or first.advice or not all(each.instead for each in refused):
            return first
        written = " and ".join(dict.fromkeys(str(each.instead) for each in refused))
        write = "write the view as a function with" if self._spec.sql is not None else "write"
        return replace(first, advice=f"{write} {written} and the view is folded")

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
            refusal = first_of(each for whole in inside for child in whole.walk() for each in _argument(child))
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
                return replace(_not_merging(inner), instead=None)  # What is computed from a state does not merge.
            return Refusal(f"{in_words(bare)} is computed from aggregates", "compute it in a view over this one")
        function = bare.children[0]
        refusal = first_of(_argument(bare))
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
                other = _not_merging(each)
                advice = other.advice or (other.instead and f"write {other.instead}, without merge=")
                return Refusal(f"merge={{{name!r}: {rule!r}}} does not fit {in_words(each)}", advice, is_wrong=True)
        if self._undo and rule not in UNDONE:
            return Refusal(f"merge={{{name!r}: {rule!r}}} cannot take a row back when a row of another view changes")
        return rule


def _argument(aggregate: Expression) -> Iterator[Refusal]:
    """What in the arguments and the filter of an aggregate looks at more than its own row."""
    if aggregate.kind == "AggregateExpression":
        for child in (*aggregate.children[0].children, *aggregate.children[1:]):
            yield from row_wise_only(child)


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
    if instead and not instead.startswith("agg."):
        return Refusal(f"{words} does not merge", f"write {instead.format(argument)}")
    return Refusal(f"{words} does not merge", instead=_in_agg(aggregate, instead))


def _in_agg(aggregate: Expression, instead: str | None) -> str | None:
    """The aggregate of penstock.agg that replaces this one; None where there is none."""
    function = aggregate.children[0]
    is_distinct = bool(aggregate.fields.get("isDistinct"))
    if is_distinct:
        instead = "agg.distinct({0})" if function.kind == "Count" else None
    columns = function.children if is_distinct else function.children[:1]
    if instead is None or len(columns) != 1 or len(aggregate.children) > 1:  # The second child is a FILTER.
        return None
    kind = _type_of(columns[0])
    if kind is None or not (_is_atomic(kind) if "distinct" in instead else _is_number(kind)):
        return None
    share: object = "0.5"
    if "{1}" in instead and len(function.children) > 1:
        share = function.children[1].fields.get("value")
    return instead.format(repr(columns[0].name), share) if share is not None else None


def _state(expression: Expression) -> str | None:
    """The rule of a state of penstock.agg: a struct with one field, whose name says it."""
    if expression.kind != "CreateNamedStruct" or len(expression.children) != 2:
        return None
    match = _STATE.fullmatch(str(expression.children[0].fields.get("value")))
    return match[1] if match else None


def _argument_type(made: Expression) -> DataType | None:
    bare = unaliased(made)
    arguments = bare.children[0].children if bare.kind == "AggregateExpression" else ()
    return _type_of(arguments[0]) if len(arguments) == 1 else None


def _type_of(expression: Expression) -> DataType | None:
    """The type of a plain column."""
    from pyspark.sql.types import StructType

    if not expression.is_attribute:
        return None
    field = {"name": "x", "type": expression.fields["dataType"], "nullable": True, "metadata": {}}
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
