"""Connections with a limit on everything: how many there are, and how long a client may take for each thing it does.

uvicorn alone bounds only the pause between two requests. A client that sends its head or its body a byte at a time, or
that does not read what it asked for, would hold a connection for ever.
"""

from __future__ import annotations

import asyncio
import http
from dataclasses import dataclass
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from penstock.durations import parse_duration
from penstock.service.answers import JSON, dumps
from penstock.settings import ServeSettings

Phase = Literal["head", "body"]


@dataclass(frozen=True)
class Limits:
    """What a client may take."""

    connections: int
    head_seconds: float
    body_seconds: float
    write_seconds: float

    @classmethod
    def of(cls, settings: ServeSettings) -> Limits:
        """Those of the settings."""
        head, body, write = (
            parse_duration(each).total_seconds()
            for each in (settings.header_timeout, settings.body_timeout, settings.write_timeout)
        )
        return cls(settings.connections_max, head, body, write)


class _Impatient(asyncio.Protocol):
    """Cuts a client off that leaves what it was sent unread."""

    limits: Limits
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Told of everything that is left in our buffer, also of the last bytes, which a close would wait for.
        self.transport.set_write_buffer_limits(high=0)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            # Not close(): that waits until the client has read the rest.
            self._unread = self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class Connection(_Impatient, H11Protocol):
    """A connection of HTTP/1.1.

    The time for a head or a body counts from its beginning: a byte now and then is no help.
    """

    _phase: Phase | None = None
    _phase_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._turn_away(503, "too many connections at the moment", "try again a little later")
        else:
            self._enter("head")

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)
            self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._enter(None)
        self._stop_waiting()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(None)
        super().connection_lost(exc)

    def _look(self) -> None:
        """What the client is about to send now."""
        if self.transport.get_protocol() is self:
            phases: dict[Any, Phase] = {h11.IDLE: "head", h11.SEND_BODY: "body"}
            self._enter(phases.get(self.conn.their_state))

    def _enter(self, phase: Phase | None) -> None:
        if phase == self._phase:
            return
        if self._phase_timer is not None:
            self._phase_timer.cancel()
            self._phase_timer = None
        self._phase = phase
        if phase is not None:
            seconds = self.limits.head_seconds if phase == "head" else self.limits.body_seconds
            self._phase_timer = self.loop.call_later(seconds, self._too_slow, phase, seconds)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What came cannot be read: uvicorn's own answer would be plain text."""
        self._turn_away(400, "this is no request of HTTP/1.1", "a head has at most 32 KiB, and its lines end in CR LF")

    def _too_slow(self, phase: Phase, seconds: float) -> None:
        found = f"the {phase} of the request was not there after {seconds:g} s"
        self._turn_away(408, found, "send it faster, or less of it")

    def _turn_away(self, status: int, message: str, todo: str) -> None:
        """A last word, past h11, unless an answer has begun; then the connection just ends."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
            return
        problem = {"kind": "RequestRefused", "message": message, "details": [todo], "is_retryable": status != 400}
        body = dumps({"error": problem})
        head = (
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\nContent-Type: {JSON}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class Socket(_Impatient, WebSocketsSansIOProtocol):
    """A connection of a WebSocket."""


def protocols(limits: Limits) -> tuple[type[Connection], type[Socket]]:
    """The protocols with these limits; uvicorn makes one object for each connection."""
    return type("LimitedConnection", (Connection,), {"limits": limits}), type(
        "LimitedSocket", (Socket,), {"limits": limits}
    )
