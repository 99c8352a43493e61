"""A real access log, most of it out of order: each view is what Python counts, in batch and in steps of any size."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from penstock import Pipeline, agg
from penstock.log.folder_log import FolderLog
from penstock.log.late import late_events
from penstock.modes.stream import run_stream
from penstock.modes.topics import make_topics
from penstock.produce.producer import Producer
from tests.modes.harness import Lab, Rows, rows_of

pytestmark = pytest.mark.spark

Hit = dict[str, Any]

LINE = re.compile(r'(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d+) (\d+|-) "[^"]*" "[^"]*"')
LATENESS = timedelta(seconds=30)
MINUTE = timedelta(minutes=1)
SESSION_GAP = timedelta(minutes=30)


def weblogs() -> Pipeline:
    app = Pipeline("weblogs")
    app.topic(
        "access",
        "time timestamp, ip string, method string, url string, status int, bytes bigint",
        key="ip",
        event_time="time",
        lateness="30 seconds",
        partitions=2,
    )

    @app.view(key=["minute", "url"])
    def hits(access: DataFrame) -> DataFrame:
        return access.groupBy(minute(), "url").agg(sf.count("*").alias("hits"), sf.sum("bytes").alias("bytes"))

    @app.view(key=["minute", "url"], late="drop")
    def hits_in_time(access: DataFrame) -> DataFrame:
        return access.groupBy(minute(), "url").agg(sf.count("*").alias("hits"))

    @app.view(key="minute")
    def visitors(access: DataFrame) -> DataFrame:
        return access.groupBy(minute()).agg(sf.countDistinct("ip").alias("visitors"))

    @app.view(key="minute")
    def visitors_sketched(access: DataFrame) -> DataFrame:
        return access.groupBy(minute()).agg(agg.distinct("ip").alias("visitors"))

    @app.view(key=["ip", "session"], within="ip")
    def sessions(access: DataFrame) -> DataFrame:
        session = sf.session_window("time", "30 minutes").alias("session")
        return access.groupBy("ip", session).agg(sf.count("*").alias("hits"))

    @app.view
    def errors(access: DataFrame) -> DataFrame:
        return access.filter("status >= 400").select("time", "ip", "url", "status")

    @app.view(key="rank")
    def top_urls(hits: DataFrame) -> DataFrame:
        totals = hits.groupBy("url").agg(sf.sum("hits").alias("hits"))
        order = Window.orderBy(sf.desc("hits"), "url")
        return totals.select(sf.row_number().over(order).alias("rank"), "url", "hits").filter("rank <= 10")

    return app


def minute() -> Column:
    return sf.window("time", "1 minute").alias("minute")


HOW = {
    "hits": "fold",
    "hits_in_time": "fold",
    "visitors": "redo",
    "visitors_sketched": "fold",
    "sessions": "redo",
    "errors": "fold",
    "top_urls": "whole",
}


@pytest.fixture(scope="module")
def lines(cases: Path) -> list[str]:
    return (cases / "access_log" / "apache_2015.log").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def events(lines: list[str]) -> list[Hit]:
    return [hit for line in lines if (hit := parsed(line)) is not None]


@pytest.fixture(scope="module")
def lab(events: list[Hit], tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lab:
    """Each event comes when the latest one before it in the file happened, or later."""
    made = Lab(tmp_path_factory.mktemp("access_log"), weblogs(), spark)
    made.append("access", events, arrived=[microseconds(each) for each in arrivals(events)])
    return made


@pytest.fixture(scope="module")
def batch(lab: Lab) -> Rows:
    return lab.batch()


def test_a_malformed_line_is_a_dead_letter(lines: list[str], tmp_path: Path) -> None:
    malformed = [line.encode() for line in lines if parsed(line) is None]
    assert len(malformed) == 1
    log = FolderLog(tmp_path, background=False)
    access = make_topics(weblogs(), log)["access"]
    with Producer(access) as producer:
        producer.send(malformed[0])
        producer.flush()
        assert (producer.stats.rejected, sum(access.end().values())) == (1, 0)
    dead = log.topic("access.dead")
    assert [each["raw"] for each in dead.slice(dead.start(), dead.end()).to_pylist()] == malformed


def test_each_view_is_kept_as_cheaply_as_it_can_be(lab: Lab) -> None:
    assert {view.name: view.keeping.how for view in lab.compiled()} == HOW


def test_a_batch_gives_what_python_counts(batch: Rows, events: list[Hit]) -> None:
    assert batch == counted(events)


@pytest.mark.parametrize("steps", [3, 10])
def test_steps_of_any_size_give_the_rows_of_a_batch(lab: Lab, batch: Rows, events: list[Hit], steps: int) -> None:
    with lab.engine() as (engine, store):
        taken: Counter[str] = Counter()
        run_stream(
            engine,
            once=True,
            max_rows=-(-len(events) // steps),
            on_step=lambda report, *_: taken.update([report.set]),
        )
        assert rows_of(engine, store) == batch
    assert {*taken.values()} == {steps}


def test_what_is_dropped_is_what_the_log_calls_late(lab: Lab, batch: Rows, events: list[Hit]) -> None:
    late = [each for each, arrived in zip(events, arrivals(events), strict=True) if arrived - each["time"] > LATENESS]
    listed, total = late_events(lab.topics["access"], limit=len(events))
    assert 0 < total == len(late) < len(events)
    assert Counter((each.event_time, each.columns["ip"], each.columns["url"]) for each in listed) == Counter(
        (each["time"], each["ip"], each["url"]) for each in late
    )
    every, in_time = (per_minute(batch[name]) for name in ("hits", "hits_in_time"))
    assert every - in_time == Counter((window(each["time"]), each["url"]) for each in late)


def per_minute(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, str]]:
    return Counter({(row[0], row[1]): row[2] for row in rows})


def parsed(line: str) -> Hit | None:
    found = LINE.fullmatch(line)
    if found is None:
        return None
    ip, time, method, url, status, size = found.groups()
    return {
        "time": datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC),
        "ip": ip,
        "method": method,
        "url": url,
        "status": int(status),
        "bytes": None if size == "-" else int(size),
    }


def arrivals(events: list[Hit]) -> list[datetime]:
    return [*accumulate((each["time"] for each in events), max)]


def microseconds(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def window(moment: datetime) -> tuple[datetime, datetime]:
    start = moment.replace(second=0, microsecond=0)
    return start, start + MINUTE


def counted(events: list[Hit]) -> Rows:
    """The rows of all views, by plain Python."""
    by_url, by_minute, by_ip = defaultdict(list), defaultdict(set), defaultdict(list)
    for each in events:
        by_url[window(each["time"]), each["url"]].append(each)
        by_minute[window(each["time"])].add(each["ip"])
        by_ip[each["ip"]].append(each["time"])
    in_time = Counter(
        (window(each["time"]), each["url"])
        for each, arrived in zip(events, arrivals(events), strict=True)
        if arrived - each["time"] <= LATENESS
    )
    totals = Counter(each["url"] for each in events)
    top = sorted(totals.items(), key=lambda each: (-each[1], each[0]))[:10]
    found: Rows = {
        "hits": [(*key, len(each), size_of(each)) for key, each in by_url.items()],
        "hits_in_time": [(*key, count) for key, count in in_time.items()],
        "visitors": [(minute, len(ips)) for minute, ips in by_minute.items()],
        "visitors_sketched": [(minute, len(ips)) for minute, ips in by_minute.items()],
        "sessions": [(ip, *each) for ip, times in by_ip.items() for each in sessions_of(times)],
        "errors": [(e["time"], e["ip"], e["url"], e["status"]) for e in events if e["status"] >= 400],
        "top_urls": [(rank, *each) for rank, each in enumerate(top, 1)],
    }
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def size_of(hits: list[Hit]) -> int | None:
    sizes = [each["bytes"] for each in hits if each["bytes"] is not None]
    return sum(sizes) if sizes else None


def sessions_of(times: list[datetime]) -> list[tuple[tuple[datetime, datetime], int]]:
    found: list[list[datetime]] = []
    for time in sorted(times):
        if found and time - found[-1][-1] < SESSION_GAP:
            found[-1].append(time)
        else:
            found.append([time])
    return [((each[0], each[-1] + SESSION_GAP), len(each)) for each in found]
