"""Records and changes as they come, by server-sent events and WebSockets; a listener can resume where it stopped."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from socket import create_connection
from typing import Any

import httpx
import pytest
import websockets

from penstock.service import feed, server
from penstock.service.tokens import Tokens
from tests.eventually import LIMIT_SECONDS, eventually
from tests.service.site import Site, publish_changes, web_socket

STREAM = {"Accept": "text/event-stream"}


class Listener:
    """Server-sent events, as a browser reads them."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.read()
        self._lines = answer.iter_lines()

    def next(self) -> dict[str, str]:
        """The next event; comments are passed over. Empty if the stream has ended."""
        found: dict[str, str] = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if not line and found:
                break
            if name:
                found[name] = value
        return found

    def records(self, count: int) -> list[dict[str, Any]]:
        return [json.loads(self.next()["data"]) for _ in range(count)]


@contextmanager
def listening(client: httpx.Client, path: str, **headers: str) -> Iterator[Listener]:
    with client.stream("GET", path, headers={**STREAM, **headers}) as answer:
        yield Listener(answer)


def post(client: httpx.Client, *numbers: int) -> None:
    body = "\n".join(json.dumps({"n": number}) for number in numbers)
    assert client.post("/topics/loose", content=body, headers={"Content-Type": "application/x-ndjson"}).is_success


def test_a_listener_gets_what_is_there_and_what_comes(client: httpx.Client) -> None:
    with listening(client, "/topics/access?from=8") as listener:
        assert [each["offset"] for each in listener.records(2)] == [8, 9]
        client.post("/topics/access", json={"url": "/new"})
        event = listener.next()
        assert (event["id"], event["event"], json.loads(event["data"])["event"]["url"]) == ("0=11", "record", "/new")


def test_a_listener_that_comes_back_misses_nothing_and_sees_nothing_twice(client: httpx.Client) -> None:
    post(client, *range(30))
    with listening(client, "/topics/loose") as listener:
        events = [listener.next() for _ in range(11)]
    with listening(client, "/topics/loose?from=latest", **{"Last-Event-ID": events[-1]["id"]}) as listener:
        events += [listener.next() for _ in range(19)]
    assert sorted(json.loads(each["data"])["event"]["n"] for each in events) == list(range(30))


def test_a_socket_gets_what_is_there_and_what_comes_and_can_come_back(client: httpx.Client) -> None:
    post(client, 0, 1, 2, 3)
    with web_socket(client, "/topics/loose") as listener:
        listener.send("is ignored")
        seen = [json.loads(listener.recv(LIMIT_SECONDS)) for _ in range(3)]
    with web_socket(client, f"/topics/loose?from={seen[-1]['id']}") as listener:
        seen.append(json.loads(listener.recv(LIMIT_SECONDS)))
        post(client, 4)
        seen.append(json.loads(listener.recv(LIMIT_SECONDS)))
    assert [each["event"]["n"] for each in sorted(seen, key=lambda each: int(each["event"]["n"]))] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["page", "events", "socket"])
def test_changes_of_a_view_say_what_was_what_is_and_as_of_when(client: httpx.Client, site: Site, kind: str) -> None:
    with site.log() as log:
        publish_changes(log, range(3))
    if kind == "page":
        found = client.get("/views/sales/changes?from=1").json()["records"]
    elif kind == "events":
        with listening(client, "/views/sales/changes", **{"Last-Event-ID": "0=1"}) as listener:
            found = listener.records(2)
    else:
        with web_socket(client, "/views/sales/changes?from=0=1") as listening_socket:
            found = [json.loads(listening_socket.recv(LIMIT_SECONDS)) for _ in range(2)]
    assert [each["key"] for each in found] == [["1"], ["2"]]
    assert (found[0]["operation"], found[0]["before"], found[0]["after"]["hits"]) == ("insert", None, 9)
    assert found[0]["as_of"] == {"clock": "2026-01-01T12:00:00Z", "offsets": {"access": {"0": 1}}}
    assert found[0]["id"] == "0=2"


def test_a_view_without_a_changelog_says_what_to_add(steady_client: httpx.Client) -> None:
    for headers in ({}, STREAM):
        answer = steady_client.get("/views/total/changes", headers=headers)
        assert answer.status_code == 409
        assert 'changelog="total.changes"' in " ".join(answer.json()["error"]["details"])
    with pytest.raises(websockets.InvalidStatus) as caught, web_socket(steady_client, "/views/total/changes"):
        pass
    assert caught.value.response.status_code == 409
    assert b"total.changes" in (caught.value.response.body or b"")


@pytest.mark.parametrize(("path", "status"), [("/topics/nope", 404), ("/topics/access?from=0=99", 410), ("/nope", 403)])
def test_a_socket_that_cannot_begin_is_refused_with_a_status(
    steady_client: httpx.Client, path: str, status: int
) -> None:
    with pytest.raises(websockets.InvalidStatus) as caught, web_socket(steady_client, path):
        pass
    assert caught.value.response.status_code in (status, 404)


def test_a_topic_that_is_deleted_ends_its_streams_with_the_reason(client: httpx.Client, site: Site) -> None:
    post(client, 1)
    with listening(client, "/topics/loose") as listener, web_socket(client, "/topics/loose") as other:
        listener.records(1)
        other.recv(LIMIT_SECONDS)
        with site.log() as log:
            log.delete("loose")
        event = listener.next()
        assert event["event"] == "error"
        assert "deleted" in json.loads(event["data"])["error"]["message"]
        assert "deleted" in json.loads(other.recv(LIMIT_SECONDS))["error"]["message"]
        assert listener.next() == {}


