"""The processes of the demo: producers and consumers that write down what they did, and expect to be killed.

    python -m penstock.demo.workers produce LOG HISTORY NAME EPOCH
    python -m penstock.demo.workers consume LOG HISTORY NAME GROUP

A history is a file of JSON lines, each one write to a file opened for appending: a kill leaves whole lines.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from penstock.log.log import Log

TOPIC = "events"
BATCH = 100
"""Events in one `send` of a producer."""
UNDER_WAY = 20
"""So many sends of a producer may wait for their answer."""
PAUSE_SECONDS = 0.004
"""Between two sends: the demo shows safety, and leaves the machine some room."""

_is_over = False


class History:
    """What a process did, for the one that counts."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def add(self, **entry: Any) -> None:
        """Adds one line."""
        os.write(self._fd, json.dumps(entry).encode() + b"\n")


def read_history(path: Path) -> list[dict[str, Any]]:
    """The lines that were written so far."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def produce(root: Path, path: Path, name: str, epoch: int) -> None:
    """Sends events under a name. What a killed process of the same name sent without an answer is sent once more."""
    past = read_history(path)
    answered = {entry["first"] for entry in past if entry["do"] == "acknowledged"}
    sent = {entry["first"] for entry in past if entry["do"] == "sent"}
    again = sorted(sent - answered)
    following = max(sent, default=-BATCH) + BATCH
    under_way: deque[tuple[int, Any]] = deque()
    with Log(root) as log, log.producer(TOPIC, name=name, epoch=epoch) as producer:
        history = History(path)
        while not _is_over or under_way:
            if not _is_over:
                first = again.pop(0) if again else following
                following = max(following, first + BATCH)
                history.add(do="sent", first=first)
                events = [{"producer": name, "number": number} for number in range(first, first + BATCH)]
                under_way.append((first, producer.send(events, sequence=first)))
                time.sleep(PAUSE_SECONDS)
            while under_way and (under_way[0][1].done or len(under_way) > UNDER_WAY or _is_over):
                first, ack = under_way.popleft()
                ack.wait(30)
                history.add(do="acknowledged", first=first)


def consume(root: Path, path: Path, name: str, group: str) -> None:
    """Reads as a member of a group."""
    with Log(root, background=False) as log, log.consumer(TOPIC, group=group, session_timeout="3s") as consumer:
        history = History(path)
        history.add(do="joined", name=name)
        while not _is_over:
            for records in consumer.poll(timeout="200ms"):
                history.add(do="received", partition=records.partition, start=records.start, stop=records.stop)


def _end(*_: object) -> None:
    global _is_over  # noqa: PLW0603 (a signal has no other way to tell)
    _is_over = True


def main() -> None:
    """Runs one process of the demo until it is told to end (SIGTERM)."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who counts.
    what, root, path, name, last = sys.argv[1:]
    if what == "produce":
        produce(Path(root), Path(path), name, int(last))
    else:
        consume(Path(root), Path(path), name, last)


if __name__ == "__main__":
    main()
