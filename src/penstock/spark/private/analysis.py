"""What is in the analyzed plan of a frame, read over py4j."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.spark.private.jvm import Java, analyzed, catalyst, simple_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.private.protocols import PlanAnalysis

_FIELDS_MAX = 2**31 - 1
_UDFS = {"PythonUDF", "PythonUDAF", "PythonUDTF"}
_KEYS = {
    "Aggregate": lambda node: node.groupingExpressions(),
    "Deduplicate": lambda node: node.keys(),
    "Distinct": lambda node: node.output(),
    "Except": lambda node: node.output(),
    "Intersect": lambda node: node.output(),
}
"""By node: what its rows are compared by. Of several equal rows, one comes out."""


class _OverPy4J:
    """See `PlanAnalysis`."""

    def json(self, frame: DataFrame) -> str:
        return str(analyzed(frame).toJSON())

    def text(self, frame: DataFrame) -> str:
        return str(analyzed(frame).treeString(True, False, _FIELDS_MAX, False, False))

    def nondeterministic(self, frame: DataFrame) -> Iterator[str]:
        for each in catalyst(frame.sparkSession).nondeterministic(analyzed(frame)):
            yield str(each.prettyName())

    def collated_keys(self, frame: DataFrame) -> Iterator[str]:
        # The plan as JSON does not contain the collation of expressions.
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

    def python_functions(self, frame: DataFrame) -> Iterator[tuple[bytes, Mapping[int, str]]]:
        bytes_tag = catalyst(frame.sparkSession).jvm.scala.reflect.ClassTag.Byte()
        waiting = [analyzed(frame)]
        while waiting:
            found = waiting.pop()
            if simple_name(found) in _UDFS:
                function = found.func()
                sent = function.broadcastVars()
                files = {each.id(): each.value().path() for each in map(sent.get, range(sent.size()))}
                yield bytes(function.command().toArray(bytes_tag)), files
            parts = [found.children()]
            if hasattr(found, "expressions") and "plans" in found.getClass().getName():
                parts.insert(0, found.expressions())
            inner = [part.apply(number) for part in parts for number in range(part.size())]
            if simple_name(found) in ("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"):
                inner.append(found.plan())
            waiting.extend(reversed(inner))

    def marks(self, frame: DataFrame) -> list[str | None]:
        maker = catalyst(frame.sparkSession)
        return [maker.mark_of(leaf) for leaf in maker.all_leaves(analyzed(frame))]

    def nulls(self, spark: SparkSession, schema: StructType) -> Mapping[str, str]:
        return catalyst(spark).nulls(schema)


def _words(key: Java) -> str:
    return str(key.name() if simple_name(key) == "AttributeReference" else key.sql())


plan_analysis: PlanAnalysis = _OverPy4J()
