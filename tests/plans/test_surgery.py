"""Columns carried through plans, and counts added, each run through `Prepared` over rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.events.schema import parse_ddl, to_spark
from penstock.spark.private.prepared import Prepared
from penstock.spark.private.rows import arrow_schema, from_arrow
from penstock.spark.private.stand_in import stand_in
from penstock.spark.private.surgery import NotOneAggregate, NotRowwise, carry, carry_below, with_counts, with_groups

pytestmark = pytest.mark.spark

HITS = to_spark(parse_ddl("time timestamp, url string, n int"))
PAID = to_spark(parse_ddl("time timestamp, url string, sum double"))
for schema in (HITS, PAID):
    schema.add("_partition", "integer").add("_offset", "long").add("_arrived", "timestamp").add("_late", "boolean")
CARRIED = ["__partition", "__offset", "__arrived", "__late", "__topic"]

Rows = list[dict[str, Any]]


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


def own(offset: int) -> dict[str, Any]:
    return {"_partition": 1, "_offset": offset, "_arrived": at(offset), "_late": False}


HITS_ROWS = [
    {"time": at(5), "url": "a", "n": 1, **own(0)},
    {"time": at(6), "url": "a", "n": None, **own(1)},
    {"time": at(15), "url": "b", "n": None, **own(2)},
    {"time": at(25), "url": None, "n": 4, **own(3)},
]
PAID_ROWS = [{"time": at(35), "url": "a", "sum": 1.5, **own(7)}, {"time": at(36), "url": "c", "sum": 2.5, **own(8)}]


@pytest.fixture
def ins(spark: SparkSession) -> dict[str, DataFrame]:
    return {"hits": stand_in(spark, HITS), "paid": stand_in(spark, PAID)}


@pytest.fixture
def run(spark: SparkSession, ins: dict[str, DataFrame]) -> Callable[[DataFrame], Rows]:
    """Runs a frame over the rows above, always by swapping."""

    def refuse(_: object) -> DataFrame:
        raise AssertionError("built again")

    def over(frame: DataFrame) -> Rows:
        given = {
            "hits": from_arrow(spark, pa.Table.from_pylist(HITS_ROWS, arrow_schema(HITS)), HITS),
            "paid": from_arrow(spark, pa.Table.from_pylist(PAID_ROWS, arrow_schema(PAID)), PAID),
        }
        rows: Rows = Prepared(frame, ins, refuse).over(given).toArrow().to_pylist()
        return rows

    return over


Run = Callable[[DataFrame], Rows]
Ins = dict[str, DataFrame]


def test_each_row_says_where_it_came_from(ins: Ins, run: Run) -> None:
    frame = ins["hits"].where("n > 1").select(sf.explode(sf.array("n", sf.lit(0))).alias("x"))
    carried = carry(frame, ins)
    assert carried.columns == ["x", *CARRIED]
    assert [(row["x"], row["__offset"], row["__topic"]) for row in run(carried)] == [(4, 3, 0), (0, 3, 0)]


def test_a_union_says_which_topic(ins: Ins, run: Run) -> None:
    twice = ins["hits"].select("url").union(ins["paid"].select("url")).union(ins["hits"].select("url"))
    found = [(row["__topic"], row["__offset"]) for row in run(carry(twice, ins))]
    assert found == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 7), (1, 8), (0, 0), (0, 1), (0, 2), (0, 3)]


def test_rows_keep_their_origin_through_a_static_join(spark: SparkSession, ins: Ins, run: Run) -> None:
    names = spark.range(3).select(sf.lit("a").alias("url"), sf.col("id").alias("name"))
    joined = ins["hits"].join(names, "url", "left").select("name")
    found = sorted((row["__offset"], row["name"]) for row in run(carry(joined, ins)) if row["name"] is not None)
    assert found == [(offset, name) for offset in (0, 1) for name in range(3)]
    with pytest.raises(NotRowwise):
        carry(names.join(ins["hits"], "url", "left"), ins)


def test_a_with_clause_is_row_wise_and_an_aggregation_is_not(spark: SparkSession, ins: Ins, run: Run) -> None:
    ins["hits"].createOrReplaceTempView("carried_hits")
    frame = spark.sql("WITH some AS (SELECT url, n FROM carried_hits) SELECT n + 1 AS m FROM some WHERE url = 'a'")
    assert [(row["m"], row["__offset"]) for row in run(carry(frame, ins))] == [(2, 0), (None, 1)]
    for plan in (ins["hits"].groupBy("url").count(), ins["hits"].distinct(), ins["hits"].limit(1)):
        with pytest.raises(NotRowwise):
            carry(plan, ins)
    with pytest.raises(NotRowwise, match="subquery"):
        carry(spark.sql("SELECT url FROM carried_hits WHERE n = (SELECT max(n) FROM carried_hits)"), ins)


def test_a_group_knows_the_records_it_was_made_of(ins: Ins, run: Run) -> None:
    counted = ins["hits"].groupBy(sf.window("time", "20 seconds", "10 seconds"), "url").agg(sf.count("*").alias("c"))
    frame = counted.where("c > 100").select(sf.col("window.start").alias("start"), sf.upper("url").alias("u"), "c")
    (below,) = carry_below(frame, ins)
    assert below.columns == ["start", "u", *CARRIED]
    offsets = sorted(row["__offset"] for row in run(below) if row["start"] == at(0))
    assert offsets == [0, 1, 2]


def test_joined_topics_are_followed_one_by_one(ins: Ins, run: Run) -> None:
    frame = ins["hits"].join(ins["paid"], "url").groupBy("url").agg(sf.sum("sum"))
    found = [
        sorted((row["url"], row["__topic"], row["__offset"]) for row in run(each)) for each in carry_below(frame, ins)
    ]
    assert found == [[("a", 0, 0), ("a", 0, 1)], [("a", 1, 7), ("a", 1, 7)]]


def test_counts_tell_when_a_sum_is_null_again(ins: Ins, run: Run) -> None:
    grouped = ins["hits"].groupBy("url").agg(sf.sum("n").alias("total"), sf.max("n").alias("most"))
    frame = with_counts(grouped.select(sf.col("url").alias("page"), sf.col("total").alias("t"), "most"), ["t"])
    assert frame.columns == ["page", "t", "most", "__rows", "__count_t"]
    found = {row["page"]: (row["t"], row["__rows"], row["__count_t"]) for row in run(frame)}
    assert found == {"a": (1, 2, 1), "b": (None, 1, 0), None: (4, 1, 1)}
    with pytest.raises(NotOneAggregate):
        with_counts(grouped.where("total > 1"), ["total"])


def test_a_row_without_a_time_has_a_group_too_and_a_filter_below_stays(ins: Ins, run: Run) -> None:
    some = ins["hits"].withColumn("time", sf.expr("if(n = 1, time, NULL)")).where("url IS NOT NULL")
    groups = run(with_groups(some, ["window(time, '10 seconds')", "url"]))
    assert [row["group 1"] for row in groups] == ["a", "a", "b"]
    assert [row["group 0"]["start"] is None for row in groups] == [False, True, True]
