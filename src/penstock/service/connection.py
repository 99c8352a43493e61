"""Connections with a limit on everything: how many there are, and how long a client may take for each thing it does.

uvicorn alone bounds only the pause between two requests. A client that sends its head or its body a byte at a time, or
that does not read what it asked for, would hold a connection for ever. Where there are too many connections, those give
way to newer ones that have not even sent a request: no token is asked for before that.
"""

from __future__ import annotations

import asyncio
import http
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, Literal, NoReturn, Protocol, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from penstock.durations import parse_duration
from penstock.service.answers import JSON, dumps
from penstock.settings import ServeSettings

Phase = Literal["head", "body"]
HEAD_BYTES_MAX = 32 << 10
"""Of a head, and again of what stands behind a body."""
WAITING_MAX = 8
"""So many requests may wait behind the one that is being answered."""
FRESH_SECONDS = 1.0
"""A new connection has so long to send the head of a request before it gives way to others."""
_phases = itertools.count()


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Prevents the call."""


CallLater = Callable[..., Timer]
"""Calls a function later: takes the event loop, the seconds until then, the function and its arguments."""


def call_later(loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[..., object], *args: Any) -> Timer:
    """Uses the timers of the event loop."""
    return loop.call_later(seconds, function, *args)


@dataclass(frozen=True)
class Limits:
    """What a client may take."""

    connections: int
    head_seconds: float
    body_seconds: float
    write_seconds: float
    call_later: CallLater = call_later
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    """Who is believed when it says for whom it asks."""

    def is_trusted(self, address: str | None) -> bool:
        """Whether it is a proxy of ours."""
        return bool(self.proxies) and address is not None and any(ip_address(address) in each for each in self.proxies)

    @classmethod
    def of(cls, settings: ServeSettings, call_later: CallLater = call_later) -> Limits:
        """Those of the settings."""
        head, body, write = (
            parse_duration(each).total_seconds()
            for each in (settings.header_timeout, settings.body_timeout, settings.write_timeout)
        )
        return cls(settings.connections_max, head, body, write, call_later, settings.proxies)


class _Impatient(asyncio.Protocol):
    """Cuts a client off that leaves what it was sent unread."""

    limits: Limits
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _unread: Timer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Told of everything that is left in our buffer, also of the last bytes, which a close would wait for. With TLS
        # the end of the shutdown, which has a limit of its own, cuts those off; and uvloop would never resume.
        if transport.get_extra_info("ssl_object") is None:
            self.transport.set_write_buffer_limits(high=0)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            # Not close(): that waits until the client has read the rest.
            self._unread = self.limits.call_later(self.loop, self.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The service stops. One connection that fails at it keeps neither the others nor the service from closing."""
        try:
            super().shutdown()  # type: ignore[misc]
        except Exception:
            logging.getLogger("uvicorn.error").warning("a connection did not end in order", exc_info=True)
            self.transport.abort()

    def _stop_waiting(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class _Joining(asyncio.Transport):
    """A transport that sends the head of an answer together with what follows it at once: one packet instead of two."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data[:9] == b"HTTP/1.1 ":
            self._head = bytes(data)
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._head = b""
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class Connection(_Impatient, HttpToolsProtocol):
    """A connection of HTTP/1.1.

    The time for a head or a body counts from its beginning: a byte now and then is no help. A request that is sent
    before the one in front of it is answered waits for its turn, and its time begins then. What stands behind a body
    (trailers) is read past, and never becomes part of the head.
    """

    _awaited: Phase = "head"
    """What the client sends next."""
    _head_bytes = 0
    _trailer_bytes = 0
    _bodiless_bytes = 0
    """Of what came since the last piece of the body."""
    _reason = ("this is no request of HTTP/1.1", "a head has at most 32 KiB, and its lines end in CR LF")
    """Why what came is refused, and what to do."""
    _answered: RequestResponseCycle | None = None
    """The request that is being answered; `cycle` may be one behind it."""
    _phase: Phase | None = None
    _phase_timer: Timer | None = None
    _forwarded_for: str | None = None
    _phase_since = 0.0
    _phase_number = 0
    """Counts the phases of all connections in the order in which they began."""
    _has_been_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(_Joining(cast("asyncio.Transport", transport), self.loop))
        others = [each for each in self.connections if each is not self and not each.transport.is_closing()]
        gives_way = self if len(others) >= self.limits.connections else None
        if gives_way is not None:
            gives_way = _first_to_give_way(others) or self
            gives_way._turn_away(503, "too many connections at the moment", "try again a little later")
        if gives_way is not self:
            self._enter("head")

    @property
    def peer(self) -> str | None:
        """The address of the client; behind a trusted proxy, the one that the last request named."""
        return self._forwarded_for or (self.client[0] if self.client else None)

    @property
    def _claim(self) -> int:
        """How much a connection without a complete request has a right to stay."""
        if self._phase == "body":
            return 3  # It would lose what it has sent.
        if self._has_been_answered:
            return 1  # It is idle, and may begin anew at any time.
        return 0 if self.loop.time() - self._phase_since >= FRESH_SECONDS else 2

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._awaited == "head":
            self._head_bytes += len(data)  # The parser keeps the beginning of a head without any limit,
        else:
            self._bodiless_bytes += len(data)  # and that of a trailer too.
        super().data_received(data)
        if self.transport.is_closing():
            return
        if (self._head_bytes if self._awaited == "head" else self._bodiless_bytes) > HEAD_BYTES_MAX:
            self.send_400_response("")
        else:
            self._look()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._awaited == "head":
            super().on_header(name, value)
            return
        self._trailer_bytes += len(name) + len(value)
        if self._trailer_bytes > HEAD_BYTES_MAX:
            self._refuse("too much stands behind the body", "trailers are not read: leave them out")

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES_MAX:
            self._refuse("the head of the request is too large", "a head has at most 32 KiB")
        names = [name for name, _ in self.headers]
        if names.count(b"host") > 1:
            self._refuse("nobody knows which of its hosts is meant", "send one header Host")
        if self.limits.is_trusted(self.client[0] if self.client else None):
            said = [value for name, value in self.headers if name == b"x-forwarded-for"]
            # What stands before the last address was sent by the client itself, and may be made up.
            self._forwarded_for = said[-1].decode("latin-1").rpartition(",")[2].strip()[:45] if said else None
        if len(self.pipeline) >= WAITING_MAX:
            found = f"{WAITING_MAX} requests are waiting already for the one in front of them"
            self._refuse(found, "wait for answers before asking for more, or use more connections")
        if self.parser.should_upgrade() and self._should_upgrade():
            self._check_upgrade()
        self._awaited = "body"
        self._trailer_bytes = self._bodiless_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bodiless_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._awaited = "head"
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._has_been_answered = True
        super().on_response_complete()
        self._look()

    def handle_websocket_upgrade(self) -> None:
        self._enter(None)
        self._stop_waiting()
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(None)
        self.pipeline.clear()
        if self._answered is not None and self._answered is not self.cycle:
            self._answered.disconnected = True  # uvicorn tells only the last of several.
            self._answered.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _look(self) -> None:
        """What the client is about to send now, if it is its turn."""
        if self.transport.get_protocol() is not self:
            return
        if self._awaited == "body":
            self._enter(None if self.pipeline else "body")
        else:
            last: RequestResponseCycle | None = self.cycle
            self._enter("head" if last is None or last.response_complete else None)

    def _enter(self, phase: Phase | None) -> None:
        if phase == self._phase:
            return
        if self._phase_timer is not None:
            self._phase_timer.cancel()
            self._phase_timer = None
        self._phase = phase
        if phase is not None:
            self._phase_number, self._phase_since = next(_phases), self.loop.time()
            seconds = self.limits.head_seconds if phase == "head" else self.limits.body_seconds
            self._phase_timer = self.limits.call_later(self.loop, seconds, self._too_slow, phase, seconds)

    def _check_upgrade(self) -> None:
        """Refuses what the parser of WebSockets would leave without an answer."""
        has_body = any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in self.headers
        )
        if self.parser.get_method() != b"GET" or has_body:
            self._refuse("this is no handshake of a WebSocket", "send GET, without a body")
        last: RequestResponseCycle | None = self.cycle
        if last is not None and not last.response_complete:
            # Its answer would be written into the WebSocket, and nobody would tell it that the client is gone.
            self._refuse("a WebSocket cannot begin before the last request is answered", "use a connection of its own")

    def _refuse(self, message: str, todo: str) -> NoReturn:
        """Called by the parser, which ends here: nothing of what it was fed is looked at any more."""
        self._reason = message, todo
        raise ValueError(message)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What came cannot be read: uvicorn's own answer would be plain text."""
        self._turn_away(400, *self._reason)

    def _too_slow(self, phase: Phase, seconds: float) -> None:
        found = f"the {phase} of the request was not there after {seconds:g} s"
        self._turn_away(408, found, "send it faster, or less of it")

    def _turn_away(self, status: int, message: str, todo: str) -> None:
        """A last word, past uvicorn, unless an answer has begun; then the connection just ends."""
        cycle = self._answered
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
            return
        self.transport.write(_last_word(status, message, todo))
        self.transport.close()


class Socket(_Impatient, WebSocketsSansIOProtocol):
    """A connection of a WebSocket. Unless it is accepted or refused in the time that a head has, it ends."""

    _handshake_timer: Timer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        seconds = self.limits.head_seconds
        self._handshake_timer = self.limits.call_later(self.loop, seconds, self._end_unless_accepted)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.transport.is_closing():
            # The parser has given up (too many headers, say), and uvicorn would wait for what never comes.
            found = f"this is no handshake of a WebSocket: {self.conn.handshake_exc}"
            self.transport.write(_last_word(400, found, "send fewer or shorter headers"))
            self.close_sent = True
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
        super().connection_lost(exc)

    def _end_unless_accepted(self) -> None:
        if not self.handshake_complete and not self.close_sent:
            self.transport.abort()


def _first_to_give_way(connections: Iterable[object]) -> Connection | None:
    """Whoever has the least claim among those who have no complete request here; None if all are being served.

    Of the peer that has the most of them, the one with the least claim, and of several the longest.
    """
    waiting = [each for each in connections if isinstance(each, Connection) and each._phase is not None]
    share = Counter(each.peer for each in waiting)
    return min(waiting, key=lambda each: (-share[each.peer], each._claim, each._phase_number), default=None)


def _last_word(status: int, message: str, todo: str) -> bytes:
    """An answer, past uvicorn, to what cannot be served."""
    problem = {"kind": "RequestRefused", "message": message, "details": [todo], "is_retryable": status != 400}
    body = dumps({"error": problem})
    head = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\nContent-Type: {JSON}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def protocols(limits: Limits) -> tuple[type[Connection], type[Socket]]:
    """The protocols with these limits; uvicorn makes one object for each connection."""
    return type("LimitedConnection", (Connection,), {"limits": limits}), type(
        "LimitedSocket", (Socket,), {"limits": limits}
    )
