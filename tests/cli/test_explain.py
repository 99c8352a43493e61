"""penstock explain-row over other views: every row is named, by a command that works as it is printed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.log.folder_log import FolderLog
from tests.cli.commands import run

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

APP = """
from penstock import Pipeline

app = Pipeline("shop")
app.topic("orders", "k string, n bigint")
app.view("lines", sql="SELECT k, n FROM orders WHERE n < 9")
app.view("total", key=(), sql="SELECT count(*) AS c FROM lines")
app.view("sums", key=("k", "n"), sql="SELECT k, n, count(*) AS c FROM lines GROUP BY k, n")
app.view("most", key="k", sql="SELECT k, max(c) AS c FROM sums GROUP BY k")
app.view("above", key=(), sql="SELECT c + 1 AS c FROM total")
"""
ORDERS = [("a b", -1), (None, 2), ("k=a b", -1), ("a b", -1), ("--json", 3), ("a b", 9), (None, None), ("it's", 0)]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory, spark: object) -> list[str]:
    """Where the log and the views are after a stream, in a folder whose name a shell would split."""
    folder = tmp_path_factory.mktemp("ran") / "of today"
    folder.mkdir()
    Path(folder / "shop.py").write_text(APP)
    with FolderLog(folder / "log", background=False) as log:
        topic = log.create("orders", "k string, n bigint")
        topic.append(pa.Table.from_pylist([{"k": k, "n": n} for k, n in ORDERS], schema=topic.schema))
    found = ["--log", str(folder / "log"), "--views", f"sqlite:{folder}/views.db"]
    run("run", str(folder / "shop.py"), "--once", *found)
    return ["--app", str(folder / "shop.py"), *found]


def explained(options: list[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("explain-row", *words, "--json", *options))
    return found


def follow(command: str) -> dict[str, Any]:
    """What the next command says, typed as it was printed."""
    [program, *words] = shlex.split(command)
    assert program == "penstock"
    found: dict[str, Any] = json.loads(run(words[0], "--json", *words[1:]))
    return found


def test_row_over_a_view_without_a_key_names_each_of_its_rows(options: list[str]) -> None:
    found = explained(options, "sums", "k=a b", "n=-1")
    assert (found["row"]["c"], found["upstream_total"]) == (2, 2)
    records = [follow(each["next"])["records"] for each in found["upstream"]]
    assert [[each["offset"] for each in made] for made in records] == [[0], [3]]
    everything = explained(options, "total")
    assert everything["upstream_total"] == len(everything["upstream"]) == everything["row"]["c"] == 6
    assert [each["record"] for each in everything["upstream"]] == [f"orders/0@{n}" for n in (0, 1, 2, 3, 4, 7)]


def test_few_of_many_rows_without_a_key_are_listed_and_all_counted(options: list[str]) -> None:
    found = explained(options, "total", "--limit", "2")
    assert (found["upstream_total"], len(found["upstream"])) == (6, 2)
    text = run("explain-row", "total", "--limit", "2", *options)
    assert "made of 6 rows of other views" in text
    assert "the first 2 are listed" in text


@pytest.mark.parametrize("k", ["a b", "NULL", "k=k=a b", "k=--json"])
def test_next_command_works_as_it_is_printed(options: list[str], k: str) -> None:
    found = explained(options, "most", k)
    for each in found["upstream"]:
        followed = follow(each["next"])
        assert {name: followed["row"][name] for name in ("k", "n")} == each["key"]
        assert followed["upstream_total"] == followed["row"]["c"]


def test_next_command_of_a_view_of_one_row_works(options: list[str]) -> None:
    [total] = explained(options, "above")["upstream"]
    assert follow(total["next"])["row"] == {"c": 6}
