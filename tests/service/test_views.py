"""Rows of views by HTTP: found by key, time and content, in order, page by page, in three formats, as of a moment."""

from __future__ import annotations

import base64
import csv
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.eventually import eventually
from tests.service.site import ROWS, SALES, Site, lay_on_top, sale, store_sales


def numbers(client: httpx.Client, **asked: Any) -> list[int]:
    """Which rows come, by their number, in their order."""
    answer = client.get("/views/sales", params=asked)
    assert answer.status_code == 200, answer.text
    return [10 - row["hits"] for row in answer.json()["rows"]]


def refused(client: httpx.Client, path: str = "/views/sales", **asked: Any) -> dict[str, Any]:
    answer = client.get(path, params=asked)
    assert answer.status_code in (400, 404, 409), answer.text
    found: dict[str, Any] = answer.json()["error"]
    return found


def test_every_view_tells_what_it_is_and_how_fresh(steady_client: httpx.Client) -> None:
    sales, total = steady_client.get("/views").json()["views"]
    assert (sales["view"], sales["key"], sales["rows"], sales["late"]) == ("sales", ["window", "url"], 8, 1)
    assert total["as_of"] == {
        "clock": "2026-01-01T12:07:00Z",
        "offsets": {"access": {"0": 8}},
        "generation": 1,
        "behind": 2,
    }


def test_no_views_yet_is_an_empty_list(tmp_path: Any, site: Site) -> None:
    (tmp_path / "views.db").unlink()
    with site.serving() as client:
        assert client.get("/views").json() == {"views": []}
        assert refused(client)["kind"] == "UnknownView"
        assert client.get("/ready").status_code == 200
        store_sales(site, ROWS)
        assert numbers(client, limit=1) == [0]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"key": ["2026-01-01T12:03:00Z", "/1"]}, [3]),
        ({"key": "2026-01-01T13:03:00+01:00"}, [3]),
        ({"key": "2026-01-01T12:03:00Z..2026-01-01T12:04:00Z"}, [3]),
        ({"key": "2026-01-01T12:03:00Z..2026-01-01T12:05:00Z"}, []),
        ({"key": "url=NULL"}, [0]),
        ({"key": "url=/1"}, [1, 3, 5, 7]),
        ({"from": "2026-01-01T12:02:00Z", "to": "2026-01-01T12:04:00Z"}, [2, 3]),
        ({"from": "2026-01-01T12:06:00"}, [6, 7]),
        ({"from": "2026-01-02", "by": "day"}, [4, 5, 6, 7]),
        ({"where": "hits>=8"}, [0, 1, 2]),
        ({"where": ["hits>2", "hits<=4"]}, [6, 7]),
        ({"where": "hits=3"}, [7]),
        ({"where": ["hits!=3", "hits<5"]}, [6]),
        ({"where": "url^=/"}, [1, 2, 3, 4, 5, 6, 7]),
        ({"where": "url^=/1"}, [1, 3, 5, 7]),
        ({"where": "url^=%"}, []),
        ({"where": "url!=/1"}, [0, 2, 4, 6]),
        ({"where": "url!=NULL"}, [1, 2, 3, 4, 5, 6, 7]),
        ({"where": "paid>9.5"}, [3]),
        ({"where": "paid=10.5"}, [3]),
        ({"where": "mean=NULL"}, [3]),
        ({"where": "mean<0.5"}, [0, 1]),
        ({"where": "is_open=true"}, [6, 7]),
        ({"where": "day=2026-01-02"}, [4, 5, 6, 7]),
        ({"where": "mark=05"}, [5]),
        ({"where": "window_end=2026-01-01T12:01:00Z"}, [0]),
        ({"where": "window>=2026-01-01T12:07:00Z"}, [7]),
        ({"order": "-hits", "limit": 3}, [0, 1, 2]),
        ({"order": "paid"}, sorted(range(8), key=lambda number: number * 7 % 11)),
        ({"order": "mean"}, [0, 1, 2, 4, 5, 6, 7, 3]),
        ({"order": "-mean"}, [7, 6, 5, 4, 2, 1, 0, 3]),
    ],
    ids=str,
)
def test_rows_are_found(shared_client: httpx.Client, asked: dict[str, Any], found: list[int]) -> None:
    assert numbers(shared_client, **asked) == found


