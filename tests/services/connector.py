"""The jars of Spark's Kafka connector, which `make service-tools` puts into the virtual environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.spark.jars import connector_in

CONNECTOR = Path(sys.prefix) / "spark-kafka"


@pytest.fixture(scope="session")
def connector() -> str:
    """What `spark.jars` is set to. The test is skipped without the jars; it carries the mark `services`."""
    jars = connector_in(CONNECTOR)
    if not jars:
        pytest.skip("Spark's Kafka connector is not here: make service-tools gets it from Maven Central")
    return ",".join(map(str, jars))
