"""Analyzed plans, opened and closed again: columns added, and what lies below an aggregation brought to light.

Every function takes the frame that a view's function built over stand-ins and gives another over the same stand-ins,
so that `Prepared` runs it over rows. None of them calls the user's function, and none changes a row that it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.spark.private.carrying import (
    CARRIED_TOPIC,
    OWN_COLUMNS,
    Carrier,
    NotRowwise,
    carried_name,
    carry,
)
from penstock.spark.private.jvm import Catalyst, Java, analyzed, catalyst, simple_name
from penstock.spark.private.stand_in import mark_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "CARRIED_TOPIC",
    "OWN_COLUMNS",
    "ROWS",
    "NotOneAggregate",
    "NotRowwise",
    "carried_name",
    "carry",
    "carry_below",
    "count_name",
    "with_counts",
    "with_groups",
]

ROWS = "__rows"
"""How many rows made an output row."""

_ABOVE = frozenset({"SubqueryAlias", "View", "ResolvedHint", "Sort"})


class NotOneAggregate(Exception):
    """The plan is not one aggregation under projections; `found` says what stands in the way."""

    def __init__(self, found: str) -> None:
        super().__init__(f"not one aggregation under projections: {found}")
        self.found = found


def count_name(column: str) -> str:
    """The hidden column that counts the values of a sum which are not NULL."""
    return f"__count_{column}"


def with_counts(frame: DataFrame, sums: Sequence[str]) -> DataFrame:
    """The same rows, each with the number of rows that made it, and of values not NULL in each of the named sums.

    That is what undoing needs: a group of no rows vanishes, a sum of no values is NULL again. The new columns come
    last, ROWS and then `count_name` of each. Raises NotOneAggregate.
    """
    maker = catalyst(frame.sparkSession)
    plan = maker.without_ctes(analyzed(frame))
    above, aggregate = _opened(maker, plan, through_having=False)
    made = {_id(column): column for column in maker.items(aggregate.aggregateExpressions())}
    traced = _traced(maker, above, aggregate)
    added = [maker.alias(maker.count(maker.literal(1)), ROWS)]
    for name, attribute in zip(frame.columns, maker.items(plan.output()), strict=True):
        if name in sums:
            source = made.get(traced.get(_id(attribute), -1))
            function = _aggregate_of(source)
            if function is None:
                raise NotOneAggregate(f"column {name} is not directly an aggregate")
            argument = maker.items(function.aggregateFunction().children())[0]
            added.append(maker.alias(maker.count(argument, like=function), count_name(name)))
    order = [ROWS, *(count_name(name) for name in sums)]
    missing = [*{*order} - {str(alias.name()) for alias in added}]
    if missing:
        raise NotOneAggregate(f"no column for {', '.join(missing)}")
    added.sort(key=lambda alias: order.index(str(alias.name())))
    columns = maker.seq([*maker.items(aggregate.aggregateExpressions()), *added])
    found = aggregate.copy(aggregate.groupingExpressions(), columns, aggregate.child(), aggregate.hint())
    extra = [alias.toAttribute() for alias in added]
    for node in reversed(above):
        if simple_name(node) == "Project":
            found = maker.project([*maker.items(node.projectList()), *extra], found)
        elif simple_name(node) in ("Sort", "ResolvedHint"):
            found = node.withNewChildren(maker.seq([found]))
    return maker.checked_frame(maker.project([*maker.items(plan.output()), *extra], found))


def with_groups(frame: DataFrame, expressions: Sequence[str]) -> DataFrame:
    """The group of each row, a column for each of the expressions: one row for every row, in the same order.

    Spark leaves out rows without a time before it makes windows of the others. Here they stay, in a window of NULLs.
    """
    found = frame.selectExpr(*(f"{text} AS `group {number}`" for number, text in enumerate(expressions)))
    maker = catalyst(frame.sparkSession)
    below, node = analyzed(frame), analyzed(found)
    above = []
    while simple_name(node) in ("Project", "Filter") and not maker.is_same(node, below):
        above.append(node)
        node = node.child()
    if not maker.is_same(node, below) or not any(simple_name(each) == "Filter" for each in above):
        return found
    for each in reversed(above):
        if simple_name(each) == "Project":
            node = each.withNewChildren(maker.seq([node]))
    return maker.checked_frame(node)


def carry_below(
    frame: DataFrame, stand_ins: Mapping[str, DataFrame], columns: Sequence[str] = OWN_COLUMNS
) -> list[DataFrame]:
    """The rows that enter the aggregation: the output columns that depend on the group alone, and where each is from.

    A row shows up once for each group it belongs to (sliding windows), and the carried columns come last. One frame
    where rows come from one topic or a union; where topics are joined, one for each. A HAVING hides nothing here.
    Raises NotOneAggregate, or NotRowwise if there is another aggregation further down.
    """
    maker = catalyst(frame.sparkSession)
    plan = maker.without_ctes(analyzed(frame))
    above, aggregate = _opened(maker, plan, through_having=True)
    keys = _keys(maker, above, aggregate, plan)
    marks = [mark_of(found) for found in stand_ins.values()]
    carriers = [Carrier(maker, marks, columns)]
    leaves = [leaf for leaf in maker.items(aggregate.child().collectLeaves()) if maker.mark_of(leaf) in marks]
    if any(simple_name(node) == "Join" for node in maker.nodes(aggregate.child())) and len(leaves) > 1:
        carriers = [Carrier(maker, marks, columns, only=leaf) for leaf in leaves]
    found = []
    for carrier in carriers:
        carrier.refuse_subqueries(plan)
        below, extra = carrier.through(aggregate.child())
        found.append(maker.checked_frame(maker.project([*keys, *extra], below)))
    return found


def _opened(maker: Catalyst, plan: Java, *, through_having: bool) -> tuple[list[Java], Java]:
    """The nodes above the aggregation, from the top, and the aggregation."""
    above = []
    while simple_name(plan) != "Aggregate":
        name = simple_name(plan)
        if name != "Project" and name not in _ABOVE and not (name == "Filter" and through_having):
            raise NotOneAggregate(name)
        above.append(plan)
        plan = maker.items(plan.children())[0]
    return above, plan


def _traced(maker: Catalyst, above: Sequence[Java], aggregate: Java) -> dict[int, int]:
    """Each attribute above the aggregation that only renames one of its outputs: its id, and the id of that output."""
    found = {_id(column): _id(column) for column in maker.items(aggregate.aggregateExpressions())}
    for node in reversed(above):
        for column in maker.items(node.projectList()) if simple_name(node) == "Project" else []:
            source = column.child() if simple_name(column) == "Alias" else column
            if simple_name(source) == "AttributeReference" and _id(source) in found:
                found[_id(column)] = found[_id(source)]
    return found


def _keys(maker: Catalyst, above: Sequence[Java], aggregate: Java, plan: Java) -> list[Java]:
    """The output columns that depend on the group alone, as expressions over the rows below the aggregation."""
    known: dict[int, Java] = {}
    for node in (aggregate, *reversed(above)):
        name = simple_name(node)
        columns = (
            node.aggregateExpressions() if name == "Aggregate" else node.projectList() if name == "Project" else None
        )
        for column in maker.items(columns) if columns is not None else []:
            source = column.child() if simple_name(column) == "Alias" else column
            if name == "Aggregate":
                if _has_aggregate(maker, source):
                    continue
            else:
                used = [leaf for leaf in _leaves(maker, source) if simple_name(leaf) == "AttributeReference"]
                if any(_id(leaf) not in known for leaf in used):
                    continue
                source = source.transformUp(maker.partial_function([(leaf, known[_id(leaf)]) for leaf in used]))
            known[_id(column)] = source
    output = [(attribute, known.get(_id(attribute))) for attribute in maker.items(plan.output())]
    return [maker.alias(source, str(attribute.name())) for attribute, source in output if source is not None]


def _aggregate_of(column: Java | None) -> Java | None:
    """The aggregate that a column is, if it is one and nothing more."""
    if column is None or simple_name(column) != "Alias" or simple_name(column.child()) != "AggregateExpression":
        return None
    return column.child()


def _has_aggregate(maker: Catalyst, expression: Java) -> bool:
    return any(simple_name(part) == "AggregateExpression" for part in _parts(maker, expression))


def _leaves(maker: Catalyst, expression: Java) -> list[Java]:
    return [part for part in _parts(maker, expression) if part.children().isEmpty()]


def _parts(maker: Catalyst, expression: Java) -> Iterator[Java]:
    yield expression
    for child in maker.items(expression.children()):
        yield from _parts(maker, child)


def _id(named: Java) -> int:
    return int(named.exprId().id())
