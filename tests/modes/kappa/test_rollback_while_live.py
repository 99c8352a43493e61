"""Rollback and switch while a run is live: readers see rows that go on, and never two generations mixed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import text

from penstock import Pipeline
from penstock.errors import OwnershipLost, PipelineOwned
from penstock.modes.engine import Engine, open_engine
from penstock.modes.replays import Watch, run_kappa
from penstock.modes.rollback import roll_back, switch_ready
from penstock.modes.stream import Stop, run_stream
from penstock.service.server import serving
from penstock.settings import LogSettings, ServeSettings, Settings, ViewsSettings
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from penstock.views.find import find_rows, stored_view
from penstock.views.store import Store, open_store
from tests.eventually import LIMIT_SECONDS, eventually
from tests.modes.harness import Lab
from tests.service.site import PATIENT
from tests.views.conftest import url

__all__ = ["url"]

pytestmark = pytest.mark.spark

HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=10)
"""Of a run that is to notice soon, by its heartbeat, that it was replaced."""
Moment = Literal["opened", "stepped", "replayed", "compared", "held", "switched"]


def sales(least: int) -> Pipeline:
    """The code of a generation: it counts orders of at least so much."""
    app = Pipeline("sales")
    app.topic("orders", "k string, n bigint")
    count = f"SELECT k, count(*) AS c FROM orders WHERE n >= {least} GROUP BY k"
    app.view("totals", key="k", changelog="totals.changes", sql=count)
    return app


@pytest.fixture(scope="module")
def codes(spark: SparkSession) -> list[tuple[Pipeline, tuple[CompiledView, ...]]]:
    made = [sales(least) for least in (0, 1, 2)]
    return [(each, compile_pipeline(each, spark)) for each in made]


@dataclass
class Shop:
    """A log, a database, three versions of the code, and people who read all the time."""

    lab: Lab
    url: str
    codes: Sequence[tuple[Pipeline, tuple[CompiledView, ...]]]
    store: Store
    client: httpx.Client
    orders: list[int]

    def append(self, *orders: int) -> None:
        self.lab.append("orders", [{"k": "abc"[n % 3], "n": n} for n in orders])
        self.orders += orders

    @contextmanager
    def engine(self, code: int, lease: timedelta = HOUR) -> Iterator[Engine]:
        pipeline, views = self.codes[code]
        with (
            open_store(self.url, lease=lease) as store,
            open_engine(pipeline, log=self.lab.log, store=store, spark=self.lab.spark, views=views) as engine,
        ):
            yield engine

    def stream(self, code: int) -> None:
        with self.engine(code) as engine:
            run_stream(engine, once=True)

    def kappa(self, code: int) -> None:
        with self.engine(code) as engine:
            run_kappa(engine, once=True)

    def expected(self, code: int, orders: Sequence[int] | None = None) -> list[tuple[str, int]]:
        counted = ["abc"[n % 3] for n in (self.orders if orders is None else orders) if n >= code]
        return sorted((k, counted.count(k)) for k in {*counted})

    def by_sql(self) -> list[tuple[str, int]]:
        return [(k, c) for k, c in self.store.query("SELECT k, c FROM totals ORDER BY k")[1]]

    def seen(self) -> list[tuple[str, int]]:
        """What every reader sees while nothing is written: by SQL, by Python, and by HTTP in two ways."""
        by_sql = self.by_sql()
        found = self.store.reading(lambda snapshot: find_rows(snapshot, stored_view(snapshot, "totals")))
        assert [(row["k"], row["c"]) for row in found.to_pylist()] == by_sql
        [*rows] = self.get()
        assert [(row["k"], row["c"]) for row in rows] == by_sql
        assert [(row["k"], row["c"]) for key in "abc" for row in self.get(key=key)] == by_sql
        return by_sql

    def get(self, **asked: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.client.get("/views/totals", params=asked).raise_for_status().json()["rows"]
        return rows

    def roll_back(self) -> None:
        roll_back(self.store, "totals")

    def take_over(self) -> bool:
        """Roll back as if nothing had been heard of the run for two hours, unless it renews its lease just now."""
        with self.store.transaction(None) as tx:
            tx.connection.execute(text("UPDATE _penstock_owner SET renewed_us = renewed_us - 7200000000"))
        with suppress(PipelineOwned):
            self.roll_back()
            return True
        return False


@pytest.fixture
def shop(
    tmp_path: Path, url: str, spark: SparkSession, codes: Sequence[tuple[Pipeline, tuple[CompiledView, ...]]]
) -> Iterator[Shop]:
    """The first code has run, then the second, and the log has gone on since."""
    lab = Lab(tmp_path, codes[0][0], spark)
    settings = Settings(
        log=LogSettings(url=f"dir:{tmp_path}/log"),
        views=ViewsSettings(url=url),
        serve=ServeSettings(port=0, tokens=f"file:{tmp_path}/tokens.json", **PATIENT),
    )
    with (
        open_store(url, lease=HOUR) as store,
        serving(settings) as address,
        httpx.Client(base_url=address, timeout=LIMIT_SECONDS) as client,
    ):
        made = Shop(lab, url, codes, store, client, [])
        made.append(*range(6))
        made.stream(0)
        made.kappa(1)
        made.append(*range(6))
        yield made


@contextmanager
def live(
    shop: Shop, code: int, moment: Moment, at_moment: Callable[[], None], lease: timedelta = HOUR
) -> Iterator[list[BaseException]]:
    """A run that does not end by itself, in another thread, and what it ended with. It stands still at its moment."""
    errors: list[BaseException] = []
    came, stop = threading.Event(), Stop()

    def at(this: Moment, *_: object) -> None:
        if this == moment and not came.is_set():
            came.set()
            at_moment()

    watch = Watch(
        replayed=partial(at, "replayed"),
        compared=partial(at, "compared"),
        held=partial(at, "held"),
        switched=partial(at, "switched"),
    )

    def run() -> None:
        try:
            with shop.engine(code, lease) as engine:
                if code == 1:
                    run_stream(engine, on_open=partial(at, "opened"), on_step=partial(at, "stepped"), stop=stop)
                else:
                    run_kappa(engine, hold=moment == "held", watch=watch, stop=stop)
        except BaseException as error:
            errors.append(error)
        came.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert came.wait(LIMIT_SECONDS)
        yield errors
    finally:
        stop()
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()


MOMENTS = [
    pytest.param(1, "opened", marks=pytest.mark.long),
    pytest.param(1, "stepped"),
    pytest.param(2, "replayed"),
    pytest.param(2, "compared", marks=pytest.mark.long),
    pytest.param(2, "held"),
    pytest.param(2, "switched"),
]
"""By the code that runs: the second one is live already, the third is replayed beside it."""


@pytest.mark.parametrize(("code", "moment"), MOMENTS)
def test_a_live_run_is_not_rolled_back_and_goes_on(shop: Shop, code: int, moment: Moment) -> None:
    refused: list[int] = []

    def try_it() -> None:
        with pytest.raises(PipelineOwned) as caught:
            shop.roll_back()
        refused.append(caught.value.pid)

    with live(shop, code, moment, try_it) as errors:
        eventually(lambda: refused or errors)
        if moment == "held":
            switch_ready(shop.store)
        for orders in (range(6, 9), range(9, 12)):
            shop.append(*orders)
            eventually(lambda: shop.by_sql() == shop.expected(code), explain=lambda: (errors, shop.by_sql()))
            assert shop.seen() == shop.expected(code)
            try_it()
    assert errors == []
    for expected in (code - 1, code, code - 1):
        shop.roll_back()
        shop.stream(expected)
        assert shop.seen() == shop.expected(expected)
        shop.append(12 + expected)
    shop.stream(code - 1)
    assert shop.seen() == shop.expected(code - 1)


@pytest.mark.parametrize(("code", "moment"), MOMENTS)
def test_a_run_that_lost_its_lease_is_rolled_back_and_changes_nothing(shop: Shop, code: int, moment: Moment) -> None:
    seen: list[list[tuple[str, int]]] = []

    def take_over() -> None:
        eventually(shop.take_over)
        seen.append(shop.seen())

    with live(shop, code, moment, take_over, LEASE) as errors:
        eventually(lambda: seen or errors)
        shop.append(*range(6, 9))
        eventually(lambda: errors)
    assert [type(each) for each in errors] == [OwnershipLost]
    back = 1 if moment == "switched" else 0
    assert seen == [shop.seen()]
    shop.stream(back)
    assert shop.seen() == shop.expected(back)
    shop.append(12, 13)
    shop.roll_back()
    shop.kappa(2)
    assert shop.seen() == shop.expected(2)
    shop.append(14)
    shop.stream(2)
    assert shop.seen() == shop.expected(2)
