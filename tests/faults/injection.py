"""A kill, or an I/O error, at every system call that changes something on disk, one run of a fixed scenario each.

strace attaches to a process that is about to begin, counts its system calls, and at the chosen one kills it or lets the
call fail. Which calls there are is found out by a first run without a fault. Needs strace and the right to trace.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.errors import PartitionReadOnly
from tests.eventually import LIMIT_SECONDS
from tests.faults.history import read_history
from tests.faults.opened import judge_opened
from tests.faults.scenarios import Scenario, go_on, play

CALLS = (
    "write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,rmdir,"
    "ftruncate,mkdir,mkdirat,link,linkat"
)
LINE = re.compile(r"^(?P<pid>\d+) +(?P<call>\w+)\((?P<arguments>.*)$")
Fault = Literal["kill", "error"]


class NoTracing(Exception):
    """This machine cannot do it; the message says what it needs."""


@dataclass(frozen=True)
class Call:
    """A system call of the scenario that changes something in the folder of the log."""

    scenario: Scenario
    name: str
    number: int
    """Counts the calls of that name, from 1."""
    arguments: str

    def __str__(self) -> str:
        return f"{self.scenario}: {self.name} #{self.number} ({self.arguments[:160]})"


def calls_of(scenario: Scenario, directory: Path) -> list[Call]:
    """Every call that changes something in the log, in order. NoTracing where nothing can be traced."""
    if shutil.which("strace") is None:
        raise NoTracing("strace is not installed: apt install strace")
    root = directory / f"baseline-{scenario}"
    lines, exit_code = run(scenario, root, None)
    entries = list(read_history(root / "history.jsonl"))
    assert exit_code == 0, exit_code
    assert not [entry for entry in entries if entry["do"] == "error"], entries[-1]
    seen: Counter[str] = Counter()
    calls = []
    for line in lines:
        found = LINE.match(line)
        if found and found["pid"] == lines[0].split()[0]:  # strace counts for each thread by itself; ours is the first.
            seen[found["call"]] += 1
            if str(root / "log") in found["arguments"]:
                calls.append(
                    Call(scenario, found["call"], seen[found["call"]], found["arguments"].replace(str(root), ""))
                )
    return calls


def run(scenario: Scenario, directory: Path, inject: str | None) -> tuple[list[str], int]:
    """Plays the scenario in a new process under strace. The lines of its trace, and how it ended."""
    directory.mkdir()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.injection"])
    mine, theirs = context.Pipe()
    process = context.Process(target=play, args=(scenario, directory / "log", directory / "history.jsonl", theirs))
    process.start()
    pid = mine.recv()
    trace = directory / "trace"
    command = ["strace", "-f", "-y", "-s", "0", "-o", str(trace), "-e", f"trace={CALLS}", "-e", "signal=none"]
    command += ["-e", f"inject={inject}"] if inject else []
    tracer = subprocess.Popen([*command, "-p", str(pid)], stderr=subprocess.PIPE, text=True)
    try:
        _wait_until_traced(tracer)
        mine.send("go")
        process.join(LIMIT_SECONDS)
        assert process.exitcode is not None, "the scenario did not end"
        tracer.wait(LIMIT_SECONDS)
    finally:
        process.kill()
        tracer.kill()
        tracer.communicate()
    return trace.read_text().splitlines(), process.exitcode


def _wait_until_traced(tracer: subprocess.Popen[str]) -> None:
    """strace says so once it has interrupted the process, which makes no call untraced from then on."""
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    if "attached" not in said:
        raise NoTracing(
            f"strace may not attach to a process here (in a container: --cap-add=SYS_PTRACE): {said.strip()}"
        )


def inject(directory: Path, call: Call, fault: Fault) -> str | None:
    """Runs the scenario with one fault, opens the log again, judges, works on. What is wrong, or None."""
    what = "signal=KILL" if fault == "kill" else "error=EIO"
    lines, exit_code = run(call.scenario, directory, f"{call.name}:{what}:when={call.number}")
    root, history = directory / "log", directory / "history.jsonl"
    entries = list(read_history(history))
    errors = [entry for entry in entries if entry["do"] == "error"]
    again = [entry["type"] for entry in entries if entry["do"] == "again"]
    if fault == "kill" and exit_code != -signal.SIGKILL:
        return f"it was not killed, but ended with {exit_code}"
    if fault == "error" and not any("(INJECTED)" in line for line in lines):
        return "no error was injected"
    for entry in errors:
        if not entry["is_expected"] or (entry["step"].startswith("append") and not entry["is_ours"]):
            return f"a surprising error: {entry}"
    if any(kind != PartitionReadOnly.__name__ for kind in again):
        return f"after {errors}, an append met: {again}"
    verdict = judge_opened(root, entries)
    if not verdict.is_clean:
        return str(verdict)
    try:
        go_on(root, history)
    except Exception as error:
        return f"cannot go on: {type(error).__name__}: {error}"
    verdict = judge_opened(root, list(read_history(history)))
    return None if verdict.is_clean else f"after going on: {verdict}"


def inject_all(
    directory: Path, calls: list[Call], faults: tuple[Fault, ...], report: Callable[[str], None] = lambda _: None
) -> list[str]:
    """One run for each call and fault, two at a time. What is wrong."""

    def one(numbered: tuple[int, Call, Fault]) -> str | None:
        number, call, fault = numbered
        place = directory / f"{call.scenario}-{fault}-{number}"
        wrong = inject(place, call, fault)
        if wrong is None:
            shutil.rmtree(place)
        else:
            report(f"{fault} at {call}: {wrong}")
        return None if wrong is None else f"{fault} at {call}: {wrong}"

    jobs = [(number, call, fault) for number, call in enumerate(calls) for fault in faults]
    with ThreadPoolExecutor(2) as pool:
        return [wrong for wrong in pool.map(one, jobs) if wrong is not None]
