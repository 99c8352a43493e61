"""What Spark keeps to itself is still where `spark/private` looks for it; a newer Spark that moved it is named here."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.events.schema import parse_ddl, to_spark
from penstock.spark.private.jvm import catalyst, simple_name
from penstock.spark.private.rows import from_arrow

pytestmark = pytest.mark.spark

CATALYST = "org.apache.spark.sql.catalyst"
METHODS = {
    "org.apache.spark.sql.classic.Dataset$": ["ofRows"],
    "org.apache.spark.sql.execution.arrow.ArrowConverters$": ["toDataFrame"],
    f"{CATALYST}.plans.logical.LocalRelation": ["copy", "data", "output"],
    f"{CATALYST}.plans.logical.LogicalPlan": ["setAnalyzed"],
    f"{CATALYST}.plans.QueryPlan": ["transformUpWithSubqueries", "subqueriesAll", "deterministic", "expressions"],
    f"{CATALYST}.expressions.Expression": ["deterministic", "prettyName", "sql"],
    f"{CATALYST}.util.UnsafeRowUtils": ["isBinaryStable"],
    f"{CATALYST}.plans.logical.Aggregate": ["groupingExpressions", "aggregateExpressions", "hint", "copy"],
    f"{CATALYST}.plans.logical.Deduplicate": ["keys"],
    f"{CATALYST}.plans.logical.Expand": ["projections"],
    f"{CATALYST}.plans.logical.Repartition": ["child"],
    f"{CATALYST}.expressions.NamedExpression$": ["newExprId"],
    f"{CATALYST}.expressions.Literal$": ["apply", "create"],
    f"{CATALYST}.expressions.aggregate.AggregateExpression": ["copy", "resultId", "filter", "isDistinct"],
    f"{CATALYST}.optimizer.InlineCTE": ["apply"],
    "org.apache.spark.rdd.CoalescedRDDPartition": ["parents_$eq"],
    "org.apache.spark.rdd.UnionPartition": ["parentPartition_$eq"],
    "org.apache.spark.rdd.CoalescedRDD": ["partitions"],
}


@pytest.mark.parametrize("name", METHODS)
def test_spark_still_has(spark: SparkSession, name: str) -> None:
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    found = {method.getName() for method in loader.loadClass(name).getMethods()}
    assert {*METHODS[name]} <= found


def test_a_copy_of_a_leaf_keeps_its_mark(spark: SparkSession) -> None:
    maker = catalyst(spark)
    leaf = maker.marked_leaf(to_spark(parse_ddl("id int, who string")))
    copy = leaf.newInstance()
    assert not copy.output().head().exprId().equals(leaf.output().head().exprId())
    assert maker.mark_of(copy) == maker.mark_of(leaf) is not None


def test_a_map_is_a_rule(spark: SparkSession) -> None:
    maker = catalyst(spark)
    leaf = maker.marked_leaf(to_spark(parse_ddl("id int")))
    plan = maker.replaced(maker.in_one_task(leaf), [(leaf, maker.logical.OneRowRelation())])
    assert [simple_name(node) for node in maker.nodes(plan)] == ["Repartition", "OneRowRelation"]


def test_a_schema_that_is_known_is_not_asked_for_again(spark: SparkSession) -> None:
    schema = to_spark(parse_ddl("id int, who string"))
    found = from_arrow(spark, pa.table({"id": pa.array([1], pa.int32()), "who": ["a"]}), schema)
    assert found.schema is schema
    del vars(found)["schema"]
    assert found.schema == schema, "and is the one that Spark has"
