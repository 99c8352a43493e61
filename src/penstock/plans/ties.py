"""LIMIT whose ORDER BY allows ties, or is missing: Spark may return different rows each time.

An order has no ties if it names all columns that leave the LIMIT, or columns that are unique among the rows below it:
the grouping columns of an aggregation, the key of a view, the place of a record in the log, or the view's own key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.plans.decision import Input
from penstock.plans.fold import changes
from penstock.plans.tree import Node, join_type, same, unaliased

_LIMITS = {"GlobalLimit": "limit", "Tail": "tail", "Offset": "offset"}
_BETWEEN = {"GlobalLimit", "LocalLimit", "Tail", "Offset", "Project", "SubqueryAlias", "View"}
"""What may stand between a LIMIT and its ORDER BY."""
_PASSING = {"SubqueryAlias", "View", "Filter", "Sort", "Window", "ResolvedHint", "GlobalLimit", "LocalLimit", "Offset"}
"""Nodes below which what is unique stays unique, and keeps its ids."""
_PLACE = ("_partition", "_offset")


def tied_limits(plan: Node, inputs: Mapping[str, Input], key: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Each limit whose order allows ties: its name, and columns that would break them, if some are known."""
    own = {number for number, name in plan.outputs() if name in key}
    below_limits: set[int] = set()
    for node in plan.everywhere():
        if node.kind not in _LIMITS or id(node) in below_limits or not changes(node, inputs):
            continue
        ordered = node
        while ordered.kind in _BETWEEN and ordered.input is None:
            below_limits.add(id(ordered))  # LIMIT and OFFSET of one ORDER BY are reported once.
            ordered = ordered.child
        by = {each.children[0].id for each in ordered.listed("order")} if ordered.kind == "Sort" else set()
        unique = _unique(ordered, inputs)
        tells = [own, {number for number, _ in node.outputs()}, *unique]
        if not any(columns and columns <= by for columns in tells):
            first = next(iter(unique), set())
            yield _LIMITS[node.kind], [name for number, name in ordered.outputs() if number in first]


def _unique(node: Node, inputs: Mapping[str, Input]) -> list[set[int]]:
    """Sets of columns, by id, that no two rows share."""
    if node.input is not None:
        each = inputs.get(node.input)
        names = () if each is None else _PLACE if each.kind == "topic" else each.key if each.kind == "view" else ()
        numbers = {number for number, name in node.outputs() if name in names}
        return [numbers] if names and len(numbers) == len(names) else []
    if node.kind == "Project":
        named = [(each.id, unaliased(each)) for each in node.listed("projectList")]
        above = {made.id: number for number, made in reversed(named) if made.is_attribute}
        return [{above[number] or 0 for number in one} for one in _unique(node.child, inputs) if one <= set(above)]
    if node.kind == "Aggregate":
        named = [(each.id or 0, unaliased(each)) for each in node.listed("aggregateExpressions")]
        groups = [
            next((number for number, made in named if same(made, group)), None)
            for group in node.listed("groupingExpressions")
        ]
        return [] if None in groups else [{number for number in groups if number is not None}]
    if node.kind == "Deduplicate":
        return [{each.id for each in node.listed("keys") if each.id is not None}]
    if node.kind == "Distinct":
        return [{number for number, _ in node.outputs()}]
    if node.kind in _PASSING or (node.kind == "Join" and join_type(node) in ("LeftSemi", "LeftAnti")):
        return _unique(node.children[0], inputs)
    return []
