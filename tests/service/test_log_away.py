"""What is still said while the log does not answer: nothing of it may hold up the event loop, or views."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import httpx
import pytest

from penstock.dashboard.beat import read_beat
from penstock.errors import KafkaUnavailable
from penstock.log.log import Log
from penstock.service.prompt import Prompt
from penstock.service.service import Service
from penstock.settings import LogSettings
from tests.eventually import LIMIT_SECONDS, eventually
from tests.service.site import Site

NOBODY = "kafka://127.0.0.1:1"


@pytest.fixture
def lonely_site(site: Site) -> Site:
    """Views over a log in Kafka whose brokers are away."""
    log = LogSettings(url=NOBODY, conf={"socket.timeout.ms": "2000"})
    return replace(site, settings=replace(site.settings, log=log))


def test_rows_are_served_and_events_are_sent_back_for_later(lonely_site: Site) -> None:
    def post(number: int) -> httpx.Response:
        keyed = {"idempotency-key": str(number)} if number % 2 else {}
        return client.post("/topics/clicks", json={"n": number}, headers=keyed)

    with lonely_site.serving() as client, ThreadPoolExecutor(20) as others:
        posts = [others.submit(post, number) for number in range(2)]
        reads = [others.submit(client.get, "/topics/clicks") for _ in range(1)]
        assert client.get("/health").status_code == 200
        by_key = client.get("/views/sales", params={"key": ["2026-01-01T12:01:00Z", "/1"]})
        assert by_key.status_code == 200, by_key.text
        assert [row["hits"] for row in by_key.json()["rows"]] == [9]
        rows = client.get("/views/sales", params={"limit": 3}).json()
        listed = client.get("/views").json()["views"]
        assert not all(each.done() for each in posts)  # All of that while others wait for the brokers.
        assert by_key.json()["as_of"]["behind"] is rows["as_of"]["behind"] is listed[0]["as_of"]["behind"] is None
        assert len(rows["rows"]) == 3
        assert client.get("/ready").status_code == 503
        for each in posts + reads:
            answer = each.result()
            assert answer.status_code == 503, answer.text
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["error"]["is_retryable"]
            assert "127.0.0.1" not in answer.text


def asked_again(prompt: Prompt, body: Callable[[], int]) -> int | None:
    with suppress(KafkaUnavailable):
        return prompt.ask(body)
    return None


def test_dashboard_shows_views_and_says_what_is_away(lonely_site: Site) -> None:
    service = Service(lonely_site.settings)
    try:
        beat = read_beat(service, None, is_full=True)
        assert beat.log_problem == "The log does not answer."
        assert beat.views_problem == ""
        assert {name: each.lag for name, each in beat.views.items()} == {"sales": None, "total": None}
    finally:
        service._close()


def test_question_is_given_up_once_and_others_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, opened = [], threading.Event()

    def wait() -> int:
        asked.append(1)
        opened.wait()
        return 1

    with Log(NOBODY) as log:
        prompt = Prompt(log)
        monkeypatch.setattr("penstock.service.prompt.PROMPT_SECONDS", 0.01)
        for _ in range(3):
            with pytest.raises(KafkaUnavailable):
                prompt.ask(wait)
        assert len(asked) == 1
        monkeypatch.setattr("penstock.service.prompt.PROMPT_SECONDS", LIMIT_SECONDS)
        opened.set()
        assert eventually(lambda: asked_again(prompt, wait)) == 1
