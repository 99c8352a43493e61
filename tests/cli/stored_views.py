"""A log and a database of views as a run would leave them, made by hand: no Spark is needed to look at views."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from penstock.log.folder_log import FolderLog
from penstock.views.catalog import Catalog, Counters, KnownView
from penstock.views.fence import Fence
from penstock.views.keys import key_hashes
from penstock.views.owner import own
from penstock.views.store import StoredTable, open_store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
HITS = pa.schema([("window", WINDOW), ("url", pa.string()), ("hits", pa.int64()), ("paid", pa.decimal128(10, 2))])
TOTAL = pa.schema([("hits", pa.int64())])


@dataclass(frozen=True)
class Stored:
    """Where they are, as options of a command."""

    log_url: str
    views_url: str

    @property
    def options(self) -> list[str]:
        return ["--views", self.views_url, "--log", self.log_url]

    @property
    def views(self) -> list[str]:
        return ["--views", self.views_url]

    @property
    def log(self) -> list[str]:
        return ["--log", self.log_url]


def us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def stored(folder: Path) -> Stored:
    """Ten events of topic access, eight of which are in the views `hits` and, over it, `total`.

    One event a minute from noon on, each arriving at its time but for the last, which is an hour late. Lateness: 2 m.
    """
    with FolderLog(folder / "log", background=False) as log:
        topic = log.create("access", "time timestamp, url string", event_time="time", lateness="2 minutes")
        for number in range(10):
            happened = NOON + number * MINUTE
            arrived = happened + (timedelta(hours=1) if number == 9 else timedelta())
            rows = pa.Table.from_pylist([{"time": happened, "url": f"/{number % 2}"}], schema=topic.schema)
            topic.append(rows, arrived=pa.array([arrived], pa.timestamp("us", tz="UTC")))
    rows = pa.Table.from_pylist(
        [
            {
                "window": {"start": NOON + number * MINUTE, "end": NOON + (number + 1) * MINUTE},
                "url": f"/{number % 2}" if number else None,
                "hits": 10 - number,
                "paid": 9 + number,
            }
            for number in range(8)
        ],
        schema=HITS,
    )
    fence = Fence({"access": {0: 8}}, us(NOON + 7 * MINUTE))
    with (
        open_store(f"sqlite:{folder}/views.db") as store,
        own(store.engine, "web") as owner,
        store.transaction(owner) as tx,
    ):
        known = []
        for name, schema, key, table in (
            ("hits", HITS, ("window", "url"), rows),
            ("total", TOTAL, (), pa.table({"hits": [52]})),
        ):
            place = StoredTable(f"{name}__1", pa.schema([("_key", pa.binary(16)), *schema]), ("_key",))
            tx.create(place)
            tx.insert(place, table.append_column("_key", key_hashes(table, key)))
            tx.publish(name, place, schema.names)
            reads = {"topics": ["access"], "upstream": []} if name == "hits" else {"topics": [], "upstream": ["hits"]}
            known.append(KnownView(name, "f", schema, "fold", key, {"rows": place.name}, reads))
        catalog = Catalog(tx.connection)
        made = catalog.new_generation("web", "hits", known)
        made = catalog.set_fence(made, fence, {"hits": Counters(8, 1, 2), "total": Counters(1, 1, 0)})
        catalog.switch(made)
    return Stored(str(folder / "log"), f"sqlite:{folder}/views.db")
