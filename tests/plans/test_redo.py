"""By what windows and groups views are computed again: found in the plan, or declared."""

# One case a line reads better than one case on eight.
# ruff: noqa: E501, ISC004

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as sf

from penstock.plans.keeping import Redo
from tests.plans.views import analysed

pytestmark = pytest.mark.spark

PAID = """
SELECT o.window, o.n, p.total FROM (SELECT window(time, '1 hour') AS window, count(*) AS n FROM orders GROUP BY 1) o
LEFT JOIN (SELECT window(paid, '1 hour') AS window, sum(amount) AS total FROM payments GROUP BY 1) p
ON o.window = p.window
"""

BY_WINDOW: dict[str, tuple[Any, Any, dict[str, str], tuple[int, int, int]]] = {
    "an average": ("SELECT window, avg(bytes) AS n FROM access GROUP BY window(time, '1 hour')", ["window"],
                   {"access": "time"}, (3600, 3600, 0)),
    "arrival": ("SELECT window, avg(bytes) AS n FROM access GROUP BY window(_arrived, '1 hour')", ["window"],
                {"access": "_arrived"}, (3600, 3600, 0)),
    "sliding, with an offset": (
        lambda access: access.groupBy(sf.window("time", "10 minutes", "2 minutes", "1 minute"), "ip")
        .agg(sf.count("*").alias("n")).filter("n > 3"), ["window", "ip"], {"access": "time"}, (600, 120, 60)),
    "two topics": (PAID, ["window"], {"orders": "time", "payments": "paid"}, (3600, 3600, 0)),
    "over in a window": (
        lambda access: access.groupBy(sf.window("time", "1 hour"), "url").agg(sf.count("*").alias("n"))
        .withColumn("place", sf.rank().over(Window.partitionBy("window").orderBy(sf.desc("n")))).filter("place <= 3"),
        ["window", "url"], {"access": "time"}, (3600, 3600, 0)),
    "its start as key": (
        "SELECT window.start AS since, count(DISTINCT ip) AS n FROM access GROUP BY window(time, '1 day')", ["since"],
        {"access": "time"}, (86400, 86400, 0)),
    "grouped by its start": (
        "SELECT w.start AS since, avg(bytes) AS n FROM (SELECT *, window(time, '1 day') AS w FROM access) GROUP BY w.start",
        ["since"], {"access": "time"}, (86400, 86400, 0)),
    "a union with a table": (
        "SELECT window(time, '1 hour') AS window, avg(n) AS n FROM (SELECT time, bytes AS n FROM access UNION ALL "
        "SELECT TIMESTAMP '2026-01-01 12:00:00', id FROM customers) GROUP BY 1", ["window"], {"access": "time"}, (3600, 3600, 0)),
    "distinct rows of a window": (
        "SELECT DISTINCT window, ip FROM (SELECT window(time, '1 hour') AS window, ip FROM access)", ["window", "ip"],
        {"access": "time"}, (3600, 3600, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_WINDOW)
def test_a_window_in_the_key_is_redone(spark: SparkSession, name: str) -> None:
    function, key, times, seconds = BY_WINDOW[name]
    found = analysed(spark, function, key)
    assert found.keeping is not None, found.problems
    assert found.keeping.redo is not None
    assert (found.keeping.redo.by, found.keeping.redo.window) == ("window", key[0])
    assert found.keeping.redo.times == times
    assert found.keeping.redo.window_us == tuple(1_000_000 * each for each in seconds)


BY_GROUP: dict[str, tuple[Any, Any, dict[str, tuple[str, ...]], Any]] = {
    "sessions": (lambda access: access.groupBy("ip", sf.session_window("time", "5 minutes")).agg(sf.count("*").alias("n")),
                 ["ip", "session_window"], {"access": ("ip",)}, ("ip",)),
    "over": (lambda access: access.select("ip", "time", sf.lag("url").over(Window.partitionBy("ip").orderBy("time")).alias("n")),
             ["ip", "time"], {"access": ("ip",)}, ("ip",)),
    "two columns": (lambda access: access.groupBy("ip", "url").agg(sf.avg("bytes").alias("n")), ["ip", "url"],
                    {"access": ("ip", "url")}, ("ip", "url")),
    "the coarser of two": (
        "SELECT url, max(n) AS most FROM (SELECT url, ip, count(*) AS n FROM access GROUP BY url, ip) GROUP BY url",
        ["url"], {"access": ("url",)}, ("url",)),
    "a group that is not in the output": (
        "SELECT max(id) AS last, first(amount) AS amount FROM orders GROUP BY customer", ["last"],
        {"orders": ("customer",)}, None),
    "a join": ("SELECT o.id AS number, p.amount FROM orders o JOIN payments p ON p.order_id = o.id", ["number"],
               {"orders": ("id",), "payments": ("order_id",)}, ("number",)),
    "a full join": ("SELECT id, o.amount, p.amount AS paid FROM orders o FULL JOIN "
                    "(SELECT order_id AS id, amount FROM payments) p USING (id)", ["id"],
                    {"orders": ("id",), "payments": ("order_id",)}, ("id",)),
    "a self join": ("SELECT a.ip, a.time, b.url FROM access a JOIN access b ON a.ip = b.ip AND a.time < b.time",
                    ["ip", "time"], {"access": ("ip",)}, ("ip",)),
    "an anti join": ("SELECT * FROM orders o LEFT ANTI JOIN payments p ON o.id = p.order_id", ["id"],
                     {"orders": ("id",), "payments": ("order_id",)}, ("id",)),
    "not exists": ("SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id)", ["id"],
                   {"orders": ("id",), "payments": ("order_id",)}, ("id",)),
    "in": ("SELECT id FROM orders WHERE id IN (SELECT order_id FROM payments)", ["id"],
           {"orders": ("id",), "payments": ("order_id",)}, ("id",)),
    "in, or something else": (
        "SELECT id FROM orders WHERE amount > 3 AND (amount > 9 OR id IN (SELECT order_id FROM payments))", ["id"],
        {"orders": ("id",), "payments": ("order_id",)}, ("id",)),
    "a scalar subquery": ("SELECT id, (SELECT sum(p.amount) FROM payments p WHERE p.order_id = o.id) AS paid FROM orders o",
                          ["id"], {"orders": ("id",), "payments": ("order_id",)}, ("id",)),
    "lateral": ("SELECT o.id, t.paid FROM orders o, LATERAL (SELECT sum(p.amount) AS paid FROM payments p "
                "WHERE p.order_id = o.id) t", ["id"], {"orders": ("id",), "payments": ("order_id",)}, ("id",)),
    "a union": ("SELECT id, avg(amount) AS n FROM (SELECT id, amount FROM orders UNION ALL SELECT order_id, amount "
                "FROM payments) GROUP BY id", ["id"], {"orders": ("id",), "payments": ("order_id",)}, ("id",)),
    "a union with a table": (
        "SELECT id, avg(amount) AS n FROM (SELECT id, amount FROM orders UNION ALL SELECT id, 0 FROM customers) GROUP BY id",
        ["id"], {"orders": ("id",)}, ("id",)),
    "a union with literals": (
        "SELECT url, count(*) AS n FROM (SELECT '/' AS url UNION ALL SELECT url FROM access) GROUP BY url", ["url"],
        {"access": ("url",)}, ("url",)),
    "a view filled with zeros": (
        "SELECT url, sum(n) AS n FROM (SELECT url, hits AS n FROM hits UNION ALL SELECT name, 0 FROM customers) GROUP BY url",
        ["url"], {"hits": ("url",)}, ("url",)),
    "a subquery over a union that is pinned on all sides": (
        "SELECT id FROM orders o WHERE EXISTS (SELECT p.order_id FROM payments p WHERE p.order_id = o.id UNION ALL "
        "SELECT a.bytes FROM access a WHERE a.bytes = o.id)", ["id"],
        {"orders": ("id",), "payments": ("order_id",), "access": ("bytes",)}, ("id",)),
    "except": ("SELECT id FROM orders EXCEPT SELECT order_id FROM payments", ["id"],
               {"orders": ("id",), "payments": ("order_id",)}, ("id",)),
    "with": ("WITH spent AS (SELECT customer, avg(amount) AS n FROM orders GROUP BY customer) SELECT a.customer, a.n "
             "FROM spent a JOIN spent b ON a.customer = b.customer", ["customer"], {"orders": ("customer",)}, ("customer",)),
    "a table beside it": (
        "SELECT c.id, c.name, avg(o.amount) AS n FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.id, c.name",
        ["id", "name"], {"orders": ("customer",)}, ("id",)),
    "applyInPandas": (lambda access: access.groupBy("ip").applyInPandas(lambda rows: rows, access.schema), ["time"],
                      {"access": ("ip",)}, None),
    "a window and a view": (
        "SELECT h.window, h.url, h.hits, a.n FROM hits h JOIN (SELECT window(time, '1 minute') AS window, url, "
        "count(DISTINCT ip) AS n FROM access GROUP BY 1, url) a ON h.window = a.window AND h.url = a.url",
        ["window", "url"], {"hits": ("url", "window"), "access": ("url", "window(time, '1 minute')")}, ("url", "window")),
    "a view": (lambda hits: hits.groupBy("url").agg(sf.max("hits").alias("most")), ["url"], {"hits": ("url",)}, ("url",)),
    "a struct of a view": ("SELECT window.start AS since, max(hits) AS most FROM hits GROUP BY window.start", ["since"],
                           {"hits": ("window.start",)}, ("since",)),
    "a window of another column": (
        "SELECT window, url, avg(bytes) AS n FROM access GROUP BY window(time + INTERVAL 1 HOUR, '1 hour'), url",
        ["window", "url"], {"access": ("url",)}, ("url",)),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_GROUP)
def test_groups_that_never_meet_are_found(spark: SparkSession, name: str) -> None:
    function, key, groups, output = BY_GROUP[name]
    found = analysed(spark, function, key)
    assert found.keeping is not None, found.problems
    assert found.keeping.redo is not None, found.keeping
    shown = {each: dict(zip(range(9), columns, strict=False)) for each, columns in found.keeping.redo.groups.items()}
    assert shown == {each: dict(zip(range(9), columns, strict=False)) for each, columns in groups.items()}
    assert found.keeping.redo.output == output


NULL_COUNTS = {
    "not in": "SELECT id FROM orders WHERE id NOT IN (SELECT order_id FROM payments)",
    "de morgan": "SELECT id FROM orders WHERE NOT (id IN (SELECT order_id FROM payments) AND amount > 0)",
    "compared": "SELECT id FROM orders WHERE (id IN (SELECT order_id FROM payments)) <=> false",
    "in an or below not": "SELECT id FROM orders WHERE amount > 0 AND NOT (amount < 9 OR id IN (SELECT order_id FROM payments))",
    "is null": "SELECT id FROM orders WHERE (id IN (SELECT order_id FROM payments)) IS NULL",
}


@pytest.mark.parametrize("name", NULL_COUNTS)
def test_in_is_refused_where_null_is_not_the_same_as_false(spark: SparkSession, name: str) -> None:
    found = analysed(spark, NULL_COUNTS[name], ["id"])
    assert found.keeping is None, found.keeping
    assert [("one NULL in the subquery" in each.message, "NOT EXISTS" in each.hint) for each in found.problems] == [
        (True, True)
    ]


MEETING: dict[str, tuple[Any, Any, str]] = {
    "a join by a range": ("SELECT o.id, p.amount FROM orders o JOIN payments p ON p.paid > o.time", ["id"], "does not equate"),
    "a self join by two columns": ("SELECT a.id FROM orders a JOIN orders b ON a.id = b.customer", ["id"], "two different"),
    "windows that follow one another": (
        "SELECT a.since, b.n FROM (SELECT window.start AS since, count(*) AS n FROM access GROUP BY window(time, '1 hour')) a "
        "JOIN (SELECT window.end AS until, count(*) AS n FROM access GROUP BY window(time, '1 hour')) b ON a.since = b.until",
        ["since"], "does not equate"),
    "over everything": (lambda access: access.select("ip", sf.rank().over(Window.orderBy("bytes")).alias("n")), ["ip"], "OVER (...) is not partitioned"),
    "two aggregations apart": (
        "SELECT url, max(n) AS n FROM (SELECT ip, any_value(url) AS url, count(*) AS n FROM access GROUP BY ip) GROUP BY url",
        ["url"], "it aggregates by url"),
    "over what an outer join adds": (
        "SELECT p.order_id, count(DISTINCT o.customer) AS n FROM orders o LEFT JOIN payments p ON o.id = p.order_id "
        "GROUP BY p.order_id", ["order_id"], "it aggregates by order_id"),
    "a subquery over all": ("SELECT id, (SELECT max(amount) FROM payments) AS m FROM orders", ["id"], "does not equate"),
    "rollup": ("SELECT ip, url, avg(bytes) AS n FROM access GROUP BY ROLLUP (ip, url)", ["ip", "url"], "it aggregates by"),
    "a subquery in a table that is joined": (
        "SELECT o.id, avg(o.amount) AS n FROM orders o JOIN (SELECT * FROM customers c WHERE EXISTS "
        "(SELECT 1 FROM payments p WHERE p.payer = c.id)) c ON o.customer = c.id GROUP BY o.id", ["id"], "beside rows that do not"),
    "a subquery over a union of which one side is pinned": (
        "SELECT id FROM orders o WHERE EXISTS (SELECT order_id FROM payments p UNION ALL "
        "SELECT id FROM access_ids a WHERE a.id = o.id)".replace("access_ids", "(SELECT bytes AS id FROM access)"), ["id"],
        "a subquery does not equate"),
    "a table that keeps its rows": (
        "SELECT c.id, avg(o.amount) AS n FROM customers c LEFT JOIN orders o ON o.customer = c.id GROUP BY c.id", ["id"],
        "rows of the static side"),
}  # fmt: skip


@pytest.mark.parametrize("name", MEETING)
def test_groups_that_meet_are_not_taken_for_groups(spark: SparkSession, name: str) -> None:
    function, key, why = MEETING[name]
    found = analysed(spark, function, key)
    assert found.keeping is None, found.keeping
    assert [why in each.message for each in found.problems] == [True], found.problems


def test_within_declares_groups(spark: SparkSession) -> None:
    by_range = "SELECT o.id, p.amount FROM orders o JOIN payments p ON p.paid > o.time"
    within = {"orders": ("customer",), "payments": ("CAST(payer AS bigint)",)}
    found = analysed(spark, by_range, ["id"], within=within)
    assert found.keeping is not None
    assert found.keeping.redo == Redo("group", None, within, None)
    assert set(found.needed["payments"]) == {"paid", "payer", "amount"}
    same = analysed(spark, lambda access: access.dropDuplicates(["ip"]), ["ip"], within={"*": ("ip",)})
    assert same.keeping is not None
    assert same.keeping.redo == Redo("group", None, {"access": ("ip",)}, ("ip",))


def test_a_view_over_views_may_be_whole(spark: SparkSession) -> None:
    top = analysed(spark, lambda hits: hits.orderBy(sf.desc("hits"), "window", "url").limit(5), ["window", "url"])
    assert top.keeping is not None
    assert (top.keeping.how, top.keeping.redo, top.keeping.fold) == ("whole", None, None)
