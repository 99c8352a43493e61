"""The whitelist of fold, line by line; and everything that must not pass it, with the reason in the user's words."""

# One case a line reads better than one case on eight.
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DoubleType, IntegerType

from penstock import agg
from penstock.plans.row_wise import ROW_WISE
from penstock.plans.whitelist import AGGREGATES, INSTEAD
from tests.plans.views import analysed

pytestmark = pytest.mark.spark

PER_MINUTE = ("window", "url")


def per_minute(*columns: str) -> Callable[[DataFrame], DataFrame]:
    return lambda access: access.groupBy(sf.window("time", "1 minute"), "url").agg(*map(sf.expr, columns))


def first_three(access: DataFrame) -> DataFrame:
    return access.orderBy("_arrived", "_partition", "_offset").limit(3)


def by_url(*columns: str) -> Callable[[DataFrame], DataFrame]:
    return lambda access: access.groupBy("url").agg(*map(sf.expr, columns))


@sf.udf(IntegerType())
def one_row(value: int) -> int:
    return value + 1


@pandas_udf(DoubleType())  # type: ignore[call-overload, untyped-decorator]
def batch(values: pd.Series) -> pd.Series:
    return values - values.mean()


@pandas_udf(DoubleType())  # type: ignore[call-overload, untyped-decorator]
def spread(values: pd.Series) -> float:
    return float(values.max() - values.min())


ROWS: dict[str, Any] = {
    "project": lambda access: access.select("ip", (sf.col("status") + 1).alias("n"), sf.upper("url").alias("u")),
    "filter": lambda access: access.filter("status >= 400"),
    "generate": lambda orders: orders.select("id", sf.explode("tags").alias("tag")),
    "union": lambda orders, payments: orders.select("amount").unionByName(payments.select("amount")),
    "udf": lambda access: access.select(one_row("status").alias("n")),
    "sql": "SELECT ip, a.url FROM (SELECT * FROM access WHERE status = 500) a",
    "with": "WITH bad AS (SELECT * FROM access WHERE status = 500) SELECT ip, url FROM bad",
    "between": lambda access: access.filter(sf.col("status").between(200, 299)),
    "between and nullif in sql": "SELECT ip, nullif(status, 200) AS n FROM access WHERE status BETWEEN 200 AND 299",
    "collate": lambda access: access.filter(sf.collate("url", "UTF8_LCASE") == "/a").select("ip"),
    "window_time": lambda access: access.withColumn("w", sf.window("time", "1 hour")).select(
        sf.window_time("w").alias("t")
    ),
    "inner join": lambda orders, customers: orders.join(customers, orders.customer == customers.id).select("name"),
    "cross join": lambda orders, customers: orders.crossJoin(customers).select("name", "amount"),
    "left join": lambda orders, customers: orders.join(customers.select("id"), "id", "left").select("id"),
    "semi join": lambda orders, customers: orders.join(customers, "id", "semi"),
    "anti join": lambda orders, customers: orders.join(customers, "id", "anti"),
    "right join": lambda orders, customers: customers.join(orders, "id", "right").select("id"),
}


@pytest.mark.parametrize("name", ROWS)
def test_row_wise_functions_are_folded(spark: SparkSession, name: str) -> None:
    found = analysed(spark, ROWS[name])
    assert (found.keeping and found.keeping.fold and found.keeping.fold.kind) == "rows", found
    assert found.keeping is not None
    assert found.keeping.fold is not None
    assert not found.keeping.fold.undo


