"""The processes of the demo: events come in here, a stream keeps the views, a service shows them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from penstock.clock import now_us
from penstock.demo.traffic import Traffic
from penstock.errors import DemoFailed
from penstock.log.log import Log
from penstock.modes.topics import make_topics
from penstock.pipeline.loading import load_pipeline
from penstock.views.catalog import Catalog
from penstock.views.store import open_store

APP = Path(__file__).with_name("weblogs.py")
HISTORY_SECONDS = 3900
"""What happened on the site before the demo began: a little more than the hour that a phone may be late."""
STOP_SECONDS = 30
LINES_SHOWN = 12

OnLine = Callable[[dict[str, Any]], None]
"""Is given what a process says, line by line."""


class Site:
    """A web site whose log goes through Penstock, all in one folder. Use it in a `with`: that ends every process."""

    def __init__(self, folder: Path, smtp: str, *, shown: TextIO = sys.stdout) -> None:
        self.folder = folder
        self._shown = shown
        self.app = folder / APP.name
        self.app.write_bytes(APP.read_bytes())
        self.settings = folder / "penstock.toml"
        self.settings.write_text(f'[alerts]\nsmtp = "{smtp}"\nsender = "penstock@example.com"\n')
        self.sent = 0
        """Events that are in the log, with those of the history."""
        self._log = Log(f"dir:{folder}/data/log")
        self._topic = make_topics(load_pipeline(str(self.app)), self._log)["access"]
        self._traffic = Traffic(now_us())
        self._began = time.monotonic()
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for process in self._processes:  # All of them first: each takes a moment.
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
            for process in self._processes:
                self.end(process)
        finally:
            for process in self._processes:
                process.kill()
            self._log.close()

    # --- events ---

    def load_history(self) -> None:
        """Brings in what happened before the demo, as if it had been recorded then."""
        rows = self._traffic.history(HISTORY_SECONDS)
        # On the site each request was stored at once: history that is not late.
        self._topic.append(rows, arrived=rows.column("time").combine_chunks())
        self.sent += rows.num_rows

    def produce(self, stop: threading.Event) -> None:
        """Sends what happens from second 0 on, each second when it is over, until it is asked to stop."""
        with self._topic.producer() as producer:
            for number in _seconds(self._began, stop):
                rows = self._traffic.second(number)
                producer.send(rows).wait()
                self.sent += rows.num_rows

    def lag(self) -> int:
        """How many events are not in the views yet."""
        with open_store(f"sqlite:{self.folder}/data/views.db") as store, store.snapshot() as snapshot:
            fences = [each.fence for each in Catalog(snapshot.connection).generations() if each.state == "live"]
        ends = {self._topic.name: self._topic.end()}
        return max((fence.lag_behind(ends) for fence in fences), default=self.sent)

    # --- processes ---

    def stream(self, on_line: OnLine) -> subprocess.Popen[str]:
        """Starts the run that keeps the views; `on_line` is given each thing it says."""
        process = self._start("run", self.app, "--json", "--trigger", "500ms")
        threading.Thread(target=_read_lines, args=(process, on_line), daemon=True).start()
        return process

    def serve(self, wanted: int) -> str:
        """Starts the service, with the dashboard: at that port, or at any other if it cannot. Returns its address."""
        for port in dict.fromkeys((wanted, 0)):
            process = self._start("serve", self.app, "--port", str(port))
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"http://\S+?(?=[\s,/]|$)", line):
                    threading.Thread(target=process.stdout.read, daemon=True).start()
                    return found[0]
        raise DemoFailed("the service", process.wait(), self.said("serve"))

    def verify(self) -> int:
        """Proves that every mode gives the same rows, and prints the table. Returns the exit code."""
        return self._start("verify", self.app, "--cuts", "1", stdout=self._shown).wait()

    def end(self, process: subprocess.Popen[str]) -> None:
        """Ends a process, as Ctrl-C would."""
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        if process.poll() is None:
            process.kill()
            process.wait()

    def said(self, command: str) -> str:
        """The last lines that a process said beside its output, for whoever wants to know why it ended."""
        lines = (self.folder / f"{command}.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-LINES_SHOWN:])

    def _start(self, command: str, *options: object, stdout: int | TextIO = subprocess.PIPE) -> subprocess.Popen[str]:
        with (self.folder / f"{command}.log").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", command, *map(str, options)],
                cwd=self.folder,
                env={**os.environ, "PENSTOCK_CONFIG": str(self.settings)},
                stdout=stdout,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends them one after the other.
            )
        self._processes.append(process)
        return process


def _seconds(began: float, stop: threading.Event) -> Iterator[int]:
    """0, 1, 2 ...: each as soon as it is over."""
    number = 0
    while not stop.wait(max(0.0, began + number + 1 - time.monotonic())):
        yield number
        number += 1


def _read_lines(process: subprocess.Popen[str], on_line: OnLine) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        with suppress(json.JSONDecodeError):
            on_line(json.loads(line))
