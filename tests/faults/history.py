"""What writers and readers did, one JSON object a line: written before they act, and after they were answered.

    {"do": "send", "topic": "t", "writer": "w1", "partition": 0, "first": 100, "count": 20}     before the append
    {"do": "ack",  "topic": "t", "writer": "w1", "partition": 0, "first": 100, "count": 20, "base": 4711}    after it

Each line is one write to a file opened for appending, so a killed writer leaves whole lines and nothing half. It lies
outside of whatever is being cut off from power.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

SCHEMA = "writer string, number bigint, note string, time timestamp"
"""The columns of every topic that is judged: who wrote it, the writer's own count, a text that follows from both."""


def note_of(writer: str, number: int) -> str:
    """The text that belongs to a record: any other one is a wrong row."""
    return f"{writer}:{number}:{'#' * (number % 61)}"


class History:
    """A file that entries are added to. Any number of threads; one file per process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def add(self, do: str, **fields: Any) -> None:
        os.write(self._fd, json.dumps({"do": do, **fields}).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


def read_history(*paths: Path) -> Iterator[Entry]:
    """The entries of some history files, or of all `*.jsonl` in a folder."""
    for path in paths:
        files: Iterable[Path] = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        for file in files:
            if file.exists():
                with file.open() as lines:
                    yield from (json.loads(line) for line in lines)
