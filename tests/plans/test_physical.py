"""A small frame that is run again without planning gives the rows it would give if it were planned."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.plans.collect import FrameFailed, begin, collect
from penstock.spark.private.jvm import catalyst
from penstock.spark.private.prepared import Prepared, quickly
from penstock.spark.private.rows import from_arrow
from penstock.spark.private.stand_in import stand_in
from penstock.spark.private.task import Turn

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
        tables = quickly([plan.ask({"rows": given}) for plan in plans.values()], turn)
    quick = {name for name, table in zip(plans, tables, strict=True) if table is not None}
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
        assert quickly([failing.ask(given)], turn) == [None]
        [table] = quickly([counting.ask(given)], turn)
    assert table is not None
    assert table.to_pylist() == [{"c": 12_000, "n": 11_999}]


def test_plans_over_the_same_rows_are_run_by_one_call_and_give_what_each_gives_alone(spark: SparkSession) -> None:
    """Also where one of them has no rows, and where the next step asks for others of them."""
    shapes = [*SHAPES.values(), lambda rows: rows.filter("n > 1000"), lambda rows: rows.filter("n > 1000").select("k")]
    plans = [prepared(spark, shape) for shape in shapes[:6] + shapes[8:]]
    for chosen in (plans, plans[2:], plans[::-1], plans[:1], plans[:2] * 2):
        for rows in (ROWS, ROWS[1:3], ROWS * 4):
            given = {"rows": frame(spark, rows)}
            with Turn() as turn:
                together = quickly([plan.ask(given) for plan in chosen], turn)
                alone = [quickly([plan.ask(given)], turn)[0] for plan in chosen]
            assert all(table is not None for table in together)
            assert [found(table) for table in together if table] == [found(table) for table in alone if table]


def test_one_that_fails_among_several_costs_the_others_nothing(spark: SparkSession) -> None:
    given = {"rows": frame(spark, ROWS)}
    bad = prepared(spark, lambda rows: rows.groupBy("k").agg(sf.sum(sf.expr("1 / (n - 3)")).alias("x")))
    plans = [prepared(spark, SHAPES["whole"]), bad, prepared(spark, SHAPES["filtered"])]
    with Turn() as turn:
        tables = quickly([plan.ask(given) for plan in plans], turn)
    assert [table is None for table in tables] == [False, True, False]
    with begin([plan.ask(given) for plan in plans]) as computing:
        assert found(computing[0]) == ["{'c': 5, 'n': 50}"]
        with pytest.raises(FrameFailed) as caught:
            _ = computing[1]
        assert caught.value.index == 1
        assert len(computing[2:][0]) == 2


def test_each_slice_gets_its_own_rows(spark: SparkSession) -> None:
    counting = [prepared(spark, SHAPES["whole"]) for _ in range(3)]
    frames = [{"rows": frame(spark, ROWS[:count])} for count in (2, 5, 3)]
    with Turn() as turn:
        tables = quickly([plan.ask(given) for plan, given in zip(counting, frames, strict=True)], turn)
    assert [table.to_pylist()[0]["c"] for table in tables if table is not None] == [2, 5, 3]


def test_a_plan_that_was_interrupted_leaves_no_rows_to_the_next_one(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java does not hear of Ctrl-C: what it writes after that is nobody's."""
    plan = prepared(spark, SHAPES["filtered"])
    [expected] = collect([plan.ask({"rows": frame(spark, ROWS)})])
    tasks = catalyst(spark).tasks
    write = tasks.write

    def interrupted(rows: object, out: object) -> None:
        monkeypatch.setattr(tasks, "write", write)
        late.append((rows, out))
        raise KeyboardInterrupt

    late: list[tuple[object, object]] = []
    monkeypatch.setattr(tasks, "write", interrupted)
    with Turn() as turn, pytest.raises(KeyboardInterrupt):
        quickly([plan.ask({"rows": frame(spark, ROWS)})], turn)
    tasks.answers()
    late[0][1].writeInt(0)  # type: ignore[attr-defined]
    with Turn() as turn:
        [table] = quickly([plan.ask({"rows": frame(spark, ROWS)})], turn)
    assert table is not None
    assert found(table) == found(expected)
