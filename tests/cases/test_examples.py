"""The examples are in order, and say the same in batch and in steps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.loading import load_pipeline
from tests.conftest import ROOT
from tests.modes.harness import Lab

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)

Slice = dict[str, list[dict[str, Any]]]


def accesses(random: Random) -> Iterator[Slice]:
    for _ in range(3):
        yield {
            "access": [
                {
                    "time": START + timedelta(seconds=random.randrange(7200)),
                    "ip": f"10.0.0.{random.randrange(4)}",
                    "status": random.choice([200, 200, 404, 500]),
                    "method": "GET",
                    "url": random.choice(["/", "/cart", "/help", None]),
                    "seconds": random.choice([None, random.random()]),
                }
                for _ in range(15)
            ]
        }


def sales(random: Random) -> Iterator[Slice]:
    """Customers move between the slices, and orders are paid in parts, some before they are known."""
    for day in range(3):
        time = START + timedelta(days=day, seconds=random.randrange(80_000))
        countries = ["Chile", "Japan", "Mali"]
        yield {
            "customers": [
                {"time": time, "id": each, "name": f"customer {each}", "country": random.choice(countries)}
                for each in range(4)
            ],
            "orders": [
                {"time": time, "id": 8 * day + each, "customer": random.randrange(5), "amount": Decimal(each * 10)}
                for each in range(8)
            ],
            "payments": [
                {"time": time, "order_id": random.randrange(24), "paid": Decimal(random.randrange(60))}
                for _ in range(8)
            ],
        }


@pytest.mark.parametrize(("name", "slices"), [("weblogs", accesses), ("shop", sales)])
def test_an_example_is_in_order_and_its_modes_agree(
    name: str, slices: Any, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = load_pipeline(str(ROOT / "examples" / f"{name}.py"))
    lab = Lab(tmp_path, pipeline, spark)
    assert len(lab.compiled()) >= len(pipeline.views), "raises PipelineProblems if anything is wrong with a view"
    for each in slices(Random(7)):
        for topic, rows in each.items():
            lab.append(topic, rows)
    expected = lab.batch()
    assert all(expected[view] for view in pipeline.views), expected
    for max_rows in (None, 12):
        assert lab.stream(max_rows) == expected
