"""Runs of a pipeline kill themselves at every kind of point, and are started again, until their work is done.

Then every view must hold what an uninterrupted run computes from the same log, and the changelogs must contain each
change once and add up to their views. As a command it kills more often, prints its seed, and exits with 1 on a fault:

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
"""Appended before each run: enough for a few steps."""
NTH_MAX = 3
MISSES_MAX = 4
"""How many runs in a row may miss their point before the storm fails."""
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Outcome:
    """What a storm left behind."""

    name: str
    kills: int = 0
    runs: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.name}: {self.kills} kills in {self.runs} runs", *self.faults])


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


def storm_at(name: str, points: Sequence[Point], storm: Storm, *, seed: int) -> Outcome:
    """Kill one run at each of the points, one after the other, let the last one finish, and judge."""
    dice = Random(f"{name} {seed}")
    outcome = Outcome(name)
    misses = 0
    while outcome.kills < len(points) and not outcome.faults:
        point = points[outcome.kills]
        storm.append(dice)
        # A run may end before it came to its point often enough; then the next one is killed the first time.
        strike = Strike(point, 1 if misses else dice.randint(1, NTH_MAX), dice.random())
        # The next run continues a replay that was killed. After a complete one, only new code starts another.
        version = f" {outcome.runs - outcome.kills}" if mode_of(point) == "kappa" else ""
        code = storm.run(storm.job(mode=mode_of(point), version=version, strike=strike))
        outcome.runs += 1
        if code == -signal.SIGKILL:
            outcome.kills += 1
            misses = 0
        elif code:
            outcome.faults.append(f"a run ended with exit code {code}")
        else:
            misses += 1
        if misses == MISSES_MAX:
            outcome.faults.append(f"{misses} runs in a row never came to the point {point}")
    mode = mode_of(points[-1])
    if code := storm.run(storm.job(mode=mode, version=" last" if mode == "kappa" else "")):
        outcome.faults.append(f"the last run ended with exit code {code}")
    else:
        outcome.faults += storm.judge()
    return outcome


def mode_of(point: Point) -> Mode:
    return MODES.get(point, "stream")


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
        outcome = storm_at(point, [point] * kills, Storm(folder / point, spark, views), seed=seed)
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
