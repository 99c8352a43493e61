"""A stream waits for a database that cannot go on, and then goes on as if nothing had been."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import FenceMoved, StoreFull, StoreUnavailable
from penstock.modes.running import RunningSet
from penstock.modes.stream import run_stream
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

PER_STEP = 100


def texts() -> Pipeline:
    app = Pipeline("texts")
    app.topic("events", "id bigint, k bigint, text string")
    app.view("rows", key="id", changelog="rows.changes", sql="SELECT id, text FROM events")
    app.view("totals", key="k", sql="SELECT k, count(*) AS c, max(text) AS last FROM events GROUP BY k")
    app.view("counts", key="k", sql="SELECT k, count(DISTINCT text) AS c FROM events GROUP BY k")
    return app


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lab:
    made = Lab(tmp_path_factory.mktemp("patience"), texts(), spark)
    made.append("events", [{"id": n, "k": n % 7, "text": f"{n:04}" * 250} for n in range(6 * PER_STEP)])
    return made


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is full after a step or two, until it is made larger."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system: run this test as root")
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1280k", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"this machine mounts no tmpfs (in a container, run it privileged): {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.system
def test_a_full_disk_is_waited_for_and_nothing_is_half_stored(lab: Lab, small_disk: Path) -> None:
    errors: list[StoreUnavailable] = []
    steps: list[int] = []
    with lab.engine(url=f"sqlite:{small_disk}/views.db") as (engine, store):

        def make_room(error: StoreUnavailable, _: float) -> None:
            """All views are as of one step, the one before; at the third time there is room again."""
            errors.append(error)
            stored = rows_of(engine, store)
            assert len(stored["rows"]) == sum(c for _, c, _ in stored["totals"]) == sum(c for _, c in stored["counts"])
            assert len(stored["rows"]) == len(steps) // len(engine.sets) * PER_STEP
            fences = [live.fence.offsets["events"][0] for live in map(engine.live, engine.sets) if live]
            assert fences == [len(stored["rows"])] * len(engine.sets)
            if len(errors) == 3:
                subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)

        run_stream(
            engine,
            once=True,
            max_rows=PER_STEP,
            on_step=lambda report, *_: steps.append(report.rows),
            on_retry=make_room,
        )
        found = rows_of(engine, store)
    assert len(errors) == 3
    assert {type(error) for error in errors} == {StoreFull}
    assert "no space is left" in str(errors[0])
    assert steps == [PER_STEP] * 6 * len(engine.sets)
    told = lab.log.topic("rows.changes").slice().column("after").combine_chunks().field("id").to_pylist()
    assert sorted(told) == list(range(6 * PER_STEP))
    assert found == lab.stream(PER_STEP)


def test_a_fence_that_moved_meanwhile_is_read_again_and_nothing_is_counted_twice(lab: Lab) -> None:
    with lab.engine() as (engine, store):
        run_stream(engine, until={"events": {0: PER_STEP}})
        told: list[StoreUnavailable] = []

        def come_through(running: object) -> None:
            """As if a commit whose answer was lost were done only now, after the run has read its fence."""
            assert isinstance(running, list)
            for views in engine.sets:
                other: RunningSet = engine.open(views)
                other.step({"events": {0: 2 * PER_STEP}})

        run_stream(
            engine, once=True, max_rows=PER_STEP, on_open=come_through, on_retry=lambda error, _: told.append(error)
        )
        [moved] = told
        assert isinstance(moved, FenceMoved)
        assert moved.is_retryable
        assert moved.pipeline == "texts"
        assert "nothing of this step was stored" in str(moved)
        assert sum(c for _, c, _ in rows_of(engine, store)["totals"]) == 6 * PER_STEP
