"""A pipeline with planted errors: views that give other rows when the log is replayed or cut otherwise.

The comment `plant: NAME` stands in the line that verify must name.
"""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import DoubleType

from penstock import Pipeline


@sf.udf(DoubleType())
def seconds_ago(seconds: float) -> float:
    return time.time() - seconds  # plant: clock_in_udf


def planted() -> Pipeline:
    app = Pipeline("planted")
    app.topic("access", "time timestamp, ip string, url string, n bigint", event_time="time", partitions=2)

    @app.view
    def chance(access: DataFrame) -> DataFrame:
        return access.select("url", sf.rand().alias("x"))  # plant: chance

    @app.view(key="ip")
    def first_url(access: DataFrame) -> DataFrame:
        return access.groupBy("ip").agg(sf.first("url").alias("url"))  # plant: first_url

    @app.view(key=["ip", "n"], kept="fold")
    def forced_fold(access: DataFrame) -> DataFrame:  # plant: forced_fold
        earlier = Window.partitionBy("ip").orderBy("n")
        return access.select("ip", "n", sf.lag("url").over(earlier).alias("before"))

    @app.view(key="url", merge={"users": "sum"})
    def merged_users(access: DataFrame) -> DataFrame:  # plant: merged_users
        return access.groupBy("url").agg(sf.countDistinct("ip").alias("users"))

    @app.view(key="url", within="ip")
    def users(access: DataFrame) -> DataFrame:  # plant: users
        return access.groupBy("url").agg(sf.countDistinct("ip").alias("users"))

    @app.view(key=["ip", "url"], within="ip")
    def shares(access: DataFrame) -> DataFrame:  # plant: shares
        own = access.groupBy("ip", "url").agg(sf.count("*").alias("hits"))
        return own.select("ip", "url", sf.sum("hits").over(Window.partitionBy("url")).alias("all_hits"))

    @app.view
    def clock_in_plan(access: DataFrame) -> DataFrame:
        return access.select("url", sf.current_timestamp().alias("seen"))  # plant: clock_in_plan

    @app.view
    def clock_in_function(access: DataFrame) -> DataFrame:
        return access.select("url", sf.lit(str(datetime.now())).alias("seen"))  # noqa: DTZ005  # plant: clock_in_function

    @app.view
    def clock_in_udf(access: DataFrame) -> DataFrame:
        return access.select("url", seconds_ago(sf.col("n").cast("double")).alias("age"))

    @app.view(key="url")
    def right(access: DataFrame) -> DataFrame:
        return access.groupBy("url").agg(sf.count("*").alias("hits"), sf.sum("n").alias("n"))

    @app.view(key="hits")
    def right_above(right: DataFrame) -> DataFrame:
        return right.groupBy("hits").agg(sf.count("*").alias("urls"))

    return app


def line_of(plant: str) -> int:
    """The line that holds the error of that name."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.endswith(f"plant: {plant}"))
