"""Every way to keep a view gives the same rows as a batch, whatever the size of the steps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from penstock import Pipeline, agg
from tests.modes.harness import Lab, Rows

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)


def shop() -> Pipeline:
    app = Pipeline("shop")
    app.topic(
        "orders",
        "time timestamp, id bigint, customer string, amount decimal(10,2), seconds double",
        key="customer",
        event_time="time",
        partitions=2,
    )
    app.topic("payments", "time timestamp, order_id bigint, paid decimal(10,2)", event_time="time", partitions=2)

    @app.view(key=["window", "customer"])
    def per_minute(orders: DataFrame) -> DataFrame:
        return orders.groupBy(sf.window("time", "1 minute"), "customer").agg(
            sf.count("*").alias("orders"), sf.sum("amount").alias("amount"), sf.max("seconds").alias("slowest")
        )

    @app.view(key="customer")
    def means(orders: DataFrame) -> DataFrame:
        return orders.groupBy("customer").agg(
            agg.mean("seconds").alias("mean"),
            agg.distinct("id").alias("ids"),
            agg.quantiles("seconds", [0.5]).alias("median"),
        )

    @app.view
    def large(orders: DataFrame) -> DataFrame:
        return orders.filter("amount > 50").select("id", "customer", "amount")

    @app.view(key="customer")
    def last_order(orders: DataFrame) -> DataFrame:
        return orders.select("customer", "id", "amount")

    @app.view(key="window")
    def customers(orders: DataFrame) -> DataFrame:
        return orders.groupBy(sf.window("time", "2 minutes", "1 minute")).agg(
            sf.countDistinct("customer").alias("customers")
        )

    @app.view(key="id", within={"orders": "id", "payments": "order_id"})
    def open_orders(orders: DataFrame, payments: DataFrame) -> DataFrame:
        paid = payments.groupBy("order_id").agg(sf.sum("paid").alias("paid"))
        joined = orders.dropDuplicates(["id"]).join(paid, orders.id == paid.order_id, "left")
        rest = sf.col("amount") - sf.coalesce("paid", sf.lit(0))
        return joined.select("id", rest.alias("rest")).filter("rest > 0")

    @app.view(key="customer")
    def balances(orders: DataFrame) -> DataFrame:
        return orders.groupBy("customer").agg(sf.count("*").alias("orders"), sf.sum("amount").alias("amount"))

    @app.view(key="orders")
    def histogram(balances: DataFrame) -> DataFrame:
        return balances.groupBy("orders").agg(sf.count("*").alias("customers"), sf.sum("amount").alias("amount"))

    @app.view(key=[])
    def total(balances: DataFrame) -> DataFrame:
        return balances.agg(sf.sum("amount").alias("amount"), sf.count("*").alias("customers"))

    @app.view(key="rank")
    def top(balances: DataFrame) -> DataFrame:
        order = Window.orderBy(sf.desc("amount"), "customer")
        return balances.withColumn("rank", sf.row_number().over(order)).filter("rank <= 3")

    return app


def orders(count: int, seed: int = 1) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    random = Random(seed)
    sold: list[dict[str, Any]] = [
        {
            "time": START + timedelta(seconds=random.randrange(600)) if random.random() > 0.05 else None,
            "id": number,
            "customer": random.choice(["ann", "bob", "eve", None, "zoe"]),
            "amount": None if random.random() < 0.1 else random.randrange(10_000),
            "seconds": random.choice([None, float("nan"), random.random()]),
        }
        for number in range(count)
    ]
    for row in sold:
        row["amount"] = None if row["amount"] is None else _decimal(row["amount"])
    paid = [
        {
            "time": START + timedelta(seconds=random.randrange(900)),
            "order_id": random.randrange(count),
            "paid": _decimal(random.randrange(10_000)),
        }
        for _ in range(count)
    ]
    return sold, paid


def _decimal(cents: int) -> Any:
    from decimal import Decimal

    return Decimal(cents) / 100


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lab:
    made = Lab(tmp_path_factory.mktemp("lab"), shop(), spark)
    sold, paid = orders(60)
    for start in range(0, 60, 20):
        made.append("orders", sold[start : start + 20])
        made.append("payments", paid[start : start + 20])
    return made


@pytest.fixture(scope="module")
def expected(lab: Lab) -> Rows:
    rows = lab.batch()
    assert all(rows.values()), rows
    return rows


@pytest.mark.parametrize("max_rows", [None, 7, pytest.param(30, marks=pytest.mark.long)])
def test_steps_of_any_size_give_the_rows_of_a_batch(lab: Lab, expected: Rows, max_rows: int | None) -> None:
    assert lab.stream(max_rows) == expected


@pytest.mark.parametrize("max_rows", [20, *(pytest.param(each, marks=pytest.mark.long) for each in (None, 7))])
def test_batch_parts_and_speed_parts_add_up_to_the_rows_of_a_batch(
    lab: Lab, expected: Rows, max_rows: int | None
) -> None:
    assert lab.as_lambda(max_rows) == expected


def test_a_replay_in_the_middle_of_a_stream_gives_the_rows_of_a_batch(lab: Lab, expected: Rows) -> None:
    assert lab.as_kappa(20) == expected
