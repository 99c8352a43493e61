"""A shop: what it earns, what each customer owes, and who its best customers are.

Orders and payments are facts, and each comes once. Customers move: the topic of their changes is read as a table.

penstock run examples/shop.py
penstock verify examples/shop.py
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from penstock import Pipeline

app = Pipeline("shop")

app.topic("customers", "time timestamp, id bigint, name string, country string", key="id", event_time="time")
app.topic(
    "orders",
    "time timestamp, id bigint, customer bigint, amount decimal(12,2)",
    key="customer",
    event_time="time",
    lateness="1 hour",
)
app.topic("payments", "time timestamp, order_id bigint, paid decimal(12,2)", key="order_id", event_time="time")
app.table("customer", topic="customers", key="id")


@app.view(key="window")
def revenue(orders: DataFrame) -> DataFrame:
    return orders.groupBy(F.window("time", "1 day")).agg(
        F.count("*").alias("orders"),
        F.sum("amount").alias("amount"),
    )


@app.view(key="id", within={"orders": "id", "payments": "order_id"})
def unpaid(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Orders of which something is still owed."""
    paid = payments.groupBy("order_id").agg(F.sum("paid").alias("paid"))
    owed = F.col("amount") - F.coalesce("paid", F.lit(0))
    joined = orders.join(paid, orders.id == paid.order_id, "left")
    return joined.select("id", "customer", owed.alias("owed")).filter("owed > 0")


@app.view(key="customer")
def debts(unpaid: DataFrame) -> DataFrame:
    return unpaid.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("owed").alias("owed"))


app.view(
    "debts_by_country",
    key="country",
    sql="""
        SELECT customer.country, sum(debts.owed) AS owed
        FROM debts JOIN customer ON debts.customer = customer.id
        GROUP BY customer.country
    """,
)


@app.view(key="customer")
def bought(orders: DataFrame) -> DataFrame:
    return orders.groupBy("customer").agg(F.sum("amount").alias("amount"))


@app.view(key="rank")
def best_customers(bought: DataFrame) -> DataFrame:
    place = F.row_number().over(Window.orderBy(F.desc("amount"), "customer"))
    return bought.select(place.alias("rank"), "customer", "amount").filter("rank <= 3")
