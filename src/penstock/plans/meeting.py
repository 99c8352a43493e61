"""Which rows of a plan's inputs can meet: by what columns the inputs fall into groups that never do.

A *band* is one column (or expression) of each changing input, such that the plan over all rows is the same as the plan
over the rows of each value of the band, put together. Leaves start with a band for each of their columns. Going up,
each node keeps the bands that it respects: an aggregation those among its grouping columns, OVER those among its
partition columns, a join those pairs that its condition equates. A plan that respects two bands respects both at once,
so all that remain at the top are the group, as fine as it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from penstock.plans.bands import (
    Band,
    Source,
    asked_in,
    beside,
    distinct,
    equated,
    fields_of,
    is_start,
    joined,
    pinned,
    seen_above,
    windows_of,
    with_equals,
)
from penstock.plans.decision import Input
from penstock.plans.fold import changes
from penstock.plans.tree import Expression, Node, join_type, same, unaliased
from penstock.plans.whitelist import ROW_WISE_UDFS
from penstock.plans.windows import time_window
from penstock.plans.words import in_words

_UNTOUCHED = {
    "SubqueryAlias", "View", "Generate", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions",
    "ResolvedHint", "Filter",
}  # fmt: skip
_NOT_SPLIT = {
    "GlobalLimit": "limit picks rows among all others",
    "LocalLimit": "limit picks rows among all others",
    "Offset": "offset picks rows among all others",
    "Tail": "tail picks rows among all others",
    "MapInPandas": "mapInPandas sees a batch of rows at once",
    "MapInArrow": "mapInArrow sees a batch of rows at once",
    "Sample": "sample picks rows by chance",
}

_BATCHED = {"MapInPandas": "mapInPandas", "MapInArrow": "mapInArrow"}


@dataclass
class Meeting:
    """The bands that a plan respects, and why there are not more."""

    bands: list[Band]
    has_leaves: bool
    """Something that changes is below."""
    why: str | None = None
    """What let the last band go."""
    is_restricted: bool = False
    """Some node compares rows with one another, so the bands mean something."""
    not_in: str | None = None
    """A NOT IN over something that changes, or an IN of which NULL is not the same as false."""

    def keeping(self, ids: Iterable[int], why: str) -> Meeting:
        """Only bands that are among the columns `ids`."""
        wanted = list(ids)
        bands = [band for band in self.bands if band.sees(wanted)]
        lost = self.why or (why if self.bands and not bands else None)
        return replace(self, bands=bands, why=lost, is_restricted=self.has_leaves)

    def none(self, why: str) -> Meeting:
        return replace(self, bands=[], why=self.why or why, is_restricted=self.has_leaves)


def meeting_of(plan: Node, inputs: Mapping[str, Input]) -> Meeting:
    """The bands that a whole plan respects: each with the same column for all leaves of one input."""
    walk = _Walk(inputs)
    found = walk.node(plan, ())
    leaves = next(walk.numbers)
    bands = []
    for band in found.bands:
        assert len(band.leaves) == leaves, (band, leaves)
        sources = {source.input: source for source in band.leaves.values()}
        if all(sources[source.input] == source for source in band.leaves.values()):
            bands.append(band)
    lost = "an input is joined with itself by two different columns" if found.bands and not bands else None
    return replace(found, bands=bands, why=found.why or lost)


@dataclass
class _Walk:
    inputs: Mapping[str, Input]
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    def node(self, node: Node, equal: Sequence[tuple[Expression, Expression]]) -> Meeting:
        """`equal`: pairs that a filter further up equates, for a join without a condition of its own."""
        if node.input is not None:
            return self._leaf(node)
        if not node.children:
            return Meeting([], has_leaves=False)
        if node.kind == "Join":
            return self._expressions(node, self._join(node, equal))
        if node.kind in ("Union", "Except", "Intersect"):
            return self._side_by_side(node)
        if node.kind == "Filter":
            equal = [*equal, *equated(node.listed("condition"))]
        below = self.node(node.child, equal if node.kind in _UNTOUCHED or node.kind == "Project" else ())
        below = self._expressions(node, below)
        if len(node.children) > 1:
            return below.none(f"{node.kind} is not understood")
        return self._unary(node, below)

    def _unary(self, node: Node, below: Meeting) -> Meeting:
        if node.kind == "Project":
            return self._projected(below, node.listed("projectList"))
        if node.kind == "Filter":
            return replace(below, bands=[pinned(band, node) for band in below.bands])
        if node.kind in _UNTOUCHED:
            return below
        if node.kind == "Expand":
            return self._expanded(node, below)
        if node.kind == "Aggregate":
            grouping = node.listed("groupingExpressions")
            words = ", ".join(map(in_words, grouping)) or "nothing"
            below = self._with_fields(below, grouping)
            kept = below.keeping(
                _ids(_numbered(grouping, grouping)),
                f"it aggregates by {words}, which are not columns that all inputs share",
            )
            return self._projected(kept, _numbered(node.listed("aggregateExpressions"), grouping))
        if node.kind == "Window":
            over = node.listed("windowExpressions")
            words = in_words(unaliased(over[0])) if over else "OVER"
            return below.keeping(
                _ids(node.listed("partitionSpec")), f"{words} is not partitioned by a column of the inputs"
            )
        if node.kind == "Deduplicate":
            return below.keeping(_ids(node.listed("keys")), "dropDuplicates compares rows of all groups")
        if node.kind == "Distinct":
            return below.keeping([number for number, _ in node.outputs()], "distinct compares rows of all groups")
        if node.kind == "FlatMapGroupsInPandas":
            kept = below.keeping(_ids(node.listed("groupingAttributes")), "applyInPandas groups by something else")
            return replace(kept, bands=[replace(band, visible=frozenset(), starts=frozenset()) for band in kept.bands])
        if node.kind == "LateralJoin":
            return below
        return (
            below.none(_NOT_SPLIT.get(node.kind, f"{node.kind} may look at rows of all groups"))
            if below.has_leaves
            else below
        )

    def _leaf(self, node: Node) -> Meeting:
        name = node.input or ""
        if name in self.inputs and self.inputs[name].kind == "table":
            return Meeting([], has_leaves=False)
        number = next(self.numbers)
        bands = [Band({number: Source(name, column)}, frozenset([each])) for each, column in node.outputs()]
        return Meeting(bands, has_leaves=True)

    def _projected(self, below: Meeting, named: Sequence[Expression]) -> Meeting:
        bands = [seen_above(band, named) for band in below.bands]
        for each in named:
            made = time_window(unaliased(each))
            if made is not None and each.id is not None:
                bands += windows_of(below.bands, made, each.id)
            elif unaliased(each).kind == "GetStructField" and each.id is not None:
                bands += fields_of(below.bands, unaliased(each), each.id)
        return replace(below, bands=bands)

    def _with_fields(self, below: Meeting, grouping: Sequence[Expression]) -> Meeting:
        """Bands for the fields of structs that stand among grouping expressions, under numbers of their own."""
        bands = [*below.bands]
        for number, each in enumerate(grouping):
            if each.kind == "GetStructField":
                own = _own_number(number)
                bands = [replace(b, starts=b.starts | {own}) if b.window and is_start(each, b) else b for b in bands]
                bands += fields_of(below.bands, each, own)
        return replace(below, bands=bands)

    def _expanded(self, node: Node, below: Meeting) -> Meeting:
        """The windows of a sliding window; of rollup and the like only what passes through."""
        output = node.outputs()
        ids = frozenset(number for number, _ in output)
        bands = [replace(band, visible=band.visible & ids, starts=band.starts & ids) for band in below.bands]
        for projection in (node.fields.get("projections") or [])[:1]:
            for (number, _), each in zip(output, projection, strict=False):
                made = time_window(each)
                if made is not None:
                    bands += windows_of(below.bands, made, number)
        return replace(below, bands=bands)

    def _join(self, node: Node, equal: Sequence[tuple[Expression, Expression]]) -> Meeting:
        kind = join_type(node)
        is_inner = kind in ("Inner", "Cross")
        left = self.node(node.children[0], equal if is_inner or kind == "LeftOuter" else ())
        right = self.node(node.children[1], equal if is_inner or kind == "RightOuter" else ())
        both = Meeting(
            [], left.has_leaves or right.has_leaves, left.why or right.why, not_in=left.not_in or right.not_in
        )
        both.is_restricted = left.is_restricted or right.is_restricted
        if not (left.has_leaves and right.has_leaves):
            changing, kept = (left, "Right") if left.has_leaves else (right, "Left")
            if kind == "FullOuter" or kind == f"{kept}Outer" or (right.has_leaves and kind.startswith("Left")):
                return both.none(f"a {kind} join keeps rows of the static side that no group owns")
            pairs = [*equated(node.listed("condition")), *equal] if is_inner else []
            return replace(both, bands=[with_equals(band, pairs) for band in changing.bands])
        pairs = [*equated(node.listed("condition")), *(equal if is_inner else ())]
        both.is_restricted = True
        for one, other in pairs:
            both.bands += joined(left.bands, right.bands, one, other, kind)
            both.bands += joined(left.bands, right.bands, other, one, kind)
        if not both.bands and both.why is None:
            words = in_words(node.listed("condition")[0]) if node.listed("condition") else "no condition"
            both.why = f"a join ({words}) does not equate columns of both inputs"
        return replace(both, bands=distinct(both.bands))

    def _side_by_side(self, node: Node) -> Meeting:
        """UNION, EXCEPT, INTERSECT: a band must stand in the same place on all sides that change.

        A static row belongs to the group that its column in that place names. A redo computes the static rows of all
        groups each time, and keeps those of the touched groups.
        """
        sides = [self.node(child, ()) for child in node.children]
        changing = [
            (side, child.outputs()) for side, child in zip(sides, node.children, strict=True) if side.has_leaves
        ]
        if not changing:
            return Meeting([], has_leaves=False)
        why = next((side.why for side in sides if side.why), None)
        is_restricted = node.kind != "Union" or any(side.is_restricted for side in sides)
        found = Meeting([], True, why, is_restricted, next((side.not_in for side in sides if side.not_in), None))
        for place, (number, _) in enumerate(node.outputs()):
            there = ([band for band in side.bands if output[place][0] in band.visible] for side, output in changing)
            found.bands += [beside(bands, number) for bands in product(*there)]
        found.bands = distinct(found.bands)
        return found if found.bands else found.none("the parts of a union share no column")

    def _expressions(self, node: Node, below: Meeting) -> Meeting:
        """Subqueries join; a function that sees whole batches respects no group."""
        for expression in node.expressions():
            for each in expression.walk():
                if _sees_batches(each) and node.kind in ("Project", "Filter") and below.has_leaves:
                    below = below.none(f"{each.name}() is a pandas or Arrow UDF, which sees a batch of rows at once")
                if each.plan is not None and changes(each.plan, self.inputs):
                    asked = asked_in(expression) if node.kind in ("Filter", "Join") else []
                    below = self._subquery(expression, each, below, asked)
        return below

    def _subquery(self, whole: Expression, query: Expression, below: Meeting, asked: Sequence[Expression]) -> Meeting:
        """`asked`: the parts of a condition in which NULL has the effect of false."""
        inner = self.node(query.plan, ()) if query.plan is not None else Meeting([], has_leaves=False)
        if not below.has_leaves:
            # The static rows change with the subquery.
            changing = replace(below, has_leaves=True)
            return changing.none("a subquery over an input that changes, beside rows that do not")
        found = [
            replace(band, leaves={**band.leaves, **other.leaves})
            for band in below.bands
            for other in inner.bands
            if other.pinned is not None and other.pinned in band.visible
        ]
        if query.kind == "ListQuery" and query.plan is not None:
            holder = next(each for each in whole.walk() if each.kind == "InSubquery" and query in each.children)
            for value, (number, _) in zip(holder.children, query.plan.outputs(), strict=False):
                found += [
                    replace(band, leaves={**band.leaves, **other.leaves})
                    for band in below.bands
                    for other in inner.bands
                    if value.id in band.visible and number in other.visible
                ]
            if holder not in asked:  # One NULL in the subquery turns false into NULL, which differs here.
                words = ", ".join(in_words(value) for value in holder.children[:-1])
                negated = any(each.kind == "Not" and holder in each.walk() for each in whole.walk())
                words = f"{words} NOT IN (...)" if negated else f"{words} IN (...) as a value"
                below = replace(below.none(f"{words} looks at all rows"), not_in=below.not_in or words)
                found = []
        kept = replace(below, bands=distinct(found), is_restricted=True, not_in=below.not_in or inner.not_in)
        return kept if found else kept.none("a subquery does not equate a column of its input with one outside")


def seer_of_batches(plan: Node, inputs: Mapping[str, Input]) -> str | None:
    """The function that sees rows of an input by the batch, if there is one: Spark says which rows a batch has."""
    for node in plan.everywhere():
        if not changes(node, inputs):
            continue
        if node.kind in _BATCHED:
            return _BATCHED[node.kind]
        if node.kind in ("Project", "Filter"):
            for expression in node.expressions():
                for each in expression.walk():
                    if _sees_batches(each):
                        return f"{each.name}()"
    return None


def _sees_batches(expression: Expression) -> bool:
    return expression.kind == "PythonUDF" and expression.fields.get("evalType") not in ROW_WISE_UDFS


def _ids(expressions: Iterable[Expression]) -> list[int]:
    """The attributes among expressions."""
    return [each.id for each in expressions if each.is_attribute and each.id is not None]


def _own_number(place: int) -> int:
    """An id that Spark does not give, for a grouping expression that has none."""
    return -1 - place


def _numbered(named: Sequence[Expression], grouping: Sequence[Expression]) -> list[Expression]:
    """Expressions with those that are fields of structs in the grouping replaced by attributes of their own numbers."""
    found = []
    for each in named:
        made = unaliased(each)
        place = next(
            (n for n, group in enumerate(grouping) if made.kind == "GetStructField" and same(made, group)), None
        )
        if place is not None:
            own = Expression("AttributeReference", (), {"name": made.name, "exprId": {"id": _own_number(place)}})
            each = Expression("Alias", (own,), each.fields) if each.kind == "Alias" else own
        found.append(each)
    return found
