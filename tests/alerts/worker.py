"""A run with alerts in a process of its own, which is killed at a chosen point."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import Pipeline
from penstock.log.folder_log import FolderLog
from penstock.modes.engine import open_engine
from penstock.modes.stream import run_stream
from penstock.views.store import open_store
from tests.faults.pipeline_worker import Gateway, Strike, arm

MAIL = "mailto:ops@example.com"


def accounts() -> Pipeline:
    """Every change of every key is told: to a topic, and to somebody who gets mails."""
    app = Pipeline("accounts")
    app.topic("events", "time timestamp, account string", key="account", event_time="time", partitions=2)
    app.view("totals", key="account", sql="SELECT account, count(*) AS items FROM events GROUP BY account")

    @app.alert("totals", to=["topic:alarms", MAIL], every="1us", when="items > 1")
    def changed(row: dict[str, Any]) -> str:
        return f"{row['account']} {row['items']}"

    return app


@dataclass(frozen=True)
class Job:
    """What a process does, and what befalls it."""

    log: Path
    url: str
    gateway: Gateway
    strike: Strike | None = None


def work(job: Job) -> None:
    """Streams up to what is there."""
    spark = job.gateway.session()
    if job.strike is not None:
        arm(job.strike)
    with (
        FolderLog(job.log, background=False) as log,
        open_store(job.url) as store,
        open_engine(accounts(), log=log, store=store, spark=spark) as engine,
    ):
        run_stream(engine, once=True, max_rows=2)
