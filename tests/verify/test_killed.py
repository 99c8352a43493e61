"""What a process does that is killed: one view that fails leaves the others alone."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.log.folder_log import FolderLog
from penstock.modes.topics import make_topics
from penstock.upkeep.compiled import try_compile
from penstock.verify import child, killed, verify
from penstock.verify.cuts import Recorded
from penstock.verify.runs import Run, Runner

pytestmark = pytest.mark.spark


def pipeline() -> Pipeline:
    app = Pipeline("killed")
    app.topic("access", "url string, n bigint")

    def refuse(number: int) -> int:
        raise ValueError("never seen")

    @app.view(key="url")
    def hits(access: DataFrame) -> DataFrame:
        return access.groupBy("url").agg(sf.count("*").alias("hits"))

    @app.view(key="n", on_error="stop")
    def refused(access: DataFrame) -> DataFrame:
        return access.select(sf.udf(refuse, "bigint")("n").alias("n"))

    return app


@pytest.fixture
def log(tmp_path: Path) -> FolderLog:
    log = FolderLog(tmp_path / "log", background=False)
    make_topics(pipeline(), log)["access"].append(pa.table({"url": ["/", "/", "/a"], "n": [1, 2, 3]}))
    return log


def test_a_view_that_fails_in_a_killed_process_leaves_the_others_alone(
    log: FolderLog, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = pipeline()
    compiled, _ = try_compile(app, spark)
    recorded = Recorded.of({"access": log.topic("access")}, None)
    runner = Runner(app, log, spark, recorded, tmp_path, compiled)

    def here(job: Path, signs: int | None, seconds: float) -> str:
        child._step(json.loads(job.read_text()), app, log, spark, recorded.evenly(2))
        return "done"

    monkeypatch.setattr(killed, "_run_child", here)
    found = killed.killed(runner, "killed", recorded.evenly(2), Random(1))
    assert found.errors.keys() == {"refused"}
    assert "never seen" in str(found.errors["refused"])
    assert found.rows["hits"].num_rows == 2
    assert "refused" not in found.rows


def test_a_run_that_fails_as_a_whole_leaves_the_other_runs_alone(
    log: FolderLog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Run:
        raise OSError("no process can be started")

    monkeypatch.setattr(verify, "elsewhere", fails)
    monkeypatch.setattr(verify, "cause_of", fails)
    app = pipeline()
    del app.views["refused"]
    found = verify.verify(app, log, spark, cuts=0, seed=1, singles=0)
    [failure] = found.failures
    assert failure.runs == (verify.ELSEWHERE,)
    assert "no process can be started" in failure.cause
    assert len([line for line in found.lines if line.agrees]) == 9
