"""Starting and stopping the service. It is open to this machine alone, unless there are tokens."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
import uvloop

from penstock.errors import ServeRefused
from penstock.service.application import application
from penstock.service.certificate import HANDSHAKE_SECONDS, SHUTDOWN_SECONDS, Certificate
from penstock.service.connection import CallLater, Limits, call_later, protocols
from penstock.service.service import Service
from penstock.settings import Settings

if TYPE_CHECKING:
    from penstock.pipeline.pipeline import Pipeline

SOCKET_BYTES_MAX = 64 << 10
"""Of what a client says over a WebSocket nothing is used."""
STOP_SECONDS = 10

_log = logging.getLogger("penstock.service")


def serve(
    settings: Settings, on_start: Callable[[str], None] = lambda _: None, pipeline: Pipeline | None = None
) -> None:
    """Serves until SIGINT or SIGTERM; tells `on_start` the address once it listens. ServeRefused if it must not."""
    with listening(settings) as listener:
        server = Server(settings, listener, pipeline)
        gc.collect()
        gc.freeze()  # All that is loaded by now stays; nobody shall wait while it is looked through for garbage.
        on_start(server.url)
        server.run(sockets=[listener])


@contextmanager
def serving(
    settings: Settings, pipeline: Pipeline | None = None, *, call_later: CallLater = call_later
) -> Iterator[str]:
    """Serves in a thread of this process for the length of a `with`, for tests and notebooks. Gives the address.

    `call_later` sets the timers that limit what a client may take.
    """
    with listening(settings) as listener:
        server = Server(settings, listener, pipeline, call_later=call_later)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="penstock-serve")
        thread.start()
        try:
            server.is_up.wait()
            yield server.url
        finally:
            server.should_exit = True
            thread.join()


class Server(uvicorn.Server):
    """uvicorn with our limits. When it stops, streams are ended first, and what is being answered is answered."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        pipeline: Pipeline | None = None,
        *,
        call_later: CallLater = call_later,
    ) -> None:
        host, port = listener.getsockname()[:2]
        self._certificate = _certificate(settings, f"{host}:{port}")
        scheme = "http" if self._certificate is None else "https"
        self.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        self.is_up = threading.Event()
        self._following: asyncio.Task[None] | None = None
        self._service = Service(settings, pipeline)
        connection, websocket = protocols(Limits.of(settings.serve, call_later))
        config = uvicorn.Config(
            application(self._service),
            loop=f"{__name__}:Loop",
            ssl_context_factory=None if self._certificate is None else self._ssl_context,
            http=connection,
            ws=websocket,
            ws_max_size=SOCKET_BYTES_MAX,
            ws_per_message_deflate=False,  # Compression would let a client make us work for nothing.
            log_config=None,
            access_log=False,  # Addresses hold what people look for.
            server_header=False,
            proxy_headers=False,  # Anybody could write them.
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        # uvicorn tells addresses with all their parameters at the level INFO.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._certificate is not None:
            self._following = asyncio.create_task(self._certificate.follow())
        self.is_up.set()

    def _ssl_context(self, *_: object) -> ssl.SSLContext:
        assert self._certificate is not None
        return self._certificate.context

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        if self._following is not None:
            self._following.cancel()
        await asyncio.sleep(0)
        await super().shutdown(sockets)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        finally:
            self.is_up.set()


class Loop(uvloop.Loop):
    """The event loop, with a limit on the handshake of TLS, which uvicorn has none for."""

    async def create_server(self, *args: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = HANDSHAKE_SECONDS
            options["ssl_shutdown_timeout"] = SHUTDOWN_SECONDS
        return await super().create_server(*args, **options)


def _certificate(settings: Settings, address: str) -> Certificate | None:
    try:
        return Certificate.of(settings.serve)
    except ValueError as error:
        todo = "expected: files in PEM as serve.certificate and serve.key, or neither of them"
        raise ServeRefused(address, str(error), todo) from error


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """The socket that the settings name. ServeRefused if it would be open to others and there are no tokens."""
    host, port = settings.serve.host, settings.serve.port
    address = f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ServeRefused(address, f"nothing is known as {host!r}: {error.strerror}", "expected: 127.0.0.1") from error
    family, _, _, _, place = found[0]
    # Names that it may be called by are set where a proxy stands in front of it: others come in through that.
    is_ours_alone = ipaddress.ip_address(str(place[0]).partition("%")[0]).is_loopback
    if not is_ours_alone or settings.serve.allowed_hosts.strip():
        from penstock.service.tokens import Tokens

        if not Tokens(settings.serve.tokens_path).all():
            named, todo = "", "or serve on 127.0.0.1"
            if is_ours_alone:
                named, todo = f" as {settings.serve.allowed_hosts.strip()}", "or leave out allowed_hosts"
            raise ServeRefused(
                address,
                f"others could reach it there{named}, and there is no token: anybody could read all and write to all",
                f"make a token first: penstock token add NAME --rights read,write; {todo}",
            )
        if not is_ours_alone and not settings.serve.certificate:
            _log.warning(
                "serve: %s speaks plain HTTP, so tokens can be read on the way\n"
                "  expected: certificate and key in section [serve], or a proxy in front of it that speaks TLS",
                address,
            )
    # The protocol is named, for asyncio sends small answers at once (TCP_NODELAY) only where it reads TCP.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(place)
        except OSError as error:
            raise ServeRefused(address, f"{error.strerror}", "choose another one: --port, or 0 for any") from error
        listener.listen(128)
        yield listener
