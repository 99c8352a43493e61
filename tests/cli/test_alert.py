"""penstock alert: what was told, sending again, and a test message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.views.store import open_store
from tests.alerts.mail_server import MailServer
from tests.alerts.waiting import put
from tests.alerts.web_hook import WebHook
from tests.cli.commands import fails, run

MAIL = "mailto:ops@example.com"


@pytest.fixture
def views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three messages: one waits, one has failed, and one alert failed itself."""
    monkeypatch.chdir(tmp_path)
    with open_store(f"sqlite:{tmp_path}/views.db") as store:
        put(store, MAIL, created_us=1)
        put(
            store,
            "https://hooks.example.com/secret",
            state="failed",
            next_us=None,
            error="it answers 404",
            created_us=2,
        )
        put(store, "", state="failed", next_us=None, error="ZeroDivisionError", created_us=3, rows=[], attempts=0)
    return ["--views", f"sqlite:{tmp_path}/views.db"]


def test_what_was_told_is_listed_the_newest_first(views: list[str]) -> None:
    found = json.loads(run("alert", "list", "--json", *views))
    assert [(each["number"], each["to"], each["state"], each["error"]) for each in found] == [
        (3, None, "failed", "ZeroDivisionError"),
        (2, "https://hooks.example.com/...", "failed", "it answers 404"),
        (1, MAIL, "waiting", None),
    ]
    text = run("alert", "list", *views)
    assert "3 messages: 1 waiting, 2 failed" in text
    assert "secret" not in text
    assert "too_many" not in run("alert", "list", "--pipeline", "other", *views)


def test_one_message_is_shown_with_its_rows(views: list[str]) -> None:
    text = run("alert", "show", "shop", "too_many", "1", *views)
    assert "shop too_many 1: 1 row of errors\nas of 2026-01-01T12:00:00Z, to mailto:ops@example.com: waiting" in text
    assert "2026-01-01 12:00:00 .. 2026-01-01 12:01:00   /pay       31   0.50" in text
    assert json.loads(run("alert", "show", "shop", "too_many", "2", "--json", *views))["rows"][0]["errors"] == 31
    assert "nothing was told as number 9" in fails("alert", "show", "shop", "too_many", "9", *views)


def test_what_failed_waits_again(views: list[str]) -> None:
    assert run("alert", "retry", "--alert", "other", *views) == "0 messages that had failed wait again\n"
    assert run("alert", "retry", *views) == "1 message that had failed waits again\n"
    states = {each["number"]: each["state"] for each in json.loads(run("alert", "list", "--json", *views))}
    assert states == {1: "waiting", 2: "waiting", 3: "failed"}


def test_where_no_run_has_been_nothing_was_told(tmp_path: Path) -> None:
    nowhere = ["--views", f"sqlite:{tmp_path}/none.db"]
    assert json.loads(run("alert", "list", "--json", *nowhere)) == []
    assert "0 messages" in run("alert", "list", *nowhere)
    assert not (tmp_path / "none.db").exists()


def test_a_test_message_arrives_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with MailServer() as server, WebHook() as hook:
        monkeypatch.setenv("PENSTOCK_ALERTS_SMTP", server.url)
        assert run("alert", "test", MAIL) == f"{MAIL} has taken a test message\n"
        assert "has taken a test message" in run("alert", "test", hook.url)
        [mail], [document] = server.mails, hook.taken
    assert mail["Subject"] == "[penstock] test: a test message: alerts come through"
    assert document["alert"] == "test"


def test_a_test_message_that_cannot_be_sent_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert "set alerts.smtp" in fails("alert", "test", MAIL)
    assert "penstock consume alarms" in fails("alert", "test", "topic:alarms")
    assert "expected mailto:ADDRESS" in fails("alert", "test", "nobody", code=2)
    monkeypatch.setenv("PENSTOCK_ALERTS_SMTP", "smtp://me:hunter2@127.0.0.1:1")
    told = fails("alert", "test", MAIL)
    assert "127.0.0.1:1: [Errno 111] Connection refused" in told
    assert "hunter2" not in told
    monkeypatch.setenv("PENSTOCK_ALERTS_SMTP", "telnet://me:hunter2@example.com")
    told = fails("alert", "test", MAIL)
    assert "alerts.smtp cannot be" in told
    assert "hunter2" not in told


def test_what_events_say_gives_a_terminal_no_orders(tmp_path: Path) -> None:
    with open_store(f"sqlite:{tmp_path}/views.db") as store:
        put(store, MAIL, text="x\x1b]0;owned\x07\n\x9b2Jy", rows=[{"url": "\x1b[31mred"}], error="\x1b[2J")
        put(store, MAIL, text="x\x1b]0;owned\x07")
    there = ["--views", f"sqlite:{tmp_path}/views.db"]
    for shown in (run("alert", "show", "shop", "too_many", "1", *there), run("alert", "list", *there)):
        assert all(each.isprintable() or each == "\n" for each in shown)
    assert "\\u001b[31mred" in run("alert", "show", "shop", "too_many", "1", *there)


def test_a_test_message_says_what_is_wrong_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with MailServer(needs_login=True) as server:
        monkeypatch.setenv("PENSTOCK_ALERTS_SMTP", server.url.replace("//", "//user:p%C3%A4ss@"))
        told = fails("alert", "test", MAIL)
    assert "the user or the password in alerts.smtp is not plain ASCII" in told
    assert "Traceback" not in told
    assert "secret" not in fails("alert", "test", "http://example.com/secret", code=2)
