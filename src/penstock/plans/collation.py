"""Grouping keys whose collation treats different strings as equal: any one of them becomes the group's key.

The plan's JSON does not contain the collation of expressions, so this reads the plan in the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.plans.jvm import Java, analyzed, catalyst, simple_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = {
    "Aggregate": lambda node: node.groupingExpressions(),
    "Deduplicate": lambda node: node.keys(),
    "Distinct": lambda node: node.output(),
    "Except": lambda node: node.output(),
    "Intersect": lambda node: node.output(),
}
"""By node: what its rows are compared by. Of several equal rows, one comes out."""


def collated_keys(frame: DataFrame) -> Iterator[str]:
    """The grouping keys, as SQL, of which different values can be equal. Each once."""
    maker = catalyst(frame.sparkSession)
    plan = analyzed(frame)
    found: dict[str, None] = {}
    for whole in (plan, *maker.items(plan.subqueriesAll())):
        for node in maker.nodes(whole):
            keys = _KEYS.get(simple_name(node))
            for key in maker.items(keys(node)) if keys is not None else []:
                if not maker.is_binary_stable(key.dataType()):
                    found[_words(key)] = None
    yield from found


def _words(key: Java) -> str:
    return str(key.name() if simple_name(key) == "AttributeReference" else key.sql())
