"""Whether a view is folded: reads its plan by the whitelist, from the top down to its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.plans.decision import Fold, Input
from penstock.plans.fold_columns import Columns
from penstock.plans.row_wise import row_wise_only
from penstock.plans.tree import Node, join_type, unaliased
from penstock.plans.whitelist import JOINS, LEAVES, PASSING, WHAT_THEN, WHY_NOT, Refusal, first_of
from penstock.plans.windows import bound_of, time_window
from penstock.plans.words import in_words

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.pipeline.definition import ViewSpec


def fold_of(plan: Node, spec: ViewSpec, inputs: Mapping[str, Input], schema: StructType, text: str) -> Fold | Refusal:
    """How the view is folded, or why it is not. `text` is the plan as Spark prints it."""
    above, aggregate = _split(plan)
    undo = any(inputs[name].kind == "view" for name in inputs_of(plan) if name in inputs)
    if aggregate is None:
        refusal = first_of(_row_wise(plan, inputs))
        if refusal is None and spec.merge:
            column = next(iter(spec.merge))
            refusal = Refusal(f"merge= names {column!r}, but the view is row-wise: nothing is merged", is_wrong=True)
        return refusal or Fold("rows", (), undo)
    for refusal in (*_above(above), *_row_wise(aggregate.child, inputs), *_grouping(aggregate)):
        return refusal
    return Columns(plan, above, aggregate, spec, schema, text, undo).fold()


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


def _row_wise(plan: Node, inputs: Mapping[str, Input]) -> Iterator[Refusal]:
    """What in a plan looks at more than one row."""
    for node in plan.walk():
        if node.input is not None or node.kind in LEAVES:
            continue
        if node.kind == "Aggregate":
            yield Refusal("it aggregates below something else than the view's own aggregation")
        elif node.kind == "Join":
            yield from _join(node, inputs)
        elif node.kind == "Union":
            yield from _union(node, inputs)
        elif node.kind == "Expand":
            yield from _expand(node)
        elif node.kind not in PASSING:
            yield _refused_node(node)
        for expression in node.expressions():
            yield from row_wise_only(expression, is_generator=node.kind == "Generate")


def _join(node: Node, inputs: Mapping[str, Input]) -> Iterator[Refusal]:
    changing = [side for side, child in zip(("left", "right"), node.children, strict=True) if changes(child, inputs)]
    kind = join_type(node)
    if len(changing) == 2:
        yield Refusal("it joins two inputs that both change, so a new row may meet an old one")
    elif changing and changing[0] not in JOINS.get(kind, ()):
        yield Refusal(f"a {kind} join with the changing input on the {changing[0]} takes rows back when a match comes")


def _union(node: Node, inputs: Mapping[str, Input]) -> Iterator[Refusal]:
    """Static rows beside changing ones: every step would add them again. Static rows alone are a static table."""
    is_changing = [changes(child, inputs) for child in node.children]
    if any(is_changing) and not all(is_changing):
        static = node.children[is_changing.index(False)]
        tables = sorted(inputs_of(static))
        rows = f"the static table {tables[0]!r}" if tables else "rows that the view's function writes down"
        yield Refusal(
            f"it is a UNION with {rows}, which every step would add again",
            "leave the static rows to those who read the view, or to a second view over this one",
            word="union",
        )


def _expand(node: Node) -> Iterator[Refusal]:
    for projection in node.fields.get("projections") or [[]]:
        made = [each for each in projection if not each.is_attribute]
        if len(made) != 1 or time_window(made[0]) is None:
            yield Refusal(
                "rollup, cube and grouping sets count each row several times, under keys that are partly NULL",
                "write one view for each level",
            )
            return


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
        yield from row_wise_only(each)


def _refused_node(node: Node) -> Refusal:
    return Refusal(
        WHY_NOT.get(node.kind, f"{node.kind} is not on the list of what can be folded"), WHAT_THEN.get(node.kind)
    )
