"""The core of the contract once more with `spark.small_plans = "off"`: the same answers, all computed by Spark's jobs.

Small plans can be turned off where a version of Spark breaks them, so what is right with them must be right without.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.spark.private import prepared
from penstock.spark.private.canary import SETTING
from tests.modes.agreement.test_modes_agree import (
    expected,
    lab,
    test_a_replay_in_the_middle_of_a_stream_gives_the_rows_of_a_batch,
    test_steps_of_any_size_give_the_rows_of_a_batch,
)
from tests.modes.test_disorder import test_nothing_stalls_and_both_modes_agree

__all__ = [
    "expected",
    "lab",
    "test_a_replay_in_the_middle_of_a_stream_gives_the_rows_of_a_batch",
    "test_nothing_stalls_and_both_modes_agree",
    "test_steps_of_any_size_give_the_rows_of_a_batch",
]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    """The same Spark, in a session that computes no plan in the driver."""
    session = spark.newSession()
    session.conf.set(SETTING, "off")
    return session


@pytest.fixture(autouse=True)
def nothing_in_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(*_: object) -> None:
        pytest.exit("a small plan ran in the driver though they are off", returncode=1)

    monkeypatch.setattr(prepared, "run_together", compute)
