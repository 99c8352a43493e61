"""Which columns of its inputs a plan really uses: what a step has to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.plans.decision import Input
from penstock.plans.tree import Expression, Node, unaliased

_PASSING = {"SubqueryAlias", "View", "Sort", "Filter", "Generate", "Join", "Window", "Repartition", "ResolvedHint"}
"""Nodes that hand on the columns of their children as they are, and use those in their own expressions."""


def needed_columns(
    plan: Node, inputs: Mapping[str, Input], extra: Iterable[tuple[str, str]] = ()
) -> dict[str, tuple[str, ...]]:
    """By input, in the order of its schema. `extra`: columns that are needed besides, by input."""
    found: dict[str, set[str]] = {name: set() for name in inputs}
    for name, column in extra:
        found[name].add(column)
    _use(plan, {number for number, _ in plan.outputs()}, found)
    return {
        name: tuple(column for column in inputs[name].schema.fieldNames() if column in used)
        for name, used in found.items()
    }


def _use(node: Node, wanted: set[int], found: dict[str, set[str]]) -> None:
    """Notes what is used of the inputs below, if the columns `wanted` are used of this node."""
    if node.input is not None:
        if node.input in found:
            found[node.input] |= {name for number, name in node.outputs() if number in wanted}
        return
    if node.kind == "Project":
        used = [each for each in node.listed("projectList") if each.id in wanted]
        below = _attributes(used, found)
    elif node.kind in _PASSING:
        below = wanted | _attributes(node.expressions(), found)
    elif node.kind == "Aggregate":
        below = _attributes(node.expressions(), found)
    elif node.kind == "Expand" and node.fields.get("projections"):
        places = [place for place, (number, _) in enumerate(node.outputs()) if number in wanted]
        below = _attributes([row[place] for row in node.fields["projections"] for place in places], found)
    elif node.kind == "Union":
        places = [place for place, (number, _) in enumerate(node.outputs()) if number in wanted]
        for child in node.children:
            outputs = child.outputs()
            _use(child, {outputs[place][0] for place in places}, found)
        return
    else:  # Whatever else: all of it.
        below = _attributes(node.expressions(), found) | {
            number for child in node.children for number, _ in child.outputs()
        }
    for child in node.children:
        _use(child, below, found)


def _attributes(expressions: Iterable[Expression], found: dict[str, set[str]]) -> set[int]:
    """The attributes that expressions refer to; what their subqueries use is noted on the way."""
    used: set[int] = set()
    for whole in expressions:
        for each in unaliased(whole).walk():
            if each.is_attribute and each.id is not None:
                used.add(each.id)
            if each.plan is not None:
                _use(each.plan, {number for number, _ in each.plan.outputs()}, found)
                used |= {
                    outer.children[0].id or 0
                    for node in each.plan.everywhere()
                    for expression in node.expressions()
                    for outer in expression.walk()
                    if outer.kind == "OuterReference"
                }
    return used
