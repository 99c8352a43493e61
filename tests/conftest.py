"""What every test may ask for: one Spark session and one of each service per process, and the cases nearby."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.postgresql import postgresql
from tests.services.connector import connector
from tests.services.kafka import kafka, kafka3, other_kafka
from tests.services.spark_cluster import spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["connector", "kafka", "kafka3", "other_kafka", "postgresql", "spark_cluster"]

# How long an example takes is the machine's affair: one that is busy is no reason to fail.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

ROOT = Path(__file__).parent.parent
SLOWER_MARKS = ("spark", "system", "services", "long", "timing")
SLOWER_TIMEOUT_SECONDS = 600
LONG_TIMEOUT_SECONDS = 1800
SHORT_LIVED = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A JVM that lives for minutes is not worth optimising: most of its time would go into its own compiler."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test without any other mark is quick; a long one may take its time."""
    for item in items:
        if not any(item.get_closest_marker(mark) for mark in SLOWER_MARKS):
            item.add_marker(pytest.mark.quick)
        if not item.get_closest_marker("timeout") and any(map(item.get_closest_marker, SLOWER_MARKS)):
            seconds = LONG_TIMEOUT_SECONDS if item.get_closest_marker("long") else SLOWER_TIMEOUT_SECONDS
            item.add_marker(pytest.mark.timeout(seconds))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of this test process, with two cores. A test that asks for it carries the mark `spark`."""
    from penstock.settings import SparkSettings
    from penstock.spark import session

    started = session(SparkSettings(master="local[2]", shuffle_partitions=2, conf=SHORT_LIVED), name="penstock-tests")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of cases that nobody here wrote; the test is skipped where it is not beside the repository."""
    folder = ROOT.parent / "shared" / "cases"
    if not folder.is_dir():
        pytest.skip("the folder ../shared/cases is not beside the repository")
    return folder
