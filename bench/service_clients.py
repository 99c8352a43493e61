"""The clients of `bench.service`: raw connections and prepared bytes, so that they are not what is measured.

Each runs in a process of its own. Times are in seconds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from penstock import Log

Client = Callable[..., Coroutine[Any, Any, list[float]]]
CONNECTIONS = 32
EVENTS_PER_SECOND = 5


def in_a_process(client: Client, *arguments: Any) -> list[float]:
    """What a client measures, in a process of its own: it must not share a core's lock with anybody."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (client, arguments))


def _run(client: Client, arguments: tuple[Any, ...]) -> list[float]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(client(*arguments))


class _Connection(asyncio.Protocol):
    """One request at a time; `done` is told when its answer, which must be good, is there."""

    def __init__(self, done: Callable[[_Connection], None]) -> None:
        self._done = done
        self._received = b""
        self.began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def ask(self, request: bytes, began: float) -> None:
        self.began = began
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        assert head.startswith(b"HTTP/1.1 200"), self._received
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._received = b""
            self._done(self)


def warm_seconds(seconds: float) -> float:
    """How long reads go on before they count."""
    return min(2.0, seconds / 4)


async def get_by_key(port: int, seconds: float, rate: int, keys: int) -> list[float]:
    """So many reads a second, each sent at its time, if a connection is free; how long after that each was answered."""
    waits: list[float] = []
    free: deque[_Connection] = deque()
    due: deque[tuple[bytes, float]] = deque()

    def done(connection: _Connection) -> None:
        waits.append(time.perf_counter() - connection.began)
        if due:
            connection.ask(*due.popleft())
        else:
            free.append(connection)

    await _connect(port, CONNECTIONS, done, free.append)
    requests = [b"GET /views/totals?key=%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % key for key in range(keys)]
    warm = int(rate * warm_seconds(seconds))
    total = warm + int(rate * seconds)
    began, number = time.perf_counter(), 0
    while number < total:
        while number < total and began + number / rate <= time.perf_counter():
            planned = (requests[number % keys], began + number / rate)
            if free:
                free.popleft().ask(*planned)
            else:
                due.append(planned)
            number += 1
        await asyncio.sleep(max(began + number / rate - time.perf_counter(), 0))
    while len(waits) < total:
        await asyncio.sleep(0.01)
    return waits[warm:]


async def post(port: int, seconds: float, clients: int) -> list[float]:
    """Each of so many clients sends the next event when it has the answer to the last."""
    waits: list[float] = []
    until = time.perf_counter() + seconds

    def send(connection: _Connection) -> None:
        body = b'{"time": "2026-01-01T12:00:00Z", "key": %d, "value": 1.5}' % len(waits)
        head = b"POST /topics/posted HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.ask(head + b"Content-Length: %d\r\n\r\n" % len(body) + body, time.perf_counter())

    def done(connection: _Connection) -> None:
        waits.append(time.perf_counter() - connection.began)
        if time.perf_counter() < until:
            send(connection)

    await _connect(port, clients, done, send)
    await asyncio.sleep(seconds)
    return waits[:]


async def _connect(
    port: int, count: int, done: Callable[[_Connection], None], begin: Callable[[_Connection], None]
) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(count):
        _, connection = await loop.create_connection(lambda: _Connection(done), "127.0.0.1", port)
        begin(connection)


class _Listener(asyncio.Protocol):
    """Follows a topic whose events hold the time at which they were sent."""

    def __init__(self, heard: Callable[[bytes], None], is_ready: asyncio.Semaphore) -> None:
        self._heard = heard
        self._is_ready = is_ready
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        request = b"GET /topics/told?from=latest HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
        transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        *events, self._received = (self._received + data).split(b"\n\n")
        for event in events:
            _, found, sent = event.partition(b'"sent":')
            if found:
                self._heard(sent.partition(b"}")[0])
            elif b"\n: records" in event:
                self._is_ready.release()


async def listen(port: int, seconds: float, log: str, listeners: int) -> list[float]:
    """A few events a second to all listeners. For each delivery, event by event, how long after its append it came."""
    waits: list[tuple[float, float]] = []
    ready = asyncio.Semaphore(0)

    def heard(sent: bytes) -> None:
        waits.append((float(sent), time.time() - float(sent)))

    loop = asyncio.get_running_loop()
    for _ in range(listeners):
        await loop.create_connection(lambda: _Listener(heard, ready), "127.0.0.1", port)
    for _ in range(listeners):
        await ready.acquire()
    await asyncio.sleep(1)
    count = int(seconds * EVENTS_PER_SECOND)
    with Log(log, background=False).topic("told").producer() as producer:
        for _ in range(count):
            producer.send({"sent": time.time()})
            await asyncio.sleep(1 / EVENTS_PER_SECOND)
    for _ in range(300):
        if len(waits) >= listeners * count:
            break
        await asyncio.sleep(0.1)
    assert len(waits) == listeners * count, (len(waits), listeners * count)
    return [wait for _, wait in sorted(waits)]
