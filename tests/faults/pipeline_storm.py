"""Runs of a pipeline are killed at every kind of point, and started again, until their work is done.

Then every view must be what an uninterrupted run makes of the same log, and the topics of changes must tell each change
once and add up to their views. As a command it kills more often, prints its seed, and ends with 1 at a fault:

    python -m tests.faults.pipeline_storm --kills 20
    python -m tests.faults.pipeline_storm --kills 20 --point switch --seed 7
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, get_args

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.log.folder_log import FolderLog
from penstock.modes.engine import Engine, open_engine
from penstock.modes.stream import run_stream
from penstock.modes.topics import make_topics
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from penstock.views.outbox import waiting
from penstock.views.store import Store, open_store
from tests.faults.pipeline_worker import Gateway, Job, Mode, Point, Strike, accounts, work
from tests.modes.harness import Rows, rows_of

POINTS: tuple[Point, ...] = get_args(Point)
MODES: Mapping[Point, Mode] = {"rebuild": "batch", "switch": "batch", "round": "lambda", "replay": "kappa"}
CHANGELOGS = {"totals": "totals.changes", "histogram": "histogram.changes"}
EVENTS = 7
"""So many are appended before each run: a few steps."""
NTH_MAX = 3
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Outcome:
    """What a storm at one point left behind."""

    point: Point
    kills: int = 0
    runs: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.point}: {self.kills} kills in {self.runs} runs", *self.faults])


class Storm:
    """A log and a database, and the processes that are killed over them."""

    def __init__(self, folder: Path, spark: SparkSession, views: Sequence[CompiledView]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.url = f"sqlite:{folder / 'views.db'}"
        self.spark = spark
        self.views = views
        self._items = 0
        with FolderLog(folder / "log", background=False) as log:
            make_topics(accounts(), log)

    def append(self, dice: Random, count: int = EVENTS) -> None:
        """More events, some of them late."""
        rows = []
        for _ in range(count):
            self._items += 1
            at = START + timedelta(seconds=dice.randrange(300))
            rows.append({"time": at, "account": dice.choice("abcde"), "item": self._items, "amount": dice.randrange(9)})
        with FolderLog(self.folder / "log", background=False) as log:
            topic = log.topic("events")
            topic.append(pa.Table.from_pylist(rows, schema=topic.schema))

    def job(self, **settings: Any) -> Job:
        return Job(self.folder / "log", self.url, Gateway.of(self.spark), **settings)

    def run(self, job: Job) -> int:
        """The exit code of a process that does the job."""
        process = process_context().Process(target=work, args=(job,))
        process.start()
        process.join()
        code: int | None = process.exitcode
        assert code is not None
        return code

    def judge(self) -> list[str]:
        """What is wrong with what the processes left."""
        expected = self.uninterrupted()
        with FolderLog(self.folder / "log", background=False) as log, self.engine(log, self.url) as (engine, store):
            found = rows_of(engine, store)
            faults = [
                f"view {name}: found {found[name]}, expected {rows}"
                for name, rows in expected.items()
                if rows != found[name]
            ]
            with store.snapshot() as snapshot:
                left = waiting(snapshot.connection)
            faults += [f"left in the outbox: {left}"] if left else []
            for view, topic in CHANGELOGS.items():
                faults += changelog_faults(changes_of(log, topic), found[view], topic)
        return faults

    def uninterrupted(self) -> Rows:
        """What one run that nobody disturbs makes of the log."""
        (self.folder / "calm.db").unlink(missing_ok=True)
        url = f"sqlite:{self.folder / 'calm.db'}"
        with FolderLog(self.folder / "log", background=False) as log, self.engine(log, url) as (engine, store):
            run_stream(engine, once=True, max_rows=50)
            return rows_of(engine, store)

    @contextmanager
    def engine(self, log: FolderLog, url: str) -> Iterator[tuple[Engine, Store]]:
        with (
            open_store(url) as store,
            open_engine(accounts(), log=log, store=store, spark=self.spark, is_silent=True, views=self.views) as engine,
        ):
            yield engine, store


def storm_at(point: Point, storm: Storm, *, kills: int, seed: int) -> Outcome:
    """Kills that many runs at the point, lets the last one finish, and judges."""
    dice = Random(f"{point} {seed}")
    outcome = Outcome(point)
    mode = MODES.get(point, "stream")
    while outcome.kills < kills and outcome.runs < 3 * kills and not outcome.faults:
        storm.append(dice)
        strike = Strike(point, dice.randint(1, NTH_MAX), dice.random())
        # A replay that was killed is gone on with; one that is done is followed by another.
        version = f" {outcome.runs - outcome.kills}" if mode == "kappa" else ""
        code = storm.run(storm.job(mode=mode, version=version, strike=strike))
        outcome.runs += 1
        outcome.kills += code == -signal.SIGKILL
        if code not in (0, -signal.SIGKILL):
            outcome.faults.append(f"a run ended with exit code {code}")
    if outcome.kills < kills:
        outcome.faults.append(f"only {outcome.kills} of {kills} kills found their point")
    if code := storm.run(storm.job(mode=mode, version=" last" if mode == "kappa" else "")):
        outcome.faults.append(f"the last run ended with exit code {code}")
    else:
        outcome.faults += storm.judge()
    return outcome


def storm_everywhere(
    folder: Path,
    spark: SparkSession,
    *,
    kills: int,
    seed: int,
    points: Sequence[Point] = POINTS,
    report: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """All points, two at a time, each on a log and a database of its own."""
    views = compile_pipeline(accounts(), spark)

    def one(point: Point) -> Outcome:
        outcome = storm_at(point, Storm(folder / point, spark, views), kills=kills, seed=seed)
        report(outcome)
        return outcome

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, points))


def changes_of(log: FolderLog, name: str) -> list[list[dict[str, Any]]]:
    """The records of a topic of changes, partition by partition, in order."""
    topic = log.topic(name)
    ends = topic.end()
    table = topic.slice(topic.start(), ends).sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    rows = table.to_pylist()
    return [[row for row in rows if row["_partition"] == number] for number in ends]


def changelog_faults(
    changes: Sequence[Sequence[Mapping[str, Any]]], view: Sequence[tuple[Any, ...]], topic: str
) -> list[str]:
    """Each change of a row must begin where the one before ended, so none is told twice or left out."""
    faults = []
    now: dict[str, Mapping[str, Any]] = {}
    for partition in changes:
        for change in partition:
            key, before, after = change["key"], change["before"], change["after"]
            expected = "insert" if before is None else "delete" if after is None else "update"
            if now.get(key) != before or before == after or change["operation"] != expected:
                faults.append(f"{topic} at offset {change['_offset']}: {change} after {now.get(key)}")
            if after is None:
                now.pop(key, None)
            else:
                now[key] = after
    added_up = sorted((tuple(row.values()) for row in now.values()), key=repr)
    if added_up != list(view):
        faults.append(f"{topic} adds up to {added_up}, but the view holds {list(view)}")
    return faults


def process_context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.pipeline_worker"])
    return context


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.pipeline_storm", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="kills at each point")
    parser.add_argument("--point", choices=POINTS, action="append", help="only at this point (may be given again)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    options = parser.parse_args(arguments)
    from penstock.settings import SparkSettings
    from penstock.spark import session

    logging.getLogger("penstock").setLevel(logging.ERROR)
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    spark = session(SparkSettings(master="local[2]", shuffle_partitions=2), name="storm")
    with tempfile.TemporaryDirectory(prefix="storm-") as folder:
        outcomes = storm_everywhere(
            Path(folder),
            spark,
            kills=options.kills,
            seed=options.seed,
            points=options.point or POINTS,
            report=lambda outcome: print(outcome, flush=True),
        )
    is_clean = not any(outcome.faults for outcome in outcomes)
    print(f"{'clean' if is_clean else 'FAULTS'} after {time.monotonic() - began:.0f} s")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
