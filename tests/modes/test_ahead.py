"""While a stream is behind, the next step is computed early, and the views are what a batch makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.modes.ahead import Ahead
from penstock.modes.stream import run_stream
from penstock.upkeep.slices import SMALL_ROWS
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

STEP_ROWS = SMALL_ROWS + 1


def counting() -> Pipeline:
    """A fold over a topic, one over that fold, and rows as they come: of these only the second cannot be foreseen."""
    app = Pipeline("counting")
    app.topic("events", "k bigint, n bigint")

    @app.view(key="k")
    def sums(events: DataFrame) -> DataFrame:
        return events.groupBy("k").agg(sf.count("*").alias("events"), sf.sum("n").alias("n"))

    @app.view(key="events")
    def keys(sums: DataFrame) -> DataFrame:
        return sums.groupBy("events").agg(sf.count("*").alias("keys"), sf.sum("n").alias("n"))

    @app.view(key="k")
    def latest(events: DataFrame) -> DataFrame:
        return events.filter("n % 7 = 0").select("k", "n")

    return app


def test_a_stream_that_looks_ahead_gives_the_rows_of_a_batch(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, counting(), spark)
    numbers = np.arange(STEP_ROWS * 3 + 10, dtype=np.int64)
    lab.topics["events"].append(pa.table({"k": numbers % 1009, "n": numbers}))
    taken: list[set[str]] = []
    ready_for = Ahead.ready_for

    def seen(self: Ahead, slices: Mapping[str, Any], views: Any) -> Any:
        found = ready_for(self, slices, views)
        taken.append(set(found))
        return found

    monkeypatch.setattr(Ahead, "ready_for", seen)
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, max_rows=STEP_ROWS)
        found = rows_of(engine, store)
    assert found == lab.batch()
    assert [{"sums"}, {"latest"}] * 2 == [each for each in taken if each]
