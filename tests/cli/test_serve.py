"""penstock serve as people run it: until Ctrl-C, and the tokens that open it."""

from __future__ import annotations

import json
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
        first = process.stdout.readline()
        match = re.match(r"serving on (http://127.0.0.1:\d+), described at ", first)
        assert match is not None, first
        try:
            yield process, match[1]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path, stored(tmp_path).options) as (process, url):
        assert httpx.get(f"{url}/views/total").json()["rows"] == [{"hits": 52}]
        process.send_signal(number)
        assert process.wait(timeout=20) in (0, 130, 143, -signal.SIGTERM)
    assert (tmp_path / "errors").read_text() == ""


def test_a_retry_after_a_kill_stores_nothing_twice(tmp_path: Path) -> None:
    options = stored(tmp_path).options
    answers = []
    for _ in range(2):
        with served(tmp_path, options) as (process, url):
            headers = {"Idempotency-Key": "4711"}
            answers.append(httpx.post(f"{url}/topics/access", json={"url": "/pay"}, headers=headers).json())
            process.kill()
    assert [(each["stored"], each["duplicates"]) for each in answers] == [(1, 0), (0, 1)]


def test_libraries_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'penstock[serve]'" in fails("serve")


def test_tokens_are_made_listed_and_removed() -> None:
    secret = run("serve", "token", "add", "shop", "--rights", "read,write").strip()
    assert secret.startswith("pst_")
    assert secret not in Path("data/tokens.json").read_text()
    assert json.loads(run("serve", "token", "list", "--json")) == [{"name": "shop", "rights": ["read", "write"]}]
    assert "shop" in run("serve", "token", "list")
    assert "there already" in fails("serve", "token", "add", "shop")
    assert run("serve", "token", "remove", "shop") == "token 'shop' is removed\n"
    assert "no token is named 'shop'" in fails("serve", "token", "remove", "shop")


@pytest.mark.parametrize("words", [["add", "shop", "--rights", "all"], ["add", "shop", "--rights", ""], ["add", "a b"]])
def test_rights_and_names_that_cannot_be_are_wrong_usage(words: list[str]) -> None:
    assert fails("serve", "token", *words, code=2)


def test_others_are_not_served_without_a_token() -> None:
    assert "make a token first" in fails("serve", "--host", "0.0.0.0", "--port", "0")
