"""Nexmark queries without answers in the cases: each is kept, and batch and stream agree, or it says what to do."""

# One query after the other reads better than one clause a line.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.upkeep.compiled import try_compile
from tests.cases import nexmark
from tests.cases.nexmark import COUNTS, DAY, SOLD, Query
from tests.modes.harness import Lab

pytestmark = pytest.mark.spark

_STARTS = "SELECT window(date_time, '10 seconds').start AS since, bidder, _offset AS number FROM bid"
_IN_TEN = {"bid": "window(date_time, '10 seconds')"}

KEPT = {
    "q4_final": Query(f"SELECT A.id, A.category, max(B.price) AS final {SOLD} GROUP BY A.id, A.category", "redo", ["id"]),
    "q4": Query("SELECT category, avg(final) AS average FROM q4_final GROUP BY category", "redo", ["category"]),
    "q7": Query("WITH b AS (SELECT *, window(date_time, '10 seconds') AS w FROM bid) SELECT w, auction, price, bidder, date_time FROM b "
                "JOIN (SELECT w AS same, max(price) AS highest FROM b GROUP BY w) ON w = same AND price = highest",
                "redo", ["w", "auction", "bidder", "date_time"]),
    "q12": Query("SELECT bidder, count(*) AS bids, window.start AS since, window.end AS until FROM bid "
                 "GROUP BY bidder, window(_arrived, '10 seconds')", "fold", ["bidder", "since", "until"]),
    "q16": Query(f"SELECT channel, {DAY} AS day, max(date_format(date_time, 'HH:mm')) AS minute, {COUNTS} FROM bid GROUP BY channel, {DAY}",
                 "redo", ["channel", "day"], {"bid": ["channel", DAY]}),
    "q17": Query(f"SELECT auction, {DAY} AS day, count(*) AS bids, min(price) AS lowest, max(price) AS highest, avg(price) AS average, "
                 f"sum(price) AS total FROM bid GROUP BY auction, {DAY}", "redo", ["auction", "day"]),
    "q19": Query("SELECT * FROM (SELECT auction, bidder, price, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, _offset) AS place "
                 "FROM bid) WHERE place <= 10", "redo", ["auction", "place"]),
    "bidders": Query(f"SELECT since, count(DISTINCT bidder) AS bidders FROM ({_STARTS}) GROUP BY since", "redo", ["since"], _IN_TEN),
    "counted": Query(f"SELECT since, count(DISTINCT bidder) AS bidders FROM ({_STARTS}) GROUP BY since", "redo", ["since"]),
    "over": Query(f"SELECT * FROM (SELECT since, row_number() OVER (PARTITION BY since ORDER BY number) AS place FROM ({_STARTS}))",
                  "redo", ["since", "place"]),
}  # fmt: skip

REFUSED = {
    "q4": (Query(f"SELECT category, avg(final) AS average FROM (SELECT max(B.price) AS final, A.category {SOLD} GROUP BY A.id, A.category) GROUP BY category", "", ["category"]),
           "it aggregates by category, which are not columns that all inputs share"),
    "q7": (Query("SELECT auction, price, bidder, date_time FROM bid JOIN (SELECT max(price) AS highest, window.end AS until FROM bid GROUP BY window(date_time, '10 seconds')) "
                 "ON price = highest WHERE date_time BETWEEN until - INTERVAL 10 SECONDS AND until", "", ["auction", "bidder", "date_time"]),
           "does not equate columns of both inputs"),
}  # fmt: skip


def test_what_is_kept_says_the_same_in_batch_and_in_steps(cases: Path, tmp_path: Path, spark: SparkSession) -> None:
    app = nexmark.topics("neighbours")
    nexmark.add(app, KEPT)
    lab = Lab(tmp_path, app, spark)
    assert {view.name: view.keeping.how for view in lab.compiled()} == {name: each.how for name, each in KEPT.items()}
    for topic, rows in nexmark.events(cases / "nexmark").items():
        if topic != "person":
            without_time = {**rows[3], "date_time": None}
            lab.append(topic, [*rows[:9], without_time, *rows[9:]])
    expected = lab.batch()
    assert all(expected.values()), expected
    for max_rows in (None, 14):
        assert lab.stream(max_rows) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why_and_what_to_do(name: str, spark: SparkSession) -> None:
    query, why = REFUSED[name]
    app = nexmark.topics("neighbours")
    nexmark.add(app, {name: query})
    views, (problem,) = try_compile(app, spark)
    assert views == ()
    assert why in problem.message
    assert "add within=" in problem.hint
