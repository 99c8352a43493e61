"""A web site, live: how busy each page is, who comes, what is slow, what breaks.

penstock run examples/weblogs.py
penstock verify examples/weblogs.py
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from penstock import Pipeline, agg

app = Pipeline("weblogs")

app.topic(
    "access",
    "time timestamp, ip string, status int, method string, url string, seconds double",
    key="ip",
    event_time="time",
    lateness="10 minutes",
)


@app.view(key=["window", "url"])
def hits(access: DataFrame) -> DataFrame:
    return access.groupBy(F.window("time", "1 minute"), "url").agg(
        F.count("*").alias("hits"),
        F.max("seconds").alias("slowest"),
    )


@app.view(key="window")
def visitors(access: DataFrame) -> DataFrame:
    """Both are sketches that merge, so no step reads the hour again; visitors are exact up to 4,096."""
    return access.groupBy(F.window("time", "1 hour")).agg(
        agg.distinct("ip").alias("visitors"),
        agg.quantiles("seconds", [0.5, 0.99]).alias("seconds"),
    )


@app.view(key=["ip", "session"], within="ip")
def sessions(access: DataFrame) -> DataFrame:
    """Visits, each of which ends after half an hour of silence."""
    return access.groupBy("ip", F.session_window("time", "30 minutes").alias("session")).agg(
        F.count("*").alias("pages"),
        F.min_by("url", F.struct("time", "url")).alias("came_to"),
    )


@app.view
def errors(access: DataFrame) -> DataFrame:
    return access.filter("status >= 500").select("time", "ip", "method", "url", "status")


@app.view(key="rank")
def top_urls(hits: DataFrame) -> DataFrame:
    totals = hits.groupBy("url").agg(F.sum("hits").alias("hits"))
    place = F.row_number().over(Window.orderBy(F.desc("hits"), "url"))
    return totals.select(place.alias("rank"), "url", "hits").filter("rank <= 10")
