"""Clients that are slow or send nonsense, over raw sockets: they lose their connection, others do not notice."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest
from starlette.websockets import WebSocket

from penstock.service import connection as connection_module
from penstock.service import feed
from penstock.service.connection import WAITING_MAX, Connection, Socket
from penstock.service.tokens import Tokens
from tests.eventually import LIMIT_SECONDS, eventually
from tests.service.site import Site
from tests.service.timers import ManualTimers

HEAD_SECONDS, BODY_SECONDS, WRITE_SECONDS = 10, 30, 40
LIMITS = {
    "header_timeout": f"{HEAD_SECONDS}s",
    "body_timeout": f"{BODY_SECONDS}s",
    "write_timeout": f"{WRITE_SECONDS}s",
}
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
HEAD = b"POST /topics/loose HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


class Counter:
    """Counts the bytes that a service has read from its clients."""

    def __init__(self) -> None:
        self.bytes = 0

    def wait_for(self, count: int) -> None:
        eventually(lambda: self.bytes >= count)


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Counter:
    counter, receive = Counter(), Connection.data_received

    def data_received(connection: Connection, data: bytes) -> None:
        receive(connection, data)
        counter.bytes += len(data)

    monkeypatch.setattr(Connection, "data_received", data_received)
    return counter


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the service has lost a connection, or has closed it."""
    found = threading.Event()
    for protocol in (Connection, Socket):

        def connection_lost(
            connection: Any, error: Exception | None, lose: Callable[..., None] = protocol.connection_lost
        ) -> None:
            lose(connection, error)
            found.set()

        monkeypatch.setattr(protocol, "connection_lost", connection_lost)
    return found


@pytest.fixture
def timers() -> ManualTimers:
    return ManualTimers()


@pytest.fixture
def limited(site: Site, timers: ManualTimers) -> Iterator[httpx.Client]:
    """A service whose limits on time are reached only when the test advances its timers.

    The client keeps no connection, so every pending timer belongs to a connection of the test.
    """
    limits: dict[str, Any] = {**LIMITS, "connections_max": 8}
    with site.limited(**limits).serving(call_later=timers, Connection="close") as client:
        yield client


@contextmanager
def raw(client: httpx.Client) -> Iterator[socket.socket]:
    """A connection on which anything can be sent."""
    address = (client.base_url.host, client.base_url.port or 0)
    with socket.create_connection(address, timeout=LIMIT_SECONDS) as connection:
        yield connection


