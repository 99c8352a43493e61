"""Methods of libraries that are overridden, some of them private: each of them is there, and is really called.

A release that renames one would take away a limit without any error. So the libraries are bounded in pyproject.toml,
and this test fails where a bound is raised too far.
"""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

import httpx
import pytest
import uvicorn
import uvloop
from packaging.requirements import Requirement
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from penstock.service.connection import Connection, Socket, _Impatient
from penstock.service.server import Loop, Server
from tests.conftest import ROOT
from tests.eventually import LIMIT_SECONDS, eventually
from tests.service.site import Site, web_socket

OURS: dict[type, tuple[type, tuple[type, ...]]] = {
    Connection: (HttpToolsProtocol, (Connection, _Impatient)),
    Socket: (WebSocketsSansIOProtocol, (Socket, _Impatient)),
    Server: (uvicorn.Server, (Server,)),
    Loop: (uvloop.Loop, (Loop,)),
}
"""Our classes, those of libraries that they extend, and where the methods of ours are."""
BOUNDED = ("httptools", "nicegui", "pyspark", "pytest", "pytest-xdist", "uvicorn", "uvloop", "websockets")
"""Libraries whose private parts are overridden or used."""


def overridden(ours: type) -> set[str]:
    theirs, parts = OURS[ours]
    names = {name for part in parts for name, value in vars(part).items() if callable(value)}
    return {name for name in names if hasattr(theirs, name)} - {"__init__", "__module__"}


def test_connection_overrides_what_its_limits_rest_on() -> None:
    """Where a library has no such method any more, ours would never be called."""
    private = {"on_headers_complete", "on_response_complete", "_start_asgi_task", "handle_websocket_upgrade"}
    assert private | {"send_400_response", "on_header", "pause_writing", "shutdown"} <= overridden(Connection)
    assert {"connection_made", "data_received", "pause_writing", "shutdown"} <= overridden(Socket)
    assert {"startup", "shutdown", "run"} <= overridden(Server)
    assert "create_server" in overridden(Loop)


def test_every_overridden_method_is_called(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[tuple[type, str]] = set()

    def watched(ours: type, name: str, body: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            called.add((ours, name))
            return body(self, *arguments, **options)

        return call

    wanted = {(ours, name) for ours in OURS for name in overridden(ours)}
    for ours, name in wanted:
        monkeypatch.setattr(ours, name, watched(ours, name, getattr(ours, name)))

    with ExitStack() as stack, site.serving() as client:
        lines = b'{"n": 1}\n' * 100_000
        kind = {"content-type": "application/x-ndjson"}
        assert client.post("/topics/loose", content=lines, headers=kind).status_code == 200
        address = ("127.0.0.1", httpx.URL(str(client.base_url)).port or 0)
        with socket.create_connection(address) as wrong:
            wrong.sendall(b"no HTTP\r\n\r\n")
            assert wrong.recv(1000).startswith(b"HTTP/1.1 400 ")
        with socket.create_connection(address) as slow:
            slow.sendall(b"GET /topics/loose?limit=10000 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8)
            eventually(lambda: (Connection, "pause_writing") in called)
            slow.settimeout(LIMIT_SECONDS)
            while (Connection, "resume_writing") not in called:
                assert slow.recv(1 << 20)
        with web_socket(client, "/topics/loose", max_queue=1) as follower:
            eventually(lambda: (Socket, "pause_writing") in called)
            while (Socket, "resume_writing") not in called:
                assert follower.recv(timeout=LIMIT_SECONDS)
        held = stack.enter_context(web_socket(client, "/topics/access"))
        held.recv(timeout=LIMIT_SECONDS)
        idle = stack.enter_context(socket.create_connection(address))
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        idle.recv(1)
    assert wanted - called == set()


def test_libraries_are_bounded_and_those_here_are_within() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    found = {each.name: each.specifier for each in map(Requirement, (text for texts in lists for text in texts))}
    for name in BOUNDED:
        assert any(each.operator in ("<", "==") for each in found[name]), f"{name} has no upper bound in pyproject.toml"
        assert found[name].contains(version(name)), f"{name} {version(name)} is not within {found[name]}"
