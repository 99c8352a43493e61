"""Inputs and definitions of views for tests, without a pipeline around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.pipeline.definition import ViewSpec
from penstock.pipeline.place import Place, place_of_function
from penstock.plans.keeping import Analysis, Input, analyse
from penstock.spark.private.stand_in import stand_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = "_partition int, _offset bigint, _arrived timestamp, _late boolean"
ACCESS = (
    "time timestamp, ip string, status int, url string, seconds double, bytes bigint, price decimal(10,2), ok boolean"
)
TOPICS = {
    "access": ACCESS,
    "orders": "time timestamp, id bigint, customer bigint, amount decimal(10,2), tags array<string>",
    "payments": "paid timestamp, order_id bigint, amount decimal(10,2), payer int",
}
VIEWS = {
    "hits": "window struct<start: timestamp, end: timestamp>, url string, hits bigint, slowest double",
    "balances": "account bigint, balance decimal(12,2), owner string",
}
TABLES = {"customers": "id bigint, name string, country string"}
EVENT_TIMES = {"access": "time", "orders": "time", "payments": "paid"}


def inputs(spark: SparkSession, names: tuple[str, ...]) -> dict[str, Input]:
    found = {}
    for name in names:
        kind: Any = "topic" if name in TOPICS else "view" if name in VIEWS else "table"
        ddl = (TOPICS | VIEWS | TABLES)[name] + (f", {OWN}" if kind == "topic" else "")
        frame = spark.createDataFrame([], ddl) if kind == "table" else None
        schema = (frame or spark.createDataFrame([], ddl)).schema
        frame = frame or stand_in(spark, schema)
        found[name] = Input(name, kind, schema, EVENT_TIMES.get(name), frame, (), timedelta(minutes=10))
    return found


def view(
    function: Callable[..., Any] | str,
    key: tuple[str, ...] | None = None,
    *,
    names: tuple[str, ...] | None = None,
    merge: Mapping[str, str] | None = None,
    within: Mapping[str, tuple[str, ...]] | None = None,
    kept: Any = None,
) -> ViewSpec:
    """A view; the inputs of a function are its parameters."""
    if isinstance(function, str):
        place, called, sql = Place("view.sql", 1, ""), None, function
        names = names or tuple(name for name in (*TOPICS, *VIEWS, *TABLES) if name in function)
    else:
        place, called, sql = place_of_function(function), function, None
        names = names or function.__code__.co_varnames[: function.__code__.co_argcount]
    return ViewSpec(
        "view", names, key, merge or {}, within or {}, "correct", kept, None, None, None, called, sql, place
    )


def analysed(spark: SparkSession, function: Callable[..., Any] | str, key: Any = None, **options: Any) -> Analysis:
    spec = view(function, tuple(key) if key is not None else None, **options)
    return analyse(spec, inputs(spark, spec.inputs), spark)
