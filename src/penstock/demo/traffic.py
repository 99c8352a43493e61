"""What happens on the site: visitors in waves, a burst of errors, a scanner, phones that come back from a tunnel.

The same seed gives the same site.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Texts = npt.NDArray[np.str_]

PER_SECOND = 30
"""Requests of ordinary visitors in a second, on average."""
WAVE_SECONDS = 600
RIPPLE_SECONDS = 45
VISITORS = 400
PAGES = ("/", "/search", "/product/tea", "/product/kettle", "/product/cup", "/cart", "/checkout", "/about")
SHARES = (0.30, 0.20, 0.14, 0.11, 0.09, 0.08, 0.05, 0.03)
PROBES = (
    "/wp-admin/setup.php", "/.env", "/.git/config", "/phpmyadmin/", "/admin.php", "/backup.sql", "/server-status",
    "/search?q=<script>alert('hello')</script>", "/search?q=<img src=x onerror=alert(1)>", "/../../etc/passwd",
)  # fmt: skip
SCANNER = "203.0.113.66"
SECOND_US = 1_000_000


@dataclass(frozen=True)
class Episode:
    """Something that begins `first` seconds after the start, lasts, and comes back."""

    first: int
    lasts: int
    again: int

    def is_on(self, second: int | Integers) -> Any:
        """Whether it is going on in this second, or in each of these."""
        return (second >= self.first) & ((second - self.first) % self.again < self.lasts)


ERRORS = Episode(first=12, lasts=15, again=120)
"""The checkout is broken."""
SCAN = Episode(first=24, lasts=8, again=150)
"""Somebody tries pages that are not there."""
TUNNEL = Episode(first=18, lasts=1, again=45)
"""A phone comes back, with what it has gathered: an hour late."""
OFFLINE_SECONDS = (2400, 3600)
"""A phone's events are between so old, when it comes back."""
PHONE_EVENTS = 90


class Traffic:
    """The requests of a site, second by second; `start_us` is when second 0 begins. Seconds before it are history."""

    def __init__(self, start_us: int, seed: int = 7) -> None:
        self._start_us = start_us
        self._seed = seed

    def second(self, number: int) -> pa.Table:
        """What arrives in one second, in order of arrival."""
        random = np.random.default_rng([self._seed, number])
        parts = [self._visitors(np.array([number]), random)]
        if SCAN.is_on(number):
            parts.append(self._scanner(number, random))
        if TUNNEL.is_on(number):
            parts.append(self._phone(number, random))
        return pa.concat_tables(parts)

    def history(self, seconds: int) -> pa.Table:
        """What happened in so many seconds before the start: ordinary days, in order."""
        return self._visitors(np.arange(-seconds, 0), np.random.default_rng(self._seed))

    def _visitors(self, seconds: Integers, random: np.random.Generator) -> pa.Table:
        turn = 2 * math.pi * seconds
        counts = random.poisson(
            PER_SECOND * (1 + 0.5 * np.sin(turn / WAVE_SECONDS) + 0.2 * np.sin(turn / RIPPLE_SECONDS))
        )
        second, count = np.repeat(seconds, counts), int(counts.sum())
        visitor = random.zipf(1.3, count) % VISITORS
        page = random.choice(len(PAGES), count, p=SHARES)
        taken = random.gamma(2.0, 0.06, count)
        status = np.where(random.random(count) < 0.004, 500, 200)
        checkout = PAGES.index("/checkout")
        is_broken = ERRORS.is_on(second) & ((page == checkout) | (random.random(count) < 0.05))
        return _requests(
            self._times(np.sort(second + random.random(count))),
            np.array([f"10.0.{number // 250}.{number % 250 + 1}" for number in range(VISITORS)])[visitor],
            np.where(visitor % 3 == 0, "phone", "desktop"),
            np.array(PAGES)[np.where(is_broken, checkout, page)],
            np.where(is_broken, 503, status),
            np.where(is_broken, taken + 3.0, taken),
        )

    def _scanner(self, second: int, random: np.random.Generator) -> pa.Table:
        count = 12
        urls = np.array(PROBES)[np.arange(second, second + count) % len(PROBES)]
        times = self._times(second + np.sort(random.random(count)))
        return _requests(times, np.full(count, SCANNER), np.full(count, "bot"), urls, np.full(count, 404),
                         np.full(count, 0.004))  # fmt: skip

    def _phone(self, second: int, random: np.random.Generator) -> pa.Table:
        number, count = (second - TUNNEL.first) // TUNNEL.again + 1, PHONE_EVENTS
        return _requests(
            self._times(second - np.sort(random.uniform(*OFFLINE_SECONDS, count))[::-1]),
            np.full(count, f"198.51.100.{number % 250}"),
            np.full(count, f"phone {number}, offline"),
            np.array(PAGES)[random.choice(len(PAGES), count, p=SHARES)],
            np.full(count, 200),
            random.gamma(2.0, 0.06, count),
        )

    def _times(self, seconds: Floats) -> pa.Array:
        """Moments, given as seconds after the start."""
        moments = self._start_us + (seconds * SECOND_US).astype(np.int64)
        return pa.array(moments, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _requests(times: pa.Array, ips: Texts, devices: Texts, urls: Texts, status: Integers, taken: Floats) -> pa.Table:
    methods = np.where(urls == "/checkout", "POST", "GET")
    texts = {"ip": ips, "device": devices, "method": methods, "url": urls}
    return pa.table(
        {
            "time": times,
            **{name: pa.array(values, pa.string()) for name, values in texts.items()},
            "status": pa.array(status, pa.int32()),
            "seconds": pa.array(np.round(taken, 4), pa.float64()),
        }
    )
