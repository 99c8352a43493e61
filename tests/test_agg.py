"""The aggregates of penstock.agg in Spark: one cut gives what many give, and what plain Spark gives, nearly."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import agg
from penstock.errors import AggregateOptionError
from penstock.upkeep.merge import RULES, align, merge_rows
from penstock.upkeep.states import compact_table, finish_table, state_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS = 10_000
CUTS = 4
AT = [0.01, 0.5, 0.99]


def columns() -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812

    aggregates = {
        "mean_double": agg.mean("double"),
        "mean_long": agg.mean("long"),
        "mean_money": agg.mean(F.col("money")),
        "variance": agg.variance("double"),
        "deviation": agg.stddev("int", sample=False),
        "few": agg.distinct("text"),
        "many": agg.distinct("long", lg_k=8),
        "quantiles": agg.quantiles("double", AT),
    }
    return [column.alias(name) for name, column in aggregates.items()]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(f"""
        SELECT id % 7 AS key, id, IF(id % 11 = 0, NULL, exp(randn(1) * 3)) AS double,
               CAST(id * 461168601842738 AS bigint) AS long, CAST(randn(2) * 1e4 AS decimal(30, 6)) AS money,
               CAST(id AS int) AS int, 'text ' || id % 1000 AS text
        FROM range({ROWS})""").cache()


@pytest.mark.spark
def test_many_cuts_give_the_bits_of_one(rows: DataFrame) -> None:
    whole = rows.groupBy("key").agg(*columns()).toArrow().sort_by("key")
    pieces = (
        rows.selectExpr("*", f"id * 7919 % 1009 % {CUTS} AS piece").groupBy("piece", "key").agg(*columns()).toArrow()
    )
    rules = {name: RULES[rule] for name, rule in state_columns(whole.schema).items()}

    def step(kept: pa.Table, new: pa.Table) -> pa.Table:
        return merge_rows(align(kept, new["key"], "key"), new, rules)

    steps = [compact_table(pieces.filter(pc.field("piece") == number).drop(["piece"])) for number in range(CUTS)]
    assert reduce(step, steps).sort_by("key").equals(compact_table(whole))
    assert [rules[name].name for name in ("deviation", "few")] == ["variance", "distinct"]


@pytest.mark.spark
def test_numbers_are_those_of_spark_within_the_bounds(rows: DataFrame) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    plain = rows.groupBy("key").agg(
        F.avg("double").alias("mean_double"),
        F.avg(F.col("long").cast("decimal(20,0)")).cast("double").alias("mean_long"),
        F.avg("money").cast("double").alias("mean_money"),
        F.var_samp("double").alias("variance"),
        F.stddev_pop("int").alias("deviation"),
        F.count_distinct("text").alias("few"),
        F.count_distinct("long").alias("many"),
        F.expr(f"array({', '.join(f'percentile_disc({at}) WITHIN GROUP (ORDER BY double)' for at in AT)})").alias(
            "quantiles"
        ),
    )
    expected = plain.toArrow().sort_by("key").to_pylist()
    found = agg.finish(rows.groupBy("key").agg(*columns())).sort_by("key").to_pylist()
    bounds = {"many": 5 / math.sqrt(2**8), "quantiles": 0.01 * (1 + 1e-9), "mean_money": 1e-9}
    for one, other in zip(found, expected, strict=True):
        for name, value in other.items():
            assert one[name] == pytest.approx(value, rel=bounds.get(name, 1e-12), abs=0), name


@pytest.mark.spark
def test_every_numeric_type_and_no_rows_at_all(spark: SparkSession) -> None:
    kinds = ["tinyint", "smallint", "int", "bigint", "float", "double", "decimal(5,2)", "decimal(38,10)"]
    numbers = spark.sql("SELECT x FROM VALUES (1), (2), (4), (NULL), (-3) AS t(x)")
    aggregates: list[Column] = []
    for kind in kinds:
        number = numbers.x.cast(kind)
        for of in (agg.mean(number), agg.variance(number), agg.distinct(number), agg.quantiles(number, [0.5])):
            aggregates.append(of.alias(f"{len(aggregates)}"))
    [found] = agg.finish(numbers.agg(*aggregates)).to_pylist()
    assert list(found.values()) == [1.0, 26 / 3, 4, [pytest.approx(1, rel=0.01 * (1 + 1e-9))]] * len(kinds)
    [nothing] = agg.finish(numbers.where("false").agg(*aggregates)).to_pylist()
    assert list(nothing.values()) == [None, None, 0, None] * len(kinds)


@pytest.mark.spark
def test_distinct_counts_values_of_any_type(spark: SparkSession) -> None:
    values = {
        "text": "element_at(array('a', 'b', 'A'), i)",
        "bytes": "element_at(array(X'', X'00', X''), i)",
        "day": "element_at(array(DATE'2020-01-01', DATE'1900-01-01', NULL), i)",
        "moment": "element_at(array(TIMESTAMP'2020-01-01', TIMESTAMP'2020-01-01 00:00:00.000001', NULL), i)",
        "flag": "i > 1",
        "zero": "element_at(array(0.0D, -0.0D, 0.0D), i)",
        "nan": "element_at(array(double('NaN'), double('NaN'), 1.0D), i)",
        "span": "element_at(array(INTERVAL 1 DAY, INTERVAL 24 HOUR, INTERVAL 1 SECOND), i)",
        "nothing": "CAST(NULL AS string)",
    }
    listed = ", ".join(f"{text} AS {name}" for name, text in values.items())
    frame = spark.sql(f"SELECT {listed} FROM VALUES (1), (2), (3) AS t(i)")
    [found] = agg.finish(frame.agg(*[agg.distinct(name).alias(name) for name in values])).to_pylist()
    assert found == {
        "text": 3,
        "bytes": 2,
        "day": 2,
        "moment": 2,
        "flag": 2,
        "zero": 1,
        "nan": 2,
        "span": 2,
        "nothing": 0,
    }


@pytest.mark.spark
def test_special_values_have_buckets_of_their_own(spark: SparkSession) -> None:
    frame = spark.sql("""SELECT x FROM VALUES (double('NaN')), (double('inf')), (double('-inf')), (0.0D), (-0.0D),
                         (-8.0D), (8.0D), (NULL), (1.7e308D), (4.9e-324D) AS t(x)""")
    shares = [(each + 0.5) / 9 for each in range(9)]
    table = frame.agg(
        agg.quantiles("x", shares, relative_error=0.001).alias("x"), agg.mean("x").alias("mean")
    ).toArrow()
    visible, _ = finish_table(table)
    [found] = visible["x"].to_pylist()
    assert found[0] == -math.inf
    assert found[1] == pytest.approx(-8, rel=0.001)
    assert found[2:4] == [0.0, 0.0]
    assert 0 < found[4] < 1e-300
    assert found[5:7] == [pytest.approx(8, rel=0.001), pytest.approx(1.7e308, rel=0.001)]
    assert (found[7], str(found[8])) == (math.inf, "nan")
    assert str(visible["mean"][0]) == "nan"


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("distinct", {"lg_k": 3}),
        ("distinct", {"lg_k": 12.5}),
        ("quantiles", {"at": []}),
        ("quantiles", {"at": [1.01]}),
        ("quantiles", {"at": [0.5], "relative_error": 0.0}),
        ("quantiles", {"at": [0.5], "relative_error": True}),
    ],
)
def test_an_option_it_cannot_have_is_refused(rule: str, options: dict[str, object]) -> None:
    with pytest.raises(AggregateOptionError, match=rf"agg\.{rule}: (at|lg_k|relative_error) cannot be"):
        getattr(agg, rule)("x", **options)
