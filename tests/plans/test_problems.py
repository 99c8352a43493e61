"""What `penstock check` finds in one view: each with the user's line, what is wrong and what to do."""

# One case a line reads better than one case on eight.
# ruff: noqa: E501, DTZ011

from __future__ import annotations

import random
import time
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.plans.replay import NOT_REPLAYABLE
from tests.plans.views import analysed

pytestmark = pytest.mark.spark


NUMBERS = iter(range(1_000_000))


def counts(frame: DataFrame) -> DataFrame:
    return frame.groupBy("url").agg(sf.count("*").alias("n"))


def access_counts(access: DataFrame) -> DataFrame:
    return counts(access)


def since(access: DataFrame) -> DataFrame:
    return access.filter(sf.col("time") > sf.lit(datetime.now(UTC)))


PROBLEMS: dict[str, tuple[Any, Any, dict[str, Any], str, str]] = {
    "raises": (lambda access: access.select("nothing"), None, {}, "raises AnalysisException", ""),
    "raises in Python": (lambda access: access / 2, None, {}, "raises TypeError", ""),
    "sql": ("SELECT nothing FROM access", None, {}, "the SQL is refused", ""),
    "no frame": (lambda access: 5, None, {}, "", ""),
    "no such key": (lambda access: access, ["statsu"], {}, "key= names 'statsu'", "did you mean 'status'?"),
    "key of the log": (lambda access: access, ["_offset"], {}, "'_offset', which a view does not keep", "another name"),
    "two columns of one name": (lambda access: access.select("ip", sf.col("url").alias("ip")), None, {}, "two columns", "alias"),
    "no key": (access_counts, None, {}, "has no key", "key=['url']"),
    "no key for a union with a table": (
        lambda orders, customers: (
            orders.select("id")
            .union(customers.select("id"))
        ), None, {}, "UNION with the static table 'customers'", "to a second view over this one"),
    "no key for a join": ("SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id", None, {}, "only row-wise", "key="),
    "grouping column not in the key": (
        lambda access: access.groupBy("url", "ip").agg(sf.count("*").alias("n")), ["url"], {}, "rows can repeat", "'ip'"),
    "grouping column not in the output": (
        "SELECT url, count(*) AS n FROM access GROUP BY url, ip", ["url"], {}, "which is not in the output", "select it"),
    "rollup": (lambda access: access.rollup("url").agg(sf.count("*").alias("n")), ["url"], {}, "rollup", "one view for each"),
    "rand": (lambda access: access.withColumn("r", sf.rand()), None, {}, "rand() gives another answer", "hash"),
    "randn": (lambda access: access.filter(sf.randn() > 0), None, {}, "randn()", "hash"),
    "uuid": ("SELECT uuid() AS id FROM access", None, {}, "uuid()", "hash"),
    "shuffle": (lambda orders: orders.select(sf.shuffle("tags")), None, {}, "shuffle()", "hash"),
    "ids": (lambda access: access.select(sf.monotonically_increasing_id()), None, {}, "monotonically_increasing_id()", "_offset"),
    "partition": (lambda access: access.select(sf.spark_partition_id()), None, {}, "spark_partition_id()", "_partition"),
    "file": (lambda access: access.select(sf.input_file_name()), None, {}, "input_file_name()", "_offset"),
    "now": ("SELECT * FROM access WHERE time > now() - INTERVAL 1 HOUR", None, {}, "now()", "_arrived"),
    "today": (lambda access: access.filter(sf.to_date("time") == sf.current_date()), None, {}, "current_date()", "_arrived"),
    "unix_timestamp": ("SELECT unix_timestamp() AS t FROM access", None, {}, "current_timestamp()", "_arrived"),
    "localtimestamp": (lambda access: access.select(sf.localtimestamp()), None, {}, "localtimestamp()", "_arrived"),
    "clock in a subquery": (
        "SELECT * FROM access a WHERE EXISTS (SELECT 1 FROM orders o WHERE o.time > current_timestamp())", ["ip"], {},
        "current_timestamp()", "_arrived"),
    "limit without an order": (lambda access: access.limit(3), ["ip"], {"kept": "whole"}, "limit returns any", "_partition, _offset"),
    "limit with ties": (
        lambda hits: hits.orderBy(sf.desc("hits")).limit(3), ["window"], {}, "limit returns any of several rows", "ORDER BY"),
    "limit with ties above an aggregation": (
        lambda access: (
            counts(access).withColumnRenamed("url", "page")
            .orderBy("n")
            .limit(3)
        ), ["page"], {"kept": "whole"}, "limit returns any of several rows", "such as page"),
    "limit with ties in a subquery": (
        "SELECT id, (SELECT amount FROM payments p WHERE p.order_id = o.id ORDER BY paid LIMIT 1) AS m FROM orders o", ["id"],
        {"kept": "whole"}, "limit returns any of several rows", "ORDER BY"),
    "a collation in a cast": (
        "SELECT CAST(url AS STRING COLLATE UTF8_LCASE) AS u, count(*) AS n FROM access GROUP BY 1", ["u"], {}, "whose collation treats",
        "lower("),
    "a collation below": (
        lambda access: access.select(sf.collate("url", "UTF8_LCASE").alias("u")).distinct(), ["u"], {"kept": "whole"},
        "it groups by u, whose collation", "lower("),
    "an interval": (
        "SELECT ip, make_interval(1) AS i FROM access", ["ip"], {}, "'i' has the type interval, which cannot be kept", "cast"),
    "a struct with two fields of one name": (
        lambda orders: orders.select("id", sf.arrays_zip("tags", "tags").alias("z")), ["id"], {}, "'z' has the type array<struct",
        "names of their own"),
    "sample": (lambda access: access.sample(0.1), None, {}, "sample()", "xxhash64"),
    "datetime.now": (since, None, {}, "calls datetime.now()", "_arrived"),
    "date.today": (lambda access: access.filter(sf.col("time") > sf.lit(date.today())), None, {}, "date.today()", "_arrived"),
    "time.time": (lambda access: access.filter(sf.lit(time.time()) > 3), None, {}, "time.time()", "_arrived"),
    "random": (lambda access: access.filter(sf.lit(random.randint(0, 9)) > 3), None, {}, "random.randint()", "_arrived"),
    "other plans": (lambda access: access.select(sf.lit(next(NUMBERS)).alias("n")), None, {}, "builds different plans", "arguments only"),
    "withWatermark": (
        lambda access: counts(access.withWatermark("time", "1 minute")), ["url"], {}, "withWatermark", "set lateness="),
    "count": (lambda access: access.withColumn("all", sf.lit(access.count())), None, {}, "calls count()", "in the plan"),
    "collect": (lambda access: access.filter(sf.lit(len(access.collect())) == 0), None, {}, "calls collect()", "in the plan"),
    "toPandas": (lambda access: access.filter(sf.lit(len(access.toPandas())) == 0), None, {}, "calls toPandas()", ""),
    "pivot": (lambda access: access.groupBy("url").pivot("status").count(), ["url"], {}, "pivot without values", "name the"),
    "undeclared": (lambda access: access.sparkSession.read.text("/etc/hostname"), None, {}, "no input of the view", "app.table"),
    "merge on a distinct count": (
        "SELECT url, count(DISTINCT ip) AS users FROM access GROUP BY url", ["url"], {"merge": {"users": "sum"}},
        "merge={'users': 'sum'} does not fit count(DISTINCT ip)", "agg.distinct('ip')"),
    "merge on avg": ("SELECT url, avg(bytes) AS n FROM access GROUP BY url", ["url"], {"merge": {"n": "sum"}},
                     "does not fit avg(bytes)", "agg.mean('bytes')"),
    "merge inside": ("SELECT url, round(avg(bytes)) AS n FROM access GROUP BY url", ["url"], {"merge": {"n": "sum"}},
                     "does not fit avg(bytes)", "agg.mean"),
    "merge on first": ("SELECT url, first(ip) AS n FROM access GROUP BY url", ["url"], {"merge": {"n": "max"}},
                       "does not fit first(ip)", ""),
    "merge by another rule": ("SELECT url, max(ip) AS n FROM access GROUP BY url", ["url"], {"merge": {"n": "min"}},
                              "does not fit max(ip)", ""),
    "merge of nothing": (lambda access: access, ["ip"], {"merge": {"bytes": "sum"}}, "the view is row-wise", ""),
    "merge of the key": (access_counts, ["url"], {"merge": {"url": "max"}}, "part of the key", ""),
    "merge of no column": (access_counts, ["url"], {"merge": {"m": "sum"}}, "merge= names 'm'", "n"),
    "merge with HAVING": (lambda access: counts(access).filter("n > 3"), ["url"], {"merge": {"n": "sum"}},
                          "cannot be folded: HAVING", ""),
    "kept=redo": (lambda access: access.filter("ok"), ["ip"], {"kept": "redo"}, 'kept="redo"', "within="),
    "within an unknown input": (lambda access: access.distinct(), ["ip"], {"within": {"acces": ("ip",), "*": ("ip",)}},
                                "'acces', which is not an input", "'access'"),
    "within overlapping groups": (lambda access: access.distinct(), ["ip"], {"within": {"*": ("window(time, '2 minutes', '1 minute')",)}},
                                  "does not give each row of the input 'access' one group", "must not overlap"),
    "within an unknown column": (lambda access: access.distinct(), ["ip"], {"within": {"*": ("ipp",)}}, "'ipp' does not fit", "'ip'"),
    "within one input of two": ("SELECT o.id FROM orders o JOIN payments p ON p.paid > o.time", ["id"],
                                {"within": {"orders": ("id",)}}, "nothing of the input 'payments'", "within="),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_problem_is_found_with_its_line(spark: SparkSession, name: str) -> None:
    function, key, options, message, hint = PROBLEMS[name]
    found = analysed(spark, function, key, **options)
    assert found.keeping is None
    assert [(message in each.message, hint in each.hint) for each in found.problems] == [(True, True)], found.problems
    if not isinstance(function, str):
        assert found.problems[0].place.file == __file__
        assert found.problems[0].place.line >= function.__code__.co_firstlineno


def test_spark_itself_is_asked_what_is_deterministic(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a function of a newer Spark, which nobody has put on the list yet."""
    monkeypatch.delitem(NOT_REPLAYABLE, "Rand")
    within = "SELECT url, sum(n) AS n FROM (SELECT url, abs(rand(3)) AS n FROM access) GROUP BY url"
    subquery = "SELECT id FROM orders WHERE amount > (SELECT sum(id) FROM customers WHERE rand() > 0.5)"
    for sql, key in ((within, ["url"]), (subquery, ["id"])):
        (problem,) = analysed(spark, sql, key).problems
        assert problem.message.startswith("rand() gives another answer")
    found = analysed(spark, "SELECT url, first(ip) AS ip FROM access GROUP BY url", ["url"])
    assert found.problems == (), "aggregates that depend on the order of rows are left to verify"


def test_the_line_is_the_one_that_did_it(spark: SparkSession) -> None:
    (problem,) = analysed(spark, since).problems
    assert problem.place.text == 'return access.filter(sf.col("time") > sf.lit(datetime.now(UTC)))'


def test_a_rule_of_the_user_is_trusted_where_nothing_speaks_against_it(spark: SparkSession) -> None:
    for aggregate, rule in (("sum(bytes) + sum(status)", "sum"), ("count(*)", "sum"), ("max(DISTINCT ip)", "max")):
        found = analysed(spark, f"SELECT url, {aggregate} AS n FROM access GROUP BY url", ["url"], merge={"n": rule})
        assert found.keeping is not None, found.problems
        assert found.keeping.fold is not None
        assert [each.rule for each in found.keeping.fold.columns] == [rule]
