"""Events for the benchmarks of pipelines: page views, in order of arrival, some of them late."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic

DDL = "time timestamp, key bigint, value double"
START_US = 1_767_225_600_000_000  # 2026-01-01
FILE_ROWS = 500_000


def events(first: int, count: int, keys: int, *, spread_us: int = 1000, seed: int = 0) -> pa.Table:
    """Events `first` and following, one each `spread_us`; keys at random."""
    random = np.random.default_rng([seed, first])
    times = START_US + np.arange(first, first + count, dtype=np.int64) * spread_us
    return pa.table(
        {
            "time": pa.array(times, pa.int64()).view(pa.timestamp("us", tz="UTC")),
            "key": pa.array(random.integers(0, keys, count)),
            "value": pa.array(random.random(count)),
        }
    )


def filled_topic(
    directory: Path,
    rows: int,
    keys: int,
    *,
    name: str = "events",
    is_sealed: bool = True,
    file_rows: int = FILE_ROWS,
    partitions: int = 1,
) -> FolderTopic:
    """A topic with so many events, sealed to Parquet files of half a million each, or as many as it says."""
    log = FolderLog(directory, background=False)
    topic = log.create(name, DDL, event_time="time", key="key", partitions=partitions, exist_ok=True)
    for first in range(0, rows, file_rows):
        topic.append(events(first, min(file_rows, rows - first), keys, seed=len(name)))
        if is_sealed:
            topic.seal(active=True)
    return topic


def strayed(rows: int, count: int, keys: int, *, seed: int = 1) -> pa.Table:
    """The next `count` events of a log of `rows`: 1 % stray over it, 0.01 % far beyond, 20 % have one key."""
    random = np.random.default_rng([seed, rows])
    table = events(rows, count, keys, seed=seed)
    times = table.column("time").combine_chunks().view(pa.int64()).to_numpy().copy()
    strays = random.random(count) < 0.01
    times[strays] = START_US + random.integers(0, rows, int(strays.sum())) * 1000
    far = random.random(count) < 0.0001
    times[far] = np.where(random.random(int(far.sum())) < 0.5, 0, 4_070_908_800_000_000)
    numbers = np.where(random.random(count) < 0.2, 0, table.column("key").to_numpy())
    return pa.table(
        {
            "time": pa.array(times, pa.int64()).view(pa.timestamp("us", tz="UTC")),
            "key": pa.array(numbers),
            "value": table.column("value"),
        }
    )
