"""Commands that need Spark, end to end: check, plan, run, rebuild, explain-row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import fails, run
from tests.cli.weblogs import APP, Place, append, place
from tests.eventually import eventually

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Place:
    """The pipeline after a stream over 20 events in steps of 8."""
    where = place(tmp_path_factory.mktemp("ran"))
    append(where, 20)
    run("run", where.app, "--once", "--max-rows", "8", *where.options)
    return where


def rows(where: Place, view: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("view", "show", view, "--limit", "99", "--json", *where.options))[
        "data"
    ]
    return found


def explained(where: Place, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("explain-row", *words, "--app", where.app, "--json", *where.options))
    return found


def test_check_finds_every_problem_and_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sound.py").write_text(APP)
    assert run("check", "sound.py") == "1 topic, 5 views: all in order\n"
    broken = APP + (
        '\n\napp.table("sites", "nowhere.csv")\n'
        'app.view("lost", sql="SELECT * FROM acces", key="ip")\n'
        'app.view("a", sql="SELECT * FROM b", key="ip")\n'
        'app.view("b", sql="SELECT * FROM a", key="ip")\n'
        'app.view("named", sql="SELECT access.url FROM access JOIN sites USING (url)")\n'
        'app.view("keyless", sql="SELECT url, count(*) n FROM access GROUP BY url")\n'
        'app.view("dice", sql="SELECT url, rand() r FROM access")\n'
    )
    Path("broken.py").write_text(broken)
    document = json.loads(run("check", "broken.py", "--json", code=1))
    lines = broken.splitlines()
    said = {}
    for each in document["problems"]:
        assert each["file"] == str(tmp_path / "broken.py")
        said[lines[each["line"] - 1].split('"')[1]] = each["message"]
    assert set(said) == {"sites", "lost", "a", "keyless", "dice"}
    assert "nothing is named 'acces'" in said["lost"]
    text = run("check", "broken.py", code=1)
    assert f"broken.py:{len(lines) - 5}" in text
    assert "did you mean 'access'?" in text
    assert text.endswith("1 topic, 1 table, 11 views: 5 problems\n")
    assert sorted(each.name for each in tmp_path.iterdir() if each.name != "__pycache__") == ["broken.py", "sound.py"]


def test_stream_and_batch_leave_the_same_rows(ran: Place, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(ran.folder / "log")
    other = place(tmp_path)
    text = run("run", other.app, "--mode", "batch", *other.options)
    assert "20 of 20 records" in text
    assert "5 views switched in" in text
    for view in ("hits", "busiest", "visits", "errors", "seen"):
        assert rows(ran, view) == rows(other, view)
        assert rows(ran, view)


def test_json_lines_tell_of_every_step(ran: Place, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(ran.folder / "log")
    other = place(tmp_path)
    text = run("run", other.app, "--until", "access=16", "--max-rows", "8", "--json", *other.options)
    events = [json.loads(line) for line in text.splitlines()]
    steps, end = events[:-1], events[-1]
    assert {each["event"] for each in steps} == {"step"}
    assert (end["event"], end["records"], end["steps"]) == ("end", 16, len(steps))
    assert end["views"]["hits"]["fence"] == {"access": {"0": 16}}
    assert end["views"]["hits"]["late"] == 2
    assert json.loads(run("lag", "--json", *other.options))[0]["records"] == 4


def test_plan_tells_how_and_why_and_what_a_run_would_do(ran: Place, tmp_path: Path) -> None:
    found = {each["view"]: each for each in json.loads(run("plan", ran.app, "--json", *ran.options))["views"]}
    assert {name: each["kept"] for name, each in found.items()} == {
        "hits": "fold", "busiest": "redo", "visits": "redo", "errors": "fold", "seen": "fold",
    }  # fmt: skip
    assert {each["would"] for each in found.values()} == {"go on"}
    assert found["visits"]["kept_rows"] == 20
    assert found["visits"]["kept_bytes"] > 0
    assert "agg.distinct('ip')" in found["visits"]["advice"]
    (tmp_path / "weblogs.py").write_text(APP.replace("1 minute", "2 minutes"))
    changed = json.loads(run("plan", str(tmp_path / "weblogs.py"), "--json", *ran.options))["views"]
    would = {each["view"]: each["would"] for each in changed}
    assert would == {"hits": "refuse", "busiest": "refuse", "visits": "go on", "errors": "go on", "seen": "go on"}
    text = run("plan", str(tmp_path / "weblogs.py"), *ran.options)
    assert "changed: its query\n" in text
    assert "penstock view rebuild hits --app" in text


def test_changed_code_is_refused_until_it_is_rebuilt(tmp_path: Path) -> None:
    where = place(tmp_path)
    append(where, 12)
    run("run", where.app, "--once", *where.options)
    Path(where.app).write_text(APP.replace("1 minute", "2 minutes"))
    assert "penstock view rebuild hits" in fails("run", where.app, "--once", *where.options)
    assert "penstock view rebuild hits" in fails("explain-row", "hits", "url=/0", "2026-01-01T12:01:00Z", "--app",
                                                 where.app, *where.options)  # fmt: skip
    text = run("view", "rebuild", "busiest", "--app", where.app, *where.options)
    assert "hits (fold): " in text
    assert "2 views switched in" in text
    run("run", where.app, "--once", *where.options)
    assert rows(where, "hits")[-1]["window_end"] == "2026-01-01T12:02:00Z"


def test_a_name_that_another_pipeline_has_is_refused_by_run_plan_and_check(ran: Place, tmp_path: Path) -> None:
    file = tmp_path / "second.py"
    file.write_text(APP.replace('Pipeline("weblogs")', 'Pipeline("second")'))
    for command in (["run", str(file), "--once"], ["plan", str(file)]):
        text = fails(*command, *ran.options)
        assert "pipeline 'weblogs' keeps a view of that name in the same database" in text
    problems = json.loads(run("check", str(file), "--json", *ran.options[2:], code=1))["problems"]
    assert {each["view"] for each in problems} == {"hits", "busiest", "visits", "errors", "seen"}
    assert {each["file"] for each in problems} == {str(file)}


def test_row_of_a_group_is_explained_by_its_records(ran: Place) -> None:
    found = explained(ran, "hits", "2026-01-01T12:00:00Z", "/0")
    assert [each["offset"] for each in found["records"]] == [0, 2, 4]
    assert found["records_total"] == found["row"]["hits"] == 3
    [late] = explained(ran, "hits", "2026-01-01T11:01:00Z", "/0")["records"]
    assert (late["offset"], late["late_by_seconds"]) == (6, 3600.0)
    assert [each["offset"] for each in explained(ran, "visits", "/1")["records"]] == [*range(1, 20, 2)]


def test_row_of_one_record_is_explained_by_it(ran: Place) -> None:
    [record] = explained(ran, "errors", "access/0@9")["records"]
    assert (record["offset"], record["values"]["status"]) == (9, 404)
    [record] = explained(ran, "seen", "10.0.0.1")["records"]
    assert record["offset"] == 19


def test_row_over_a_view_names_that_view_s_rows_and_how_to_go_on(ran: Place) -> None:
    found = explained(ran, "busiest", "/0")
    assert found["records"] == []
    assert {each["view"] for each in found["upstream"]} == {"hits"}
    assert (
        found["upstream_total"]
        == len(found["upstream"])
        == len([each for each in rows(ran, "hits") if each["url"] == "/0"])
    )
    words = found["upstream"][-1]["next"].split()
    assert words[:3] == ["penstock", "explain-row", "hits"]
    assert "made of" in run(*words[1:], *ran.options)


def test_row_that_is_not_there_is_answered_with_its_neighbours(ran: Place) -> None:
    text = fails("explain-row", "hits", "2026-01-01T12:00:00Z", "/2", "--app", ran.app, *ran.options)
    assert "2026-01-01T12:00:00Z..2026-01-01T12:01:00Z /1" in text
    assert "several rows have it" in fails("explain-row", "hits", "--app", ran.app, *ran.options)
    assert "such as access/0@17" in fails("explain-row", "errors", "x", "--app", ran.app, *ran.options)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_sigterm_ends_a_run_cleanly(tmp_path: Path, mode: str) -> None:
    where = place(tmp_path)
    began = where.folder / "began"
    slow = APP.replace("access.groupBy(F.w", 'access.withColumn("url", slow("url")).groupBy(F.w').replace(
        "app = Pipeline",
        "import pathlib, time\n"
        f"slow = F.udf(lambda url: pathlib.Path({str(began)!r}).touch() or time.sleep(3600) or url)\n"
        "app = Pipeline",
    )
    Path(where.app).write_text(APP if mode == "stream" else slow)
    append(where, 8)
    command = [sys.executable, "-m", "penstock.cli", "run", where.app, "--mode", mode, "--json", *where.options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert json.loads(first)["event"] in ("step", "begin"), first
        if mode == "batch":
            eventually(began.exists)  # It is inside the first row now.
        os.kill(process.pid, signal.SIGTERM)
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert json.loads(output.splitlines()[-1])["event"] == "stopped"
