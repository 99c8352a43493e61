"""A shop whose log is in Kafka, whose views are in PostgreSQL and whose steps are computed by a Spark cluster.

Its history depends on the numbers of its events alone, arrival included, and what the views must hold is computed here
once more, in plain Python. Tasks stop at a gate for as long as somebody keeps it shut: so a fault hits in the middle.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from penstock.log.log import Log
from penstock.log.partition import ARRIVED
from tests.conftest import JAVA_OPTIONS
from tests.eventually import eventually
from tests.services.driver import COMMAND_SECONDS, Driver

EVENTS = 3_000
STEPS = 4
START = datetime(2026, 1, 1, tzinfo=UTC)
CUSTOMERS = 17
Rows = Mapping[str, Sequence[tuple[Any, ...]]]

APP = """
import pathlib
import time

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from penstock import Pipeline

app = Pipeline("shop")
app.topic("sales", "time timestamp, customer string, number bigint, cents bigint", key="customer", event_time="time",
          lateness="1 hour", partitions=3)
app.topic("refunds", "customer string, number bigint, cents bigint", key="customer", partitions=3)

GATE = pathlib.Path(__file__).parent / "gate"


@F.udf(LongType())
def paid(number, cents):
    if number == {gate_at} and GATE.is_dir():
        (GATE / pathlib.Path.cwd().parent.parent.name).touch()  # The name of the worker: somebody waits here.
        while GATE.is_dir():
            time.sleep(0.02)
    return cents


@app.view(key=["window"], changelog="{changelog}")
def takings(sales):
    return sales.groupBy(F.window("time", "1 hour")).agg(
        F.count("*").alias("sales"), F.sum(paid("number", "cents")).alias("cents")
    )


@app.view(key="day")
def days(takings):
    return takings.groupBy(F.to_date("window.start").alias("day")).agg(F.sum("cents").alias("cents"))


@app.view(key=["window"])
def buyers(sales):
    return sales.groupBy(F.window("time", "2 hours")).agg(F.countDistinct("customer").alias("buyers"))


@app.view(key=["customer", "number"], within="customer")
def settled(sales, refunds):
    return sales.join(refunds, ["customer", "number"]).select(
        "customer", "number", (sales["cents"] - refunds["cents"]).alias("cents")
    )
