"""A service at work in this process, over a log and views as a run would leave them. No Spark is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from websockets.sync.client import ClientConnection, connect

from penstock.log.folder_log import FolderLog
from penstock.service.connection import CallLater, call_later
from penstock.service.server import serving
from penstock.settings import LogSettings, ServeSettings, Settings, ViewsSettings
from penstock.upkeep.changelog import changelog_ddl, changelog_schema
from penstock.views.catalog import Catalog, Counters, KnownView
from penstock.views.fence import Fence
from penstock.views.keys import key_hashes
from penstock.views.owner import own
from penstock.views.store import StoredTable, open_store
from tests.eventually import LIMIT_SECONDS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
SALES = pa.schema(
    [
        ("window", WINDOW),
        ("url", pa.string()),
        ("hits", pa.int64()),
        ("paid", pa.decimal128(20, 2)),
        ("mean", pa.float64()),
        ("is_open", pa.bool_()),
        ("day", pa.date32()),
        ("mark", pa.binary()),
        ("tags", pa.list_(pa.string())),
    ]
)
KEY = ("window", "url")
PATIENT: dict[str, Any] = {f"{each}_timeout": "1h" for each in ("header", "body", "write", "request")}
"""Limits that no test reaches, however busy the machine is."""


def sale(number: int, **changed: Any) -> dict[str, Any]:
    """A row of the view: one a minute from noon on, two URLs by turns, the first of them NULL."""
    return {
        "window": {"start": NOON + number * MINUTE, "end": NOON + (number + 1) * MINUTE},
        "url": f"/{number % 2}" if number else None,
        "hits": 10 - number,
        "paid": Decimal(number * 7 % 11) + Decimal("0.50"),
        "mean": None if number == 3 else number / 4,
        "is_open": number > 5,
        "day": date(2026, 1, 1 + number // 4),
        "mark": bytes([number]),
        "tags": [f"t{number}"],
        **changed,
    }


ROWS = [sale(number) for number in range(8)]


@dataclass(frozen=True)
class Site:
    """Where things are, and how they are served."""

    folder: Path
    settings: Settings

    def log(self) -> FolderLog:
        return FolderLog(self.settings.log.url, background=False)

    def limited(self, **settings: Any) -> Site:
        """The same with other settings of [serve]."""
        return replace(self, settings=replace(self.settings, serve=replace(self.settings.serve, **settings)))

    @contextmanager
    def serving(self, *, call_later: CallLater = call_later, **headers: str) -> Iterator[httpx.Client]:
        # uvicorn closes a connection that is idle for 5 s. The client must not use it again at that moment.
        limits = httpx.Limits(keepalive_expiry=1)
        with (
            serving(self.settings, call_later=call_later) as url,
            httpx.Client(base_url=url, headers=headers, limits=limits, timeout=LIMIT_SECONDS) as client,
        ):
            yield client


def web_socket(client: httpx.Client, path: str, **options: Any) -> ClientConnection:
    """A WebSocket to the service of this client."""
    address = str(client.base_url).rstrip("/").replace("http", "ws", 1) + path
    connection: ClientConnection = connect(address, open_timeout=LIMIT_SECONDS, ping_interval=None, **options)
    return connection


def make_site(folder: Path, views_url: str) -> Site:
    """Topics access (one partition) and orders (two, by customer); views sales, with a changelog, and total."""
    settings = Settings(
        log=LogSettings(url=f"dir:{folder}/log"),
        views=ViewsSettings(url=views_url),
        serve=ServeSettings(port=0, tokens=f"file:{folder}/tokens.json", **PATIENT),
    )
    site = Site(folder, settings)
    with site.log() as log:
        topic = log.create("access", "time timestamp, url string", event_time="time", lateness="2 minutes")
        log.create("orders", "customer string, amount decimal(10,2)", key="customer", partitions=2)
        log.create("loose", "n bigint", partitions=3)
        rows = pa.Table.from_pylist(
            [{"time": NOON + n * MINUTE, "url": f"/{n % 2}"} for n in range(10)], schema=topic.schema
        )
        topic.append(rows, arrived=pa.array([NOON + n * MINUTE for n in range(10)], pa.timestamp("us", tz="UTC")))
        log.create("sales.changes", changelog_ddl(SALES), key="key")
    store_sales(site, ROWS)
    return site


def store_sales(site: Site, rows: list[dict[str, Any]], *, seen: int = 8) -> None:
    """A new generation of the views with these rows, switched in."""
    table = pa.Table.from_pylist(rows, schema=SALES)
    fence = Fence({"access": {0: seen}}, us(NOON + (seen - 1) * MINUTE))
    with (
        open_store(site.settings.views.url) as store,
        own(store.engine, "web") as owner,
        store.transaction(owner) as tx,
    ):
        catalog = Catalog(tx.connection)
        number = catalog.next_number("web", "sales")
        known = []
        details = {"topics": ["access"], "upstream": [], "changelog": "sales.changes"}
        total = pa.table({"hits": [52]})
        for name, schema, key, data, detail in (
            ("sales", SALES, KEY, table, details),
            ("total", total.schema, (), total, {"topics": [], "upstream": ["sales"]}),
        ):
            place = StoredTable(f"{name}__{number}", pa.schema([("_key", pa.binary(16)), *schema]), ("_key",))
            tx.create(place)
            tx.insert(place, data.append_column("_key", key_hashes(data, key)))
            tx.publish(name, place, schema.names)
            known.append(KnownView(name, "f", schema, "fold", key, {"rows": place.name}, detail))
        made = catalog.new_generation("web", "sales", known)
        made = catalog.set_fence(made, fence, {"sales": Counters(len(rows), 1, 2), "total": Counters(1, 0, 0)})
        switched = catalog.switch(made)
        for old in switched.old:
            for dropped in catalog.drop(old):
                tx.drop(dropped)


def lay_on_top(site: Site, rows: list[dict[str, Any]]) -> None:
    """A speed part with these rows, on top of what is live: as lambda keeps a view."""
    table = pa.Table.from_pylist(rows, schema=SALES)
    with (
        open_store(site.settings.views.url) as store,
        own(store.engine, "web") as owner,
        store.transaction(owner) as tx,
    ):
        catalog = Catalog(tx.connection)
        lower = catalog.live("web", "sales")
        assert lower is not None
        known = []
        for name, view in lower.views.items():
            schema = pa.schema([("_key", pa.binary(16)), *view.schema])
            place = StoredTable(f"{name}__2", schema, ("_key",), beneath=StoredTable(f"{name}__1", schema, ("_key",)))
            tx.create(place)
            if name == "sales":
                tx.upsert(place, table.append_column("_key", key_hashes(table, KEY)))
            known.append(replace(view, tables={"rows": place.name}))
        made = catalog.new_generation("web", "sales", known, beneath=lower)
        catalog.switch(catalog.set_fence(made, Fence({"access": {0: 10}}, us(NOON + 9 * MINUTE))))


def change(number: int) -> dict[str, Any]:
    """A record of the changelog: a row that came."""
    fence = Fence({"access": {0: number}}, us(NOON))
    row = {**sale(number), "mark": None}
    return {"key": f'["{number}"]', "operation": "insert", "before": None, "after": row, "offsets": fence.to_json()}


def publish_changes(log: FolderLog, numbers: range) -> None:
    rows = pa.Table.from_pylist([change(number) for number in numbers], schema=changelog_schema(SALES))
    log.topic("sales.changes").append(rows)


def us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
