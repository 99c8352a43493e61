"""The Nexmark auctions of the cases, and the queries over them as views: 13 that come with answers, and others like them."""

# One query after the other reads better than one clause a line.
# ruff: noqa: E501, N812

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from penstock import Pipeline

TOPICS = {
    "auction": "id bigint, item_name string, description string, initial_bid bigint, reserve bigint, date_time timestamp, "
    "expires timestamp, seller bigint, category bigint, extra string",
    "bid": "auction bigint, bidder bigint, price bigint, channel string, url string, date_time timestamp, extra string",
    "person": "id bigint, name string, email_address string, credit_card string, city string, state string, "
    "date_time timestamp, extra string",
}
TIMES = ("date_time", "expires")

_HOP = "FROM bid GROUP BY window(date_time, '10 seconds', '2 seconds'), auction"
_TEN = "GROUP BY window(date_time, '10 seconds')"
DAY = "date_format(date_time, 'yyyy-MM-dd')"
SOLD = "FROM auction A, bid B WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires"
_BANDS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}
COUNTS = ", ".join(
    [
        "count(*) AS total_bids",
        *(f"count(*) FILTER (WHERE {band}) AS {name}_bids" for name, band in _BANDS.items()),
        *(
            part
            for plural, column in (("bidders", "bidder"), ("auctions", "auction"))
            for part in (
                f"count(DISTINCT {column}) AS total_{plural}",
                *(
                    f"count(DISTINCT {column}) FILTER (WHERE {band}) AS {name}_{plural}"
                    for name, band in _BANDS.items()
                ),
            )
        ),
    ]
)


@dataclass(frozen=True)
class Query:
    """One query as a view; `how` it must be kept."""

    sql: str
    how: str
    key: list[str] | None = None
    within: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)


ANSWERED = {
    "q0": Query("SELECT auction, bidder, price, date_time FROM bid", "fold"),
    "q2": Query("SELECT auction, price FROM bid WHERE auction IN (1007, 1020, 2001, 2019, 2087)", "fold"),
    "q3": Query("SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id "
                "WHERE A.category = 10 AND (P.state = 'or' OR P.state = 'id' OR P.state = 'ca')", "redo", ["id"]),
    "q8": Query(f"SELECT P.id, P.name, P.starttime FROM (SELECT id, name, window.start AS starttime, window.end AS endtime FROM person {_TEN}, id, name) P "
                f"JOIN (SELECT seller, window.start AS starttime, window.end AS endtime FROM auction {_TEN}, seller) A "
                "ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime", "redo", ["id", "starttime"]),
    "q9": Query("SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, auction, bidder, price, bid_date_time "
                "FROM (SELECT A.*, B.auction, B.bidder, B.price, B.date_time AS bid_date_time, "
                f"ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.date_time ASC) AS rownum {SOLD}) WHERE rownum <= 1",
                "redo", ["id"]),
    "q14": Query("SELECT auction, bidder, 0.908 * price AS price, CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'dayTime' "
                 "WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType, date_time, "
                 "length(extra) - length(replace(extra, 'c', '')) AS c_counts FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000", "fold"),
    "q15": Query(f"SELECT {DAY} AS day, {COUNTS} FROM bid GROUP BY {DAY}", "redo", ["day"], {"bid": DAY}),
    "q20": Query("SELECT auction, bidder, price, channel, url, B.date_time AS bid_date_time, B.extra AS bid_extra, item_name, description, initial_bid, "
                 "reserve, A.date_time AS auction_date_time, expires, seller, category, A.extra AS auction_extra, B._offset AS bid_offset "
                 "FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10", "redo", ["auction", "bid_offset"]),
    "q22": Query("SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3 FROM bid", "fold"),
    "q104": Query("SELECT a.id AS auction_id, a.item_name AS auction_item_name FROM auction a WHERE NOT EXISTS "
                  "(SELECT 1 FROM bid b WHERE b.auction = a.id GROUP BY b.auction HAVING COUNT(*) < 20)", "redo", ["auction_id"]),
    # q5, q18 and q101 are functions: see `answered`.
}  # fmt: skip
HOW = {**{name: query.how for name, query in ANSWERED.items()}, "q5": "redo", "q18": "redo", "q101": "redo"}


def topics(name: str) -> Pipeline:
    app = Pipeline(name)
    for topic, ddl in TOPICS.items():
        app.topic(topic, ddl, event_time="date_time")
    return app


def add(app: Pipeline, queries: Mapping[str, Query]) -> None:
    for name, query in queries.items():
        app.view(name, sql=query.sql, key=query.key, within=query.within, **query.options)


def answered() -> Pipeline:
    """The 13 queries that the cases have answers for."""
    app = topics("nexmark")
    add(app, ANSWERED)

    @app.view(key=["starttime", "auction"])
    def q5(bid: DataFrame) -> DataFrame:
        hop = F.window("date_time", "10 seconds", "2 seconds")
        counts = bid.groupBy(hop, "auction").agg(F.count("*").alias("num"))
        counts = counts.select("auction", "num", F.col("window.start").alias("starttime"))
        most = counts.groupBy(F.col("starttime").alias("since")).agg(F.max("num").alias("maxn"))
        return counts.join(most, (F.col("starttime") == F.col("since")) & (F.col("num") >= F.col("maxn"))).select(
            "auction", "num", "starttime"
        )

    @app.view(key=["bidder", "auction"])
    def q18(bid: DataFrame) -> DataFrame:
        last = Window.partitionBy("bidder", "auction").orderBy(F.desc("date_time"), "extra")
        return bid.withColumn("rank", F.row_number().over(last)).filter("rank <= 1").drop("rank")

    @app.view(key="auction_id")
    def q101(auction: DataFrame, bid: DataFrame) -> DataFrame:
        highest = bid.groupBy("auction").agg(F.max("price").alias("max_price"))
        return auction.join(highest, auction.id == highest.auction, "left").select(
            F.col("id").alias("auction_id"),
            F.col("item_name").alias("auction_item_name"),
            F.col("max_price").alias("current_highest_bid"),
        )

    return app


def events(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each topic, in the order of the files."""
    found = {}
    for topic in TOPICS:
        lines = (folder / f"{topic}.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        found[topic] = [
            {name: _moment(value) if name in TIMES else value for name, value in row.items()} for row in rows
        ]
    return found


def expected(folder: Path) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
    """By query, the names of the columns and the rows, sorted."""
    found = {}
    for name, query in json.loads((folder / "expected.json").read_text(encoding="utf-8"))["queries"].items():
        kinds = [_KINDS.get(kind.partition("(")[0], lambda value: value) for kind in query["types"]]
        rows = [
            tuple(None if value is None else kind(value) for kind, value in zip(kinds, row, strict=True))
            for row in query["rows"]
        ]
        found[name] = (query["columns"], sorted(rows, key=repr))
    return found


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


_KINDS: dict[str, Any] = {"TIMESTAMP": _moment, "DECIMAL": Decimal}
