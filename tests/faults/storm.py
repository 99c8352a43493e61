"""A storm of kills: producers, consumers and sealers are killed at random moments and started again.

    python -m tests.faults.storm --kills 1000
    python -m tests.faults.storm --power-cuts 1000
    python -m tests.faults.storm --injections all

The workers are forked from a server that has loaded everything and opened nothing, so a start costs milliseconds. The
storm comes in rounds, each on a log of its own, and after each round the judge speaks.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from penstock.log.log import Log
from tests.faults import workers
from tests.faults.checker import Verdict, judge
from tests.faults.history import Entry, read_history

ROUND_KILLS = 50
CREW: dict[str, Callable[[Path, Path, str, int], None]] = {
    "writer-1": workers.write,
    "writer-2": workers.write,
    "producer-1": workers.produce,
    "producer-2": workers.produce,
    "consumer-1": workers.consume,
    "consumer-2": workers.consume,
    "sealer-1": workers.maintain,
    "sealer-2": workers.maintain,
}
"""Who is on the log at once."""
LIFE_SECONDS = (0.01, 0.6)
"""A worker is killed after some time between these."""


@dataclass(frozen=True)
class Round:
    """What one round of a storm left behind."""

    verdict: Verdict
    crashes: list[str]
    """What workers met that they did not expect."""
    kills: dict[str, int]

    def __str__(self) -> str:
        return "\n".join([str(self.verdict), *self.crashes])


def storm(directory: Path, *, kills: int, seed: int) -> Round:
    """Kills that many workers on a new log in the directory, opens the log again, and judges."""
    dice = random.Random(seed)
    root, histories = directory / "log", directory / "histories"
    histories.mkdir(parents=True)
    workers.make_topics(root)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.workers"])
    alive: dict[str, tuple[BaseProcess, float]] = {}
    killed = dict.fromkeys(CREW, 0)
    crashes: list[str] = []

    def start(name: str) -> None:
        process = context.Process(target=CREW[name], args=(root, histories, name, dice.randrange(1 << 30)), name=name)
        process.start()
        alive[name] = (process, time.monotonic() + dice.uniform(*LIFE_SECONDS))

    for name in CREW:
        start(name)
    try:
        while sum(killed.values()) < kills and not crashes:
            name = min(alive, key=lambda each: alive[each][1])
            process, due = alive[name]
            time.sleep(max(due - time.monotonic(), 0))
            if process.exitcode is not None:
                crashes.append(f"{name} ended by itself with exit code {process.exitcode}")
            process.kill()
            process.join()
            killed[name] += 1
            start(name)
    finally:
        for process, _ in alive.values():
            process.kill()
            process.join()
    entries = list(read_history(histories))
    crashes += [entry["error"] for entry in entries if entry["do"] == "crash"]
    return Round(judge_opened(root, entries), crashes, killed)


def judge_opened(root: Path, entries: list[Entry]) -> Verdict:
    """Opens the log as the next process would, judges it, and compares what penstock reads with what the judge reads."""
    with Log(root, background=False) as log:
        for name in log.topics():
            log.topic(name).end()
        verdict = judge(root, entries)
        for (name, number), stored in verdict.partitions.items():
            topic = log.topic(name)
            start, stop = {number: topic.partitions[number].start_offset()}, {number: stored.end_offset}
            table = topic.slice(start, stop, columns=["writer", "number", "note"])
            expected = stored.records.select(["writer", "number", "note", "_offset"])
            if not table.select(expected.schema.names).combine_chunks().equals(expected.combine_chunks()):
                verdict.faults.append(f"{name}/{number}: penstock reads something else than what is on disk")
    return verdict


def kill_storm(directory: Path, *, kills: int, seed: int, report: Callable[[str], None] = lambda _: None) -> list[Round]:
    """Rounds of kills until there were enough, or until a round was not clean."""
    rounds: list[Round] = []
    done = 0
    while done < kills:
        rounds.append(storm(directory / f"round-{len(rounds)}", kills=min(ROUND_KILLS, kills - done), seed=seed + done))
        done += sum(rounds[-1].kills.values())
        report(f"{done} kills: {rounds[-1]}")
        if rounds[-1].crashes or not rounds[-1].verdict.is_clean:
            break
    return rounds


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.storm", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=0, help="how many workers to kill")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}")
    is_clean = True
    with tempfile.TemporaryDirectory(prefix="storm-") as directory:
        if options.kills:
            rounds = kill_storm(Path(directory) / "kills", kills=options.kills, seed=options.seed, report=print)
            is_clean &= all(each.verdict.is_clean and not each.crashes for each in rounds)
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
