"""Records as they come: as server-sent events and over WebSockets. Both resume from the id of the last one seen.

A listener reads the log at its own pace, so nothing is buffered for a slow one; one that does not read at all is cut
off by its connection. Appends wake it; in between it gets a sign of life every 15 seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from penstock.errors import PenstockError
from penstock.log.topic import Topic
from penstock.service.answers import JSON, dumps
from penstock.service.problems import headers_of, problem_of
from penstock.service.records import STREAM_ROWS, Cut, Page, read_page
from penstock.service.service import Service

EVENT_STREAM = "text/event-stream"
ALIVE_SECONDS = 15.0

Shape = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What a record looks like to its reader."""


async def next_page(service: Service, topic: Topic, at: Cut, rows: int, wait: float) -> Page:
    """The next records; if there are none yet, those that come within so many seconds (a long poll)."""
    page = await service.work.run(read_page, topic, at, rows)
    if page.records or wait <= 0:
        return page
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    with service.streaming(), service.bell.listening(_ends(topic)) as rung:
        while not page.records and not service.bell.is_stopping and loop.time() < deadline:
            with suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), deadline - loop.time())
            rung.clear()
            page = await service.work.run(read_page, topic, page.after, rows)
    return page


async def follow(service: Service, topic: Topic, at: Cut) -> AsyncIterator[list[dict[str, Any]]]:
    """Records as they come, until the service stops; an empty list is a sign of life."""
    with service.bell.listening(_ends(topic)) as rung:
        while not service.bell.is_stopping:
            rung.clear()
            page = await service.work.run(read_page, topic, at, STREAM_ROWS)
            if page.records:
                yield page.records
            if page.after != at:
                at = page.after
                continue
            try:
                await asyncio.wait_for(rung.wait(), ALIVE_SECONDS)
            except TimeoutError:
                yield []


class EventStream(StreamingResponse):
    """A topic as server-sent events. RequestRefused (503) if too many streams are open already."""

    def __init__(self, service: Service, topic: Topic, at: Cut, shape: Shape) -> None:
        super().__init__(_sent_events(service, topic, at, shape), media_type=EVENT_STREAM)
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.streaming():
            await super().__call__(scope, receive, send)


async def _sent_events(service: Service, topic: Topic, at: Cut, shape: Shape) -> AsyncIterator[bytes]:
    yield b": records of one topic; each id is a place to go on from\n\n"
    try:
        async with aclosing(follow(service, topic, at)) as following:  # type: ignore[type-var]
            async for records in following:
                yield b"".join(_sent_event(shape(each)) for each in records) or b": alive\n\n"
    except PenstockError as error:
        yield b"event: error\ndata: " + dumps({"error": problem_of(error)[1]}) + b"\n\n"


def _sent_event(record: Mapping[str, Any]) -> bytes:
    return b"id: " + str(record["id"]).encode() + b"\nevent: record\ndata: " + dumps(record) + b"\n\n"


async def run_socket(service: Service, socket: WebSocket, begin: Callable[[], tuple[Topic, Cut]], shape: Shape) -> None:
    """A topic over a WebSocket: one text message for each record, {"error": ...} before an end that is not wanted.

    What the client sends is ignored. An error before the first record is an ordinary answer with its status.
    """
    try:
        with service.streaming():
            topic, at = await service.work.run(begin)
            await socket.accept()
            await _both(_tell(service, socket, topic, at, shape), _hear(socket))
    except PenstockError as error:
        status, problem = problem_of(error)
        await socket.send_denial_response(Response(dumps({"error": problem}), status, headers_of(status), JSON))


async def _tell(service: Service, socket: WebSocket, topic: Topic, at: Cut, shape: Shape) -> None:
    try:
        async with aclosing(follow(service, topic, at)) as following:  # type: ignore[type-var]
            async for records in following:
                for each in records:
                    await socket.send_text(dumps(shape(each)).decode())
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
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ends(topic: Topic) -> list[Any]:
    return [partition.end_path for partition in topic.partitions]
