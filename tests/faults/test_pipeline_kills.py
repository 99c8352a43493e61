"""Runs are killed at every kind of point: each view ends as if nothing had happened, and each change is sent once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.upkeep.compiled import compile_pipeline
from tests.conftest import DRIVERS
from tests.faults.pipeline_storm import POINTS, Storm, storm_at, storm_everywhere
from tests.faults.pipeline_worker import accounts

pytestmark = [pytest.mark.spark, DRIVERS]

KILLS = 5
"""At each point; `python -m tests.faults.pipeline_storm --kills 20` kills more often."""


def test_one_kill_at_each_point_changes_no_answer(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    storm = Storm(tmp_path, spark, compile_pipeline(accounts(), spark))
    outcome = storm_at("all", POINTS, storm, seed=seed)
    assert not outcome.faults, str(outcome)
    assert outcome.kills == len(POINTS)


@pytest.mark.long
def test_many_kills_at_each_point_change_no_answer(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    outcomes = storm_everywhere(tmp_path, spark, kills=KILLS, seed=seed)
    assert not [str(outcome) for outcome in outcomes if outcome.faults]
    assert {outcome.name: outcome.kills for outcome in outcomes} == dict.fromkeys(POINTS, KILLS)
