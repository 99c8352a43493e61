"""What differs is blamed on what is to blame, at its line."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.log.folder_log import FolderLog
from penstock.modes.topics import make_topics
from penstock.plans.building import line_with
from penstock.verify.remembering import remembered
from penstock.verify.report import Failure
from penstock.verify.verify import verify
from tests.plans.views import view
from tests.verify.test_verify import put

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)

counter = 0
cache: dict[int, int] = {}
counts: Counter[int] = Counter()
numbers = itertools.count()


def counting(value: int) -> int:
    global counter  # noqa: PLW0603  # plant: counter
    counter += 1
    return counter + value


def caching(value: int) -> int:
    if value not in cache:
        cache[value] = len(cache)  # plant: cache
    return cache[value]


def tallying(value: int) -> int:
    counts.update([value])  # plant: counts
    return counts[value]


def numbering(value: int) -> int:
    return value + next(numbers)  # plant: numbers


def collecting(value: int, seen: list[int] = []) -> int:  # noqa: B006
    seen.append(value)  # plant: seen
    return len(seen)


def enclosed() -> Callable[[int], int]:
    last = 0

    def difference(value: int) -> int:
        nonlocal last  # plant: last
        last, before = value, last
        return value - before

    return difference


class Meter:
    def __init__(self) -> None:
        self.total = 0

    def read(self, value: int) -> int:
        self.total += value  # plant: self
        return self.total


def clean(values: list[int]) -> int:
    found: dict[int, int] = {}
    rest = set()
    for value in values:
        found[value] = cache.get(value, counter)
        rest.add(value)
    return sum(found) + len(rest) + len(counts)


def line_of(plant: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.endswith(f"plant: {plant}"))


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (counting, "counter"),
        (caching, "cache"),
        (tallying, "counts"),
        (numbering, "numbers"),
        (collecting, "seen"),
        (enclosed(), "last"),
        (Meter.read, "self"),
    ],
)
def test_a_function_that_remembers_is_known_by_what_it_changes(function: Any, name: str) -> None:
    [(found, place)] = remembered(function)
    assert (found, place.line) == (name, line_of(name))


@pytest.mark.parametrize("function", [clean, Meter.__init__, enclosed, line_of])
def test_a_function_that_changes_only_its_own_remembers_nothing(function: Any) -> None:
    assert list(remembered(function)) == []


def first(access: Any) -> Any:
    """The first() of each."""
    limit = 3
    # Here first() is only mentioned.
    found = access.groupBy("ip").agg(
        sf.max("n").alias("first"),
        sf
        .first("url"),  # plant: called
    )  # fmt: skip
    return found.filter(sf.expr("n > last(n)")).limit(limit)  # plant: in text


@pytest.mark.parametrize(
    ("word", "plant"), [("first", "called"), ("last", "in text"), ("limit", "in text"), ("lag", None)]
)
def test_the_line_is_where_a_function_is_used(word: str, plant: str | None) -> None:
    found = line_with(view(first), word)
    assert (None if found is None else found.line) == (None if plant is None else line_of(plant))


def pipeline() -> Pipeline:
    app = Pipeline("causes")
    app.topic("access", "time timestamp, ip string, n bigint", event_time="time")
    met: set[str] = set()

    def is_new(ip: str) -> bool:
        if ip in met:
            return False
        met.add(ip)  # plant: met
        return True

    @app.view
    def newcomers(access: DataFrame) -> DataFrame:
        return access.select("ip", "n", sf.udf(is_new, "boolean")("ip").alias("is_new"))

    @app.view(key=["ip", "n"], within="ip", horizon="3 seconds")
    def lags(access: DataFrame) -> DataFrame:  # plant: lags
        earlier = Window.partitionBy("ip").orderBy("time")
        return access.select("ip", "n", "time", sf.lag("n").over(earlier).alias("before"))

    return app


@pytest.mark.timeout(600)
def test_what_remembers_and_what_is_declared_wrongly_is_blamed(tmp_path: Path, spark: SparkSession) -> None:
    app = pipeline()
    with FolderLog(tmp_path / "log", background=False) as log:
        make_topics(app, log)
        rows = [
            {"time": START + timedelta(seconds=10 * number), "ip": f"10.0.0.{number % 2}", "n": number}
            for number in range(12)
        ]
        put(log, "access", 0, rows, [10 * number for number in range(12)])
        report = verify(app, log, spark, cuts=0, seed=1, singles=2, other_environment=False)
    found: dict[str, Failure] = {each.view: each for each in report.failures}
    assert set(found) == {"newcomers", "lags"}, report.text()
    assert "the function is_new() changes 'met', which the next call finds" in found["newcomers"].cause
    assert "further apart than horizon=" in found["lags"].cause
    places = {name: each.cause_place.line for name, each in found.items() if each.cause_place is not None}
    assert places == {"newcomers": line_of("met"), "lags": line_of("lags")}
    assert "report" not in found["newcomers"].hint
