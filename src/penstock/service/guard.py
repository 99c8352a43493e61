"""Who may ask, and what every answer carries: host, origin, token, size of the body; errors in words.

A browser sends requests for any page that is open in it, also to this machine. So a request must be addressed to a name
that is known (else a name that was pointed here could be read through), and one that a page of another origin makes is
refused unless that origin is allowed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from penstock.dashboard.sessions import Session, cookie_in
from penstock.errors import RequestRefused
from penstock.service.answers import JSON, dumps
from penstock.service.problems import headers_of, problem_of
from penstock.service.service import Service
from penstock.service.tokens import Right
from penstock.service.work import busy

DASHBOARD = "/dashboard"
OPEN = ("/", "/health", "/ready", f"{DASHBOARD}/login", f"{DASHBOARD}/logout")
"""What needs no token: it says nothing but that all is well, or asks for one."""
OPEN_FILES = f"{DASHBOARD}/static/"
LIBRARIES = f"{DASHBOARD}/_nicegui/"
"""Scripts and styles that are the same for everybody, under addresses that change with their version."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PIECE_BYTES = 64 << 10
"""An answer is sent in pieces of this size, so that a client has the time for each that the settings give it."""
GONE = (ClientDisconnect, WebSocketDisconnect, ClientDisconnected)
"""A client that does not wait for its answer, as each layer calls it. Nobody has to be told."""
BODIES_MAX = 16
"""So many bodies of the largest size may be in memory at once, or more that are smaller."""
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
DASHBOARD_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{}'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Scripts of ours alone, none that is made of text while the page runs, and nothing from any other host."""


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, service: Service, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._app = app
        self._service = service
        self._hosts = {each.lower() for each in (*LOOPBACK, *hosts)}
        self._origins = {each.lower() for each in origins}
        self._held = _Held(BODIES_MAX * service.settings.body_bytes_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        scope["penstock.nonce"] = secrets.token_urlsafe(16)
        answer = _Answer(scope, send, self._service)
        body = _Bounded(receive, self._service.settings.body_bytes_max, self._held)
        try:
            self._admit(scope)
            await self._app(scope, body, answer)
        except GONE:
            return
        except _LoginNeeded as needed:
            headers = [(b"location", needed.address.encode()), (b"content-length", b"0")]
            await answer({"type": "http.response.start", "status": 303, "headers": headers})
            await answer({"type": "http.response.body", "body": b""})
        except Exception as error:
            if not answer.is_complete:
                await answer.fail(error)
        finally:
            body.let_go()

    def _admit(self, scope: Scope) -> None:
        """Raises RequestRefused unless the request may go on."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if _without_port(host) not in self._hosts:
            raise RequestRefused(
                421,
                f"nothing is served here under the name {host!r}",
                "to allow it: allowed_hosts in section [serve] of penstock.toml",
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}", f"https://{host}", *self._origins}:
            raise RequestRefused(
                403,
                f"pages of {origin!r} may not ask here",
                "to allow them: cors_origins in section [serve] of penstock.toml",
            )
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and len(length) < 19:
            _check_size(int(length), self._service.settings.body_bytes_max)
        if not self._check_token(scope, headers, is_open=scope["path"] in OPEN or scope["path"].startswith(OPEN_FILES)):
            raise _LoginNeeded(scope)

    def _check_token(self, scope: Scope, headers: Headers, *, is_open: bool) -> bool:
        """Raises RequestRefused unless the request may go on. False for a page that a browser can log in for."""
        service = self._service
        service.needs_token = service.needs_token or bool(service.tokens.all())
        if not service.needs_token:
            scope["penstock.may_go_on"] = lambda: not service.needs_token
            return True
        scope["penstock.session"] = session = self._session(headers)
        if is_open:
            return True
        word, _, secret = headers.get("authorization", "").partition(" ")
        right = _right(scope)
        if not word and session is not None and right == "read":
            scope["penstock.sender"] = session.token
            scope["penstock.may_go_on"] = lambda: service.sessions.holds(session)
            return True
        token = service.tokens.find(secret.strip()) if word.lower() == "bearer" else None
        if token is None:
            if not word and _is_page(scope, headers):
                return False
            raise RequestRefused(
                401,
                "a token is needed" if not secret else "this token is not known",
                "expected: Authorization: Bearer TOKEN; to make one: penstock token add NAME --rights read",
            )
        if not token.may(right):
            raise RequestRefused(
                403,
                f"token {token.name!r} may not do this",
                f"the right {right!r} is needed, it has: {', '.join(token.rights) or 'none'}",
            )
        scope["penstock.sender"] = token.name
        scope["penstock.may_go_on"] = lambda: service.tokens.allow(token, right)
        return True

    def _session(self, headers: Headers) -> Session | None:
        """The session of a browser that logged in. It only ever opens what is read, and only to our own pages."""
        value = cookie_in(headers.get("cookie", ""), headers.get("host", ""))
        is_own = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        return self._service.sessions.find(value) if value and is_own else None


class _LoginNeeded(Exception):
    """A page of the dashboard is asked for, and nobody has logged in."""

    def __init__(self, scope: Scope) -> None:
        self.address = f"{DASHBOARD}/login?next={quote(scope['path'], safe='/')}"


def _is_page(scope: Scope, headers: Headers) -> bool:
    is_ours = scope["path"] == DASHBOARD or scope["path"].startswith(f"{DASHBOARD}/")
    return is_ours and scope["type"] == "http" and "text/html" in headers.get("accept", "")


def _safe(scope: Scope) -> dict[str, str]:
    """The headers that make an answer safe to show, and to keep."""
    path: str = scope["path"]
    if path != DASHBOARD and not path.startswith(f"{DASHBOARD}/"):
        return SAFE
    # Without a referrer to the page itself, browsers would not say where a form of ours comes from.
    policy = DASHBOARD_POLICY.format(scope["penstock.nonce"])
    safe = {**SAFE, "Content-Security-Policy": policy, "Referrer-Policy": "same-origin"}
    if path.startswith((LIBRARIES, OPEN_FILES)):
        # Components are kept by their names, so a browser asks whether they are still the same.
        safe["Cache-Control"] = "no-cache" if "/components/" in path else "private, max-age=86400"
    return safe


def _right(scope: Scope) -> Right:
    if scope["path"] == "/metrics":
        return "admin"
    return "read" if scope["type"] == "websocket" or scope["method"] in ("GET", "HEAD", "OPTIONS") else "write"


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else host


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise RequestRefused(
            413, f"the body has more than {most} bytes", "send less at once, or raise body_bytes_max in section [serve]"
        )


@dataclass
class _Held:
    """How much of the bodies of all requests is in memory."""

    most: int
    bytes: int = 0


class _Bounded:
    """What comes from the client, up to so many bytes, and up to so many over all clients."""

    def __init__(self, receive: Receive, most: int, held: _Held) -> None:
        self._receive = receive
        self._most = most
        self._bytes = 0
        self._held = held

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self._bytes += size
            self._held.bytes += size
            _check_size(self._bytes, self._most)
            if self._held.bytes > self._held.most:
                raise busy("more is being sent than fits into memory")
        return message

    def let_go(self) -> None:
        """The request is over."""
        self._held.bytes -= self._bytes


class _Answer:
    """What goes to the client: with the headers that every answer has, in pieces, and counted."""

    def __init__(self, scope: Scope, send: Send, service: Service) -> None:
        self._scope = scope
        self._send = send
        self._service = service
        self._began = time.monotonic()
        self._status = 0
        self.is_complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _safe(self._scope).items():
                headers[name] = value
        elif message["type"] == "websocket.accept":
            self._status = 101
        body = message.get("body", b"") if message["type"] == "http.response.body" else b""
        for start in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            message = {**message, "body": body[start + PIECE_BYTES :]}
        await self._send(message)
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last or message["type"] == "websocket.accept":
            self.is_complete = True
            self._count()

    async def fail(self, error: Exception) -> None:
        """Says what was wrong, if nothing was said yet; else the connection is closed, half way through an answer."""
        status, problem = problem_of(error)
        if self._status:
            raise ConnectionAbortedError(problem["message"])
        prefix = "websocket.http" if self._scope["type"] == "websocket" else "http"
        body = dumps({"error": problem})
        told = {"content-type": JSON, "content-length": str(len(body)), **headers_of(status)}
        headers = [(name.encode(), value.encode()) for name, value in told.items()]
        await self({"type": f"{prefix}.response.start", "status": status, "headers": headers})
        await self({"type": f"{prefix}.response.body", "body": body})

    def _count(self) -> None:
        route = getattr(self._scope.get("route"), "path", "other")
        method = self._scope.get("method", "WEBSOCKET")
        known = method if method in ("GET", "HEAD", "POST", "OPTIONS", "WEBSOCKET") else "other"
        self._service.metrics.answered(known, route, self._status, time.monotonic() - self._began)
