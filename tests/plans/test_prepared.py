"""A plan over swapped leaves gives the rows that the user's function gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from penstock.events.schema import parse_ddl, to_spark
from penstock.plans.collect import collect
from penstock.spark.private.prepared import Prepared
from penstock.spark.private.rows import arrow_schema, from_arrow
from penstock.spark.private.stand_in import stand_in

pytestmark = pytest.mark.spark

ORDERS = to_spark(parse_ddl("id int, who string, amount decimal(10,2), time timestamp, tags array<string>"))
PAYMENTS = to_spark(parse_ddl("id int, order int, paid double, time timestamp"))

Frames = Mapping[str, DataFrame]
Build = Callable[[Frames], DataFrame]


def at(minute: int) -> datetime:
    return datetime(2026, 1, 1, 0, minute, tzinfo=UTC)


def orders(rows: int = 7) -> pa.Table:
    found = [
        {
            "id": n,
            "who": [None, "ann", "bob"][n % 3],
            "amount": Decimal(f"{n}.50"),
            "time": at(n),
            "tags": None if n == 3 else [*"abc"[: n % 4]],
        }
        for n in range(rows)
    ]
    return pa.Table.from_pylist(found, arrow_schema(ORDERS))


def payments(rows: int = 5) -> pa.Table:
    found = [{"id": n, "order": n * 2 % 5, "paid": n / 2, "time": at(n + 1)} for n in range(rows)]
    return pa.Table.from_pylist(found, arrow_schema(PAYMENTS))


def minute(of: str = "time", width: str = "2 minutes") -> Any:
    return sf.window(of, width)


def by_sql(text: str) -> Build:
    def build(frames: Frames) -> DataFrame:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(f"prepared_{name}")
        return next(iter(frames.values())).sparkSession.sql(text)

    return build


def self_join(frames: Frames) -> DataFrame:
    one, other = frames["orders"].alias("one"), frames["orders"].alias("other")
    return one.join(other, sf.col("one.id") == sf.col("other.id") + 1).select("one.id", "other.who", "other.tags")


def ranked(frames: Frames) -> DataFrame:
    order = Window.partitionBy("who").orderBy(sf.desc("id"))
    return frames["orders"].withColumn("place", sf.row_number().over(order)).where("place <= 2")


SHAPES: dict[str, Build] = {
    "row-wise": lambda f: f["orders"].where("id > 1").select("who", sf.explode("tags").alias("tag")),
    "grouped": lambda f: f["orders"].groupBy(minute(), "who").agg(sf.sum("amount").alias("sum"), sf.count("*")),
    "sliding": lambda f: f["orders"].groupBy(sf.window("time", "4 minutes", "2 minutes", "1 minute")).count(),
    "having": lambda f: f["orders"].groupBy("who").agg(sf.max("id").alias("most")).where("most > 5"),
    "joined": lambda f: f["orders"].join(f["payments"], f["orders"].id == f["payments"].order, "left"),
    "self join": self_join,
    "self union": lambda f: f["orders"].union(f["orders"]).groupBy("who").count(),
    "union of both": lambda f: f["orders"].select("id", "time").union(f["payments"].select("id", "time")),
    "ranked": ranked,
    "distinct": lambda f: f["orders"].select("who").distinct(),
    "cte": by_sql(
        "WITH a AS (SELECT id, who FROM prepared_orders) SELECT x.id, y.who FROM a x JOIN a y ON x.id = y.id"
    ),
    "exists": by_sql(
        "SELECT id FROM prepared_orders o WHERE NOT EXISTS (SELECT 1 FROM prepared_payments p WHERE p.order = o.id)"
    ),
    "scalar": by_sql("SELECT id FROM prepared_orders WHERE id < (SELECT max(id) FROM prepared_orders)"),
    "lateral": by_sql(
        "SELECT o.id, p.n FROM prepared_orders o, LATERAL (SELECT count(*) n FROM prepared_payments p"
        " WHERE p.order = o.id) p"
    ),
    "rollup": by_sql("SELECT who, id % 2 odd, count(*) n FROM prepared_orders GROUP BY ROLLUP (who, id % 2)"),
}


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def prepared(spark: SparkSession, build: Build) -> Prepared:
    stand_ins = {"orders": stand_in(spark, ORDERS), "payments": stand_in(spark, PAYMENTS)}
    return Prepared(build(stand_ins), stand_ins, build)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_swapped_plan_gives_the_rows_of_the_function(spark: SparkSession, shape: str) -> None:
    build = SHAPES[shape]
    plan = prepared(spark, build)
    assert plan.is_swapped
    whole = {"orders": from_arrow(spark, orders(), ORDERS), "payments": from_arrow(spark, payments(), PAYMENTS)}
    none = {**whole, "orders": from_arrow(spark, orders(0), ORDERS)}
    read = {**whole, "orders": whole["orders"].where("id >= 1").repartition(2)}
    for frames in (whole, none, read):
        built = build(frames).toArrow()
        for swapped in (plan.over(frames).toArrow(), *collect([plan.ask(frames)])):
            assert swapped.schema == built.schema
            assert sorted_rows(swapped) == sorted_rows(built)


def test_what_cannot_be_swapped_is_built_again(spark: SparkSession) -> None:
    def hidden(frames: Frames) -> DataFrame:
        return spark.createDataFrame(frames["orders"].rdd, ORDERS)

    stand_ins = {"orders": stand_in(spark, ORDERS)}
    plan = Prepared(hidden(stand_ins), stand_ins, hidden)
    assert not plan.is_swapped
    assert plan.over({"orders": from_arrow(spark, orders(), ORDERS)}).count() == 7


def test_a_frame_that_may_hold_null_is_not_put_where_none_was_expected(spark: SparkSession) -> None:
    never = to_spark(parse_ddl("id int NOT NULL"))
    maybe = to_spark(parse_ddl("id int"))
    stand_ins = {"orders": stand_in(spark, never)}

    def missing(frames: Frames) -> DataFrame:
        return frames["orders"].where("id IS NULL")

    rows = from_arrow(spark, pa.table({"id": pa.array([None, 1], pa.int32())}), maybe)
    assert Prepared(missing(stand_ins), stand_ins, missing).over({"orders": rows}).count() == 1


def test_rows_come_back_as_they_were(spark: SparkSession) -> None:
    for table in (orders(), orders(0), pa.concat_tables([orders(2), orders(3)])):
        frame = from_arrow(spark, table, ORDERS)
        assert frame.schema == ORDERS
        assert frame.toArrow().equals(table.cast(arrow_schema(ORDERS)))
