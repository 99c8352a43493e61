"""A storm of kills: producers, consumers and sealers kill themselves at chosen calls and are started again.

The workers are forked from a server that has loaded everything and opened nothing, so a start costs milliseconds. The
storm comes in rounds, each on a log of its own, and each round ends with a verdict of the checker. A worker dies at its
nth call that changes a file, however long that takes, so a slow machine changes neither the number of kills nor how
much was done before each. How the workers take turns is left to the machine.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any, Literal

from penstock.consume.consumer import Consumer
from penstock.log.folder_log import FolderLog
from tests.eventually import LIMIT_SECONDS, eventually
from tests.faults import workers
from tests.faults.checker import Verdict
from tests.faults.history import Entry, read_history
from tests.faults.opened import judge_opened

Worker = Callable[[Path, Path, str, int], None]

ROUND_KILLS = 50
CREW: dict[str, Worker] = {
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
"""The workers that share a log."""
CALLS = ("write", "pwrite", "pwritev", "fsync", "fdatasync", "rename", "link", "unlink", "ftruncate")
"""The functions of `os` through which files are changed. Writes to the history count as well."""
CALLS_MAX = 120
"""A worker dies at one of its first calls, up to this one."""
SOON_SECONDS_MAX = 0.01


@dataclass(frozen=True)
class Death:
    """When a worker kills itself."""

    call: int
    moment: Literal["before", "after", "soon after"]
    """Soon after: while the worker runs on, so perhaps inside a library where no function can be wrapped."""
    delay_seconds: float

    @classmethod
    def chosen(cls, dice: Random) -> Death:
        moment: Any = dice.choice(["before", "after", "soon after"])
        return cls(dice.randint(1, CALLS_MAX), moment, dice.uniform(0, SOON_SECONDS_MAX))


@dataclass(frozen=True)
class Round:
    """What one round of a storm left behind."""

    verdict: Verdict
    crashes: list[str]
    """Errors that workers did not expect."""
    kills: dict[str, int]

    def __str__(self) -> str:
        return "\n".join([str(self.verdict), *self.crashes])


def storm(directory: Path, *, kills: int, seed: int) -> Round:
    """Kill workers on a new log in the directory, each about equally often, open the log again, and judge it."""
    dice = Random(seed)
    root, histories = directory / "log", directory / "histories"
    histories.mkdir(parents=True)
    workers.make_topics(root)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.kills"])
    alive: dict[int, BaseProcess] = {}
    left = dict.fromkeys(CREW, kills // len(CREW))
    for name in dice.sample(list(CREW), kills % len(CREW)):
        left[name] += 1
    planned = dict(left)
    crashes: list[str] = []

    def start(name: str) -> None:
        death = Death.chosen(dice) if left[name] else None
        process = context.Process(
            target=live, args=(CREW[name], root, histories, name, dice.randrange(1 << 30), death), name=name
        )
        process.start()
        alive[process.sentinel] = process

    for name in CREW:
        start(name)
    try:
        while any(left.values()) and not crashes:
            dead = wait([*alive], LIMIT_SECONDS)
            assert dead, f"no worker came to its call; kills left: {left}"
            for sentinel in dead:
                process = alive.pop(int(sentinel))  # type: ignore[arg-type]
                process.join()
                if process.exitcode != -signal.SIGKILL:
                    crashes.append(f"{process.name} ended by itself with exit code {process.exitcode}")
                    continue
                left[process.name] -= 1
                start(process.name)
        if not crashes:  # The sealers live on until they have sealed something of everything.
            eventually(lambda: all(path.exists() for path in workers.manifests(root)))
    finally:
        for process in alive.values():
            process.kill()
            process.join()
    entries = list(read_history(histories))
    crashes += [entry["error"] for entry in entries if entry["do"] == "crash"]
    crashes += [entry["text"] for entry in entries if entry["do"] == "warning" and "are gone:" in entry["text"]]
    verdict = judge_opened(root, entries)
    _judge_group(verdict, root, entries)
    return Round(verdict, crashes, {name: planned[name] - left[name] for name in CREW})


def live(worker: Worker, root: Path, histories: Path, name: str, seed: int, death: Death | None) -> None:
    """Work in this process until it is killed."""
    if death is not None:
        _arm(death)
    worker(root, histories, name, seed)


def _arm(death: Death) -> None:
    """Wrap the calls that change files, in this process."""
    numbers = itertools.count(1)

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def armed(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            is_last = next(numbers) == death.call
            if is_last and death.moment == "before":
                kill()
            if is_last and death.moment == "soon after":
                threading.Timer(death.delay_seconds, kill).start()
            result = real(*arguments, **named)
            if is_last and death.moment == "after":
                kill()
            return result

        return call

    for name in CALLS:
        setattr(os, name, armed(getattr(os, name)))


def _judge_group(verdict: Verdict, root: Path, entries: list[Entry]) -> None:
    """The group continues where it stopped, up to the end; then its members together received every record."""
    received = [(entry["partition"], entry["start"], entry["stop"]) for entry in entries if entry["do"] == "received"]
    ends = {number: stored.end_offset for (name, number), stored in verdict.partitions.items() if name == workers.PLAIN}
    with FolderLog(root, background=False) as log, Consumer(log, workers.PLAIN, group=workers.GROUP) as consumer:

        def is_at_the_end() -> bool:
            received.extend((records.partition, records.start, records.stop) for records in consumer.poll(1))
            return consumer.positions() == {(workers.PLAIN, number): end for number, end in ends.items()}

        eventually(is_at_the_end, explain=lambda: f"the group is at {consumer.positions()}, the log ends at {ends}")
    for number, end in ends.items():
        reached = 0
        for _, start, stop in sorted(each for each in received if each[0] == number):
            if start <= reached:
                reached = max(reached, stop)
        if reached != end:
            verdict.faults.append(f"group: no member received offset {reached} of partition {number}")


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
