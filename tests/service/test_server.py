"""The service is open to this machine alone, unless there are tokens."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.errors import ServeRefused
from penstock.service.connection import Connection
from penstock.service.server import listening, serving
from penstock.service.service import Service
from penstock.service.tokens import Tokens
from tests.eventually import LIMIT_SECONDS, eventually
from tests.service.site import Site
from tests.service.timers import ManualTimers


def elsewhere(site: Site, host: str) -> Site:
    return replace(site, settings=replace(site.settings, serve=replace(site.settings.serve, host=host)))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_nobody_else_is_served_without_a_token(site: Site, host: str) -> None:
    with (
        pytest.raises(ServeRefused, match="penstock token add") as caught,
        listening(elsewhere(site, host).settings),
    ):
        pass
    assert caught.value.address == f"{host}:0"


def test_with_a_token_others_are_served(site: Site) -> None:
    secret = Tokens(site.settings.serve.tokens_path).add("one", ["read"])
    with serving(elsewhere(site, "0.0.0.0").settings) as url:
        address = url.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=address, timeout=LIMIT_SECONDS) as client:
            assert client.get("/views").status_code == 401
            assert client.get("/views", headers={"Authorization": f"Bearer {secret}"}).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_this_machine_needs_no_token(site: Site, host: str) -> None:
    with elsewhere(site, host).serving() as client:
        assert client.get("/views").status_code == 200


def test_a_port_that_is_taken_is_told_in_words(site: Site) -> None:
    with listening(site.settings) as listener:
        taken = site.limited(port=listener.getsockname()[1])
        with pytest.raises(ServeRefused, match="Address already in use"), listening(taken.settings):
            pass


def test_a_host_that_nobody_knows_is_told_in_words(site: Site) -> None:
    with (
        pytest.raises(ServeRefused, match="nothing is known as"),
        listening(elsewhere(site, "no.such.invalid").settings),
    ):
        pass


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Service]:
    """The services that have closed in order."""
    closed, close = [], Service.close

    async def note(service: Service) -> None:
        await close(service)
        closed.append(service)

    monkeypatch.setattr(Service, "close", note)
    return closed


def test_a_connection_that_fails_to_shut_down_does_not_stop_the_close(
    site: Site, closed: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fail(connection: Connection) -> None:
        asked.append(connection)
        raise AssertionError("not self.eof_sent")

    monkeypatch.setattr(HttpToolsProtocol, "shutdown", fail)
    timers = ManualTimers()  # Each open connection has one.
    with ExitStack() as stack:
        with site.serving(call_later=timers, Connection="close") as client:
            address = (client.base_url.host, client.base_url.port or 0)
            for _ in range(3):
                stack.enter_context(socket.create_connection(address, timeout=LIMIT_SECONDS))
            eventually(lambda: timers.pending == 3)
        assert len(asked) >= 3
        assert len(closed) == 1


def test_a_service_closes_in_order_after_an_invalid_handshake(site: Site, closed: list[Service]) -> None:
    with ExitStack() as stack:
        with site.serving() as client:
            address = (client.base_url.host, client.base_url.port or 0)
            one = stack.enter_context(socket.create_connection(address, timeout=LIMIT_SECONDS))
            one.sendall(
                b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                + b"".join(b"a%d: b\r\n" % number for number in range(300))
                + b"\r\n"
            )
            assert one.recv(1 << 16).startswith(b"HTTP/1.1 400")
        assert len(closed) == 1
