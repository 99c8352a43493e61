"""A consumer in a process of its own, for tests that kill or freeze it: `python -m tests.consume.consumer_process`.

It writes what it does to a history file, a JSON object a line, before it goes on: `got` when records are in its hands,
`done` when a commit that covers them has returned (only with `--commit`). SIGTERM ends it as a program should end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import MemberEvicted
from penstock.log.folder_log import FolderLog


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("topics", nargs="+")
    parser.add_argument("--group", required=True)
    parser.add_argument("--session-timeout", default="1h")
    parser.add_argument("--auto-commit", default="100ms")
    parser.add_argument("--commit", action="store_true")
    parser.add_argument("--is-idle", action="store_true")
    parser.add_argument("--max-rows", type=int, default=100)
    parser.add_argument("--work-seconds", type=float, default=0.0)
    options = parser.parse_args()
    history = os.open(options.history, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(**fields: Any) -> None:
        os.write(history, json.dumps({"at": time.monotonic(), **fields}).encode() + b"\n")

    is_over: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: is_over.append(number))
    log = FolderLog(options.root, background=False)
    consumer = log.consumer(
        *options.topics, group=options.group, session_timeout=options.session_timeout, max_rows=options.max_rows,
        auto_commit=None if options.commit else options.auto_commit,
    )  # fmt: skip
    tell(joined=True)
    with consumer:
        while not is_over:
            began = time.monotonic()
            polled = consumer.poll(None if options.is_idle else 0.2)
            if not polled:
                continue
            got = [[each.topic, each.partition, each.batch.column("_offset").to_pylist()] for each in polled]
            tell(at=began, got=got)
            time.sleep(options.work_seconds)
            if options.commit:
                try:
                    consumer.commit()
                    tell(done=got)
                except MemberEvicted as error:
                    tell(evicted=str(error))


@dataclass
class ConsumerProcess:
    """The same, seen from the test."""

    root: Path
    name: str
    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.consume.consumer_process",
                str(self.root),
                str(self.history),
                *self.arguments,
            ],
            cwd=Path(__file__).parent.parent.parent,
        )

    @property
    def history(self) -> Path:
        return self.root / f"history-{self.name}"

    def told(self) -> list[dict[str, Any]]:
        if not self.history.exists():
            return []
        lines = self.history.read_bytes().split(b"\n")
        return [json.loads(line) for line in lines[:-1]]

    def records(self, kind: str = "got") -> list[tuple[str, int, int]]:
        """(topic, partition, offset) of everything it got, in its order."""
        return [
            (topic, partition, offset)
            for line in self.told()
            for topic, partition, offsets in line.get(kind, ())
            for offset in offsets
        ]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """Ends it however it is, and waits."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    main()
