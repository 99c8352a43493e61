"""The short way of what is asked most often: a row by its key, and events in. Everything else goes on to the routes.

Only plain requests are answered here, with the very answers that the routes would give; whatever is unusual about one
is left to them, what is wrong with one too. So there is one description, and one place that says what is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.service.answers import JSON
from penstock.service.by_key import Answer, RowsByKey
from penstock.service.gathering import Gathering
from penstock.service.lane import Lane
from penstock.service.service import Service
from penstock.service.topics import LINES, answer_posted, as_lines

NAME_LENGTH_MAX = 200
KEYS_MAX = 32
KEY_LENGTH_MAX = 1000
_VIEWS, _TOPICS = "/views/", "/topics/"
_TYPE = (b"content-type", JSON.encode())
_KINDS = {each.encode(): each for each in (JSON, *LINES)}


@dataclass(frozen=True)
class _Route:
    """What the metrics call it."""

    path: str


_ROWS, _EVENTS = _Route("/views/{name}"), _Route("/topics/{name}")


class ShortWay:
    """Stands in front of the routes, behind the guard."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._rows = RowsByKey(service)
        self._gathering = Gathering(service)
        self._lane = Lane("penstock-by-key", service.seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            if scope["method"] == "GET" and path.startswith(_VIEWS):
                answer = await self._row(scope)
                if answer is not None:
                    scope["route"] = _ROWS
                    await _answer(send, answer.body, (b"penstock-as-of", answer.as_of), (b"vary", b"Accept"))
                    return
            elif scope["method"] == "POST" and path.startswith(_TOPICS) and (kind := _kind_of_body(scope)) is not None:
                name = path[len(_TOPICS) :]
                if _is_name(name):
                    scope["route"] = _EVENTS
                    posted = await self._gathering.post(name, as_lines(kind, await _body(receive)))
                    await _answer(send, answer_posted(self._service, name, posted))
                    return
        await self._app(scope, receive, send)
        if scope["type"] == "lifespan":
            await self._lane.run(self._rows.close)
            self._lane.close()

    async def _row(self, scope: Scope) -> Answer | None:
        """The answer to a plain question for one row, as JSON; None for every other request."""
        name = scope["path"][len(_VIEWS) :]
        if not _is_name(name) or not _wants_json(scope):
            return None
        texts = _only_keys(scope["query_string"])
        if not texts:
            return None
        if self._rows.is_new(name):
            await self._service.work.run(self._rows.learn, name)
        return await self._lane.run(lambda: self._rows.find(name, texts)) if self._rows.is_known(name) else None


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_LENGTH_MAX and "/" not in name and "\0" not in name


def _only_keys(query: bytes) -> list[str] | None:
    """The values of `key`, if nothing else is asked for."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if len(pairs) > KEYS_MAX or any(name != "key" or len(text) > KEY_LENGTH_MAX for name, text in pairs):
        return None
    return [text for _, text in pairs]


def _wants_json(scope: Scope) -> bool:
    return all(name != b"accept" or value in (b"*/*", JSON.encode()) for name, value in scope["headers"])


def _kind_of_body(scope: Scope) -> str | None:
    """What the body is said to be, if events may come so; None also if they have a key, which is checked elsewhere."""
    kind = None
    for name, value in scope["headers"]:
        if name == b"idempotency-key":
            return None
        if name == b"content-type":
            kind = _KINDS.get(value) if kind is None else None
    return kind


async def _body(receive: Receive) -> bytes:
    """All of the body. ClientDisconnect if the client is gone before."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _answer(send: Send, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [_TYPE, length, *headers]})
    await send({"type": "http.response.body", "body": body})
