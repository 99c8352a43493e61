"""Which time windows a slice touches: asked of the rows below each aggregation, so that a HAVING hides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plans.jvm import Catalyst, Java, analyzed, catalyst, simple_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW = "window"
"""The one column of what `windows_of` gives: a struct of start and end."""

_TYPES = ("struct<start:timestamp,end:timestamp>", "struct<start:timestamp_ntz,end:timestamp_ntz>")
_SESSION = "spark.sessionWindow"


class NoWindow(Exception):
    """Rows reach a node of the plan without a time window; `node` is where."""

    def __init__(self, node: str) -> None:
        super().__init__(f"no time window at {node}")
        self.node = node


def windows_of(frame: DataFrame) -> list[DataFrame]:
    """Frames of the distinct windows that rows fall into: one for each aggregation, OVER or side of a join.

    All of them together, run over a slice, are the windows whose rows may change. Raises NoWindow where an aggregation
    or one side of a join of two topics is not by window: then a slice cannot tell.
    """
    maker = catalyst(frame.sparkSession)
    plan = maker.without_ctes(analyzed(frame))
    found = _below(maker, plan)
    if not found:
        raise NoWindow(simple_name(plan))
    distinct = maker.logical.Distinct
    return [
        maker.checked_frame(distinct(maker.project([maker.alias(window, WINDOW)], below))) for below, window in found
    ]


def _below(maker: Catalyst, node: Java) -> list[tuple[Java, Java]]:
    """Parts of the plan, each with the attribute that is its window."""
    name = simple_name(node)
    children = maker.items(node.children())
    if name == "Join":
        sides = [(child, _below(maker, child)) for child in children]
        return [each for child, inner in sides for each in inner or _side(maker, child, [*sides])]
    inner = [each for child in children for each in _below(maker, child)]
    keys = _keys(maker, node)
    if keys is None:
        return inner
    windows = [window for key in keys for window in _windows_in(maker, key)]
    if not windows:
        # By the start of a window, say: the aggregations that made these rows tell, if there is one for all of them.
        if _are_told(maker, children[0]):
            return inner
        raise NoWindow(name)
    # Where topics are joined below, the slice of one finds no partner in the slice of the other: their sides tell.
    return inner if _joins_topics(maker, node) else [*inner, *((children[0], window) for window in windows)]


def _keys(maker: Catalyst, node: Java) -> list[Java] | None:
    """By what a node compares rows with one another; None if it does not."""
    name = simple_name(node)
    if name == "Aggregate":
        return list(maker.items(node.groupingExpressions()))
    if name == "Window":
        return list(maker.items(node.partitionSpec()))
    if name == "Distinct":
        return list(maker.items(node.output()))
    return list(maker.items(node.keys())) if name == "Deduplicate" else None


def _side(maker: Catalyst, side: Java, sides: list[tuple[Java, list[tuple[Java, Java]]]]) -> list[tuple[Java, Java]]:
    """A side of a join without an aggregation in it: its rows have a window, or it is a static table."""
    windows = [attribute for attribute in maker.items(side.output()) if _is_window(attribute)]
    if windows:
        return [(side, windows[-1])]
    if _has_topic(maker, side) and sum(_has_topic(maker, each) for each, _ in sides) > 1:
        raise NoWindow("one side of a Join")
    return []


def _are_told(maker: Catalyst, node: Java) -> bool:
    """Whether all rows of topics below come through a node that is by window."""
    if not _has_topic(maker, node):
        return True
    name, children = simple_name(node), maker.items(node.children())
    if any(_windows_in(maker, key) for key in _keys(maker, node) or []):
        return True
    is_join = name == "Join"
    return bool(children) and all(
        _are_told(maker, child) or (is_join and any(map(_is_window, maker.items(child.output())))) for child in children
    )


def _joins_topics(maker: Catalyst, node: Java) -> bool:
    joins = [each for each in maker.nodes(node) if simple_name(each) == "Join"]
    return any(all(_has_topic(maker, side) for side in maker.items(join.children())) for join in joins)


def _has_topic(maker: Catalyst, node: Java) -> bool:
    return any(maker.mark_of(leaf) is not None for leaf in maker.items(node.collectLeaves()))


def _windows_in(maker: Catalyst, expression: Java) -> list[Java]:
    """The window itself, or the one that its start or end is taken from."""
    if simple_name(expression) == "AttributeReference":
        return [expression] if _is_window(expression) else []
    return [found for child in maker.items(expression.children()) for found in _windows_in(maker, child)]


def _is_window(attribute: Java) -> bool:
    return str(attribute.dataType().simpleString()) in _TYPES and not attribute.metadata().contains(_SESSION)
