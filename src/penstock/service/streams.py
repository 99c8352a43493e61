"""Records as they come: as server-sent events and over WebSockets. Both resume from the id of the last one seen.

A listener goes at its own pace, so nothing is buffered for a slow one; one that does not read at all is cut off by its
connection. Appends wake it; in between it gets a sign of life every 15 seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from penstock.errors import PenstockError, RequestRefused
from penstock.log.topic import Topic
from penstock.service.answers import JSON, dumps
from penstock.service.feed import Shape
from penstock.service.problems import headers_of, problem_of
from penstock.service.records import Cut, Page, read_page
from penstock.service.service import Service

_log = logging.getLogger("penstock.service")

EVENT_STREAM = "text/event-stream"
Allowed = Callable[[], bool]


async def next_page(service: Service, scope: Scope, topic: Topic, at: Cut, rows: int, wait: float) -> Page:
    """The next records; if there are none yet, those that come within so many seconds (a long poll)."""
    page = await service.log_reads.run(read_page, topic, at, rows)
    if page.records or wait <= 0:
        return page
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    with service.streaming(scope), service.bell.listening(_ends(topic)) as rung:
        while not page.records and not service.bell.is_stopping and loop.time() < deadline:
            with suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), deadline - loop.time())
            rung.clear()
            page = await service.log_reads.run(read_page, topic, page.after, rows)
    return page


class EventStream(StreamingResponse):
    """A topic as server-sent events. RequestRefused (503) if too many streams are open already."""

    def __init__(self, service: Service, topic: Topic, at: Cut, shape: Shape, is_allowed: Allowed) -> None:
        super().__init__(_sent_events(service, topic, at, shape, is_allowed), media_type=EVENT_STREAM)
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.streaming(scope):
            await super().__call__(scope, receive, send)


async def _sent_events(
    service: Service, topic: Topic, at: Cut, shape: Shape, is_allowed: Allowed
) -> AsyncIterator[bytes]:
    yield b": records of one topic; each id is a place to go on from\n\n"
    try:
        async with aclosing(service.feeds.follow(topic, at, shape)) as following:  # type: ignore[type-var]
            async for leaf in following:
                _check(is_allowed)
                yield b": alive\n\n" if leaf is None else leaf.events
    except PenstockError as error:
        yield b"event: error\ndata: " + dumps({"error": problem_of(error)[1]}) + b"\n\n"


async def run_socket(service: Service, socket: WebSocket, begin: Callable[[], tuple[Topic, Cut]], shape: Shape) -> None:
    """A topic over a WebSocket: one text message for each record, {"error": ...} before an end that is not wanted.

    What the client sends is ignored. An error before the first record is an ordinary answer with its status.
    """
    try:
        with service.streaming(socket.scope):
            topic, at = await service.log_reads.run(begin)
            await socket.accept()
            await _both(_tell(service, socket, topic, at, shape, may_go_on(socket.scope)), _hear(socket))
    except PenstockError as error:
        status, problem = problem_of(error)
        await socket.send_denial_response(Response(dumps({"error": problem}), status, headers_of(status), JSON))


async def _tell(service: Service, socket: WebSocket, topic: Topic, at: Cut, shape: Shape, is_allowed: Allowed) -> None:
    try:
        async with aclosing(service.feeds.follow(topic, at, shape)) as following:  # type: ignore[type-var]
            async for leaf in following:
                _check(is_allowed)
                for text in () if leaf is None else leaf.texts:
                    await socket.send_text(text)
        await socket.close(1001, "the service stops")
    except WebSocketDisconnect:
        return
    except PenstockError as error:
        await socket.send_text(dumps({"error": problem_of(error)[1]}).decode())
        await socket.close(1011)


async def _hear(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        continue


async def _both(*bodies: Any) -> None:
    """Runs both until the first of them ends."""
    tasks = [asyncio.ensure_future(each) for each in bodies]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if (error := task.exception()) is not None:
                _log.error("serve: a stream ended", exc_info=error)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def may_go_on(scope: Scope) -> Allowed:
    """Whether whoever opened a stream may still read: asked again and again, for tokens are removed."""
    found: Allowed = scope.get("penstock.may_go_on", lambda: True)
    return found


def _check(is_allowed: Allowed) -> None:
    if not is_allowed():
        raise RequestRefused(401, "this token, or this login, is no longer good", "begin anew, with another one")


def _ends(topic: Topic) -> list[Any]:
    return [partition.signal for partition in topic.partitions]
