"""penstock serve as people run it: until Ctrl-C, alone or with the file of a pipeline."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.commands import fails, run
from tests.cli.stored_views import stored
from tests.eventually import LIMIT_SECONDS

get = functools.partial(httpx.get, timeout=LIMIT_SECONDS)
post = functools.partial(httpx.post, timeout=LIMIT_SECONDS)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@contextmanager
def served(folder: Path, options: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, and its address."""
    command = [sys.executable, "-m", "penstock.cli", "serve", "--port", "0", *options]
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        match = re.match(r"serving on (http://127.0.0.1:\d+), described at ", second)
        assert match is not None, (first, second)
        assert first == f"dashboard: {match[1]}/dashboard\n"
        try:
            yield process, match[1]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path, stored(tmp_path).options) as (process, url):
        assert get(f"{url}/views/total").json()["rows"] == [{"hits": 52}]
        process.send_signal(number)
        assert process.wait() in (0, 130, 143, -signal.SIGTERM)
    assert (tmp_path / "errors").read_text() == ""


def test_a_retry_after_a_kill_stores_nothing_twice(tmp_path: Path) -> None:
    options = stored(tmp_path).options
    answers = []
    for _ in range(2):
        with served(tmp_path, options) as (process, url):
            headers = {"Idempotency-Key": "4711"}
            answers.append(post(f"{url}/topics/access", json={"url": "/pay"}, headers=headers).json())
            process.kill()
    assert [(each["stored"], each["duplicates"]) for each in answers] == [(1, 0), (0, 1)]


def test_libraries_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.installed.find_spec", lambda name: None)
    assert "pip install 'penstock[serve]'" in fails("serve")
    assert "not installed: fastapi, httptools, nicegui" in fails("demo")


def test_others_are_not_served_without_a_token() -> None:
    assert "make a token first" in fails("serve", "--host", "0.0.0.0", "--port", "0")


def test_with_the_file_of_a_pipeline_only_that_one_is_served(tmp_path: Path) -> None:
    site = stored(tmp_path)
    (tmp_path / "other.py").write_text(
        "from penstock import Pipeline\n\n"
        'app = Pipeline("other")\n'
        'app.topic("clicks", "n int")\n'
        'app.view("few", sql="SELECT n FROM clicks")\n'
    )
    run("topic", "create", "clicks", "--schema", "n int", *site.log)
    with served(tmp_path, [str(tmp_path / "other.py"), *site.options]) as (_, url):
        assert [each["topic"] for each in get(f"{url}/topics").json()["topics"]] == ["clicks"]
        assert get(f"{url}/views").json()["views"] == []
        assert get(f"{url}/views/total").status_code == 404
        assert get(f"{url}/views/total", params={"key": "x"}).status_code == 404
        assert get(f"{url}/topics/access").status_code == 404
        assert post(f"{url}/topics/access", json={"url": "/"}).status_code == 404
        page = get(f"{url}/dashboard/pipeline").text
        assert "few" in page
        assert "access" not in page


def test_a_file_that_is_not_there_is_told_of_before_anything_is_served() -> None:
    assert "no such file" in fails("serve", "nope.py", "--port", "0")


def test_the_browser_is_opened_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("penstock.service.server.serve", lambda settings, started, pipeline: started("http://here"))
    assert run("serve").startswith("dashboard: http://here/dashboard\n")
    assert opened == []
    run("serve", "--open")
    assert opened == ["http://here/dashboard"]