def rest(connection: socket.socket) -> bytes:
    """Everything that still comes, until the service closes the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            found += piece
    return found


def trickle(connection: socket.socket, data: bytes, timers: ManualTimers, received: Counter) -> float:
    """Sends a byte a second, until the service closes the connection. Returns after how many seconds that was."""
    began = timers.now
    for byte in itertools.cycle(data):
        count = received.bytes + 1
        connection.sendall(bytes([byte]))
        received.wait_for(count)
        timers.advance(1)
        if not timers.pending:
            break
    return timers.now - began


def wait_until_no_stream_is_open(client: httpx.Client) -> None:
    eventually(lambda: "penstock_http_streams 0.0" in client.get("/metrics").text)


def test_a_silent_client_is_cut_off(limited: httpx.Client, timers: ManualTimers) -> None:
    with raw(limited) as connection:
        eventually(lambda: timers.pending)
        timers.advance(HEAD_SECONDS - 1)
        assert timers.pending
        timers.advance(1)
        assert b"408 Request Timeout" in rest(connection)


def test_a_head_sent_byte_by_byte_is_cut_off(limited: httpx.Client, timers: ManualTimers, received: Counter) -> None:
    with raw(limited) as connection:
        connection.sendall(HEALTH)
        received.wait_for(len(HEALTH))
        assert trickle(connection, b"X-A: b\r\n", timers, received) == HEAD_SECONDS
        assert b"the head of the request was not there after 10 s" in rest(connection)


def test_a_body_sent_byte_by_byte_is_cut_off_and_not_stored(
    limited: httpx.Client, timers: ManualTimers, received: Counter
) -> None:
    head = HEAD + b"Content-Length: 100000\r\n\r\n"
    with raw(limited) as connection:
        connection.sendall(head)
        received.wait_for(len(head))
        assert trickle(connection, b'{"n": 1} ', timers, received) == BODY_SECONDS
        assert b"the body of the request was not there after 30 s" in rest(connection)
    assert limited.get("/topics/loose").json()["records"] == []


def test_a_chunked_body_sent_byte_by_byte_is_cut_off(
    limited: httpx.Client, timers: ManualTimers, received: Counter
) -> None:
    with raw(limited) as connection:
        connection.sendall(HEAD + CHUNKED)
        received.wait_for(len(HEAD + CHUNKED))
        assert trickle(connection, b"1\r\n \r\n", timers, received) == BODY_SECONDS


def test_a_body_that_nobody_asked_for_is_not_waited_for(limited: httpx.Client, timers: ManualTimers) -> None:
    with raw(limited) as connection:
        connection.sendall(HEALTH + b"Content-Length: 100000\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        timers.advance(BODY_SECONDS)
        rest(connection)  # It ends.


def test_the_second_request_of_a_connection_has_the_same_limits(
    limited: httpx.Client, timers: ManualTimers, received: Counter
) -> None:
    first, second = HEALTH + b"\r\n", b"GET /health HTTP/1.1\r\n"
    with raw(limited) as connection:
        connection.sendall(first)
        assert connection.recv(1 << 16).endswith(b'{"status":"alive"}')
        timers.advance(HEAD_SECONDS - 1)
        connection.sendall(second)
        received.wait_for(len(first + second))
        timers.advance(HEAD_SECONDS)
        rest(connection)  # It ends.


@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"], ids=["events", "records"])
def test_a_client_that_does_not_read_is_cut_off_and_little_is_buffered(
    site: Site, timers: ManualTimers, lost: threading.Event, kind: bytes
) -> None:
    store_large_records(site)
    with site.limited(**LIMITS).serving(call_later=timers, Connection="close") as client, raw(client) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        connection.sendall(b"GET /topics/access?from=10 HTTP/1.1\r\nHost: localhost\r\nAccept: " + kind + b"\r\n\r\n")
        let_writing_time_out(connection, timers, lost)
        wait_until_no_stream_is_open(client)
        assert len(rest(connection)) < 20 << 20


def test_a_web_socket_that_does_not_read_is_cut_off(site: Site, timers: ManualTimers, lost: threading.Event) -> None:
    store_large_records(site)
    with site.limited(**LIMITS).serving(call_later=timers, Connection="close") as client, raw(client) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        connection.sendall(b"GET /topics/access?from=10 HTTP/1.1\r\n" + UPGRADE + KEY + b"\r\n")
        let_writing_time_out(connection, timers, lost)
        wait_until_no_stream_is_open(client)
        received = rest(connection)
        assert b"101 Switching" in received[:100]
        assert len(received) < 20 << 20


def store_large_records(site: Site) -> None:
    """40 MiB of records."""
    with site.log() as log, log.topic("access").producer() as producer:
        for number in range(40):
            producer.send({"url": str(number % 10) * (1 << 20)})


def let_writing_time_out(connection: socket.socket, timers: ManualTimers, lost: threading.Event) -> None:
    """Lets time pass, after the answer has begun, until the service has closed the connection."""
    connection.recv(1, socket.MSG_PEEK)

    def is_lost() -> bool:
        timers.advance(WRITE_SECONDS)
        return lost.is_set()

    eventually(is_lost)


def test_a_web_socket_that_ends_before_it_is_accepted_is_no_failure(
    site: Site, timers: ManualTimers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accepting, is_asked, may_go_on, ended = WebSocket.accept, threading.Event(), threading.Event(), threading.Event()

    async def accept(socket: WebSocket) -> None:
        is_asked.set()
        await asyncio.to_thread(may_go_on.wait, LIMIT_SECONDS)
        try:
            await accepting(socket)
        finally:
            ended.set()

    monkeypatch.setattr(WebSocket, "accept", accept)
    with site.limited(**LIMITS).serving(call_later=timers) as client, raw(client) as connection:
        connection.sendall(b"GET /topics/loose HTTP/1.1\r\n" + UPGRADE + KEY + b"\r\n")
        assert is_asked.wait(LIMIT_SECONDS)
        timers.advance(HEAD_SECONDS)
        assert rest(connection) == b""
        may_go_on.set()
        assert ended.wait(LIMIT_SECONDS)
        assert client.get("/health").status_code == 200
    assert "failed" not in caplog.text


def test_a_listener_may_wait_longer_than_all_limits(limited: httpx.Client, timers: ManualTimers) -> None:
    with limited.stream("GET", "/topics/loose", headers={"Accept": "text/event-stream"}) as answer:
        lines = answer.iter_lines()
        next(lines)
        timers.advance(3600)
        limited.post("/topics/loose", json={"n": 1})
        assert any('"n":1' in line for line, _ in zip(lines, range(6), strict=False))


LAST = HEALTH + b"Connection: close\r\n\r\n"
LISTEN = b"GET /topics/loose HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


def test_of_too_many_connections_the_longest_without_a_request_gives_way(
    limited: httpx.Client, timers: ManualTimers
) -> None:
    with ExitStack() as stack:
        held = []
        for _ in range(8):
            held.append(stack.enter_context(raw(limited)))
            eventually(lambda: timers.pending == len(held))
        with raw(limited) as newer:
            assert b"503 Service Unavailable" in rest(held[0])
            newer.sendall(LAST)
            assert b"alive" in rest(newer)
        held[1].sendall(LAST)
        assert b"alive" in rest(held[1])
        timers.advance(HEAD_SECONDS)
        assert all(b"408" in rest(each) for each in held[2:])
    assert limited.get("/health").status_code == 200


def test_a_connection_whose_requests_were_answered_gives_way_after_silent_ones(
    limited: httpx.Client, timers: ManualTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "FRESH_SECONDS", 0.0)
    with ExitStack() as stack:
        kept = stack.enter_context(raw(limited))
        kept.sendall(HEALTH + b"\r\n")
        assert b"alive" in kept.recv(1 << 16)
        eventually(lambda: timers.pending == 1)
        silent = [stack.enter_context(raw(limited)) for _ in range(7)]
        eventually(lambda: timers.pending == 8)
        for _ in range(7):
            assert limited.get("/health").status_code == 200
            silent.append(stack.enter_context(raw(limited)))
            eventually(lambda: timers.pending == 8)
        kept.sendall(LAST)
        assert b"alive" in rest(kept)


def test_an_upload_gives_way_after_connections_that_are_idle_or_new(
    limited: httpx.Client, timers: ManualTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "FRESH_SECONDS", 3600.0)
    with ExitStack() as stack:
        upload = stack.enter_context(raw(limited))
        upload.sendall(HEAD + b"Connection: close\r\nContent-Length: 8\r\n\r\n{")
        idle = stack.enter_context(raw(limited))
        idle.sendall(HEALTH + b"\r\n")
        assert b"alive" in idle.recv(1 << 16)
        eventually(lambda: timers.pending == 2)
        for _ in range(6):
            stack.enter_context(raw(limited))
        eventually(lambda: timers.pending == 8)
        for _ in range(8):  # The idle one first, then those that have sent nothing yet.
            assert limited.get("/health").status_code == 200
            stack.enter_context(raw(limited))
            eventually(lambda: timers.pending == 8)
        assert b"503" in rest(idle)
        upload.sendall(b'"n": 7}')
        assert b"200 OK" in rest(upload)


def test_the_peer_with_the_most_unfinished_requests_gives_way_first(
    limited: httpx.Client, timers: ManualTimers
) -> None:
    address = (limited.base_url.host, limited.base_url.port or 0)
    with ExitStack() as stack:
        other = stack.enter_context(
            socket.create_connection(address, timeout=LIMIT_SECONDS, source_address=("127.0.0.2", 0))
        )
        eventually(lambda: timers.pending == 1)
        greedy = [stack.enter_context(raw(limited)) for _ in range(7)]
        eventually(lambda: timers.pending == 8)
        stack.enter_context(raw(limited))
        assert b"503" in rest(greedy[0])
        other.sendall(LAST)
        assert b"alive" in rest(other)


def test_nobody_who_is_being_served_gives_way(limited: httpx.Client) -> None:
    with ExitStack() as stack:
        for _ in range(8):
            listening = stack.enter_context(raw(limited))
            listening.sendall(LISTEN)
            assert b"200 OK" in listening.recv(1 << 16)
        with raw(limited) as one_more:
            assert b"503 Service Unavailable" in rest(one_more)


@pytest.mark.parametrize("proxies", ["127.0.0.0/8", "10.0.0.1", ""])
def test_clients_of_a_trusted_proxy_have_a_share_each(site: Site, proxies: str) -> None:
    def upload(others: ExitStack, client: str) -> socket.socket:
        address = httpx.URL(url)
        slow = others.enter_context(socket.create_connection((address.host, address.port or 0)))
        # Whatever a client claims itself stands in front.
        slow.sendall(HEAD + f"X-Forwarded-For: 6.6.6.6, {client}\r\nContent-Length: 9\r\n\r\n1".encode())
        return slow

    with ExitStack() as stack:
        url = str(stack.enter_context(site.limited(connections_max=4, trusted_proxies=proxies).serving()).base_url)
        slow = [upload(stack, client) for client in ("1.1.1.1", "2.2.2.2", "2.2.2.2", "2.2.2.2")]
        upload(stack, "3.3.3.3")
        turned_away = slow[1] if proxies == "127.0.0.0/8" else slow[0]
        turned_away.settimeout(LIMIT_SECONDS)
        assert turned_away.recv(1000).startswith(b"HTTP/1.1 503 ")


def test_slow_clients_lock_nobody_out(site: Site) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    try:
        with site.limited().serving(Connection="close") as client, ExitStack() as stack:
            for _ in range(1000):
                stack.enter_context(raw(client)).sendall(HEALTH[:20])
            for _ in range(100):
                stack.enter_context(raw(client)).sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
            for number in range(50):
                assert client.get("/health").status_code == 200
                assert client.post("/topics/loose", json={"n": number}).status_code == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
    "head", [b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000, b"\x16\x03\x01\x02\x00" * 100], ids=["long", "tls"]
)
def test_what_is_not_a_request_is_refused(steady_client: httpx.Client, head: bytes) -> None:
    with raw(steady_client) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(head)
        answer = rest(connection)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    assert steady_client.get("/health").status_code == 200


def test_empty_lines_are_ignored_until_the_head_is_late(
    limited: httpx.Client, timers: ManualTimers, received: Counter
) -> None:
    with raw(limited) as connection:
        connection.sendall(b"\r\n" * 9)
        received.wait_for(18)
        timers.advance(HEAD_SECONDS)
        assert rest(connection).startswith(b"HTTP/1.1 408")


def test_small_answers_are_sent_without_delay(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TCP_NODELAY an answer could wait for the client's delayed acknowledgement."""
    found: list[int] = []
    made = Connection.connection_made

    def connection_made(connection: Connection, transport: asyncio.BaseTransport) -> None:
        made(connection, transport)
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as copy:
            found.append(copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(Connection, "connection_made", connection_made)
    with site.serving() as client:
        client.get("/health")
    assert found
    assert all(found)


def test_requests_sent_at_once_are_answered_in_order(steady_client: httpx.Client) -> None:
    first = b"GET /topics/access?limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    event = b'{"n": 1}'
    second = HEAD + b"Content-Length: %d\r\n\r\n" % len(event) + event
    third = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with raw(steady_client) as connection:
        connection.sendall(first + second + third)
        answers = rest(connection)
    places = [answers.index(each) for each in (b'"records"', b'"stored":1', b'"alive"')]
    assert places == sorted(places)
    assert answers.count(b"HTTP/1.1 200") == 3


def test_a_request_behind_a_stream_does_not_keep_the_stream_open(
    client: httpx.Client, received: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "ALIVE_SECONDS", 0.05)  # The service stops reading, so only a write shows the end.
    stream = b"GET /topics/loose HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    behind = HEALTH + b"\r\n"
    with raw(client) as connection:
        connection.sendall(stream)
        assert b"200 OK" in connection.recv(1 << 16)
        connection.sendall(behind)
        received.wait_for(len(stream + behind))
    wait_until_no_stream_is_open(client)


@pytest.mark.parametrize("pieces", [1, 40])
def test_a_head_that_is_too_large_is_refused(steady_client: httpx.Client, pieces: int) -> None:
    with raw(steady_client) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(pieces):
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(b"X-%d: " % number + b"a" * (40_000 // pieces) + b"\r\n")
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 400")


def test_a_request_with_two_hosts_is_refused(steady_client: httpx.Client) -> None:
    with raw(steady_client) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 400")


def test_the_head_of_a_stream_does_not_wait_for_its_first_record(steady_client: httpx.Client) -> None:
    with raw(steady_client) as connection:
        connection.sendall(b"GET /topics/loose HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_a_small_answer_comes_in_one_piece(steady_client: httpx.Client) -> None:
    with raw(steady_client) as connection:
        for _ in range(5):
            connection.sendall(HEALTH + b"\r\n")
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
def test_endless_trailers_are_refused(steady_client: httpx.Client, path: bytes, begin: bytes, trailer: bytes) -> None:
    before = steady_client.get("/topics/loose").json()["next"]
    with raw(steady_client) as connection:
        connection.sendall(HEAD.replace(b"/topics/loose", path) + CHUNKED + b'8\r\n{"n": 1}\r\n0\r\n' + begin)
        assert endless(connection, trailer * 10_000) < 16 << 20
    assert steady_client.get("/topics/loose").json()["next"] == before


def test_trailers_that_are_too_large_are_refused(steady_client: httpx.Client) -> None:
    with raw(steady_client) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(HEAD + CHUNKED + b'8\r\n{"n": 1}\r\n0\r\n' + b"a: b\r\n" * 20_000 + b"\r\n")
        answer = rest(connection)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


def test_a_trailer_is_not_a_header(site: Site) -> None:
    secret = Tokens(site.settings.serve.tokens_path).add("one", ["write"]).encode()
    body = HEAD + b"Connection: close\r\n%s" + CHUNKED + b'8\r\n{"n": 1}\r\n0\r\n%s\r\n'
    field = b"Authorization: Bearer " + secret + b"\r\n"
    with site.serving() as client:
        for head, trailer, status in ((b"", field, b"401"), (field, b"", b"200"), (field, b"Digest: x\r\n", b"200")):
            with raw(client) as connection:
                connection.sendall(body % (head, trailer))
                assert rest(connection).startswith(b"HTTP/1.1 " + status)


def test_a_body_may_come_in_many_small_chunks(steady_client: httpx.Client) -> None:
    with raw(steady_client) as connection:
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
def test_an_invalid_handshake_is_answered_and_the_connection_closed(steady_client: httpx.Client, head: bytes) -> None:
    with raw(steady_client) as connection:
        connection.sendall(head + b"\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 400")


def test_a_handshake_may_say_that_it_has_no_body(steady_client: httpx.Client) -> None:
    with raw(steady_client) as connection:
        connection.sendall(b"GET /topics/loose HTTP/1.1\r\n" + UPGRADE + KEY + b"Content-Length: 0\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 101")


def test_a_handshake_that_is_never_completed_is_cut_off(
    limited: httpx.Client, timers: ManualTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked = threading.Event()
    monkeypatch.setattr(Socket, "handle_connect", lambda *_: is_asked.set())
    with raw(limited) as connection:
        connection.sendall(b"GET /topics/loose HTTP/1.1\r\n" + UPGRADE + KEY + b"\r\n")
        assert is_asked.wait(LIMIT_SECONDS)
        timers.advance(HEAD_SECONDS)
        assert rest(connection) == b""


def test_only_so_many_requests_may_wait(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, complete = [0], Connection.on_headers_complete

    def count(connection: Connection) -> None:
        complete(connection)
        begun[0] += 1

    monkeypatch.setattr(Connection, "on_headers_complete", count)
    with raw(client) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            # The first one is not answered before the service stops.
            connection.sendall(b"GET /topics/loose?wait=3600 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.sendall((HEALTH + b"\r\n") * 1000)
        answer = rest(connection)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    assert begun[0] == 1 + WAITING_MAX


def test_as_many_requests_as_may_wait_are_answered(steady_client: httpx.Client) -> None:
    with raw(steady_client) as connection:
        connection.sendall((HEALTH + b"\r\n") * WAITING_MAX + HEALTH + b"Connection: close\r\n\r\n")
        assert rest(connection).count(b"alive") == 1 + WAITING_MAX
