"""penstock view: people find, read, take away and drop what is stored, without Spark."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.views.owner import own
from penstock.views.store import open_store
from tests.cli.commands import fails, run
from tests.cli.stored_views import HITS, Stored, stored


@pytest.fixture
def web(tmp_path: Path) -> Stored:
    return stored(tmp_path)


def shown(web: Stored, *words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run("view", "show", "hits", *words, "--json", *web.options))["data"]
    return found


def test_list_tells_how_fresh_each_view_is(web: Stored) -> None:
    found = {each["view"]: each for each in json.loads(run("view", "list", "--json", *web.options))}
    assert found["hits"] | {"fence": None} == {
        "view": "hits", "pipeline": "web", "kept": "fold", "rows": 8, "key": ["window", "url"], "generation": 1,
        "behind": 2, "clock": "2026-01-01T12:07:00Z", "fence": None, "late": 1, "corrected": 2,
    }  # fmt: skip
    assert (found["total"]["behind"], found["total"]["key"]) == (2, [])
    text = run("view", "list", *web.options)
    assert "one row" in text
    assert "window, url" in text


def test_list_without_the_log_still_tells_of_the_rows(web: Stored, tmp_path: Path) -> None:
    [hits, _] = json.loads(run("view", "list", "--json", *web.views, "--log", str(tmp_path / "elsewhere")))
    assert (hits["rows"], hits["behind"]) == (8, None)


def test_looking_at_views_that_are_not_there_makes_no_file(tmp_path: Path) -> None:
    where = ["--views", f"sqlite:{tmp_path}/none.db"]
    assert run("view", "list", "--json", *where) == "[]\n"
    assert "views are made by the first run" in fails("view", "show", "hits", *where)
    assert "views are made by the first run" in fails("view", "query", "SELECT 1", *where)
    assert list(tmp_path.iterdir()) == []


def test_show_is_in_the_order_of_the_key_and_marks_closed_windows(web: Stored) -> None:
    found = shown(web)
    assert [each["hits"] for each in found] == [10, 9, 8, 7, 6, 5, 4, 3]
    # The clock is 12:07 and the lateness two minutes: what ends at 12:05 is closed, what ends later is not.
    assert [each["closed"] for each in found] == ["yes"] * 5 + ["no"] * 3
    assert found[0]["window_start"] == "2026-01-01T12:00:00Z"
    text = run("view", "show", "hits", "--limit", "2", *web.options)
    assert "2 rows of 8, as of 2026-01-01T12:07:00Z (access 0=8), 2 records behind the log" in text


@pytest.mark.parametrize(
    ("words", "hits"),
    [
        (["--order", "hits", "--limit", "2"], [3, 4]),
        (["--order", "-paid", "--limit", "2"], [3, 4]),
        (["--order", "paid", "--limit", "3"], [10, 9, 8]),
        (["--key", "2026-01-01T12:03:00Z"], [7]),
        (["--key", "2026-01-01T12:03:00Z..2026-01-01T12:04:00Z", "--key", "/1"], [7]),
        (["--key", "2026-01-01T12:03:00Z", "--key", "/0"], []),
        (["--key", "url=/1"], [9, 7, 5, 3]),
        (["--key", "url=NULL"], [10]),
    ],
)
def test_show_finds_rows_by_key_and_sorts_by_value(web: Stored, words: list[str], hits: list[int]) -> None:
    assert [each["hits"] for each in shown(web, *words)] == hits


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "hit"], "did you mean 'hits'"),
        (["show", "hits", "--key", "noon"], "column 'window' is of type timestamp"),
        (["show", "hits", "--key", "0001-01-01T00:00:00+10:00"], "column 'window' is of type timestamp"),
        (["show", "hits", "--key", "2026-01-01", "--key", "/", "--key", "x"], "more values than key columns"),
        (["show", "hits", "--order", "hit"], "did you mean 'hits'"),
        (["query", "DELETE FROM hits"], "this query was refused"),
        (["query", "SELECT hit FROM hits"], "no such column"),
        (["export", "hits", "hits.xlsx"], "ends in .csv or .parquet or .jsonl"),
        (["drop", "hits"], "there is no terminal to ask on"),
        (["drop", "hits", "--yes"], "penstock view drop hits total"),
        (["drop", "hit", "--yes"], "did you mean 'hits'"),
    ],
)
def test_what_cannot_be_done_is_told_with_what_can(web: Stored, words: list[str], told: str) -> None:
    options = web.options if words[0] == "show" else web.views
    assert told in fails("view", *words, *options)


def test_query_sees_a_window_as_two_columns(web: Stored) -> None:
    sql = "SELECT window_start, hits FROM hits WHERE url = '/1' ORDER BY window_end LIMIT 1"
    assert json.loads(run("view", "query", sql, "--json", *web.views)) == [
        {"window_start": "2026-01-01 12:01:00.000000", "hits": 9}
    ]
    assert "window_start" in run("view", "query", sql, *web.views)


def test_export_writes_every_row_in_every_format(web: Stored, tmp_path: Path) -> None:
    for ending in ("csv", "parquet", "jsonl"):
        assert "8 rows of hits" in run("view", "export", "hits", str(tmp_path / f"hits.{ending}"), *web.views)
    table = pq.read_table(tmp_path / "hits.parquet")
    assert table.schema.equals(HITS)
    assert table.num_rows == 8
    with (tmp_path / "hits.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [*lines[0]] == ["window_start", "window_end", "url", "hits", "paid"]
    assert sum(int(each["hits"]) for each in lines) == 52
    rows = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    assert {each["window"]["start"] for each in rows} >= {"2026-01-01T12:00:00Z"}
    assert {each["paid"] for each in rows} >= {"9.00"}


def test_export_that_fails_leaves_the_old_file_as_it_was(
    web: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out" / "hits.csv"
    target.parent.mkdir()
    target.write_text("old")

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("os.fsync", full)
    assert "No space left" in fails("view", "export", "hits", str(target), *web.views)
    assert [each.name for each in target.parent.iterdir()] == ["hits.csv"]
    assert target.read_text() == "old"


def test_drop_takes_rows_and_names_away(web: Stored) -> None:
    assert run("view", "drop", "hits", "total", "--yes", *web.views) == (
        "view 'hits' and 'total' is dropped, with 9 rows\n"
    )
    assert run("view", "list", "--json", *web.options) == "[]\n"
    assert "no such table" in fails("view", "query", "SELECT * FROM hits", *web.views)


def test_drop_is_refused_while_a_run_owns_the_views(web: Stored) -> None:
    with open_store(web.views_url) as store, own(store.engine, "web"):
        assert "is being run already" in fails("view", "drop", "hits", "total", "--yes", *web.views)
