"""Slow clients, over a raw socket: whoever holds a connection without using it loses it, and others do not notice."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
from starlette.websockets import WebSocket

from penstock.service import feed
from penstock.service.connection import WAITING_MAX, Connection, Socket
from penstock.service.server import serving
from penstock.service.tokens import Tokens
from tests.service.site import Site

SLOW = {"header_timeout": "500ms", "body_timeout": "500ms", "write_timeout": "500ms", "request_timeout": "5s"}
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
HEAD = b"POST /topics/loose HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def slow(site: Site) -> Iterator[httpx.Client]:
    """A service that has little patience."""
    with site.limited(**SLOW, connections_max=8).serving() as client:
        yield client


@contextmanager
def raw(client: httpx.Client) -> Iterator[socket.socket]:
    """A connection on which anything can be said."""
    address = (client.base_url.host, client.base_url.port or 0)
    with socket.create_connection(address, timeout=10) as connection:
        yield connection


def rest(connection: socket.socket) -> bytes:
    """Everything that still comes, until the service closes the connection."""
    found = b""
    try:
        while piece := connection.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


def trickle(connection: socket.socket, data: bytes, pause: float = 0.05) -> float:
    """Sends a byte at a time, for ever if nobody minds. Returns after how many seconds somebody did."""
    began = time.monotonic()
    try:
        while time.monotonic() - began < 8:
            for byte in data:
                connection.sendall(bytes([byte]))
                time.sleep(pause)
                connection.setblocking(False)
                try:
                    if connection.recv(1 << 16, socket.MSG_PEEK) is not None:
                        return time.monotonic() - began
                except BlockingIOError:
                    pass
                finally:
                    connection.settimeout(10)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return time.monotonic() - began


def wait_until_cut_off(client: httpx.Client) -> None:
    """Waits until the only stream is over, though nobody has read it."""
    time.sleep(0.7)
    for _ in range(50):
        if "penstock_http_streams 0.0" in client.get("/metrics").text:
            return
        time.sleep(0.1)
    pytest.fail("it is still served")


def test_a_client_that_says_nothing_is_cut_off(slow: httpx.Client) -> None:
    with raw(slow) as connection:
        began = time.monotonic()
        assert b"408 Request Timeout" in rest(connection)
        assert 0.4 < time.monotonic() - began < 4


def test_a_client_that_sends_its_head_a_byte_at_a_time_is_cut_off(slow: httpx.Client) -> None:
    with raw(slow) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        assert 0.4 < trickle(connection, b"X-A: b\r\n") < 4
        assert b"the head of the request was not there after 0.5 s" in rest(connection)


def test_a_client_that_sends_its_body_a_byte_at_a_time_is_cut_off_and_nothing_is_stored(slow: httpx.Client) -> None:
    with raw(slow) as connection:
        connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
        assert 0.4 < trickle(connection, b'{"n": 1} ') < 4
        assert b"the body of the request was not there after 0.5 s" in rest(connection)
    assert slow.get("/topics/loose").json()["records"] == []


def test_a_chunked_body_a_byte_at_a_time_is_cut_off_too(slow: httpx.Client) -> None:
    with raw(slow) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        assert 0.4 < trickle(connection, b"1\r\n \r\n") < 4


def test_a_body_that_nobody_asked_for_is_not_waited_for_either(slow: httpx.Client) -> None:
    with raw(slow) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        began = time.monotonic()
        answer = rest(connection)
        assert answer.startswith(b"HTTP/1.1 200")
        assert time.monotonic() - began < 7


def test_the_second_request_of_a_connection_has_the_same_limits(slow: httpx.Client) -> None:
    with raw(slow) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while b"alive" not in answer:
            answer += connection.recv(1 << 16)
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        began = time.monotonic()
        rest(connection)
        assert time.monotonic() - began < 4


@pytest.mark.long
@pytest.mark.parametrize("kind", ["events", "records"])
def test_a_client_that_does_not_read_is_cut_off_and_nothing_is_buffered_for_it(site: Site, kind: str) -> None:
    with site.log() as log, log.topic("access").producer() as producer:
        for number in range(40):
            producer.send({"url": str(number % 10) * (1 << 20)})
    accept = b"text/event-stream" if kind == "events" else b"application/json"
    with site.limited(**SLOW).serving() as client, raw(client) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        connection.sendall(b"GET /topics/access?from=10 HTTP/1.1\r\nHost: localhost\r\nAccept: " + accept + b"\r\n\r\n")
        connection.recv(1, socket.MSG_PEEK)  # It has begun.
        wait_until_cut_off(client)
        assert len(rest(connection)) < 20 << 20


@pytest.mark.long
def test_a_socket_that_does_not_read_is_cut_off(site: Site) -> None:
    with site.log() as log, log.topic("access").producer() as producer:
        for number in range(40):
            producer.send({"url": str(number % 10) * (1 << 20)})
    impatient = {**SLOW, "header_timeout": "10s"}  # Only with a reader: the handshake may meet a busy machine.
    with site.limited(**impatient).serving() as client, raw(client) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        connection.sendall(
            b"GET /topics/access?from=10 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        connection.recv(1, socket.MSG_PEEK)  # It has begun.
        wait_until_cut_off(client)
        received = rest(connection)
        assert b"101 Switching" in received[:100]
        assert len(received) < 20 << 20


def test_a_socket_that_ends_before_it_is_accepted_is_no_failure_of_the_service(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accepting, ended = WebSocket.accept, threading.Event()

    async def accept(socket: WebSocket) -> None:
        await asyncio.sleep(0.5)
        try:
            await accepting(socket)
        finally:
            ended.set()

    monkeypatch.setattr(WebSocket, "accept", accept)
    with site.limited(header_timeout="100ms").serving() as client, raw(client) as connection:
        connection.sendall(b"GET /topics/loose HTTP/1.1\r\n" + UPGRADE + KEY + b"\r\n")
        assert rest(connection) == b""
        assert ended.wait(10)
        assert client.get("/health").status_code == 200
    assert "failed" not in caplog.text


def test_a_listener_that_waits_longer_than_all_limits_is_left_alone(slow: httpx.Client) -> None:
    with slow.stream("GET", "/topics/loose", headers={"Accept": "text/event-stream"}) as answer:
        lines = answer.iter_lines()
        next(lines)
        time.sleep(1.5)
        slow.post("/topics/loose", json={"n": 1})
        assert any('"n":1' in line for line, _ in zip(lines, range(6), strict=False))


def test_more_connections_than_allowed_are_turned_away_and_the_others_go_on(slow: httpx.Client) -> None:
    assert slow.get("/health").status_code == 200  # It keeps its connection.
    with ExitStack() as stack:
        held = [stack.enter_context(raw(slow)) for _ in range(7)]
        time.sleep(0.1)
        with raw(slow) as one_more:
            assert b"503 Service Unavailable" in rest(one_more)
        assert slow.get("/health").status_code == 200
        assert all(b"408" in rest(each) for each in held)
    with raw(slow) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"alive" in rest(connection)


@pytest.mark.parametrize("length", [b"Content-Length: 999999999999\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(site: Site, length: bytes) -> None:
    with site.limited(body_bytes_max=1000).serving() as client, raw(client) as connection:
        connection.sendall(HEAD + length + b"\r\n")
        if b"chunked" in length:
            connection.sendall(b"7D0\r\n" + b" " * 2000 + b"\r\n")
        answer = rest(connection)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"body_bytes_max" in answer


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000, b"\x16\x03\x01\x02\x00" * 100, b"\r\n" * 9]
)
def test_what_is_no_request_is_refused_or_ignored(slow: httpx.Client, head: bytes) -> None:
    with raw(slow) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(head)
        answer = rest(connection)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408"))
    assert slow.get("/health").status_code == 200


def test_small_answers_are_sent_at_once(site: Site) -> None:
    with serving(site.settings) as url, httpx.Client(base_url=url) as client:
        client.get("/health")
        began = time.monotonic()
        for _ in range(20):
            client.get("/health")
        assert time.monotonic() - began < 20 * 0.04  # So long a delayed acknowledgement would take.


def test_requests_sent_at_once_are_answered_one_after_the_other(slow: httpx.Client) -> None:
    first = b"GET /topics/access?limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    event = b'{"n": 1}'
    second = HEAD + b"Content-Length: %d\r\n\r\n" % len(event) + event
    third = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with raw(slow) as connection:
        connection.sendall(first + second + third)
        answers = rest(connection)
    places = [answers.index(each) for each in (b'"records"', b'"stored":1', b'"alive"')]
    assert places == sorted(places)
    assert answers.count(b"HTTP/1.1 200") == 3


def test_what_comes_behind_a_stream_does_not_keep_the_stream_alive(
    slow: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "ALIVE_SECONDS", 0.05)  # Nothing more is read from it, so only writing tells.
    with raw(slow) as connection:
        connection.sendall(b"GET /topics/loose HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        assert b"200 OK" in connection.recv(1 << 16)
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)
    wait_until_cut_off(slow)


@pytest.mark.parametrize("pieces", [1, 40])
def test_a_head_that_is_too_large_is_refused_however_it_comes(slow: httpx.Client, pieces: int) -> None:
    with raw(slow) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(pieces):
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(b"X-%d: " % number + b"a" * (40_000 // pieces) + b"\r\n")
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 400")


def test_a_request_with_two_hosts_is_refused(slow: httpx.Client) -> None:
    with raw(slow) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 400")


def test_the_head_of_a_stream_does_not_wait_for_its_first_record(slow: httpx.Client) -> None:
    with raw(slow) as connection:
        connection.sendall(b"GET /topics/loose?wait=3 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_a_small_answer_comes_in_one_piece(slow: httpx.Client) -> None:
    with raw(slow) as connection:
        for _ in range(5):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1 << 16).endswith(b'{"status":"alive"}')


def endless(connection: socket.socket, data: bytes) -> int:
    """Sends the same again and again. Returns how many bytes were taken until somebody minded, at most 16 MiB."""
    sent = 0
    with suppress(BrokenPipeError, ConnectionResetError):
        while sent < 16 << 20:
            connection.sendall(data)
            sent += len(data)
    return sent


@pytest.mark.parametrize("path", [b"/topics/loose", b"/nowhere"], ids=["before the answer", "behind the answer"])
@pytest.mark.parametrize(
    ("begin", "trailer"), [(b"", b"a: b\r\n"), (b"a: ", b"b"), (b"", b"a")], ids=["many", "long value", "long name"]
)
def test_trailers_without_end_are_refused(client: httpx.Client, path: bytes, begin: bytes, trailer: bytes) -> None:
    with raw(client) as connection:
        connection.sendall(HEAD.replace(b"/topics/loose", path) + CHUNKED + b'8\r\n{"n": 1}\r\n0\r\n' + begin)
        assert endless(connection, trailer * 10_000) < 16 << 20
    assert client.get("/topics/loose").json()["records"] == []


def test_trailers_that_are_too_large_are_refused_though_they_end(client: httpx.Client) -> None:
    with raw(client) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(HEAD + CHUNKED + b'8\r\n{"n": 1}\r\n0\r\n' + b"a: b\r\n" * 20_000 + b"\r\n")
        answer = rest(connection)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


def test_a_trailer_is_no_header(site: Site) -> None:
    secret = Tokens(site.settings.serve.tokens_path).add("one", ["write"]).encode()
    body = HEAD + b"Connection: close\r\n%s" + CHUNKED + b'8\r\n{"n": 1}\r\n0\r\n%s\r\n'
    field = b"Authorization: Bearer " + secret + b"\r\n"
    with site.serving() as client:
        for head, trailer, status in ((b"", field, b"401"), (field, b"", b"200"), (field, b"Digest: x\r\n", b"200")):
            with raw(client) as connection:
                connection.sendall(body % (head, trailer))
                assert rest(connection).startswith(b"HTTP/1.1 " + status)


def test_a_body_may_come_in_many_small_chunks(client: httpx.Client) -> None:
    with raw(client) as connection:
        connection.sendall(HEAD + b"Connection: close\r\n" + CHUNKED)
        for _ in range(20):
            connection.sendall(b"1\r\n \r\n" * 1000)
        connection.sendall(b'8\r\n{"n": 1}\r\n0\r\n\r\n')
        assert b'"stored":1' in rest(connection)


@pytest.mark.parametrize(
    "head",
    [
        b"POST /health HTTP/1.1\r\n" + UPGRADE + KEY,
        b"POST /health HTTP/1.1\r\n" + UPGRADE + b"Content-Length: 3\r\n",
        b"GET / HTTP/1.1\r\n" + UPGRADE + KEY + b"Content-Length: 1\r\n",
        b"GET / HTTP/1.1\r\n" + UPGRADE + KEY + b"Transfer-Encoding: chunked\r\n",
        b"GET / HTTP/1.1\r\n" + UPGRADE + KEY + b"".join(b"a%d: b\r\n" % number for number in range(300)),
        b"GET / HTTP/1.1\r\n" + UPGRADE + KEY + b"a: " + b"b" * 20_000 + b"\r\n",
        b"GET /" + b"b" * 20_000 + b" HTTP/1.1\r\n" + UPGRADE + KEY,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\n" + UPGRADE + KEY,
    ],
    ids=["post", "post with a body", "length", "chunked", "many headers", "long header", "long path", "behind another"],
)
def test_a_handshake_that_cannot_be_read_is_answered_and_the_connection_closed(site: Site, head: bytes) -> None:
    with site.limited(header_timeout="60s").serving() as client, raw(client) as connection:
        connection.sendall(head + b"\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 400")


def test_a_handshake_may_say_that_it_has_no_body(client: httpx.Client) -> None:
    with raw(client) as connection:
        connection.sendall(b"GET /topics/loose HTTP/1.1\r\n" + UPGRADE + KEY + b"Content-Length: 0\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 101")


def test_a_handshake_that_leads_to_nothing_is_cut_off(slow: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Socket, "handle_connect", lambda *_: None)
    with raw(slow) as connection:
        connection.sendall(b"GET /topics/loose HTTP/1.1\r\n" + UPGRADE + KEY + b"\r\n")
        assert rest(connection) == b""


def test_only_so_many_requests_may_wait(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, complete = [0], Connection.on_headers_complete

    def count(connection: Connection) -> None:
        complete(connection)
        begun[0] += 1

    monkeypatch.setattr(Connection, "on_headers_complete", count)
    with raw(client) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        answer = rest(connection)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    assert begun[0] == 1 + WAITING_MAX


def test_as_many_requests_as_may_wait_are_answered(client: httpx.Client) -> None:
    with raw(client) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * (1 + WAITING_MAX))
        answers = b""
        while answers.count(b"alive") < 1 + WAITING_MAX:
            answers += connection.recv(1 << 16)
