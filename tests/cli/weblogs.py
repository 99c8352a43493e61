"""A pipeline file as a user has it, with a log of events for it, for commands that need Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from penstock.log.folder_log import FolderLog

APP = """
from pyspark.sql import functions as F

from penstock import Pipeline

app = Pipeline("weblogs")
access = app.topic(
    "access", "time timestamp, ip string, status int, url string", event_time="time", lateness="10 minutes"
)


@app.view(key=["window", "url"])
def hits(access):
    return access.groupBy(F.window("time", "1 minute"), "url").agg(F.count("*").alias("hits"))


@app.view(key="url")
def busiest(hits):
    return hits.groupBy("url").agg(F.max("hits").alias("most"))


@app.view(key="url", within="url")
def visits(access):
    return access.groupBy("url").agg(F.count_distinct("ip").alias("visitors"))


@app.view
def errors(access):
    return access.filter("status >= 400").select("time", "url")


@app.view(key="ip")
def seen(access):
    return access.select("ip", "time", "url")
"""

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Place:
    """A folder with a pipeline, a log and, after a run, views."""

    folder: Path

    @property
    def app(self) -> str:
        return str(self.folder / "weblogs.py")

    @property
    def options(self) -> list[str]:
        return ["--log", str(self.folder / "log"), "--views", f"sqlite:{self.folder}/views.db"]


def place(folder: Path) -> Place:
    (folder / "weblogs.py").write_text(APP)
    return Place(folder)


def append(where: Place, count: int, start: int = 0) -> None:
    """One event every ten seconds from noon on, each on time but for every seventh, which is an hour late."""
    with FolderLog(where.folder / "log", background=False) as log:
        ddl = "time timestamp, ip string, status int, url string"
        topic = log.create("access", ddl, event_time="time", lateness="10 minutes", exist_ok=True)
        events, arrived = [], []
        for number in range(start, start + count):
            happened = NOON + timedelta(seconds=10 * number)
            late = timedelta(hours=1) if number % 7 == 6 else timedelta()
            status = 404 if number % 5 == 4 else 200
            events.append(
                {"time": happened - late, "ip": f"10.0.0.{number % 3}", "status": status, "url": f"/{number % 2}"}
            )
            arrived.append(happened)
        table = pa.Table.from_pylist(events, schema=topic.schema)
        topic.append(table, arrived=pa.array(arrived, pa.timestamp("us", tz="UTC")))
