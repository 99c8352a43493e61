"""Record at a time beside steps: how long a record takes from its producer to a reader of the view's changelog.

    python -m bench.realtime [--json] [--quick]

Both sides run the same row-wise view over the same Kafka (one broker, on loopback), each in a process of its own as
`penstock run` does, one after the other. A reader of what is committed notes when it sees each record; the record
carries when it was sent. What the first seconds took, while Java still compiles, does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from penstock.spark.jars import connector_in, jars_folder
from tests.services.connector import CONNECTOR
from tests.services.kafka import KafkaCluster
from tests.services.process import Service

APP = """\
from penstock import Pipeline

app = Pipeline("{name}")
app.topic("events", "sent double, user string, n bigint")
app.view("large", sql="SELECT sent, upper(user) AS user, n * 2 AS twice FROM events WHERE n >= 0", changelog="{name}")
"""
RECORDS_PER_SECOND = 100
WARM_UP_SECONDS = 15.0
SIDES = {"realtime": ["--trigger", "realtime"], "steps": []}


def realtime_latency_ms(folder: Path, seconds: float) -> dict[str, float]:
    """The median and the 99th percentile of each side, in milliseconds."""
    figures: dict[str, float] = {}
    cluster = KafkaCluster(folder / "kafka")
    (folder / "kafka").mkdir()
    cluster.start()
    try:
        for side, words in SIDES.items():
            with _running(folder / side, cluster, side, words):
                waits = _waits(cluster, side, seconds)
            cuts = statistics.quantiles(waits, n=100)
            figures |= {f"{side}_latency_ms_p50": cuts[49], f"{side}_latency_ms_p99": cuts[98]}
            figures[f"{side}_records"] = len(waits)
    finally:
        cluster.stop()
    return figures


@contextmanager
def _running(folder: Path, cluster: KafkaCluster, side: str, words: Sequence[str]) -> Iterator[None]:
    """The pipeline in a process of its own, from the first record that came through on."""
    folder.mkdir()
    (folder / "app.py").write_text(APP.format(name=side))
    jars = ",".join(map(str, connector_in(CONNECTOR) or connector_in(jars_folder())))
    (folder / "penstock.toml").write_text(
        f'[log]\nurl = "kafka://{cluster.bootstrap}"\n[spark.conf]\n"spark.jars" = "{jars}"\n'
    )
    command = [sys.executable, "-m", "penstock.cli", "run", str(folder / "app.py"), "--json", *words]
    service = Service(side, command, folder / "said.log", {"PENSTOCK_CONFIG": str(folder / "penstock.toml")})
    try:
        deadline = time.monotonic() + 180
        while not _is_there(cluster, side):
            assert service.is_running, service.said()
            assert time.monotonic() < deadline, service.said()
            time.sleep(0.5)
        yield
        os.kill(service.pid, signal.SIGTERM)
    finally:
        service.kill()


def _is_there(cluster: KafkaCluster, topic: str) -> bool:
    from confluent_kafka.admin import AdminClient

    return topic in AdminClient(cluster.client()).list_topics(timeout=10).topics


def _waits(cluster: KafkaCluster, topic: str, seconds: float) -> list[float]:
    """How long each record took, in milliseconds, of those sent after the warm-up."""
    seen: list[tuple[float, float]] = []
    over = threading.Event()
    reader = threading.Thread(target=_read, args=(cluster, topic, seen, over), daemon=True)
    reader.start()
    _send_until(cluster, lambda: bool(seen))
    counted_from = time.time() + WARM_UP_SECONDS
    sent = _send_until(cluster, lambda: time.time() > counted_from + seconds, counted_from)
    deadline = time.monotonic() + 60
    while sum(at >= counted_from for at, _ in seen) < sent and time.monotonic() < deadline:
        time.sleep(0.1)
    over.set()
    reader.join()
    waits = [(came - at) * 1000 for at, came in seen if at >= counted_from]
    assert len(waits) == sent, f"{len(waits)} of {sent} records came through {topic}"
    return waits


def _send_until(cluster: KafkaCluster, is_over: Any, counted_from: float = float("inf")) -> int:
    """Sends at a steady rate; returns how many of them count."""
    producer = Producer({**cluster.client(), "linger.ms": 0, "enable.idempotence": True})
    began, number, counted = time.monotonic(), 0, 0
    while not is_over():
        at = time.time()
        counted += at >= counted_from
        producer.produce("events", json.dumps({"sent": at, "user": f"u{number % 7}", "n": number}).encode())
        producer.poll(0)
        number += 1
        time.sleep(max(0.0, began + number / RECORDS_PER_SECOND - time.monotonic()))
    assert producer.flush(30) == 0
    return counted


def _read(cluster: KafkaCluster, topic: str, seen: list[tuple[float, float]], over: threading.Event) -> None:
    consumer = Consumer(
        {
            **cluster.client(), "group.id": f"bench-{topic}", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "fetch.wait.max.ms": 5,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    while not over.is_set():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.append((json.loads(message.value() or b"")["after"]["sent"], time.time()))
    consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="for a shorter time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as folder:
        figures = realtime_latency_ms(Path(folder).absolute(), 20.0 if arguments.quick else 120.0)
    for name, value in figures.items():
        print(f"{name:<28} {value:>12,.1f}")
    if arguments.json:
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
