"""Access-log rows for the benchmarks: made up, but shaped like those of a real site, and the same on every run.

A few addresses and pages get most of the traffic, most answers are quick and a few are slow, and events come almost,
but not quite, in the order in which they happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SCHEMA = "time timestamp, ip string, status int, method string, url string, seconds double"
START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS_PER_SECOND = 1000
BATCH_ROWS = 65_536

STATUS_SHARES = {200: 0.86, 304: 0.06, 301: 0.02, 404: 0.04, 403: 0.005, 500: 0.01, 503: 0.005}
METHOD_SHARES = {"GET": 0.9, "POST": 0.08, "HEAD": 0.015, "PUT": 0.005}
ADDRESSES = 50_000
PAGES = 400


def access_log(rows: int, *, batch_rows: int = BATCH_ROWS, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """So many rows in batches. The same seed and sizes give the same rows."""
    random = np.random.default_rng(seed)
    addresses = _addresses(random)
    pages = _pages()
    statuses, methods = pa.array([*STATUS_SHARES], pa.int32()), pa.array([*METHOD_SHARES])
    for start in range(0, rows, batch_rows):
        count = min(batch_rows, rows - start)
        yield pa.record_batch(
            {
                "time": _times(random, start, count),
                "ip": addresses.take(pa.array(_popular(random, ADDRESSES, count))),
                "status": statuses.take(pa.array(random.choice(len(statuses), count, p=[*STATUS_SHARES.values()]))),
                "method": methods.take(pa.array(random.choice(len(methods), count, p=[*METHOD_SHARES.values()]))),
                "url": pages.take(pa.array(_popular(random, PAGES, count))),
                "seconds": pa.array(np.round(random.lognormal(-3.5, 1.0, count), 3)),
            }
        )


def _times(random: np.random.Generator, start: int, count: int) -> pa.Array:
    """A steady clock with up to five seconds of delay, as when several servers write one log."""
    steady_us = (start + np.arange(count)) * (1_000_000 // ROWS_PER_SECOND)
    delay_us = random.integers(0, 5_000_000, count)
    first_us = int(START.timestamp()) * 1_000_000
    return pa.array(first_us + steady_us - delay_us).cast(pa.timestamp("us", "UTC"))


def _popular(random: np.random.Generator, choices: int, count: int) -> npt.NDArray[np.int64]:
    """Numbers below `choices`, small ones far more often: the fifth power of an even spread."""
    return (random.random(count) ** 5 * choices).astype(np.int64)


def _addresses(random: np.random.Generator) -> pa.Array:
    parts = random.integers(1, 255, (ADDRESSES, 4))
    return pa.array([".".join(map(str, part)) for part in parts.tolist()])


def _pages() -> pa.Array:
    kinds = ("/", "/products/{}", "/products/{}/reviews?page=2", "/static/images/banner-{}.webp", "/api/v1/orders/{}")
    return pa.array([kinds[number % len(kinds)].format(1000 + number) for number in range(PAGES)])
