"""A row by its key, the short way: the same answer as the long way gives, of one moment, whatever is asked for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pytest

from penstock.service.by_key import ROW_BYTES_MAX, RowsByKey
from penstock.service.service import Service
from penstock.views.catalog import Catalog, Counters, KnownView
from penstock.views.fence import Fence
from penstock.views.keys import key_hashes
from penstock.views.owner import own
from penstock.views.store import StoredTable, open_store
from tests.eventually import eventually
from tests.service.site import ROWS, Site, lay_on_top, sale, store_sales

ODD = pa.schema(
    [
        ("name", pa.string()),
        ("small", pa.float32()),
        ("large", pa.float64()),
        ("exact", pa.decimal128(20, 7)),
        ("local", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "Europe/Berlin")),
        ("clock", pa.time64("us")),
        ("length", pa.duration("us")),
        ("numbers", pa.map_(pa.string(), pa.float64())),
        ("of", pa.struct([("a", pa.int32()), ("b", pa.binary())])),
        ("empty", pa.null()),
        ('qu"oted', pa.int16()),
    ]
)
LONG = "x" * (ROW_BYTES_MAX + 1)
ODD_ROWS: list[dict[str, Any]] = [
    {
        "name": "one", "small": 0.1, "large": float("nan"), "exact": Decimal("0.0000001"),
        "local": datetime(2026, 1, 1, 0, 0, 0, 7),  # noqa: DTZ001
        "zoned": datetime(2026, 7, 1, 12, tzinfo=UTC), "clock": time(1, 2, 3, 4), "length": timedelta(hours=50),
        "numbers": [("x", 1.5)], "of": {"a": 1, "b": b"\xff"}, "empty": None, 'qu"oted': 7,
    },
    {"name": "two", "large": float("-inf"), "small": -0.0, "exact": Decimal("12345.0000000")},
    {"name": "", "large": 1e300},
    {"name": None},
    {"name": LONG[1:]},
    {"name": LONG},
]  # fmt: skip


def row_by_key(client: httpx.Client, view: str, *key: str) -> Any:
    """The answer of the short way, which must be the one of the long way."""
    short = client.get(f"/views/{view}", params={"key": list(key)})
    long = client.get(f"/views/{view}", params={"key": list(key), "limit": 100})
    assert short.status_code == long.status_code, (short.text, long.text)
    assert short.json() == long.json()
    kept = {name: value for name, value in long.headers.items() if name != "date"}
    assert {name: value for name, value in short.headers.items() if name != "date"} == kept
    return short.json().get("rows")


def store_odd(site: Site) -> None:
    """A view with a column of every other type."""
    rows = pa.Table.from_pylist(ODD_ROWS, schema=ODD)
    with (
        open_store(site.settings.views.url) as store,
        own(store.engine, "odd") as owner,
        store.transaction(owner) as tx,
    ):
        table = StoredTable("odd__1", pa.schema([("_key", pa.binary(16)), *ODD]), ("_key",))
        tx.create(table)
        assert not tx.insert(table, rows.append_column("_key", key_hashes(rows, ["name"])))
        known = KnownView("odd", "f", ODD, "fold", ("name",), {"rows": table.name}, {"topics": ["gone"]})
        catalog = Catalog(tx.connection)
        made = catalog.new_generation("odd", "odd", [known])
        catalog.switch(catalog.set_fence(made, Fence({"gone": {0: 3}}, 5), {"odd": Counters(len(ODD_ROWS), 0, 0)}))


@pytest.mark.parametrize("number", range(8))
def test_every_row_is_the_one_that_the_long_way_finds(shared_client: httpx.Client, number: int) -> None:
    url = ROWS[number]["url"] or "NULL"
    [row] = row_by_key(shared_client, "sales", f"2026-01-01T12:0{number}:00Z..2026-01-01T12:0{number + 1}:00Z", url)
    assert row["hits"] == 10 - number


@pytest.mark.parametrize(
    "key",
    [
        ["2026-01-01T12:03:00Z"],
        ["url=/1"],
        ["2026-01-01T12:03:00Z..2026-01-01T12:04:00Z", "/nowhere"],
        ["2026-01-01T12:03:00Z..2026-01-01T12:04:00Z", "/1", "more"],
        ["yesterday", "/1"],
        ["url=/1", "window=2026-01-01T12:03:00Z..2026-01-01T12:04:00Z"],
        [""],
    ],
    ids=str,
)
def test_what_is_no_whole_key_is_answered_as_ever(shared_client: httpx.Client, key: list[str]) -> None:
    row_by_key(shared_client, "sales", *key)


@pytest.mark.parametrize("name", ["nope", "total", "%00", "a" * 201, "é"])
def test_what_is_no_such_view_is_answered_as_ever(steady_client: httpx.Client, name: str) -> None:
    row_by_key(steady_client, name, "1")


def test_values_of_every_type_are_those_of_the_long_way(site: Site) -> None:
    store_odd(site)
    with site.serving() as client:
        for row in ODD_ROWS[:4]:
            key = "NULL" if row["name"] is None else row["name"]
            [found] = row_by_key(client, "odd", key)
            assert found["name"] == row["name"]
        assert row_by_key(client, "odd", "three") == []


def test_a_row_that_is_large_is_read_by_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.service.by_key.ROW_BYTES_MAX", 100)
    store_sales(site, [sale(1, url="/1", tags=["x" * 120]), sale(2, url="/1", tags=["x" * 30])])
    service = Service(site.settings)
    rows = RowsByKey(service)
    rows.learn("sales")
    key = "2026-01-01T12:0{}:00Z..2026-01-01T12:0{}:00Z"
    assert rows.find("sales", [key.format(1, 2), "/1"]) is None
    assert not rows.is_new("sales")
    assert rows.find("sales", [key.format(2, 3), "/1"]) is not None
    rows.close()
    service._close()


def test_both_parts_of_a_view_are_read_as_one(any_site: Site) -> None:
    lay_on_top(any_site, [sale(3, hits=100), sale(8)])
    with any_site.serving() as client:
        for number, hits in ((3, 100), (8, 2), (2, 8)):
            key = f"2026-01-01T12:0{number}:00Z..2026-01-01T12:{number + 1:02}:00Z"
            assert [row["hits"] for row in row_by_key(client, "sales", key, f"/{number % 2}")] == [hits]


def test_a_row_and_its_moment_belong_together_while_views_are_switched(site: Site) -> None:
    is_done = threading.Event()
    seen: list[tuple[int, int, int]] = []

    def read(client: httpx.Client) -> None:
        key = ["2026-01-01T12:03:00Z..2026-01-01T12:04:00Z", "/1"]
        while not is_done.is_set():
            answer = client.get("/views/sales", params={"key": key})
            assert answer.status_code == 200, answer.text
            as_of, [row] = answer.json()["as_of"], answer.json()["rows"]
            seen.append((as_of["generation"], as_of["offsets"]["access"]["0"], row["hits"]))

    with site.serving() as client, ThreadPoolExecutor() as threads:
        reader = threads.submit(read, client)
        try:
            for generation in range(2, 12):
                store_sales(site, [sale(number, hits=generation) for number in range(8)], seen=generation)
                eventually(lambda: reader.done() or (seen and seen[-1][0] == generation))  # noqa: B023
        finally:
            is_done.set()
        reader.result()
    assert all(generation == offset == hits for generation, offset, hits in seen if generation > 1)


def test_it_is_counted_as_the_route_that_it_is(client: httpx.Client) -> None:
    for _ in range(3):
        client.get("/views/sales", params={"key": ["2026-01-01T12:03:00Z..2026-01-01T12:04:00Z", "/1"]})
    assert (
        'penstock_http_requests_total{method="GET",route="/views/{name}",status="200"} 3.0'
        in client.get("/metrics").text
    )
