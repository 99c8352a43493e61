"""Where each row came from: the hidden columns of the log, carried through a plan to its output.

A plan drops the columns it does not select. Here it is built again so that they stay, without a row more or less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.spark.private.jvm import Catalyst, Java, analyzed, catalyst, simple_name
from penstock.spark.private.stand_in import mark_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN_COLUMNS = ("_partition", "_offset", "_arrived", "_late")
CARRIED_TOPIC = "__topic"
"""Which of the stand-ins the row came from, by their order; after the carried columns."""

_TRANSPARENT = frozenset({"SubqueryAlias", "View"})
_PASSES_ON = frozenset({"Filter", "Generate", "ResolvedHint"})
_FOLLOWED = {
    "Inner": ("left", "right"),
    "Cross": ("left", "right"),
    "LeftOuter": ("left",),
    "LeftSemi": ("left",),
    "LeftAnti": ("left",),
    "RightOuter": ("right",),
}


class NotRowwise(Exception):
    """The plan does more than look at each row by itself; `node` is what it does."""

    def __init__(self, node: str) -> None:
        super().__init__(f"not row by row: {node}")
        self.node = node


def carried_name(column: str) -> str:
    """Under what name a column of the log is carried: `_offset` as `__offset`."""
    return f"__{column.lstrip('_')}"


def carry(frame: DataFrame, stand_ins: Mapping[str, DataFrame], columns: Sequence[str] = OWN_COLUMNS) -> DataFrame:
    """The rows of the frame, each with the columns of the topic row it came from, and which topic that was.

    They come last, as `carried_name` has them and CARRIED_TOPIC, and are NULL for rows of a union that come from no
    topic. Raises NotRowwise if a row could come from several rows, or from none.
    """
    maker = catalyst(frame.sparkSession)
    plan = maker.without_ctes(analyzed(frame))
    carrier = Carrier(maker, [mark_of(found) for found in stand_ins.values()], columns)
    carrier.refuse_subqueries(plan)
    found, extra = carrier.through(plan)
    return maker.checked_frame(maker.project([*maker.items(plan.output()), *extra], found))


class Carrier:
    """Rebuilds plans so that the columns of marked leaves reach the top. `only` follows one leaf among several."""

    def __init__(self, maker: Catalyst, marks: Sequence[str], columns: Sequence[str], only: Java | None = None) -> None:
        self._maker = maker
        self._marks = marks
        self._columns = columns
        self._only = only

    def through(self, node: Java) -> tuple[Java, list[Java]]:
        """The node with more output, and the attributes that were added, in the order of the columns."""
        name = simple_name(node)
        children = self._maker.items(node.children())
        if name in _TRANSPARENT:
            return self.through(children[0])
        if name in _PASSES_ON:
            child, extra = self.through(children[0])
            return node.withNewChildren(self._maker.seq([child])), extra
        if name == "Project":
            child, extra = self.through(children[0])
            return self._maker.project([*self._maker.items(node.projectList()), *extra], child), extra
        if name == "LocalRelation" and self._is_followed(node):
            return self._leaf(node)
        if name == "Expand":
            return self._expand(node, children[0])
        if name == "Union":
            return self._union(node, children)
        if name == "Join":
            return self._join(node, children)
        raise NotRowwise(name)

    def has_topic(self, node: Java) -> bool:
        """Whether a followed leaf is below, or is the node itself."""
        return any(self._is_followed(leaf) for leaf in self._maker.items(node.collectLeaves()))

    def refuse_subqueries(self, plan: Java) -> None:
        """Raises where a topic is inside of a subquery: a row then depends on rows that it does not come from."""
        for inner in self._maker.items(plan.subqueriesAll()):
            if any(self._maker.mark_of(leaf) in self._marks for leaf in self._maker.all_leaves(inner)):
                raise NotRowwise("subquery over a topic")

    def _is_followed(self, leaf: Java) -> bool:
        if self._only is not None:
            return bool(leaf.equals(self._only))
        return self._maker.mark_of(leaf) in self._marks

    def _leaf(self, leaf: Java) -> tuple[Java, list[Java]]:
        maker = self._maker
        output = maker.items(leaf.output())
        named = {str(attribute.name()): attribute for attribute in output}
        missing = [column for column in self._columns if column not in named]
        if missing:
            raise NotRowwise(f"an input without {', '.join(missing)}")
        topic = maker.literal(self._marks.index(maker.mark_of(leaf) or ""))
        added = [maker.alias(named[column], carried_name(column)) for column in self._columns]
        added.append(maker.alias(topic, CARRIED_TOPIC))
        return maker.project([*output, *added], leaf), [alias.toAttribute() for alias in added]

    def _expand(self, node: Java, child: Java) -> tuple[Java, list[Java]]:
        """Sliding windows: a row becomes one row for each window it falls into."""
        maker = self._maker
        found, extra = self.through(child)
        projections = [maker.seq([*maker.items(each), *extra]) for each in maker.items(node.projections())]
        output = maker.seq([*maker.items(node.output()), *extra])
        return maker.logical.Expand(maker.seq(projections), output, found), extra

    def _union(self, node: Java, children: list[Java]) -> tuple[Java, list[Java]]:
        maker = self._maker
        with_topic = [(child, self.through(child) if self.has_topic(child) else None) for child in children]
        some = next((found[1] for _, found in with_topic if found), None)
        if some is None:
            raise NotRowwise("Union without a topic")
        sides = []
        for child, found in with_topic:
            below, extra = found or (child, [])
            # New ids for each side, as Spark itself has it: the same topic may be on both.
            added = [maker.alias(attribute, str(attribute.name())) for attribute in extra]
            added = added or [maker.alias(maker.null(each.dataType()), str(each.name())) for each in some]
            sides.append(maker.project([*maker.items(child.output()), *added], below))
        union = node.withNewChildren(maker.seq(sides))
        return union, maker.items(union.output())[-len(some) :]

    def _join(self, node: Java, children: list[Java]) -> tuple[Java, list[Java]]:
        kind = str(node.joinType().toString())
        sides = [side for side, child in zip(("left", "right"), children, strict=True) if self.has_topic(child)]
        if len(sides) != 1 or (self._only is None and sides[0] not in _FOLLOWED.get(kind, ())):
            raise NotRowwise(f"Join {kind} with topics on {' and '.join(sides) or 'no side'}")
        at = 0 if sides[0] == "left" else 1
        children[at], extra = self.through(children[at])
        return node.withNewChildren(self._maker.seq(children)), extra
