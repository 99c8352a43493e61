"""The entrance: what of /dashboard is answered by whom. Login, files of ours, and the pages on the stage."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from penstock.dashboard.login import login_page
from penstock.dashboard.sessions import cookie
from penstock.errors import RequestRefused
from penstock.service.service import Service
from penstock.service.work import busy

HOME = "/dashboard"
STATIC = Path(__file__).parent / "static"
FILES = {"dashboard.css": "text/css", "shell.js": "text/javascript", "icon.svg": "image/svg+xml"}
LOGIN_BYTES_MAX = 4096
_KNOWN = re.compile(
    r"/(pipeline|clocks|runs|(topics|views)(/[^/]+)?|alerts(/[^/]+/[^/]+/[^/]+)?)?/?"
    r"|/_nicegui/[^/]+/(static|libraries|components|resources|dynamic_resources|esm)/.+"
)
"""What the stage is asked for. It would tell of everything else in its logging, with the whole address."""
_LIBRARIES = "/_nicegui/"
_SOCKET = "/_nicegui_ws/socket.io/"
"""All that may be a WebSocket."""
_SOCKET_QUERY_BYTES_MAX = 1024
"""A browser names its page and its tab there, which takes about 300 bytes; the stage keeps what it is told."""
_PAGES = 16
"""So many pages may be built at once; others wait. Building one takes a few milliseconds."""
UNCONNECTED_MAX = 64
"""With so many pages in memory that no browser is connected to, no other is built; some more if several ask at once.
Each takes about 0.4 MB until its browser connects, or until the stage forgets it."""


class Dashboard:
    """An ASGI application for every path under /dashboard, behind the guard."""

    path = HOME
    """The metrics count all of it as one route."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._building = asyncio.Semaphore(_PAGES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(HOME) or "/"
        if scope["type"] == "websocket":
            _check_socket(path, scope["query_string"])
            with self._service.streaming(scope):
                await self._play(scope, receive, send)
            return
        _check_origin(Headers(scope=scope))
        if path == "/login":
            await (await self._login(scope, receive))(scope, receive, send)
        elif path == "/logout":
            await self._logout(scope)(scope, receive, send)
        elif path.startswith("/static/"):
            await _file(path.removeprefix("/static/"))(scope, receive, send)
        elif scope["method"] not in ("GET", "HEAD") or path.startswith("/_nicegui_ws"):
            raise RequestRefused(405, "the dashboard is only looked at", "expected: GET")
        elif not _KNOWN.fullmatch(path):
            raise RequestRefused(404, "there is no such page", "what there is: /dashboard")
        elif path.startswith(_LIBRARIES):
            await self._play(scope, receive, send)
        else:
            page = _Page(scope)
            async with self._building:
                await self._play(scope, receive, page, is_page=True)
            # Only now: one who does not read what is sent would keep others from their pages.
            await page.send(send)

    async def _play(self, scope: Scope, receive: Receive, send: Send, *, is_page: bool = False) -> None:
        """Lets the stage answer. What proxies may say of themselves would be written into the page: it is left out."""
        from penstock.dashboard.stage import stage

        ready = await asyncio.get_running_loop().run_in_executor(None, stage)
        if is_page and ready.unconnected >= UNCONNECTED_MAX:
            raise busy(f"{UNCONNECTED_MAX} pages wait for their browsers already")
        headers = [(name, value) for name, value in scope["headers"] if not name.startswith(b"x-forwarded-")]
        path = f"{HOME}/" if scope["path"] == HOME else scope["path"]
        there = {**scope, "path": path, "root_path": HOME, "headers": headers, "penstock.service": self._service}
        for name in ("app", "router", "endpoint", "path_params", "route", "state", "extensions", "fastapi_astack"):
            there.pop(name, None)
        await ready.answer(there, receive, send)

    async def _login(self, scope: Scope, receive: Receive) -> Response:
        headers = Headers(scope=scope)
        if scope["method"] != "POST":
            if not self._service.needs_token:
                return RedirectResponse(HOME, 303)
            return HTMLResponse(login_page(_local(parse_qs(scope["query_string"].decode("latin-1")))))
        form = parse_qs((await _body(receive)).decode("utf-8", "replace"))
        value = self._service.sessions.begin(form.get("token", [""])[0])
        if value is None:
            return HTMLResponse(login_page(_local(form), is_refused=True), 403)
        return RedirectResponse(_local(form), 303, {"Set-Cookie": self._cookie(headers, value)})

    def _logout(self, scope: Scope) -> Response:
        if scope["method"] != "POST":
            raise RequestRefused(405, "a session is ended by POST", "expected: the button of the page")
        session = scope.get("penstock.session")
        if session is not None:
            self._service.sessions.end(session)
        return RedirectResponse(f"{HOME}/login", 303, {"Set-Cookie": self._cookie(Headers(scope=scope), "")})

    def _cookie(self, headers: Headers, value: str) -> str:
        """Only over TLS if the page came over it; that is in its origin, which a browser sends with every POST."""
        is_secure = headers.get("origin", "").lower().startswith("https://")
        return cookie(headers.get("host", ""), value, is_secure=is_secure)


class _Page:
    """A page while it is built. It is sent when it is whole.

    Its scripts get the number used once that its policy asks for. Content has no `<` any more.
    """

    def __init__(self, scope: Scope) -> None:
        self._nonce = str(scope["penstock.nonce"]).encode()
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        """What the stage says."""
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")

    async def send(self, send: Send) -> None:
        """To the browser."""
        assert self._start is not None, "the stage has given no answer"
        headers, body = self._start["headers"], self._body
        if Headers(raw=headers).get("content-type", "").startswith("text/html"):
            body = body.replace(b"<script", b'<script nonce="' + self._nonce + b'"')
            headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
            headers.append((b"content-length", str(len(body)).encode()))
        await send({**self._start, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _check_socket(path: str, query: bytes) -> None:
    """Raises RequestRefused unless it is a page that connects. Other paths are open to those without a token too."""
    if path != _SOCKET:
        raise RequestRefused(404, "there is no WebSocket here", "what there is: /dashboard")
    if len(query) > _SOCKET_QUERY_BYTES_MAX:
        raise RequestRefused(400, "the query is too long", f"expected: at most {_SOCKET_QUERY_BYTES_MAX} bytes")


def _check_origin(headers: Headers) -> None:
    """Raises RequestRefused for what a page of another origin has loaded; a link on it may lead here.

    Such a page could not read the answer, but have so many made that nobody else gets one.
    """
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if not is_link or "sec-purpose" in headers or "purpose" in headers:
        raise RequestRefused(403, "pages of another origin may not load this", "a link to /dashboard may be followed")


def _file(name: str) -> Response:
    if name not in FILES:
        raise RequestRefused(404, "no such file", "what there is: /dashboard")
    return FileResponse(STATIC / name, media_type=FILES[name])


def _local(form: dict[str, list[str]]) -> str:
    """Where to go after the login: within the dashboard, whatever the address says."""
    wanted = form.get("next", [HOME])[0]
    is_ours = wanted == HOME or (wanted.startswith(f"{HOME}/") and "\\" not in wanted and wanted.isprintable())
    return wanted if is_ours and wanted.isascii() else HOME


async def _body(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > LOGIN_BYTES_MAX:
            raise RequestRefused(413, "this is no token", "expected: what `penstock token add` printed")
        if message["type"] != "http.request" or not message.get("more_body", False):
            return body
