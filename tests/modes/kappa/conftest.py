"""A stream of the old code, and what other code is compiled to."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.modes.stream import run_stream
from penstock.upkeep.compiled import compile_pipeline
from tests.modes.harness import Lab
from tests.modes.kappa.sales import (
    OLD,
    ORDERS,
    Views,
    append,
    sales,
    seen,
)


@pytest.fixture(scope="module")
def old_views(spark: SparkSession) -> Views:
    return compile_pipeline(sales(), spark)


@pytest.fixture(scope="module")
def new_views(spark: SparkSession) -> Views:
    return compile_pipeline(sales("n > 1"), spark)


@pytest.fixture(scope="module")
def wide_views(spark: SparkSession) -> Views:
    return compile_pipeline(sales(also=", count(*) AS c"), spark)


@pytest.fixture
def lab(tmp_path: Path, spark: SparkSession, old_views: Views) -> Lab:
    """Six orders, and a stream of the old code over them."""
    made = Lab(tmp_path, sales(), spark, compiled=old_views)
    append(made, ORDERS)
    with made.engine("live") as (engine, store):
        run_stream(engine, once=True)
        assert seen(store) == OLD
    return made
