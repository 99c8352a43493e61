"""Runs are killed wherever it hurts: every view ends as if nothing had happened, and every change is told once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.pipeline_storm import POINTS, storm_everywhere

KILLS = 5
"""At each point; `python -m tests.faults.pipeline_storm --kills 20` kills more often."""


@pytest.mark.spark
@pytest.mark.long
def test_a_kill_at_any_point_changes_no_answer(tmp_path: Path, spark: SparkSession) -> None:
    outcomes = storm_everywhere(tmp_path, spark, kills=KILLS, seed=1)
    assert not [str(outcome) for outcome in outcomes if outcome.faults]
    assert {outcome.point: outcome.kills for outcome in outcomes} == dict.fromkeys(POINTS, KILLS)
