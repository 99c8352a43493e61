"""The made-up site: always the same, and everything happens that the demo promises."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.demo.traffic import ERRORS, OFFLINE_SECONDS, PROBES, SCAN, SCANNER, TUNNEL, Episode, Traffic

START_US = 1_767_268_800_000_000
SECOND_US = 1_000_000


@pytest.fixture
def traffic() -> Traffic:
    return Traffic(START_US)


def ages(rows: pa.Table, second: int) -> list[float]:
    """How many seconds before the end of this second each event happened."""
    ends_us = START_US + (second + 1) * SECOND_US
    return [(ends_us - at) / SECOND_US for at in rows.column("time").cast(pa.int64()).to_pylist()]


def test_the_same_second_is_always_the_same(traffic: Traffic) -> None:
    assert traffic.second(30).equals(Traffic(START_US).second(30))
    assert not traffic.second(30).equals(traffic.second(31))


def test_visitors_are_on_time_and_come_in_waves(traffic: Traffic) -> None:
    ordinary = [second for second in range(60) if not TUNNEL.is_on(second)]
    assert all(0 <= age <= 1 for second in ordinary for age in ages(traffic.second(second), second))

    def hits(seconds: range) -> int:
        return sum(traffic.second(second).num_rows for second in seconds if not TUNNEL.is_on(second))

    assert hits(range(140, 160)) > 1.5 * hits(range(440, 460)), "at the crest, and in the trough five minutes later"


def test_the_checkout_breaks_and_mends(traffic: Traffic) -> None:
    def failures(seconds: range) -> int:
        rows = pa.concat_tables(traffic.second(second) for second in seconds)
        return int(rows.filter(pc.equal(rows.column("status"), 503)).num_rows)

    assert failures(range(ERRORS.first, ERRORS.first + ERRORS.lasts)) >= 10
    assert failures(range(ERRORS.first)) == 0
    assert failures(range(ERRORS.first + ERRORS.lasts, ERRORS.first + ERRORS.again)) == 0


def test_the_scanner_looks_for_every_hole(traffic: Traffic) -> None:
    rows = pa.concat_tables(traffic.second(second) for second in range(SCAN.first, SCAN.first + SCAN.lasts))
    scanned = rows.filter(pc.equal(rows.column("ip"), SCANNER))
    assert set(scanned.column("url").to_pylist()) == set(PROBES)
    assert any("<script>" in url for url in PROBES), "what a dashboard must show as text"
    assert set(scanned.column("status").to_pylist()) == {404}


def test_a_phone_delivers_what_it_gathered_in_a_tunnel(traffic: Traffic) -> None:
    rows = traffic.second(TUNNEL.first)
    old = [age for age in ages(rows, TUNNEL.first) if age > 60]
    assert len(old) == 90
    assert OFFLINE_SECONDS[0] <= min(old) < max(old) <= OFFLINE_SECONDS[1] + 1


def test_history_has_neither_errors_nor_phones(traffic: Traffic) -> None:
    rows = traffic.history(600)
    assert pc.max(rows.column("status")).as_py() <= 500
    moments = rows.column("time").cast(pa.int64()).to_pylist()
    assert moments == sorted(moments), "so that it can be stored as it arrived"
    assert START_US - 600 * SECOND_US <= moments[0] < moments[-1] < START_US


def test_an_episode_comes_back() -> None:
    episode = Episode(first=10, lasts=2, again=5)
    assert [second for second in range(22) if episode.is_on(second)] == [10, 11, 15, 16, 20, 21]
