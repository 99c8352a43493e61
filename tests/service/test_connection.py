"""Slow clients, over a raw socket: whoever holds a connection without using it loses it, and others do not notice."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest

from penstock.service.server import serving
from tests.service.site import Site

SLOW = {"header_timeout": "500ms", "body_timeout": "500ms", "write_timeout": "500ms", "request_timeout": "5s"}
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
        wait_until_cut_off(client)
        assert len(rest(connection)) < 20 << 20


@pytest.mark.long
def test_a_socket_that_does_not_read_is_cut_off(site: Site) -> None:
    with site.log() as log, log.topic("access").producer() as producer:
        for number in range(40):
            producer.send({"url": str(number % 10) * (1 << 20)})
    with site.limited(**SLOW).serving() as client, raw(client) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        connection.sendall(
            b"GET /topics/access?from=10 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        wait_until_cut_off(client)
        assert b"101 Switching" in rest(connection)[:100]


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
