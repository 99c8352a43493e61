"""`python -m penstock.demo`: the log at work, with kills, and an honest count at the end."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.demo.count import Count, count, received
from penstock.demo.workers import BATCH, TOPIC, read_history
from penstock.log.log import Log

PRODUCERS = ("ada", "bob", "eve")
GROUPS = {"billing": ("billing-1", "billing-2"), "alerts": ("alerts-1", "alerts-2")}
KILLED = ("bob", "billing-1")
START_SECONDS = 60
DRAIN_SECONDS = 30


class Demo:
    """Processes around one log."""

    def __init__(self, root: Path) -> None:
        self.histories = root / "histories"
        self.histories.mkdir(parents=True)
        self.log = Log(root / "log", background=False)
        self.log.create(TOPIC, "producer string, number bigint", key="number", partitions=4)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._epochs = dict.fromkeys(PRODUCERS, 0)

    def start(self) -> None:
        """Starts everybody, and waits until all are at work."""
        for name in PRODUCERS:
            self._start_producer(name)
        for group, names in GROUPS.items():
            for name in names:
                self._start("consume", name, group)
        deadline = time.monotonic() + START_SECONDS
        while not all(self._history(name).exists() for name in self._processes) and time.monotonic() < deadline:
            time.sleep(0.05)

    def kill(self) -> None:
        """Kills a producer and a consumer, as a crash would. The producer is started again; the consumer is not."""
        for name in KILLED:
            self._processes[name].send_signal(signal.SIGKILL)
            self._processes.pop(name).wait()
        self._epochs[KILLED[0]] += 1
        self._start_producer(KILLED[0])

    def drain(self) -> None:
        """Ends the producers, and waits until the groups have caught up."""
        self._end(PRODUCERS)
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline:
            counted = self.count()
            if not any(group.missed for group in counted.groups.values()):
                break
            time.sleep(0.2)

    def stop(self) -> None:
        """Ends everybody."""
        self._end(list(self._processes))
        self.log.close()

    def count(self) -> Count:
        """Everything so far, counted."""
        return count(self.log, [self._history(name) for name in PRODUCERS], self._group_histories())

    def progress(self) -> Table:
        """A quick look while it runs: events acknowledged, stored and received."""
        table = Table("", "events", box=None)
        entries = [entry for name in PRODUCERS for entry in read_history(self._history(name))]
        table.add_row("acknowledged", f"{BATCH * sum(entry['do'] == 'acknowledged' for entry in entries):,}")
        table.add_row("in the log", f"{sum(self.log.topic(TOPIC).end().values()):,}")
        for group, paths in self._group_histories().items():
            table.add_row(f"received by {group}", f"{sum(e['stop'] - e['start'] for e in received(paths)):,}")
        return table

    def _start_producer(self, name: str) -> None:
        self._start("produce", name, str(self._epochs[name]))

    def _start(self, what: str, name: str, last: str) -> None:
        command = [sys.executable, "-m", "penstock.demo.workers", what]
        self._processes[name] = subprocess.Popen([*command, self.log.root, self._history(name), name, last])

    def _end(self, names: tuple[str, ...] | list[str]) -> None:
        for name in names:
            self._processes[name].terminate()
        for name in names:
            self._processes.pop(name).wait()

    def _history(self, name: str) -> Path:
        return self.histories / f"{name}.jsonl"

    def _group_histories(self) -> dict[str, list[Path]]:
        return {group: [self._history(name) for name in names] for group, names in GROUPS.items()}


def run(root: Path, seconds: float, console: Console) -> tuple[Count, float]:
    """Runs the demo in a folder. Returns what was counted, and for how many seconds events were produced."""
    demo = Demo(root)
    try:
        console.print(
            f"{len(PRODUCERS)} producers and {len(GROUPS)} groups of 2 consumers, on one topic of 4 partitions"
        )
        demo.start()
        start = time.monotonic()
        is_killed = False
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            while time.monotonic() - start < seconds:
                time.sleep(0.25)
                live.update(demo.progress())
                if not is_killed and time.monotonic() - start > seconds / 2:
                    demo.kill()
                    is_killed = True
                    live.console.print(
                        f"kill -9: producer {KILLED[0]} (starts again) and consumer {KILLED[1]} (does not)"
                    )
            demo.drain()
        taken = time.monotonic() - start
    except KeyboardInterrupt:
        console.print("stopped")
        raise SystemExit(130) from None
    finally:
        demo.stop()
    with Log(root / "log", background=False) as demo.log:
        return demo.count(), taken


def report(counted: Count, seconds: float) -> Table:
    """The table at the end."""
    table = Table("", "events", "per second", title="What became of them")
    for number in (1, 2):
        table.columns[number].justify = "right"
    rated = {"sent": counted.sent, "acknowledged": counted.acknowledged, "in the log": counted.stored}
    rated |= {f"received by {name}": group.received for name, group in counted.groups.items()}
    for what, events in rated.items():
        table.add_row(what, f"{events:,}", f"{events / seconds:,.0f}")
    for name, group in counted.groups.items():
        table.add_row(f"redelivered to {name}", f"{group.redelivered:,}", "")
        table.add_row(f"missed by {name}", f"{group.missed:,}", "")
    style = "bold green" if counted.is_clean else "bold red"
    table.add_row("lost", f"{counted.lost:,}", "", style=style)
    table.add_row("stored twice", f"{counted.stored_twice:,}", "", style=style)
    return table


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m penstock.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="how long events are produced")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the log and the histories in this new folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    arguments = parser.parse_args()
    console = Console(stderr=arguments.json)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        root = arguments.keep or Path(folder)
        counted, seconds = run(root / "demo" if arguments.keep is None else root, arguments.seconds, console)
    console.print(report(counted, seconds))
    if counted.is_clean:
        console.print("Nothing acknowledged was lost, nothing was stored twice, and both groups got every event.")
    if arguments.keep:
        console.print(f"To look around: penstock --log dir:{arguments.keep / 'log'} topic show {TOPIC}")
    if arguments.json:
        print(json.dumps({**asdict(counted), "seconds": round(seconds, 2)}))
    return 0 if counted.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
