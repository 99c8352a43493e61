"""Several runs of one pipeline, some of them frozen: only one ever writes, and the others name it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.log.folder_log import FolderLog
from penstock.modes.engine import open_engine
from penstock.modes.stream import run_stream
from penstock.upkeep.compiled import compile_pipeline
from penstock.views import takeover
from penstock.views.store import open_store
from tests.conftest import DRIVERS
from tests.eventually import LIMIT_SECONDS, eventually
from tests.faults.pipeline_storm import Storm, process_context
from tests.faults.pipeline_worker import Point, Strike, accounts, work
from tests.postgresql import Server

pytestmark = [pytest.mark.spark, DRIVERS]

LEASE = timedelta(seconds=1)
"""Of runs that are to be replaced. Before they freeze no other wants the pipeline, so a slow one loses nothing."""
SERVER_LEASE = timedelta(seconds=6)
"""PostgreSQL ends a transaction that is idle for most of the lease, also that of a run that is only slow."""
HOUR = timedelta(hours=1)
WAIT_SECONDS = 0.3


@pytest.fixture
def storm(tmp_path: Path, spark: SparkSession) -> Storm:
    made = Storm(tmp_path, spark, compile_pipeline(accounts(), spark))
    made.append(Random(1))
    return made


class Run:
    """A run in a process of its own, and its answers."""

    def __init__(self, storm: Storm, **settings: Any) -> None:
        self.answers: Connection
        self.answers, theirs = process_context().Pipe()
        self.process: BaseProcess = process_context().Process(target=work, args=(storm.job(**settings), theirs))
        self.process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def wait_for(self, *words: str) -> tuple[str, Any]:
        """Its next answer that begins with one of these words."""
        while self.answers.poll(LIMIT_SECONDS):
            answer: tuple[str, Any] = self.answers.recv()
            if answer[0] in words:
                return answer
        raise AssertionError(f"it never answered {words}")

    def wait_until_stopped(self) -> None:
        eventually(self.is_stopped, explain=lambda: "it never came to its point")

    def is_stopped(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextmanager
def running(storm: Storm, **settings: Any) -> Iterator[Run]:
    run = Run(storm, **settings)
    try:
        yield run
    finally:
        run.process.kill()
        run.process.join()


def take_over(storm: Storm) -> None:
    """A run in this process, up to the end of the log."""
    with (
        FolderLog(storm.folder / "log", background=False) as log,
        open_store(storm.url, lease=HOUR) as store,
        open_engine(accounts(), log=log, store=store, spark=storm.spark, views=storm.views) as engine,
    ):
        run_stream(engine, once=True)


def let_expire(lease: timedelta) -> None:
    time.sleep(lease.total_seconds() + 0.1)


def test_of_two_runs_started_at_once_one_works_and_the_other_names_it(storm: Storm) -> None:
    with (
        running(storm, is_endless=True, lease=HOUR) as first,
        running(storm, is_endless=True, lease=HOUR) as second,
    ):
        answers = {run.pid: run.wait_for("owns", "PipelineOwned") for run in (first, second)}
        [winner] = [pid for pid, (word, _) in answers.items() if word == "owns"]
        assert [answer for answer in answers.values() if answer[0] != "owns"] == [("PipelineOwned", winner)]
        run = first if first.pid == winner else second
        while run.wait_for("stepped")[1]:
            pass
        os.kill(winner, signal.SIGKILL)
        run.process.join()
    assert storm.run(storm.job()) == 0
    assert storm.judge() == []


@pytest.mark.parametrize("point", ["slice", "before"])
def test_run_frozen_outside_a_transaction_wakes_up_and_changes_nothing(storm: Storm, point: Point) -> None:
    strike = Strike(point, 2, 0.9, signal.SIGSTOP)
    with running(storm, is_endless=True, strike=strike, lease=LEASE) as run:
        run.wait_until_stopped()
        let_expire(LEASE)
        take_over(storm)
        assert storm.judge() == []
        os.kill(run.pid, signal.SIGCONT)
        word, _ = run.wait_for("OwnershipLost", "ended")
        assert word == "OwnershipLost"
    assert storm.judge() == []


class Takeover(threading.Thread):
    """Wants the pipeline, in a thread since it may have to wait."""

    def __init__(self, storm: Storm) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._storm = storm
        self.start()

    def run(self) -> None:
        try:
            take_over(self._storm)
        except BaseException as error:
            self.error = error


def test_run_frozen_inside_a_transaction_is_waited_for_and_named(
    storm: Storm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "WAIT_SECONDS", WAIT_SECONDS)
    caplog.set_level(logging.WARNING, "penstock.views")
    strike = Strike("in", 2, 0.9, signal.SIGSTOP)
    with running(storm, is_endless=True, strike=strike, lease=LEASE) as run:
        run.wait_until_stopped()
        newcomer = Takeover(storm)
        warnings = 1 + LEASE / timedelta(seconds=WAIT_SECONDS)  # With the last of them the lease is over.
        eventually(lambda: caplog.text.count("stopped while it holds") > warnings or newcomer.error is not None)
        assert newcomer.error is None
        assert f"process {run.pid}, which is stopped while it holds" in caplog.text
        assert newcomer.is_alive(), "it did not wait"
        os.kill(run.pid, signal.SIGKILL)
        newcomer.join(LIMIT_SECONDS)
        assert not newcomer.is_alive()
        assert newcomer.error is None
    assert storm.judge() == []


@pytest.mark.system
def test_run_frozen_inside_a_transaction_is_ended_by_the_server(storm: Storm, postgresql: Server) -> None:
    storm.url = postgresql.new_database()
    strike = Strike("in", 2, 0.9, signal.SIGSTOP)
    with running(storm, is_endless=True, strike=strike, lease=SERVER_LEASE) as run:
        run.wait_until_stopped()
        let_expire(SERVER_LEASE)
        take_over(storm)
        os.kill(run.pid, signal.SIGCONT)
        word, _ = run.wait_for("OwnershipLost", "ended")
        assert word == "OwnershipLost"
    assert storm.judge() == []
