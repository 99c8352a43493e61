"""All promises about the speed of the service, measured in one go.

    python -m bench.service [--json] [--quick] [--only NAME ...]

The service runs in a process of its own, as `penstock serve` does, the clients in another one. Times count from the
moment a request was due, not from when it could be sent: a service that falls behind cannot hide it.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from bench.measuring import main
from bench.pipeline_data import DDL, events
from penstock import Log, Pipeline
from penstock.modes.engine import open_engine
from penstock.modes.stream import Stop, run_stream
from penstock.views.store import open_store

AIMS = {"get_by_key_ms_p99": ("<=", 20.0)}
MEASUREMENTS = ("get_by_key", "post", "sse")
KEYS = 1000
GETS_PER_SECOND = 1000
CONNECTIONS = 32
LISTENERS = 500


@dataclass(frozen=True)
class Size:
    """How long each measurement takes."""

    seconds: float = 20.0

    @staticmethod
    def quick() -> Size:
        return Size(5.0)


def totals_of_keys() -> Pipeline:
    """A count and a sum per key."""
    app = Pipeline("service")
    app.topic("events", DDL, event_time="time", key="key", lateness="1000 days")

    @app.view(key="key")
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("key").agg(sf.count("*").alias("events"), sf.sum("value").alias("value"))

    return app


class Bench:
    """A log, a database, and the service over them."""

    def __init__(self, folder: Path, spark: SparkSession, size: Size) -> None:
        self.folder = folder.absolute()
        self.spark = spark
        self.size = size
        self.log = Log(self.folder / "log", background=False)
        self.url = f"sqlite:{self.folder / 'views.db'}"

    def get_by_key(self) -> dict[str, float]:
        """Single rows by their key, a thousand times a second, while a stream writes the view."""
        with self._streaming(), self._serving() as port:
            waits = in_a_process(_get_by_key, port, self.size.seconds)
        return {**_in_ms("get_by_key_ms", waits), "gets_per_second": len(waits) / self.size.seconds}

    def post(self) -> dict[str, float]:
        """Single events, each answered when it is on disk, as fast as so many clients can send them."""
        self.log.create("posted", DDL, event_time="time", key="key", exist_ok=True)
        with self._serving() as port:
            waits = in_a_process(_post, port, self.size.seconds)
        return {**_in_ms("post_ms", waits), "post_events_per_second": len(waits) / self.size.seconds}

    def sse(self) -> dict[str, float]:
        """From the append of an event to each of 500 listeners having it."""
        self.log.create("told", "sent double", exist_ok=True)
        with self._serving(streams=LISTENERS + 10) as port:
            waits = in_a_process(_listen, port, self.size.seconds, str(self.folder / "log"))
        return _in_ms("sse_delivery_ms", waits)

    @contextmanager
    def _streaming(self) -> Iterator[None]:
        """A stream that keeps the view, with a few hundred events a second coming in."""
        stop = Stop()
        app = totals_of_keys()
        with (
            open_store(self.url) as store,
            open_engine(app, log=self.log, store=store, spark=self.spark) as engine,
        ):
            topic = self.log.topic("events")
            topic.append(events(0, 100_000, KEYS))
            run_stream(engine, once=True)
            streaming = threading.Thread(target=run_stream, args=(engine,), kwargs={"stop": stop})
            coming = threading.Thread(target=_come_in, args=(topic, stop))
            for each in (streaming, coming):
                each.start()
            try:
                yield
            finally:
                stop()
                for each in (streaming, coming):
                    each.join()

    @contextmanager
    def _serving(self, streams: int = 64) -> Iterator[int]:
        """The service in a process of its own; gives its port."""
        environment = {
            **os.environ,
            "PENSTOCK_SERVE_STREAMS_MAX": str(streams),
            "PENSTOCK_SERVE_CONNECTIONS_MAX": str(streams + 200),
        }
        command = [sys.executable, "-m", "penstock.cli", "serve", "--port", "0", "--views", self.url]
        with subprocess.Popen(
            [*command, "--log", f"dir:{self.folder / 'log'}"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.folder,
        ) as server:
            assert server.stdout is not None
            found = re.search(r":(\d+)", server.stdout.readline().partition("//")[2])
            assert found is not None
            try:
                yield int(found[1])
            finally:
                server.terminate()


def _come_in(topic: Any, stop: Stop) -> None:
    number = 100_000
    while not stop.is_asked:
        topic.append(events(number, 50, KEYS))
        number += 50
        stop.wait(0.1)


def in_a_process(client: Callable[..., Awaitable[list[float]]], *arguments: Any) -> list[float]:
    """What a client measures, in a process of its own: it must not share a core's lock with anybody."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (client, arguments))


