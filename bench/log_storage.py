"""How fast the log appends, opens, recovers and grows, without Spark.

python -m bench.log_storage [--json] [--rows-max 100000000]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from bench.access_log import BATCH_ROWS, SCHEMA, access_log
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic

ROUNDS = 5
Work = Callable[[], None]


def access_batch(rows: int) -> pa.RecordBatch:
    """One batch of access-log rows."""
    return next(access_log(rows, batch_rows=rows))


def topic_in(log: FolderLog, **settings: object) -> FolderTopic:
    return log.create("access", SCHEMA, event_time="time", **settings)


def append_vs_raw(root: Path) -> dict[str, float]:
    """Appending 64k-row batches, acknowledged on disk, against the same bytes by plain write and fdatasync."""
    batch, batches = access_batch(BATCH_ROWS), 40
    payload = batch.serialize().to_pybytes()

    def raw(directory: Path) -> Work:
        fd = os.open(directory / "raw", os.O_WRONLY | os.O_CREAT)

        def work() -> None:
            for _ in range(batches):
                os.write(fd, payload)
                os.fdatasync(fd)

        return work

    def log(directory: Path) -> Work:
        (partition,) = topic_in(FolderLog(directory, background=False), segment_bytes=1 << 32).partitions
        partition.end()

        def work() -> None:
            for _ in range(batches):
                partition.append(batch)

        return work

    raw_seconds, log_seconds = alternate(root, raw, log)
    rows = batches * BATCH_ROWS
    return {
        "append_vs_raw": raw_seconds / log_seconds,
        "append_rows_per_second": rows / log_seconds,
        "append_bytes_per_second": batches * len(payload) / log_seconds,
    }


def open_seconds(root: Path, segments: int = 1000) -> dict[str, float]:
    """Opening a log with many sealed segments and planning a read of all of it."""
    with FolderLog(root / "many", background=False) as log:
        topic = topic_in(log, segment_bytes=4096)
        batch = access_batch(50)
        for _ in range(segments):
            topic.partitions[0].append(batch)
            topic.partitions[0].roll()
        topic.seal()
        assert len(topic.partitions[0].manifest().segments) == segments

    def opening() -> None:
        with FolderLog(root / "many", background=False) as log:
            assert sum(piece.rows for piece in log.topic("access").partitions[0].pieces(0)) == segments * 50

    return {"open_seconds": median_seconds(opening)}


def recovery_seconds(root: Path, gib: float = 1.0) -> dict[str, float]:
    """Opening after a crash that left no hint, with this much in the active segment: everything is checked."""
    batch = access_batch(BATCH_ROWS)
    with FolderLog(root / "active", background=False) as log:
        (partition,) = topic_in(log, segment_bytes=1 << 33).partitions
        while partition.end().position < gib * (1 << 30):
            partition.append(batch)
        rows = partition.end().offset

    def recovering() -> None:
        (root / "active/topics/access/0/end").unlink()
        with FolderLog(root / "active", background=False) as log:
            assert log.topic("access").end() == {0: rows}

    return {"recovery_seconds_per_gib": median_seconds(recovering) / gib}


def growth(root: Path, sizes: tuple[int, ...]) -> dict[str, float]:
    """The same append and the same read of a million rows at the head, as the log grows; per row."""
    batch = access_batch(BATCH_ROWS)
    found: dict[str, float] = {}
    with FolderLog(root / "growing", background=False) as log:
        topic = topic_in(log)
        (partition,) = topic.partitions
        for size in sizes:
            while partition.end().offset < size - 1_000_000:
                partition.append(batch)
                if partition.end().segment_base > partition.manifest().sealed_end:
                    topic.seal()

            def appending() -> None:
                for _ in range(8):
                    partition.append(batch)

            def reading() -> None:
                end = partition.end().offset
                rows = sum(part.num_rows for part in partition.read(end - 500_000, end))
                assert rows == 500_000, rows

            os.sync()  # What the filling left behind is not the cost of the next append.
            name = f"{size // 1_000_000}m"
            found[f"append_ns_per_row_{name}"] = median_seconds(appending) / (8 * BATCH_ROWS) * 1e9
            found[f"read_ns_per_row_{name}"] = median_seconds(reading) / 500_000 * 1e9
    return found


def alternate(root: Path, *sides: Callable[[Path], Work]) -> list[float]:
    """Median seconds of each side, run in turns in fresh folders after one round to warm up; set-up does not count."""
    taken: list[list[float]] = [[] for _ in sides]
    for number in range(ROUNDS + 1):
        for side, seconds in zip(sides, taken, strict=True):
            directory = root / f"{side.__name__}-{number}"
            directory.mkdir()
            os.sync()
            work = side(directory)
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
            shutil.rmtree(directory)
    return [statistics.median(seconds[1:]) for seconds in taken]


def median_seconds(work: Callable[[], None]) -> float:
    seconds = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def measure(directory: Path, rows_max: int = 100_000_000) -> dict[str, float]:
    """All figures of this file, in a temporary folder inside `directory`."""
    sizes = tuple(size for size in (1_000_000, 10_000_000, 100_000_000) if size <= rows_max)
    figures: dict[str, float] = {}
    for part in (append_vs_raw, open_seconds, recovery_seconds, lambda root: growth(root, sizes)):
        with tempfile.TemporaryDirectory(dir=directory) as root:
            figures.update(part(Path(root)))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--rows-max", type=int, default=100_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as directory:
        figures = measure(Path(directory), arguments.rows_max)
    for name, value in figures.items():
        print(f"{name:32} {value:14,.3f}")
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
