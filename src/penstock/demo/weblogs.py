"""A web site, live: how busy it is, what breaks, who looks for holes. An ordinary application file.

penstock run weblogs.py
penstock serve weblogs.py
penstock verify weblogs.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock import Pipeline, agg

app = Pipeline("weblogs")

app.topic(
    "access",
    "time timestamp, ip string, device string, method string, url string, status int, seconds double",
    key="ip",
    event_time="time",
    lateness="30 seconds",
    partitions=2,
)


@app.view(key="window", changelog="traffic.changes")
def traffic(access: DataFrame) -> DataFrame:
    """How busy the site is. A phone that was offline corrects windows that were closed long ago."""
    return access.groupBy(F.window("time", "10 seconds")).agg(
        F.count("*").alias("hits"),
        F.count_if(F.col("status") >= 500).alias("errors"),
        agg.distinct("ip").alias("visitors"),
        agg.mean("seconds").alias("seconds"),
    )


@app.view(key=["window", "url"])
def pages(access: DataFrame) -> DataFrame:
    """The same for each page, by the minute."""
    return access.groupBy(F.window("time", "1 minute"), "url").agg(
        F.count("*").alias("hits"),
        F.count_if(F.col("status") >= 500).alias("errors"),
        F.max("seconds").alias("slowest"),
    )


@app.view(key="url")
def busiest(pages: DataFrame) -> DataFrame:
    """All that each page has seen: a view over a view."""
    return pages.groupBy("url").agg(F.sum("hits").alias("hits"), F.sum("errors").alias("errors"))


@app.view(key=["window", "ip"])
def scanners(access: DataFrame) -> DataFrame:
    """Who asks for pages that are not there."""
    missing = access.filter("status = 404")
    return missing.groupBy(F.window("time", "1 minute"), "ip").agg(
        F.count("*").alias("misses"), agg.distinct("url").alias("urls")
    )


@app.alert("pages", to="mailto:ops@example.com", every="1 minute", when="errors >= 10")
def page_fails(row: Mapping[str, Any]) -> str:
    """Ten failures within a minute are a case for somebody."""
    return f"{row['url']} failed {row['errors']} times of {row['hits']} within a minute"


@app.alert("scanners", to=["mailto:security@example.com", "topic:alarms"], every="10 minutes", when="misses >= 30")
def scanner(row: Mapping[str, Any]) -> str:
    """Nobody mistypes that often."""
    return f"{row['ip']} looks for holes: {row['misses']} pages that are not there"
