"""A storm of kills: producers, consumers and sealers are killed at random moments and started again.

The workers are forked from a server that has loaded everything and opened nothing, so a start costs milliseconds. The
storm comes in rounds, each on a log of its own, and after each round the judge speaks.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from penstock.consume.consumer import Consumer
from penstock.log.folder_log import FolderLog
from tests.faults import workers
from tests.faults.checker import Verdict
from tests.faults.history import Entry, read_history
from tests.faults.opened import judge_opened

ROUND_KILLS = 50
CREW: dict[str, Callable[[Path, Path, str, int], None]] = {
    "writer-1": workers.write,
    "writer-2": workers.write,
    "producer-1": workers.produce,
    "producer-2": workers.produce,
    "spiller-1": workers.spill,
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
    crashes += [entry["text"] for entry in entries if entry["do"] == "warning" and "are gone:" in entry["text"]]
    verdict = judge_opened(root, entries)
    _judge_group(verdict, root, entries)
    return Round(verdict, crashes, killed)


def _judge_group(verdict: Verdict, root: Path, entries: list[Entry]) -> None:
    """The group goes on where it left off, to the end; then its members together were given every record."""
    given = [(entry["partition"], entry["start"], entry["stop"]) for entry in entries if entry["do"] == "received"]
    ends = {number: stored.end_offset for (name, number), stored in verdict.partitions.items() if name == workers.PLAIN}
    with FolderLog(root, background=False) as log, Consumer(log, workers.PLAIN, group=workers.GROUP) as consumer:
        while consumer.positions() != {(workers.PLAIN, number): end for number, end in ends.items()}:
            found = consumer.poll(10)
            if not found:
                verdict.faults.append(f"group: no more records at {consumer.positions()}, but the log ends at {ends}")
                break
            given += [(records.partition, records.start, records.stop) for records in found]
    for number, end in ends.items():
        reached = 0
        for _, start, stop in sorted(each for each in given if each[0] == number):
            if start <= reached:
                reached = max(reached, stop)
        if reached != end:
            verdict.faults.append(f"group: nobody was given offset {reached} of partition {number}")


def kill_storm(
    directory: Path, *, kills: int, seed: int, report: Callable[[str], None] = lambda _: None
) -> list[Round]:
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
