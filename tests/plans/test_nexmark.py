"""The 13 Nexmark queries of the cases: how each is kept."""

# One case a line reads better than one case on eight.
# ruff: noqa: E501, ISC004

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.definition import ViewSpec
from penstock.pipeline.place import Place
from penstock.plans.keeping import Input, Keeping, analyse
from penstock.spark.private.stand_in import stand_in
from tests.plans.views import OWN

pytestmark = pytest.mark.spark

TOPICS = {
    "auction": "id bigint, item_name string, description string, initial_bid bigint, reserve bigint, date_time timestamp, "
    "expires timestamp, seller bigint, category bigint, extra string",
    "bid": "auction bigint, bidder bigint, price bigint, channel string, url string, date_time timestamp, extra string",
    "person": "id bigint, name string, email_address string, credit_card string, city string, state string, "
    "date_time timestamp, extra string",
}

HOP = "SELECT auction, count(*) AS num, window.start AS since FROM bid GROUP BY window(date_time, '10 seconds', '2 seconds'), auction"
IN_TEN = "SELECT {columns}, window.start AS since, window.end AS until FROM {topic} GROUP BY window(date_time, '10 seconds'), {columns}"

QUERIES: dict[str, tuple[str, Any]] = {
    "q0": ("SELECT auction, bidder, price, date_time FROM bid", None),
    "q2": ("SELECT auction, price FROM bid WHERE auction = 1007 OR auction = 1020 OR auction = 2001", None),
    "q3": ("SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id "
           "WHERE A.category = 10 AND (P.state = 'or' OR P.state = 'id' OR P.state = 'ca')", ["id"]),
    "q5": (f"SELECT a.auction, a.num, a.since FROM ({HOP}) a JOIN "
           f"(SELECT max(num) AS most, since FROM ({HOP}) GROUP BY since) m ON a.since = m.since AND a.num >= m.most",
           ["auction", "since"]),
    "q8": (f"SELECT p.id, p.name, p.since FROM ({IN_TEN.format(columns='id, name', topic='person')}) p JOIN "
           f"({IN_TEN.format(columns='seller', topic='auction')}) a "
           "ON p.id = a.seller AND p.since = a.since AND p.until = a.until", ["id", "since"]),
    "q9": ("SELECT id, item_name, seller, auction, bidder, price, bid_date_time FROM (SELECT A.*, B.auction, B.bidder, "
           "B.price, B.date_time AS bid_date_time, ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.date_time) "
           "AS rownum FROM auction A, bid B WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires) "
           "WHERE rownum <= 1", ["id"]),
    "q14": ("SELECT auction, bidder, 0.908 * price AS price, CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 "
            "THEN 'dayTime' ELSE 'otherTime' END AS bidTimeType, length(extra) - length(replace(extra, 'c', '')) AS c_counts "
            "FROM bid WHERE 0.908 * price > 1000000", None),
    "q15": ("SELECT date_format(date_time, 'yyyy-MM-dd') AS day, count(*) AS total_bids, "
            "count(*) FILTER (WHERE price < 10000) AS rank1_bids, count(DISTINCT bidder) AS total_bidders "
            "FROM bid GROUP BY date_format(date_time, 'yyyy-MM-dd')", ["day"]),
    "q18": ("SELECT auction, bidder, price, channel, url, date_time, extra FROM (SELECT *, ROW_NUMBER() OVER "
            "(PARTITION BY bidder, auction ORDER BY date_time DESC, extra) AS rank_number FROM bid) WHERE rank_number <= 1",
            ["bidder", "auction"]),
    "q20": ("SELECT auction, bidder, price, B.date_time AS bid_date_time, item_name, seller, category, A.extra AS more "
            "FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10",
            ["auction", "bidder", "bid_date_time"]),
    "q22": ("SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2 FROM bid",
            None),
    "q101": ("SELECT a.id AS auction_id, a.item_name, b.max_price FROM auction a LEFT OUTER JOIN "
             "(SELECT b1.auction, MAX(b1.price) max_price FROM bid b1 GROUP BY b1.auction) b ON a.id = b.auction",
             ["auction_id"]),
    "q104": ("SELECT a.id AS auction_id, a.item_name FROM auction a WHERE NOT EXISTS (SELECT 1 FROM bid b WHERE "
             "b.auction = a.id GROUP BY b.auction HAVING COUNT(*) < 20)", ["auction_id"]),
    "q104 anti": ("SELECT a.id AS auction_id, a.item_name FROM auction a LEFT ANTI JOIN (SELECT b.auction FROM bid b "
                  "GROUP BY b.auction HAVING COUNT(*) < 20) b ON a.id = b.auction", ["auction_id"]),
}  # fmt: skip

KEPT: dict[str, Any] = {
    "q0": "rows",
    "q2": "rows",
    "q14": "rows",
    "q22": "rows",
    "q5": {"bid": "date_time"},
    "q8": {"person": "date_time", "auction": "date_time"},
    "q3": ({"auction": ("seller",), "person": ("id",)}, None),
    "q9": ({"auction": ("id",), "bid": ("auction",)}, ("id",)),
    "q15": ({"bid": ("date_format(date_time, 'yyyy-MM-dd')",)}, None),
    "q18": ({"bid": ("auction", "bidder")}, ("auction", "bidder")),
    "q20": ({"bid": ("auction",), "auction": ("id",)}, ("auction",)),
    "q101": ({"auction": ("id",), "bid": ("auction",)}, ("auction_id",)),
    "q104": ({"auction": ("id",), "bid": ("auction",)}, ("auction_id",)),
    "q104 anti": ({"auction": ("id",), "bid": ("auction",)}, ("auction_id",)),
}


@pytest.mark.parametrize("name", QUERIES)
def test_each_nexmark_query_is_kept_as_cheaply_as_its_plan_allows(spark: SparkSession, cases: Path, name: str) -> None:
    assert (cases / "nexmark").is_dir()
    sql, key = QUERIES[name]
    within = {"bid": ("date_format(date_time, 'yyyy-MM-dd')",)} if name == "q15" else {}
    found = analyse(*query(spark, sql, key, within), spark)
    assert found.problems == ()
    assert found.keeping is not None
    assert _shown(found.keeping) == KEPT[name]


def test_not_in_between_topics_is_refused(spark: SparkSession) -> None:
    sql = "SELECT a.id FROM auction a WHERE a.id NOT IN (SELECT b.auction FROM bid b GROUP BY b.auction HAVING COUNT(*) < 20)"
    (problem,) = analyse(*query(spark, sql, ["id"], {}), spark).problems
    assert "id NOT IN (...)" in problem.message
    assert "NOT EXISTS" in problem.hint


def query(spark: SparkSession, sql: str, key: Any, within: Any) -> tuple[ViewSpec, dict[str, Input]]:
    names = tuple(name for name in TOPICS if re.search(rf"(FROM|JOIN|auction A,) {name}\b", sql))
    inputs = {}
    for name in names:
        schema = spark.createDataFrame([], f"{TOPICS[name]}, {OWN}").schema
        inputs[name] = Input(name, "topic", schema, "date_time", stand_in(spark, schema), ())
    place = Place("nexmark.sql", 1, "")
    key = tuple(key) if key is not None else None
    return ViewSpec("q", names, key, {}, within, "correct", None, None, None, None, None, sql, place), inputs


def _shown(keeping: Keeping) -> Any:
    if keeping.fold is not None:
        return keeping.fold.kind
    assert keeping.redo is not None
    return keeping.redo.times if keeping.redo.by == "window" else (keeping.redo.groups, keeping.redo.output)
