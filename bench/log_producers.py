"""How many single events per second many producer processes get acknowledged on disk, and how long an answer takes.

Each process has one producer and sends one dict of about 200 bytes at a time, as fast as it can, but never has more
than `UNACKNOWLEDGED` events under way. The time from `send` to the answer is taken for a sample of the events.

    python -m bench.log_producers
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from time import monotonic, perf_counter, process_time, sleep
from typing import Any

SCHEMA = "time timestamp, ip string, status int, method string, url string, seconds double"
PARTITIONS = 4
UNACKNOWLEDGED = 2000
"""How many events a process may have under way; more give a higher rate and later answers."""
WARM_UP_SECONDS = 1.0
SAMPLE_EVERY = 100
FDATASYNC_COUNT = 300


def measure(processes: int = 8, seconds: float = 5, directory: Path | None = None) -> dict[str, float]:
    """Runs the producers against a new log in `directory` (default: a temporary one) and counts what was acknowledged.

    `fdatasync_p99_ms` is that of the bare disk, measured before: a write of 16 KiB and fdatasync, one after the other.
    """
    with tempfile.TemporaryDirectory(dir=directory, prefix="producers-") as folder:
        fdatasync_p99_ms = percentile(fdatasync_times_ms(Path(folder)), 99)
        root = Path(folder) / "log"
        create_topic(root)
        results = run_processes(root, processes, seconds)
        check_stored(root, sum(result["acknowledged_ever"] for result in results))
    latencies = [latency for result in results for latency in result["latencies_ms"]]
    return {
        "processes": processes,
        "events_per_second": round(sum(result["per_second"] for result in results)),
        "p50_ms": round(percentile(latencies, 50), 2),
        "p99_ms": round(percentile(latencies, 99), 2),
        "fdatasync_p99_ms": round(fdatasync_p99_ms, 2),
        "cpu_us_per_event": round(statistics.mean(result["cpu_us"] for result in results), 2),
        "bytes_per_event": round(statistics.mean(result["bytes_per_event"] for result in results)),
    }


def create_topic(root: Path) -> None:
    import penstock

    with penstock.Log(root, background=False) as log:
        log.create("access", SCHEMA, key="ip", event_time="time", partitions=PARTITIONS)


def run_processes(root: Path, processes: int, seconds: float) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    answers = context.SimpleQueue()
    children = [
        context.Process(target=produce, args=(root, number, seconds, barrier, answers)) for number in range(processes)
    ]
    for child in children:
        child.start()
    results: list[dict[str, Any]] = []
    while len(results) < processes:
        if not answers.empty():
            results.append(answers.get())
        elif any(child.exitcode not in (None, 0) for child in children):
            raise RuntimeError(f"a producer process failed: exit codes {[child.exitcode for child in children]}")
        else:
            sleep(0.05)
    for child in children:
        child.join()
    return results


def produce(root: Path, number: int, seconds: float, barrier: Any, answers: Any) -> None:
    """One producer process: warms up, then sends for `seconds` and says how many were acknowledged in that time."""
    import penstock

    with penstock.Log(root, background=False) as log, log.producer("access") as producer:
        make = event_maker(number)
        waiter = Waiter()
        producer.send(make()).wait()  # Arrow imports half of the world at its first event.
        barrier.wait(timeout=120)
        send_until(monotonic() + WARM_UP_SECONDS, producer, make, waiter)
        waiter.latencies_ms.clear()
        before, cpu, start = producer.stats.acknowledged, process_time(), monotonic()
        send_until(start + seconds, producer, make, waiter)
        acknowledged, cpu_seconds = producer.stats.acknowledged - before, process_time() - cpu
        per_second = acknowledged / (monotonic() - start)
        latencies = list(waiter.latencies_ms)
        producer.flush()
        waiter.stop()
        answers.put(
            {
                "per_second": per_second,
                "cpu_us": cpu_seconds / max(acknowledged, 1) * 1e6,
                "acknowledged_ever": producer.stats.acknowledged,
                "latencies_ms": latencies,
                "bytes_per_event": len(json.dumps(make(), default=str)),
            }
        )


def send_until(end: float, producer: Any, make: Callable[[], dict[str, Any]], waiter: Waiter) -> None:
    under_way: deque[Any] = deque()
    while monotonic() < end:
        for _ in range(SAMPLE_EVERY - 1):
            producer.send(make())
        ack = producer.send(make())
        waiter.watch(ack, perf_counter())
        under_way.append(ack)
        if len(under_way) > UNACKNOWLEDGED // SAMPLE_EVERY:
            under_way.popleft().wait()


class Waiter:
    """Takes the time until events are acknowledged, in a thread of its own."""

    def __init__(self) -> None:
        self.latencies_ms: list[float] = []
        self._watched: SimpleQueue[tuple[Any, float] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def watch(self, ack: Any, sent_at: float) -> None:
        self._watched.put((ack, sent_at))

    def stop(self) -> None:
        self._watched.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (watched := self._watched.get()) is not None:
            ack, sent_at = watched
            ack.wait()
            self.latencies_ms.append((perf_counter() - sent_at) * 1000)


def event_maker(number: int) -> Callable[[], dict[str, Any]]:
    start = datetime.now(UTC)
    step = timedelta(milliseconds=1)
    count = 0

    def make() -> dict[str, Any]:
        nonlocal count
        count += 1
        return {
            "time": start + step * count,
            "ip": f"10.{number}.{count % 250}.{count % 199}",
            "status": 200 if count % 50 else 404,
            "method": "GET",
            "url": f"/shop/category/{count % 97}/article/{count}?campaign=spring&reference=newsletter",
            "seconds": count % 1000 / 1000,
        }

    return make


def check_stored(root: Path, acknowledged: int) -> None:
    import penstock

    with penstock.Log(root, background=False) as log:
        stored = sum(log.topic("access").end().values())
    assert stored == acknowledged, (stored, acknowledged)


def fdatasync_times_ms(directory: Path) -> list[float]:
    times = []
    fd = os.open(directory / "fdatasync", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        for number in range(FDATASYNC_COUNT):
            os.pwrite(fd, os.urandom(16384), number * 16384)
            start = perf_counter()
            os.fdatasync(fd)
            times.append((perf_counter() - start) * 1000)
            sleep(0)
    finally:
        os.close(fd)
    return times


def percentile(values: list[float], percent: float) -> float:
    """The value that so many percent of the others do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for name, value in measure(directory=directory).items():
        print(f"{name:<20} {value:>12,}")


if __name__ == "__main__":
    main()