@pytest.mark.parametrize(
    "order", [None, *SALES.names[:-1], "-url", "-paid", "-mean", "-window", "window_end", "-is_open"]
)
@pytest.mark.parametrize("limit", [1, 3])
def test_pages_hold_every_row_once_and_in_order(shared_client: httpx.Client, order: str | None, limit: int) -> None:
    asked: dict[str, Any] = {} if order is None else {"order": order}
    whole = numbers(shared_client, **asked)
    found, page = [], ""
    while page is not None:
        answer = shared_client.get("/views/sales", params={**asked, "limit": limit, **({"page": page} if page else {})})
        assert answer.status_code == 200, answer.text
        rows, page = answer.json()["rows"], answer.json()["next"]
        assert len(rows) <= limit
        found += [10 - row["hits"] for row in rows]
    assert found == whole
    assert sorted(found) == list(range(8))


def test_all_formats_hold_the_same_rows_and_say_as_of_when(steady_client: httpx.Client) -> None:
    asked: dict[str, Any] = {"order": "-hits", "limit": 2}
    as_json = steady_client.get("/views/sales", params=asked)
    arrow = steady_client.get("/views/sales", params={**asked, "format": "arrow"})
    text = steady_client.get("/views/sales", params=asked, headers={"Accept": "text/csv"})
    rows = pa.ipc.open_stream(arrow.content).read_all()
    assert rows.to_pylist() == ROWS[:2]
    assert json.loads(rows.schema.metadata[b"penstock"])["as_of"] == as_json.json()["as_of"]
    lines = list(csv.DictReader(io.StringIO(text.text)))
    assert [line["window_start"] for line in lines] == ["2026-01-01 12:00:00.000000", "2026-01-01 12:01:00.000000"]
    assert [line["mark"] for line in lines] == ["00", "01"]
    for answer in (as_json, arrow, text):
        assert json.loads(answer.headers["Penstock-As-Of"]) == as_json.json()["as_of"]
        assert answer.headers["Penstock-Next"] == as_json.json()["next"]
    assert as_json.json()["rows"][1] == {
        "window": {"start": "2026-01-01T12:01:00Z", "end": "2026-01-01T12:02:00Z"},
        "url": "/1", "hits": 9, "paid": "7.50", "mean": 0.25, "is_open": False, "day": "2026-01-01", "mark": "AQ==",
        "tags": ["t1"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "asked",
    [
        {"where": "hits"},
        {"where": "hits>many"},
        {"where": "hits=99999999999999999999"},
        {"where": "nope=1"},
        {"where": "_key=00"},
        {"where": "tags=[]"},
        {"where": "url=a\0b"},
        {"where": "hits^=1"},
        {"where": "mark=xyz"},
        {"where": "paid=NaN"},
        {"where": '"; DROP TABLE sales__1; --=1'},
        {"order": "tags"},
        {"order": "hits; DROP TABLE sales__1"},
        {"order": "_key"},
        {"key": ["2026-01-01", "/1", "more"]},
        {"key": "yesterday"},
        {"from": "99999-01-01"},
        {"from": "2026-01-01", "by": "hits"},
        {"page": "!"},
        {"page": base64.urlsafe_b64encode(b'["x",[],""]').decode()},
        {"limit": "0"},
        {"format": "xml"},
        {"from": "0001-01-01T00:00:00+10:00"},
    ],
    ids=str,
)
def test_invalid_parameters_are_refused_with_a_reason(steady_client: httpx.Client, asked: dict[str, Any]) -> None:
    error = refused(steady_client, **asked)
    assert error["message"]
    assert error["details"]
    assert numbers(steady_client) == list(range(8))


@pytest.mark.parametrize("kind", ["i", "f", "s", "d", "t", "D", "x", "?"])
def test_a_page_that_somebody_wrote_themselves_does_no_harm(shared_client: httpx.Client, kind: str) -> None:
    for order in ("hits", "url", "day", "is_open", "window"):
        real = shared_client.get("/views/sales", params={"order": order, "limit": 1}).json()["next"]
        digest, values, key = json.loads(base64.urlsafe_b64decode(real + "=="))
        text = {"t": "2026-01-01T00:00:00", "D": "2026-01-01", "x": "00", "s": "a"}.get(kind, "1")
        forged = base64.urlsafe_b64encode(json.dumps([digest, [[kind, text]] * len(values), key]).encode()).decode()
        answer = shared_client.get("/views/sales", params={"order": order, "limit": 1, "page": forged})
        assert answer.status_code in (200, 400), (order, answer.text)


def test_what_was_misspelt_is_named_with_the_nearest(steady_client: httpx.Client) -> None:
    assert "did you mean 'hits'?" in refused(steady_client, order="hist")["details"]
    assert "did you mean 'sales'?" in refused(steady_client, "/views/sale")["details"]
    assert refused(steady_client, "/views/%00")["kind"] == "UnknownView"


def test_an_answer_has_no_more_rows_than_the_service_allows(site: Site) -> None:
    with site.limited(rows_max=3).serving() as client:
        answer = client.get("/views/sales", params={"limit": 1000}).json()
        assert len(answer["rows"]) == 3
        assert answer["next"]


def test_a_batch_part_and_its_speed_part_are_read_as_one(any_site: Site) -> None:
    lay_on_top(any_site, [sale(3, hits=100), sale(8)])
    with any_site.serving() as client:
        answer = client.get("/views/sales", params={"order": "-hits", "limit": 3}).json()
        assert [row["hits"] for row in answer["rows"]] == [100, 10, 9]
        assert (answer["as_of"]["offsets"], answer["as_of"]["behind"]) == ({"access": {"0": 10}}, 0)
        rest = client.get("/views/sales", params={"order": "-hits", "page": answer["next"]}).json()["rows"]
        assert [row["hits"] for row in rest] == [8, 6, 5, 4, 3, 2]


def test_pages_of_very_large_rows_end_early_and_miss_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.service.rows.ROWS_AT_ONCE", 2)
    monkeypatch.setattr("penstock.service.rows.PAGE_BYTES_MAX", 1000)
    store_sales(site, [sale(number, url="x" * 800) for number in range(8)])
    with site.serving() as client:
        first = client.get("/views/sales").json()
        assert [row["hits"] for row in first["rows"]] == [10, 9]
        second = client.get("/views/sales", params={"page": first["next"]}).json()
        assert [row["hits"] for row in second["rows"]] == [8, 7]


def test_readers_see_one_generation_while_views_are_switched(any_site: Site) -> None:
    is_done = threading.Event()
    seen: list[tuple[int, set[int]]] = []

    def read(client: httpx.Client) -> None:
        while not is_done.is_set():
            answer = client.get("/views/sales")
            assert answer.status_code == 200, answer.text
            document = answer.json()
            seen.append((document["as_of"]["generation"], {row["hits"] for row in document["rows"]}))

    with any_site.serving() as client, ThreadPoolExecutor() as threads:
        reader = threads.submit(read, client)
        try:
            for generation in range(2, 8):
                store_sales(any_site, [sale(number, hits=generation) for number in range(8)])
                eventually(lambda: reader.done() or (seen and seen[-1][0] == generation))  # noqa: B023
        finally:
            is_done.set()
        reader.result()
    assert all(hits == {generation} for generation, hits in seen if generation > 1)


def test_a_view_without_any_time_says_what_to_add(steady_client: httpx.Client) -> None:
    error = refused(steady_client, "/views/total", **{"from": "2026-01-01"})
    assert "by=COLUMN" in error["details"][0]


def test_long_keys_can_be_paged_through_and_endless_ones_are_refused_with_a_word(site: Site) -> None:
    store_sales(site, [sale(number, url=f"/{number}" + "x" * 9_000) for number in range(3)])
    with site.serving() as client:
        found: list[str] = []
        page: str | None = ""
        while page is not None:
            answer = client.get("/views/sales", params={"limit": 1, "order": "url", **({"page": page} if page else {})})
            found, page = [*found, *(row["url"][:2] for row in answer.json()["rows"])], answer.json()["next"]
        assert found == ["/0", "/1", "/2"]
    store_sales(site, [sale(number, url=f"/{number}" + "x" * 90_000) for number in range(3)])
    with site.serving() as client:
        answer = client.get("/views/sales", params={"limit": 1, "order": "url"})
        assert answer.status_code == 413
        assert "sort by another column" in answer.text
        assert len(client.get("/views/sales", params={"order": "url"}).json()["rows"]) == 3


def test_half_a_character_in_a_page_is_no_page(shared_client: httpx.Client) -> None:
    page = shared_client.get("/views/sales", params={"limit": 1, "order": "url"}).json()["next"]
    digest, values, key = json.loads(base64.urlsafe_b64decode(page + "=" * (-len(page) % 4)))
    for text in ("\ud800", "a\0b"):
        forged = json.dumps([digest, [["s", text]] * len(values), key]).encode()
        packed = base64.urlsafe_b64encode(forged).decode().rstrip("=")
        assert refused(shared_client, order="url", limit=1, page=packed)["kind"] == "RequestRefused"
