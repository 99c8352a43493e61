"""penstock verify: the exit code says whether everything agrees, and the report is where it was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log.folder_log import FolderLog
from tests.cli.commands import fails, run

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

APP = """
from pyspark.sql import functions as F
from penstock import Pipeline

app = Pipeline("web")
app.topic("access", "url string, n bigint")


@app.view(key="url")
def hits(access):
    return access.groupBy("url").agg({hits}.alias("hits"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with FolderLog(tmp_path / "log", background=False) as log:
        log.create("access", "url string, n bigint").append(pa.table({"url": ["/", "/", "/a"], "n": [1, 2, 3]}))
    return tmp_path


def app(folder: Path, hits: str) -> list[str]:
    file = folder / "web_to_verify.py"
    file.write_text(APP.format(hits=hits))
    return ["verify", str(file), "--log", str(folder / "log"), "--cuts", "0"]


def test_a_pipeline_that_agrees_ends_with_0(folder: Path) -> None:
    words = app(folder, 'F.count("*")')
    found = json.loads(run(*words, "--seed", "5", "--rows", "2", "--json", "--html", str(folder / "report.html")))
    assert (found["agrees"], found["seed"], found["records"]) == (True, 5, {"access": 2})
    assert [each["run"] for each in found["runs"]] == [
        "batch",
        "batch again",
        "plain Spark",
        "stream, one step",
        "stream, ten steps",
        "stream, single records",
        "lambda, random cuts 1",
        "kappa, replayed and switched",
        "stream, stopped and continued",
        "stream, without small plans",
        "stream, other environment",
    ]
    assert "everything agrees" in (folder / "report.html").read_text()


def test_a_pipeline_that_does_not_agree_ends_with_1_and_names_the_line(folder: Path) -> None:
    words = app(folder, "F.max(F.current_timestamp())")
    text = run(*words, code=1)
    assert "web_to_verify.py:11" in text
    assert "current_timestamp() gives another answer when the log is replayed" in text
    assert "1 of 1 view failed: hits" in text


def test_a_log_without_records_is_told_in_words(folder: Path) -> None:
    with FolderLog(folder / "empty", background=False) as log:
        log.create("access", "url string, n bigint")
    words = app(folder, 'F.count("*")')
    assert "there is nothing to compare 'web' on" in fails(*words[:2], "--log", str(folder / "empty"))
