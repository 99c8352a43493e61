"""A small frame that is run again without planning gives the rows it would give if it were planned."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.plans.collect import FrameFailed, collect
from penstock.plans.prepared import Prepared
from penstock.plans.rows import from_arrow
from penstock.plans.stand_in import stand_in
from penstock.plans.task import Turn

pytestmark = pytest.mark.spark

SCHEMA = StructType([StructField("k", StringType()), StructField("n", LongType())])
ROWS = [("a", 1), ("b", 2), ("a", 3), (None, None), ("b", 50)]
SHAPES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "filtered": lambda rows: rows.filter("n > 2").groupBy("k").agg(sf.sum("n").alias("n")),
    "distinct": lambda rows: rows.groupBy("k").agg(sf.countDistinct("n").alias("n")),
    "collected": lambda rows: rows.groupBy("k").agg(sf.sort_array(sf.collect_list("n")).alias("n")),
    "sorted": lambda rows: rows.withColumn("r", sf.expr("rank() OVER (PARTITION BY k ORDER BY n)")).select("k", "r"),
    "whole": lambda rows: rows.agg(sf.count("*").alias("c"), sf.max("n").alias("n")),
    "rowwise": lambda rows: rows.filter("n > 2").select("k", (sf.col("n") * 2).alias("n")),
    "limited": lambda rows: rows.orderBy("n").limit(2).groupBy("k").agg(sf.count("*").alias("c")),
    "joined": lambda rows: rows.alias("a").join(rows.alias("b"), "k").groupBy("k").agg(sf.count("*").alias("c")),
}


def prepared(spark: SparkSession, shape: Callable[[DataFrame], DataFrame]) -> Prepared:
    leaf = stand_in(spark, SCHEMA)
    return Prepared(shape(leaf), {"rows": leaf}, lambda frames: shape(frames["rows"]))


def frame(spark: SparkSession, rows: list[tuple[str | None, int | None]]) -> DataFrame:
    columns = [pa.array([k for k, _ in rows], pa.string()), pa.array([n for _, n in rows], pa.int64())]
    return from_arrow(spark, pa.table(columns, ["k", "n"]), SCHEMA)


def found(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def test_every_shape_gives_what_planning_gives_whatever_rows_came_before(spark: SparkSession) -> None:
    """One row first, from which the optimizer could conclude too much; then none, then several, then others."""
    plans = {name: prepared(spark, shape) for name, shape in SHAPES.items()}
    for rows in (ROWS[:1], [], ROWS, ROWS[2:], ROWS * 3, []):
        given = frame(spark, rows)
        tables = dict(zip(plans, collect([plan.ask({"rows": given}) for plan in plans.values()]), strict=True))
        for name, shape in SHAPES.items():
            assert found(tables[name]) == found(shape(given).toArrow()), (name, rows)


def test_plans_that_could_remember_their_rows_are_planned_each_time(spark: SparkSession) -> None:
    given = frame(spark, ROWS)
    plans = {name: prepared(spark, shape) for name, shape in SHAPES.items()}
    with Turn() as turn:
        quick = {name for name, plan in plans.items() if plan.quickly_over({"rows": given}, turn) is not None}
    assert quick == {"filtered", "distinct", "collected", "sorted", "whole", "rowwise"}


def test_a_failure_is_blamed_on_the_frame_that_failed(spark: SparkSession) -> None:
    good = prepared(spark, SHAPES["whole"]).ask({"rows": frame(spark, ROWS)})
    bad = prepared(spark, lambda rows: rows.groupBy("k").agg(sf.sum(sf.expr("1 / (n - 3)")).alias("x")))
    with pytest.raises(FrameFailed) as caught:
        collect([good, bad.ask({"rows": frame(spark, ROWS)})])
    assert caught.value.index == 1


def test_what_a_plan_wrote_before_it_failed_is_not_taken_for_the_next_ones_rows(spark: SparkSession) -> None:
    """Spark gives rows in batches of 10,000: the first of them is written before the second fails."""
    numbers: list[tuple[str | None, int | None]] = [("a", n) for n in range(12_000)]
    given = {"rows": frame(spark, numbers)}
    failing = prepared(spark, lambda rows: rows.select("k", sf.expr("1 / (n - 11999)").alias("x")))
    counting = prepared(spark, SHAPES["whole"])
    with Turn() as turn:
        assert failing.ask(given).quickly(turn) is None
        table = counting.ask(given).quickly(turn)
    assert table is not None
    assert table.to_pylist() == [{"c": 12_000, "n": 11_999}]