def _run(client: Callable[..., Any], arguments: tuple[Any, ...]) -> list[float]:
    waits: list[float] = asyncio.run(client(*arguments))
    return waits


async def _get_by_key(port: int, seconds: float) -> list[float]:
    async def due(number: int) -> str:
        return f"GET /views/totals?key={number % KEYS} HTTP/1.1\r\nHost: localhost\r\n\r\n"

    return await _on_time(port, seconds, GETS_PER_SECOND, due)


async def _on_time(port: int, seconds: float, rate: int, request: Callable[[int], Awaitable[str]]) -> list[float]:
    """So many requests a second over some connections that stay open, and how long after it was due each was done."""
    waits: list[float] = []
    queue: asyncio.Queue[tuple[int, float] | None] = asyncio.Queue()

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (task := await queue.get()) is not None:
            number, due = task
            await _exchange(reader, writer, (await request(number)).encode())
            waits.append(time.perf_counter() - due)
        writer.close()

    workers = [asyncio.create_task(connection()) for _ in range(CONNECTIONS)]
    began = time.perf_counter()
    warm = int(rate * min(2.0, seconds / 4))
    for number in range(int(rate * seconds) + warm):
        due = began + number / rate
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        queue.put_nowait((number, due))
    for _ in workers:
        queue.put_nowait(None)
    await asyncio.gather(*workers)
    return waits[warm:]


async def _post(port: int, seconds: float) -> list[float]:
    """Each of some clients sends the next event when it has the answer to the last."""
    waits: list[float] = []
    until = time.perf_counter() + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until:
            body = json.dumps({"time": "2026-01-01T12:00:00Z", "key": number, "value": 1.5}).encode()
            head = (
                "POST /topics/posted HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            began = time.perf_counter()
            await _exchange(reader, writer, head.encode() + body)
            waits.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(client(number) for number in range(CONNECTIONS)))
    return waits


async def _listen(port: int, seconds: float, log: str) -> list[float]:
    """Five events a second to all listeners; the time is in the event."""
    waits: list[float] = []
    ready = asyncio.Semaphore(0)

    async def listener() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /topics/told?from=latest HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        is_ready = False
        while line := await reader.readline():
            if not is_ready and line.startswith(b":"):
                is_ready = True
                ready.release()
            if line.startswith(b"data: "):
                waits.append(time.time() - json.loads(line[6:])["event"]["sent"])
        writer.close()

    tasks = [asyncio.create_task(listener()) for _ in range(LISTENERS)]
    for _ in tasks:
        await ready.acquire()
    await asyncio.sleep(1)
    topic = Log(log, background=False).topic("told")
    with topic.producer() as producer:
        for _ in range(int(seconds * 5)):
            producer.send({"sent": time.time()})
            await asyncio.sleep(0.2)
    await asyncio.sleep(1)
    for task in tasks:
        task.cancel()
    expected = LISTENERS * int(seconds * 5)
    assert len(waits) == expected, (len(waits), expected)
    return waits


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """One request and its answer, which must be good."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert length is not None, head
    await reader.readexactly(int(length[1]))


def _in_ms(name: str, waits: list[float]) -> dict[str, float]:
    ordered = sorted(waits)
    return {
        f"{name}_p50": ordered[len(ordered) // 2] * 1000,
        f"{name}_p99": ordered[int(len(ordered) * 0.99)] * 1000,
    }


if __name__ == "__main__":
    main(__doc__, Bench, Size(), Size.quick(), MEASUREMENTS, AIMS)