MERGED: dict[str, tuple[Any, Any, dict[str, str]]] = {
    "count": (per_minute("count(*) AS n", "count(ip) AS m"), PER_MINUTE, {"n": "count", "m": "count"}),
    "count of some": (by_url("count(*) FILTER (WHERE status = 500) AS n"), ["url"], {"n": "count"}),
    "count_if": (by_url("count_if(status > 400) AS n"), ["url"], {"n": "count"}),
    "sum": (by_url("sum(bytes) AS n", "sum(price) AS p", "sum(seconds) AS s"), ["url"],
            {"n": "sum", "p": "sum", "s": "sum"}),
    "min, max": (by_url("min(ip) AS n", "max(time) AS m"), ["url"], {"n": "min", "m": "max"}),
    "every, any": (by_url("every(ok) AS n", "bool_or(ok) AS m"), ["url"], {"n": "every", "m": "any"}),
    "bits": (by_url("bit_and(bytes) AS a", "bit_or(bytes) AS o", "bit_xor(bytes) AS x"), ["url"],
             {"a": "bit_and", "o": "bit_or", "x": "bit_xor"}),
    "one row": (lambda access: access.agg(sf.count("*").alias("n")), [], {"n": "count"}),
    "sliding, with an offset": (
        lambda access: access.groupBy(sf.window("time", "10 minutes", "2 minutes", "1 minute")).agg(sf.count("*").alias("n")),
        ["window"], {"n": "count"}),
    "a day": (lambda access: access.groupBy(sf.window("time", "1 day", None, "-2 hours")).agg(sf.max("ip").alias("n")),
              ["window"], {"n": "max"}),
    "window.start": (
        lambda access: per_minute("count(*) AS n")(access).select(sf.col("window.start").alias("since"), "url", "n"),
        ["since", "url"], {"n": "count"}),
    "start and end": (
        "SELECT w.start, w.end, n FROM (SELECT window(time, '1 hour') AS w, count(*) AS n FROM access GROUP BY 1)",
        ["start"], {"end": "max", "n": "count"}),
    "renamed": (lambda access: by_url("count(*) AS n")(access).withColumnsRenamed({"url": "page", "n": "hits"}),
                ["page"], {"hits": "count"}),
    "an expression as key": (lambda access: access.groupBy(sf.upper("url").alias("u")).agg(sf.count("*").alias("n")),
                             ["u"], {"n": "count"}),
    "a state of agg": (
        by_url("named_struct('__penstock_mean', struct(sum(seconds) AS s, count(seconds) AS n)) AS m"),
        ["url"], {"m": "mean"}),
    "with a table": (
        lambda orders, customers: orders.join(customers, orders.customer == customers.id)
        .groupBy("country").agg(sf.sum("amount").alias("n")), ["country"], {"n": "sum"}),
}  # fmt: skip


