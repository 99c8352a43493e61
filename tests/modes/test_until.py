"""A run ends where it is told to, whichever of the topics a view reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock import Pipeline
from penstock.errors import UntilError
from penstock.modes.batch import run_batch
from penstock.modes.stream import run_stream
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark


def two_topics() -> Pipeline:
    app = Pipeline("apart")
    app.topic("orders", "id bigint")
    app.topic("payments", "id bigint")

    @app.view
    def sold(orders: DataFrame) -> DataFrame:
        return orders.select("id")

    @app.view
    def paid(payments: DataFrame) -> DataFrame:
        return payments.select("id")

    return app


def test_offsets_of_several_topics_hold_for_views_that_read_one_of_them(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, two_topics(), spark)
    for topic in ("orders", "payments"):
        lab.append(topic, [{"id": number} for number in range(5)])
    expected = {"sold": [(0,), (1,)], "paid": [(0,), (1,), (2,)]}
    with lab.engine() as (engine, store):
        run_batch(engine, until="orders=2,payments=3")
        assert rows_of(engine, store) == expected
    with lab.engine() as (engine, store):
        run_stream(engine, until={"orders": {0: 2}, "payments": {0: 3}})
        assert rows_of(engine, store) == expected
        with pytest.raises(UntilError):
            run_stream(engine, until="invoices=2")