def test_a_silent_topic_sends_signs_of_life(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "ALIVE_SECONDS", 0.05)
    with client.stream("GET", "/topics/loose", headers=STREAM) as answer:
        found = [line for line, _ in zip(answer.iter_lines(), range(8), strict=False)]
    assert found.count(": alive") >= 2


def test_no_more_streams_than_allowed(site: Site) -> None:
    with site.limited(streams_max=2).serving() as client:
        with listening(client, "/topics/loose"), web_socket(client, "/topics/loose"):
            answer = client.get("/topics/loose", headers=STREAM)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert client.get("/topics/loose?wait=1").status_code == 503
            with pytest.raises(websockets.InvalidStatus) as caught, web_socket(client, "/topics/loose"):
                pass
            assert caught.value.response.status_code == 503
        # They count until the service has noticed that they are gone.
        eventually(lambda: client.get("/topics/loose?wait=0.1").status_code == 200)


def test_one_token_leaves_streams_for_the_others(site: Site) -> None:
    site = site.limited(streams_max=3, streams_per_token=1)
    tokens = Tokens(site.settings.serve.tokens_path)
    greedy, other = (
        {**STREAM, "Authorization": f"Bearer {tokens.add(name, ['read'])}"} for name in ("greedy", "other")
    )
    with site.serving() as client, client.stream("GET", "/topics/loose", headers=greedy) as first:
        assert first.status_code == 200
        refused = client.get("/topics/loose", headers=greedy)
        assert (refused.status_code, "token 'greedy' has as many streams" in refused.text) == (503, True)
        with client.stream("GET", "/topics/loose", headers=other) as second:
            assert second.status_code == 200


def test_all_listeners_that_are_allowed_may_come_back_at_once(site: Site) -> None:
    count = 240  # As after a restart. A browser does not try again what was refused with an error.
    with site.limited(streams_max=count).serving() as client, ExitStack() as stack:
        place = (client.base_url.host, int(client.base_url.port or 0))
        request = b"GET /topics/loose?from=latest HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
        opened = [stack.enter_context(create_connection(place, LIMIT_SECONDS)) for _ in range(count)]
        for each in opened:
            each.sendall(request)
        assert {each.recv(12) for each in opened} == {b"HTTP/1.1 200"}


def test_a_service_that_stops_ends_streams_and_long_polls(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them ends by itself, and nothing cuts them off."""
    monkeypatch.setattr(server, "STOP_SECONDS", 3600)

    def listen(client: httpx.Client) -> None:
        with listening(client, "/topics/loose") as listener:
            assert listener.next() == {}

    def poll(client: httpx.Client) -> None:
        assert client.get("/topics/loose?wait=3600").json()["records"] == []

    def hear(client: httpx.Client) -> None:
        with web_socket(client, "/topics/loose") as listener:
            with pytest.raises(websockets.ConnectionClosed) as caught:
                listener.recv(LIMIT_SECONDS)
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code in (1001, 1012)

    with ThreadPoolExecutor() as threads, httpx.Client(timeout=LIMIT_SECONDS) as waiting:
        with site.serving() as client:
            waiting.base_url = client.base_url
            ended = [threads.submit(each, waiting) for each in (listen, poll, hear)]
            eventually(lambda: "\npenstock_http_streams 3.0\n" in client.get("/metrics").text)
        for each in ended:
            each.result()


@pytest.mark.parametrize("kind", ["events", "socket"])
def test_a_token_that_is_removed_ends_the_streams_it_has_opened(site: Site, kind: str) -> None:
    tokens = Tokens(site.settings.serve.tokens_path)
    reader, writer = tokens.add("reader", ["read"]), tokens.add("writer", ["write"])
    with site.serving(Authorization=f"Bearer {writer}") as client:
        bearer = {"Authorization": f"Bearer {reader}"}
        if kind == "events":
            with listening(client, "/topics/loose", **bearer) as listener:
                post(client, 1)
                assert listener.records(1)[0]["event"] == {"n": 1}
                tokens.remove("reader")
                post(client, 2)
                ending = listener.next()
            assert ending["event"] == "error"
            assert "no longer good" in ending["data"]
        else:
            with web_socket(client, "/topics/loose", additional_headers=bearer) as opened:
                post(client, 1)
                assert json.loads(opened.recv(LIMIT_SECONDS))["event"] == {"n": 1}
                tokens.remove("reader")
                post(client, 2)
                assert "no longer good" in str(opened.recv(LIMIT_SECONDS))


def test_a_topic_that_could_not_be_read_once_is_read_by_those_who_come_back(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failing = feed.read_leaf, threading.Event()

    def read_leaf(*given: Any) -> feed.Leaf:
        if failing.is_set():
            raise OSError(24, "too many open files")
        return real(*given)

    monkeypatch.setattr(feed, "read_leaf", read_leaf)
    with listening(client, "/topics/loose?from=latest") as listener:
        failing.set()
        post(client, 1)
        ending = listener.next()
        assert (ending["event"], "cannot be read at the moment" in ending["data"]) == ("error", True)
    failing.clear()
    with listening(client, "/topics/loose") as listener:
        assert listener.records(1)[0]["event"] == {"n": 1}


def test_what_is_no_change_does_not_hide_the_changes_behind_it(client: httpx.Client, site: Site) -> None:
    with site.log() as log:
        publish_changes(log, range(1))
        nonsense = {"key": "no list", "operation": "insert", "before": None, "after": None, "offsets": "nonsense"}
        with log.topic("sales.changes").producer() as producer:
            producer.send(nonsense)
        publish_changes(log, range(1, 2))
    changes = client.get("/views/sales/changes").json()["records"]
    assert [each["as_of"] is None for each in changes] == [False, True, False]
