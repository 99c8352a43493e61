"""A shop at work, without Spark: a log, views as a run would leave them, a run, alerts; and time that goes on."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from penstock.clock import now_us
from penstock.log.folder_log import FolderLog
from penstock.service.server import serving
from penstock.service.service import Service
from penstock.settings import LogSettings, ServeSettings, Settings, ViewsSettings
from penstock.upkeep.changelog import changelog_ddl, changelog_schema
from penstock.views.catalog import Catalog, Counters, Generation, KnownView
from penstock.views.fence import Fence
from penstock.views.keys import key_hashes
from penstock.views.owner import Owner, own
from penstock.views.store import Store, StoredTable, open_store
from penstock.views.system_tables import ALERTS, RUNS

PLANTED = '<img src=x onerror="window.planted=1"><script>window.planted=1</script>'
"""What somebody puts into an event, hoping that a page shows it as markup."""
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
PER_MINUTE = pa.schema(
    [("window", WINDOW), ("country", pa.string()), ("orders", pa.int64()), ("amount", pa.decimal128(20, 2))]
)
BY_PRODUCT = pa.schema([("product", pa.string()), ("sold", pa.int64()), ("mean", pa.float64())])
TOTAL = pa.schema([("orders", pa.int64())])
COUNTRIES = ["Portugal", "Chile", "Japan", "Kenya", PLANTED]
MINUTE = timedelta(minutes=1)


@dataclass
class Shop:
    """Where everything is, and how it goes on."""

    folder: Path
    settings: Settings
    numbers: random.Random = field(default_factory=lambda: random.Random(7))
    rows: dict[tuple[datetime, str], tuple[int, Decimal]] = field(default_factory=dict)
    corrected: int = 0
    _held: ExitStack = field(default_factory=ExitStack)
    _owner: tuple[Store, Owner] | None = None

    def log(self) -> FolderLog:
        return FolderLog(self.settings.log.url, background=False)

    @contextmanager
    def serving(self, **settings: Any) -> Iterator[str]:
        with serving(replace(self.settings, serve=replace(self.settings.serve, **settings))) as url:
            yield url

    def orders(self, count: int, *, back: timedelta = timedelta(0), span_seconds: float = 1.0) -> None:
        """Orders that arrive now, or did so a while ago; some of them late, one of them planted."""
        now = datetime.now(UTC) - back
        stamps = sorted(now - timedelta(seconds=self.numbers.random() * span_seconds) for _ in range(count))
        rows: list[dict[str, Any]] = []
        for stamp in stamps:
            delay = 400 if self.numbers.random() < 0.03 else self.numbers.expovariate(0.2)
            rows.append(
                {
                    "time": stamp - timedelta(seconds=delay),
                    "customer": f"c{self.numbers.randrange(50)}",
                    "country": self.numbers.choice(COUNTRIES),
                    "amount": Decimal(self.numbers.randrange(100, 9999)) / 100,
                }
            )
        with self.log() as log:
            topic = log.topic("orders")
            table = pa.Table.from_pylist(rows, schema=topic.schema)
            topic.append(table, arrived=pa.array(stamps, pa.timestamp("us", tz="UTC")) if back else None)
        for row in rows:
            place = (row["time"].replace(second=0, microsecond=0), row["country"])
            orders, amount = self.rows.get(place, (0, Decimal(0)))
            self.rows[place] = (orders + 1, amount + row["amount"])

    def step(self, *, behind: int = 0) -> None:
        """What a run does: rows and fence move together. So many records are left out."""
        with self.log() as log:
            ends = log.topic("orders").end()
        fence = Fence({"orders": {number: max(end - behind, 0) for number, end in ends.items()}}, now_us())
        tables: dict[str, tuple[pa.Table, tuple[str, ...]]] = {
            "per_minute": (self._per_minute(), ("window", "country")),
            "by_product": (self._by_product(), ("product",)),
            "total": (self._total(), ()),
        }
        store, owner = self._owned()
        with store.transaction(owner) as tx:
            catalog = Catalog(tx.connection)
            live = catalog.live("shop", "per_minute")
            made = live if live is not None else self._first(tx, catalog, tables)
            for name, (data, key) in tables.items():
                tx.upsert(_stored(name, data.schema), data.append_column("_key", key_hashes(data, key)))
            counters = {name: Counters(data.num_rows, 3, self.corrected) for name, (data, _) in tables.items()}
            made = catalog.set_fence(made, fence, counters)
            if live is None:
                catalog.switch(made)

    def correct(self) -> None:
        """A late event changes a window that was closed long ago, and the changelog tells of it."""
        (start, country), (orders, amount) = min(self.rows.items())
        self.rows[start, country] = (orders + 40, amount)
        self.corrected += 1
        row = {"window": {"start": start, "end": start + MINUTE}, "country": country, "amount": amount}
        offsets = [Fence({"orders": {0: number}}, now_us() + number).to_json() for number in range(2)]
        changes = [
            {"key": json.dumps([country]), "operation": "update", "before": {**row, "orders": orders},
             "after": {**row, "orders": orders + 40}, "offsets": each} for each in offsets
        ]  # fmt: skip
        with self.log() as log:
            log.topic("per_minute.changes").append(pa.Table.from_pylist(changes, schema=changelog_schema(PER_MINUTE)))
        self.step()

    def _per_minute(self) -> pa.Table:
        rows = [
            {"window": {"start": start, "end": start + MINUTE}, "country": country, "orders": orders, "amount": amount}
            for (start, country), (orders, amount) in sorted(self.rows.items())
        ]
        return pa.Table.from_pylist(rows, schema=PER_MINUTE)

    def _by_product(self) -> pa.Table:
        names = ["tea", "coffee", "cups", PLANTED, *(f"product {number}" for number in range(40))]
        rows = [
            {"product": name, "sold": 1000 // (place + 1), "mean": 1.5 + place / 7} for place, name in enumerate(names)
        ]
        return pa.Table.from_pylist(rows, schema=BY_PRODUCT)

    def _total(self) -> pa.Table:
        return pa.Table.from_pylist([{"orders": sum(orders for orders, _ in self.rows.values())}], schema=TOTAL)

    def _first(self, tx: Any, catalog: Catalog, tables: dict[str, tuple[pa.Table, tuple[str, ...]]]) -> Generation:
        details: dict[str, dict[str, Any]] = {
            "per_minute": {"topics": ["orders"], "upstream": [], "changelog": "per_minute.changes"},
            "by_product": {"topics": ["orders", "products"], "upstream": []},
            "total": {"topics": [], "upstream": ["per_minute"]},
        }
        known = []
        for name, (data, key) in tables.items():
            table = _stored(name, data.schema)
            tx.create(table)
            kept = "redo" if name == "by_product" else "fold"
            known.append(KnownView(name, "f", data.schema, kept, key, {"rows": table.name}, details[name]))
        return catalog.new_generation("shop", "per_minute", known)

    def note_runs(self) -> None:
        """One run that works, one that ended well, one that failed."""
        _, owner = self._owned()
        now, hour = now_us(), 3_600_000_000
        samples = [
            (
                now - (90 - number) * 1_000_000,
                200 + 40 * (number % 7),
                2,
                0.05 + (number % 9) / 40,
                0,
                0,
                30 * (number % 5),
            )
            for number in range(90)
        ]
        runs = [
            _run(owner.epoch, "stream", now - 90_000_000, now, "", samples),
            _run(owner.epoch - 1, "batch", now - hour, now - hour // 2, "done", []),
            _run(owner.epoch - 2, "kappa", now - 3 * hour, now - 2 * hour, f"failed: {PLANTED}", []),
        ]
        self._insert(RUNS, runs)

    def raise_alerts(self) -> None:
        """One that waits, one that was sent, one that failed."""
        now = now_us()
        states = [("waiting", 2, "the server does not answer"), ("sent", 1, None), ("failed", 8, f"refused: {PLANTED}")]
        rows = [{"country": PLANTED, "orders": 640}, {"country": "Chile", "orders": 210}]
        told = [
            {
                "pipeline": "shop",
                "alert": "many_orders",
                "number": number,
                "view_name": "per_minute",
                "receiver": "mailto:ada@example.org",
                "text": f"country={PLANTED}, orders=640",
                "told_rows": json.dumps(rows),
                "rows_total": 3,
                "clock_us": now,
                "created_us": now - number * 600_000_000,
                "state": state,
                "attempts": attempts,
                "next_us": now if state == "waiting" else None,
                "sent_us": now if state == "sent" else None,
                "error": error,
            }
            for number, (state, attempts, error) in enumerate(states, start=1)
        ]
        self._insert(ALERTS, told)

    def close(self) -> None:
        """The run is over."""
        self._held.close()
        self._owner = None

    def _owned(self) -> tuple[Store, Owner]:
        """The pipeline is this process's, from the first step on, as it is a run's."""
        if self._owner is None:
            store = self._held.enter_context(open_store(self.settings.views.url, lease=timedelta(hours=1)))
            self._owner = (store, self._held.enter_context(own(store.engine, "shop")))
        return self._owner

    def _insert(self, table: sa.Table, rows: list[dict[str, Any]]) -> None:
        store, owner = self._owned()
        with store.transaction(owner) as tx:
            tx.connection.execute(sa.insert(table), rows)


def _run(epoch: int, mode: str, began: int, seen: int, outcome: str, samples: list[Any]) -> dict[str, Any]:
    return {
        "pipeline": "shop",
        "epoch": epoch,
        "mode": mode,
        "pid": 4711,
        "host": "mill",
        "started_us": began,
        "seen_us": seen,
        "ended_us": seen if outcome else None,
        "outcome": outcome,
        "rows": 21_480,
        "steps": 180,
        "samples": json.dumps(samples),
    }


def make_shop(folder: Path, views_url: str = "") -> Shop:
    """A shop that was open for twelve minutes."""
    shop = new_shop(folder)
    if views_url:
        shop.settings = replace(shop.settings, views=ViewsSettings(url=views_url))
    with shop.log() as log:
        log.create("orders", "time timestamp, customer string, country string, amount decimal(10,2)", key="customer",
                   event_time="time", lateness="2 minutes", partitions=2)  # fmt: skip
        log.create("products", "product string, price decimal(10,2)", key="product", compact=True)
        log.create("per_minute.changes", changelog_ddl(PER_MINUTE), key="key")
        with log.producer("orders") as producer:
            producer.send({"time": "soon", "customer": PLANTED})
    for minute in range(12, 0, -1):
        shop.orders(150 + 10 * minute, back=minute * MINUTE, span_seconds=55)
    shop.step()
    shop.note_runs()
    shop.raise_alerts()
    return shop


def new_shop(folder: Path) -> Shop:
    """Nothing is there yet: no topic, no database."""
    settings = Settings(
        log=LogSettings(url=f"dir:{folder}/log"),
        views=ViewsSettings(url=f"sqlite:{folder}/views.db"),
        serve=ServeSettings(port=0, tokens=f"file:{folder}/tokens.json"),
    )
    return Shop(folder, settings)


def _stored(name: str, schema: pa.Schema) -> StoredTable:
    return StoredTable(f"{name}__1", pa.schema([("_key", pa.binary(16)), *schema]), ("_key",))


@contextmanager
def started(shop: Shop) -> Iterator[Service]:
    """A service that answers nobody, with its event loop."""
    service = Service(shop.settings)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(service.start(), loop).result()
    try:
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(service.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
