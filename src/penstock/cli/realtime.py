"""penstock run --trigger realtime: record at a time, and what it shows meanwhile."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from penstock.cli.output import counted, print_json_line, rate_text

if TYPE_CHECKING:
    from penstock.modes.realtime import BatchReport
    from penstock.settings import Settings


def run_at_a_time(app: str, settings: Settings, *, as_json: bool) -> None:
    """Runs until Ctrl-C or SIGTERM, and says what was done whenever Spark has noted how far it is."""
    from penstock.cli.signals import Signals, StoppedEarly
    from penstock.modes.realtime import run_realtime
    from penstock.modes.run import opened_at_a_time
    from penstock.modes.stream import Stop
    from penstock.pipeline.loading import load_pipeline

    pipeline, stop, display = load_pipeline(app), Stop(), _Display(settings.spark.realtime_batch, as_json=as_json)

    def ask() -> None:
        display.stops()
        stop()

    try:
        with Signals() as signals, opened_at_a_time(pipeline, settings) as engine:
            signals.begun(ask)
            began = time.monotonic()
            records = run_realtime(engine, settings, on_start=display.started, on_batch=display.told, stop=stop)
            display.ended(records, time.monotonic() - began)
    except StoppedEarly:
        print("stopped before the first record", file=sys.stderr)


class _Display:
    """Lines for people, or JSON lines for programs."""

    def __init__(self, every: str, *, as_json: bool) -> None:
        self._every = every
        self._as_json = as_json

    def started(self, names: list[str]) -> None:
        if self._as_json:
            print_json_line({"event": "started", "queries": names, "batch": self._every})
        else:
            print(f"record at a time: {', '.join(names)}; Spark notes how far it is every {self._every}", flush=True)

    def told(self, report: BatchReport) -> None:
        if self._as_json:
            print_json_line(
                {"event": "batch", "query": report.name, "records": report.records, "seconds": report.seconds}
            )
        elif report.records:
            rate = rate_text(report.records, report.seconds)
            print(f"{report.name}: {counted(report.records, 'record')} read, {rate}", flush=True)

    def stops(self) -> None:
        print(
            f"stopping at the end of this batch (within {self._every}), so that little is written twice; "
            "Ctrl-C again ends at once",
            file=sys.stderr,
            flush=True,
        )

    def ended(self, records: int, seconds: float) -> None:
        if self._as_json:
            print_json_line({"event": "stopped", "records": records, "seconds": round(seconds, 3)})
        else:
            print(f"stopped: {counted(records, 'record')} read in {seconds:,.1f} s")
