"""What is played while calls are made to fail: fixed scenarios in one thread, with the same system calls every time."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

from penstock.consume.assignment import TopicPartition
from penstock.consume.group import Group
from penstock.errors import PartitionReadOnly, PenstockError
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.faults.history import SCHEMA, History
from tests.faults.workers import append, events

PR_SET_PTRACER = 0x59616D61
Scenario = Literal["life", "mend"]
Steps = list[tuple[str, Callable[[], object]]]
TOPICS: dict[str, dict[str, object]] = {"t": {"retention_bytes": 8192}, "table": {"key": "writer", "compact": True}}


def play(scenario: Scenario, root: Path, history_path: Path, gate: Connection) -> None:
    """Plays a scenario as soon as the gate opens; ends at the first error."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    logging.getLogger("penstock").setLevel(logging.ERROR)
    history = History(history_path)
    if scenario == "mend":
        _leave_a_mess(root, history)
    log = FolderLog(root, background=False)
    steps = _life(log, history) if scenario == "life" else _mend(log, history)
    gate.send(os.getpid())
    gate.recv()
    done = 0
    try:
        for _, action in steps:
            action()
            done += 1
    except Exception as error:
        step = steps[done][0]
        history.add(
            "error", step=step, type=type(error).__name__, text=str(error), is_ours=isinstance(error, PenstockError),
            is_expected=isinstance(error, PenstockError | OSError),
        )  # fmt: skip
        if step.startswith("append"):
            history.add("again", type=_try_again(log, step.split()[1]))
    os._exit(0)


def _life(log: FolderLog, history: History) -> Steps:
    """Makes topics, appends, rolls, seals, retains, compacts, commits, alters and deletes."""

    def create(name: str, **options: object) -> None:
        log.create(name, SCHEMA, segment_bytes=4096, **options)
        history.add("created", topic=name)

    def write(name: str, turn: int) -> None:
        append(history, log.topic(name), "w", 0, 10 * turn, 10)

    def alter() -> None:
        log.topic("t").alter(schema=f"{SCHEMA}, extra string")
        history.add("altered", topic="t", column="extra")

    def commit(offset: int) -> None:
        _commit(log, offset)
        history.add("committed", group="g", topic="t", partition=0, offset=offset)

    def delete(name: str) -> None:
        history.add("delete", topic=name)
        log.delete(name)
        history.add("deleted", topic=name)

    def topic(name: str) -> FolderTopic:
        return log.topic(name)

    return [
        ("create t", lambda: create("t", **TOPICS["t"])),
        ("create table", lambda: create("table", **TOPICS["table"])),
        ("create gone", lambda: create("gone")),
        *((f"append {name}", partial(write, name, turn)) for turn in range(5) for name in ("t", "table")),
        ("commit", lambda: commit(7)),
        ("seal t", lambda: topic("t").seal()),
        ("alter t", alter),
        ("append t", lambda: write("t", 5)),
        ("seal table", lambda: topic("table").seal(active=True)),
        ("commit", lambda: commit(20)),
        ("compact table", lambda: topic("table").compact()),
        ("append table", lambda: write("table", 5)),
        ("seal t", lambda: topic("t").seal(active=True)),
        ("retain t", lambda: topic("t").retain()),
        ("append t", lambda: write("t", 6)),
        ("append gone", lambda: write("gone", 0)),
        ("delete gone", lambda: delete("gone")),
        ("append t", lambda: write("t", 7)),
    ]  # fmt: skip


def _mend(log: FolderLog, history: History) -> Steps:
    """What comes after a crash: everything that was left behind is mended by whoever comes next."""
    return [
        ("append t", lambda: append(history, log.topic("t"), "w", 0, 50, 10)),
        ("append table", lambda: append(history, log.topic("table"), "w", 0, 50, 10)),
        ("append new", lambda: append(history, log.topic("new"), "w", 0, 50, 10)),
        ("seal t", lambda: log.topic("t").seal()),
        ("seal table", lambda: log.topic("table").seal(active=True)),
        ("retain t", lambda: log.topic("t").retain()),
        ("compact table", lambda: log.topic("table").compact()),
    ]


def _leave_a_mess(root: Path, history: History) -> None:
    """A torn frame; a segment that was closed, with a torn one behind it; no `end`; files that nothing refers to."""
    with FolderLog(root, background=False) as log:
        for name, options in (*TOPICS.items(), ("new", {})):
            topic = log.create(name, SCHEMA, segment_bytes=4096, **options)
            history.add("created", topic=name)
            for turn in range(5):
                append(history, topic, "w", 0, 10 * turn, 10)
        log.topic("table").partitions[0].roll()
    for name in (*TOPICS, "new"):
        directory = root / "topics" / name / "0"
        active = max(directory.glob("*.log"))
        if name == "table":
            os.truncate(active, 100)
        else:
            active.write_bytes(active.read_bytes() + b"PnFr" + bytes(1000))
        if name != "t":
            (directory / "end").unlink()
        for leftover in (f"{0:020d}.parquet", f"{0:020d}.parquet.tmp", f"{20:020d}-1.parquet", "manifest.json.tmp"):
            (directory / leftover).write_bytes(b"nothing refers to this")


def _commit(log: FolderLog, offset: int) -> None:
    key = TopicPartition("t", 0, log.topic("t").definition.id)
    Group(log.root, "g", lambda _: frozenset([key])).reset({key: offset})


def _try_again(log: FolderLog, name: str) -> str:
    """What a second append in the same process meets."""
    try:
        topic = log.topic(name)
        topic.append(events("nobody", 0, 1, topic.schema))
    except PartitionReadOnly:
        return PartitionReadOnly.__name__
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "it was stored"


def go_on(root: Path, history_path: Path) -> None:
    """What the next process does: everything again."""
    history = History(history_path)
    with FolderLog(root, background=False) as log:
        for name, options in TOPICS.items():
            topic = log.create(name, SCHEMA, segment_bytes=4096, exist_ok=True, **options)
            for turn in range(100, 104):
                append(history, topic, "w", 0, 10 * turn, 10)
            topic.seal(active=True)
            topic.retain()
            topic.compact()
        _commit(log, 30)
        history.add("committed", group="g", topic="t", partition=0, offset=30)
    history.close()