"""
QUERIES = {
    "takings": "SELECT window_start, sales, cents FROM takings ORDER BY window_start",
    "days": "SELECT day, cents FROM days ORDER BY day",
    "buyers": "SELECT window_start, buyers FROM buyers ORDER BY window_start",
    "settled": "SELECT customer, number, cents FROM settled ORDER BY customer, number",
}


# --- what happened, and what the views must hold then ---


@dataclass(frozen=True)
class Sale:
    """One event, from its number alone. Times go back and forth; one in five sales is refunded."""

    number: int

    @property
    def time(self) -> datetime:
        return START + timedelta(minutes=self.number * 7 % 2_880)

    @property
    def customer(self) -> str:
        return f"customer {self.number * 5 % CUSTOMERS}"

    @property
    def cents(self) -> int:
        return 100 + self.number * 31 % 977

    @property
    def refunded(self) -> int | None:
        return self.number % 50 if self.number % 5 == 0 else None


SALES = [Sale(number) for number in range(EVENTS)]


def fill(log: Log) -> None:
    """Appends the whole history, with its own arrivals: two seconds between two events."""
    refunded = [each for each in SALES if each.refunded is not None]
    _append(log, "sales", SALES, [{"time": e.time, **_plain(e), "cents": e.cents} for e in SALES])
    _append(log, "refunds", refunded, [{**_plain(each), "cents": each.refunded} for each in refunded])


def expected() -> Rows:
    """What the views hold in the end."""
    takings: dict[datetime, list[int]] = defaultdict(lambda: [0, 0])
    days: dict[Any, int] = defaultdict(int)
    buyers: dict[datetime, set[str]] = defaultdict(set)
    for each in SALES:
        hour = each.time.replace(minute=0)
        takings[hour][0] += 1
        takings[hour][1] += each.cents
        days[hour.date()] += each.cents
        buyers[hour - timedelta(hours=hour.hour % 2)].add(each.customer)
    settled = [(each.customer, each.number, each.cents - each.refunded) for each in SALES if each.refunded is not None]
    return {
        "takings": sorted((hour, count, cents) for hour, (count, cents) in takings.items()),
        "days": sorted(days.items()),
        "buyers": sorted((hour, len(customers)) for hour, customers in buyers.items()),
        "settled": sorted(settled),
    }


def _plain(sale: Sale) -> dict[str, Any]:
    return {"customer": sale.customer, "number": sale.number}


def _append(log: Log, name: str, sales: Sequence[Sale], rows: Sequence[dict[str, Any]]) -> None:
    topic = log.topic(name)
    stamps = [START + timedelta(days=2, seconds=2 * each.number) for each in sales]
    topic.append(pa.Table.from_pylist(rows, schema=topic.schema), arrived=pa.array(stamps, ARRIVED))


# --- where it runs ---


@dataclass(frozen=True)
class Shop:
    """One installation: its own folder with app.py and penstock.toml, its own database, its own changelog."""

    folder: Path
    driver: Driver
    log_url: str
    views_url: str
    master: str
    changelog: str = "takings.changes"
    gate_at: int = -1
    """The number of the event at which tasks stop while the gate is shut."""
    app: str = APP

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        filled = self.app.replace("{gate_at}", str(self.gate_at)).replace("{changelog}", self.changelog)
        (self.folder / "app.py").write_text(filled)
        (self.folder / "penstock.toml").write_text(settings(self.log_url, self.views_url, self.master))

    def do(self, *command: str) -> str:
        """What a command prints that must succeed."""
        return self.driver.do(self.folder, *command)

    def run(self) -> None:
        """A stream up to now, in some steps."""
        self.do(*STREAM)

    @contextmanager
    def halted_between_steps(self) -> Iterator[str]:
        """A stream stands in the middle of a stage, with steps behind and before it."""
        with self.halted(*STREAM) as worker:
            stored = sum(row[1] for row in self.query(QUERIES["takings"]))
            assert 0 < stored < EVENTS, f"{stored} of {EVENTS} sales are in the views"
            yield worker

    @contextmanager
    def halted(self, *command: str) -> Iterator[str]:
        """A run stands in the middle of a stage: yields the worker of the task that waits there.

        At the end it goes on, if it is still there, and must end well.
        """
        gate = self.folder / "gate"
        gate.mkdir()
        try:
            self.driver.begin(self.folder, *command)

            def find() -> list[str]:
                assert self.driver.is_busy, f"it has ended without meeting the gate: {self.driver.said()}"
                return sorted(each.name for each in gate.iterdir())

            yield eventually(find, explain=self.driver.said, seconds=COMMAND_SECONDS)[0]
        finally:
            _open(gate)
        if not self.driver.is_gone:
            self.driver.finish()

    def rows(self) -> Rows:
        return {view: self.query(query) for view, query in QUERIES.items()}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """What another program reads from the database."""
        with psycopg.connect(self.views_url, options="-c timezone=UTC") as connection:
            return connection.execute(sql.encode()).fetchall()


STREAM = ("run", "app.py", "--mode", "stream", "--once", "--max-rows", str(EVENTS // STEPS), "--json")


def settings(log_url: str, views_url: str, master: str, **conf: str) -> str:
    """A penstock.toml: where everything is, and a Spark that needs little."""
    small = {
        "spark.executor.defaultJavaOptions": JAVA_OPTIONS,
        "spark.executor.memory": "512m",
    }
    lines = [
        "[log]", f'url = "{log_url}"', "shared = true",
        "[views]", f'url = "{views_url}"',
        "[spark]", f'master = "{master}"', "shuffle_partitions = 2", 'driver_memory = "512m"',
        "[spark.conf]", *(f'"{name}" = "{value}"' for name, value in {**small, **conf}.items()),
    ]  # fmt: skip
    return "\n".join([*lines, ""])


def _open(gate: Path) -> None:
    """Lets everybody through. Whoever comes at this moment leaves a sign behind, or none."""
    opened = gate.with_name("opened")
    gate.rename(opened)
    shutil.rmtree(opened)


# --- what the changelog says ---


def folded(told: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The table that changes add up to. Every one begins where the one before it ended: none is missing or twice."""
    table: dict[str, Any] = {}
    for change in told:
        assert change["before"] == table.get(change["key"]), change
        assert change["before"] != change["after"], change
        table[change["key"]] = change["after"]
    rows = [each for each in table.values() if each is not None]
    return sorted((datetime.fromisoformat(row["window"]["start"]), row["sales"], row["cents"]) for row in rows)