@pytest.mark.parametrize("name", MERGED)
def test_one_aggregation_by_the_key_is_folded(spark: SparkSession, name: str) -> None:
    function, key, rules = MERGED[name]
    found = analysed(spark, function, key)
    assert found.keeping is not None
    assert found.keeping.fold is not None, found
    assert {each.name: each.rule for each in found.keeping.fold.columns} == rules


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "having": (lambda access: by_url("count(*) AS n")(access).filter("n > 3"), ["url"], "HAVING n > 3"),
    "avg": (by_url("avg(seconds) AS n"), ["url"], "avg(seconds) does not merge"),
    "sum + 1": (by_url("sum(bytes) + 1 AS n"), ["url"], "sum(bytes) + 1 is computed from aggregates"),
    "computed above": (lambda access: by_url("sum(bytes) AS n")(access).select("url", (sf.col("n") + 1).alias("m")),
                       ["url"], "n + 1 is computed from aggregates"),
    "udf above": (lambda access: by_url("max(status) AS n")(access).select("url", one_row("n").alias("m")),
                  ["url"], "one_row(n) is computed from aggregates"),
    "count distinct": (by_url("count(DISTINCT ip) AS n"), ["url"], "count(DISTINCT ip) does not merge"),
    "sum distinct": (by_url("sum(DISTINCT status) AS n"), ["url"], "sum(DISTINCT status) does not merge"),
    "try_sum": (by_url("sum(bytes) AS a", "try_sum(bytes) AS n"), ["url"], "try_sum(bytes) forgets"),
    "first": (by_url("first(ip) AS n"), ["url"], "first(ip) does not merge"),
    "any_value": (by_url("any_value(ip) AS n"), ["url"], "any_value(ip) does not merge"),
    "max_by": (by_url("max_by(ip, time) AS n"), ["url"], "max_by(ip, time) does not merge"),
    "mode": (by_url("mode(ip) AS n"), ["url"], "mode(ip) does not merge"),
    "stddev": (by_url("stddev(seconds) AS n"), ["url"], "stddev(seconds) does not merge"),
    "collect_list": (by_url("collect_list(ip) AS n"), ["url"], "collect_list(ip) does not merge"),
    "approx_count_distinct": (by_url("approx_count_distinct(ip) AS n"), ["url"], "approx_count_distinct(ip) does not"),
    "percentile": (by_url("percentile(seconds, 0.5) AS n"), ["url"], "percentile(seconds"),
    "grouped pandas udf": (lambda access: access.groupBy("url").agg(spread("seconds").alias("n")), ["url"], "spread(seconds) does not merge"),
    "max of a struct": (by_url("max(struct(time, ip)) AS n"), ["url"], "compares values of type struct"),
    "max of an array": (lambda orders: orders.groupBy("id").agg(sf.max("tags").alias("n")), ["id"], "type array<string>"),
    "session window": (
        lambda access: access.groupBy("ip", sf.session_window("time", "5 minutes")).agg(sf.count("*").alias("n")),
        ["ip", "session_window"], "a session window joins rows"),
    "dropDuplicates": (lambda access: access.dropDuplicates(["ip"]), ["ip"], "dropDuplicates compares"),
    "distinct below": (
        lambda access: access.select("ip", "url").distinct().groupBy("url").agg(sf.count("*").alias("n")),
        ["url"], "dropDuplicates compares"),
    "aggregation below": (
        lambda access: access.groupBy("url", "ip").agg(sf.count("*").alias("n")).groupBy("url").agg(sf.max("n").alias("m")),
        ["url"], "aggregates below"),
    "over": (lambda access: access.select("ip", sf.row_number().over(Window.partitionBy("ip").orderBy("time")).alias("n")),
             ["ip", "n"], "OVER looks at the rows beside"),
    "over above": (
        lambda access: per_minute("count(*) AS n")(access)
        .withColumn("share", sf.col("n") / sf.sum("n").over(Window.partitionBy("window"))), PER_MINUTE, "is computed from"),
    "exists": ("SELECT * FROM access a WHERE EXISTS (SELECT 1 FROM orders o WHERE o.time = a.time)", ["ip"], "a subquery"),
    "scalar subquery": ("SELECT ip, (SELECT max(b.status) FROM access b WHERE b.ip = a.ip) AS m FROM access a", ["ip"],
                        "a subquery"),
    "self join": (
        lambda access: access.alias("a").join(access.alias("b"), "ip").select("ip", "a.url"), ["ip"], "two inputs that both"),
    "left join of a table": (
        lambda customers, orders: customers.join(orders, "id", "left").select("id", "amount").filter("id > 0"),
        ["id"], "LeftOuter join with the changing input on the right"),
    "union with a table": (
        "SELECT id, count(*) AS n FROM (SELECT id FROM orders UNION ALL SELECT id FROM customers) GROUP BY id", ["id"],
        "UNION with the static table 'customers'"),
    "union with literals": (
        "SELECT url, count(*) AS n FROM (SELECT url FROM access UNION ALL VALUES ('/')) GROUP BY url", ["url"],
        "UNION with rows that the view's function writes down"),
    "row-wise union": (
        lambda orders, customers: orders.select("id").union(customers.select("id")), ["id"], "UNION with the static"),
    "pivot": (
        lambda access: access.groupBy("url").pivot("status", [200, 500]).agg(sf.sum("bytes")), ["url"], "is computed from"),
    "applyInPandas": (
        lambda access: access.groupBy("ip").applyInPandas(lambda rows: rows, access.schema), ["ip"], "applyInPandas"),
    "non-key grouping": (per_minute("count(*) AS n"), ["window", "url", "n"], "'n' in the key is not one"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_merge_is_not_folded(spark: SparkSession, name: str) -> None:
    function, key, why = REFUSED[name]
    found = analysed(spark, function, key, kept="fold")
    assert found.keeping is None
    assert [why in each.message for each in found.problems] == [True], found.problems


NO_GROUPS: dict[str, tuple[Any, Any, str]] = {
    "limit": (first_three, ["ip"], "limit picks rows"),
    "limit below": (lambda access: by_url("avg(bytes) AS n")(first_three(access)), ["url"], "limit picks rows"),
    "pandas udf that looks at its batch": (
        lambda access: access.select("ip", batch("seconds").alias("d")), ["ip"], "batch() is a pandas or Arrow UDF"),
    "pandas udf below": (
        lambda access: by_url("sum(d) AS n")(access.select("url", batch("seconds").alias("d"))), ["url"],
        "batch() is a pandas or Arrow UDF"),
    "mapInPandas": (lambda access: access.mapInPandas(lambda rows: rows, access.schema), ["ip"], "mapInPandas sees"),
    "orderBy": (lambda access: access.orderBy("time"), ["ip"], "leave out orderBy"),
    "lag over windows": (
        lambda access: per_minute("count(*) AS n")(access).select(
            "window", "url", "n", sf.lag("n").over(Window.orderBy("window")).alias("before")), PER_MINUTE, "lag("),
    "average of all": (lambda access: access.agg(sf.avg("seconds").alias("n")), [], "write agg.mean('seconds')"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_GROUPS)
def test_what_needs_all_rows_of_a_topic_is_a_problem(spark: SparkSession, name: str) -> None:
    function, key, why = NO_GROUPS[name]
    found = analysed(spark, function, key)
    assert found.keeping is None
    assert [why in each.message + each.hint for each in found.problems] == [True], found.problems
    whole = analysed(spark, function, key, kept="whole")
    assert whole.keeping is not None
    assert whole.keeping.how == "whole", whole.problems


def test_over_a_view_only_what_can_be_taken_back_is_folded(spark: SparkSession) -> None:
    folded = analysed(spark, "SELECT owner, count(*) AS n, sum(balance) AS b FROM balances GROUP BY owner", ["owner"])
    assert folded.keeping is not None
    assert folded.keeping.fold is not None
    assert folded.keeping.fold.undo
    rows = analysed(spark, lambda balances: balances.filter("balance < 0"), ["account"])
    assert rows.keeping is not None
    assert rows.keeping.fold is not None
    assert rows.keeping.fold.undo
    for aggregate in ("max(balance)", "sum(CAST(balance AS double))", "bit_xor(account)"):
        found = analysed(spark, f"SELECT owner, {aggregate} AS n FROM balances GROUP BY owner", ["owner"])
        assert found.keeping is not None
        assert found.keeping.redo is not None, aggregate
        assert found.keeping.redo.groups == {"balances": ("owner",)}
        assert "cannot take a row back" in found.keeping.why


def test_advice_names_what_merges(spark: SparkSession) -> None:
    for aggregate, instead in (
        ("avg(seconds)", "mean"),
        ("count(DISTINCT ip)", "distinct"),
        ("median(seconds)", "quantiles"),
    ):
        found = analysed(spark, f"SELECT url, {aggregate} AS n FROM access GROUP BY url", ["url"])
        assert found.keeping is not None
        assert found.keeping.how == "redo"
        assert f"write the view as a function with agg.{instead}(" in str(found.keeping.advice), aggregate


def test_advice_is_given_only_if_the_view_is_folded_once_it_is_taken(spark: SparkSession) -> None:
    both = analysed(spark, by_url("avg(seconds) AS a", "count(DISTINCT ip) AS b", "count(*) AS c"), ["url"])
    assert both.keeping is not None
    assert both.keeping.advice == "write agg.mean('seconds') and agg.distinct('ip') and the view is folded"
    taken = analysed(
        spark,
        lambda access: access.groupBy("url").agg(
            agg.mean("seconds").alias("a"), agg.distinct("ip").alias("b"), sf.count("*").alias("c")
        ),
        ["url"],
    )
    assert taken.keeping is not None
    assert taken.keeping.how == "fold"
    for columns in (
        ("avg(seconds) AS a", "max_by(ip, time) AS b"),
        ("avg(seconds) FILTER (WHERE status = 200) AS a",),
        ("avg(DISTINCT seconds) AS a",),
        ("count(DISTINCT ip, status) AS a",),
        ("avg(ip) AS a",),
        ("round(avg(seconds)) AS a",),
        ("avg(seconds + 1) AS a",),
    ):
        other = analysed(spark, by_url(*columns), ["url"])
        assert other.keeping is not None, other.problems
        assert other.keeping.how == "redo"
        assert other.keeping.advice is None, columns
    over_view = analysed(spark, "SELECT owner, avg(balance) AS n FROM balances GROUP BY owner", ["owner"])
    assert over_view.keeping is not None
    assert over_view.keeping.advice is None


def test_no_clock_and_no_chance_is_on_the_list(spark: SparkSession) -> None:
    """Checked against Spark itself, so that a newer one cannot slip something in."""
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    package = "org.apache.spark.sql.catalyst.expressions"
    chance = loader.loadClass(f"{package}.Nondeterministic")
    aggregate = loader.loadClass(f"{package}.aggregate.AggregateFunction")
    for name in sorted(ROW_WISE):
        for place in (package, f"{package}.xml", f"{package}.variant"):
            try:
                found = loader.loadClass(f"{place}.{name}")
            except Exception:  # In another package.
                continue
            assert not chance.isAssignableFrom(found), name
            assert not aggregate.isAssignableFrom(found), name
    for name in (*AGGREGATES, *INSTEAD):
        assert loader.loadClass(f"{package}.aggregate.{name}"), name
