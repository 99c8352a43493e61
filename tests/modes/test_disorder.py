"""Events as they really come: twice, out of order, late, from the future, broken. Batch and stream still agree."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.clock import now_us
from penstock.produce.producer import Producer
from tests.modes.harness import Lab

pytestmark = pytest.mark.spark

NOW = datetime.fromtimestamp(now_us() // 1_000_000, UTC)


def devices() -> Pipeline:
    app = Pipeline("devices")
    app.topic(
        "readings",
        "time timestamp, device string, number bigint, value double",
        key="device",
        event_time="time",
        lateness="1 minute",
        partitions=4,
    )

    @app.view(key=["window", "device"])
    def counted(readings: DataFrame) -> DataFrame:
        return readings.groupBy(sf.window("time", "1 minute"), "device").agg(
            sf.count("*").alias("readings"), sf.max("value").alias("greatest")
        )

    @app.view(key=["window", "device"], late="drop")
    def in_time(readings: DataFrame) -> DataFrame:
        return readings.groupBy(sf.window("time", "1 minute"), "device").agg(sf.count("*").alias("readings"))

    @app.view(key="window")
    def devices_seen(readings: DataFrame) -> DataFrame:
        return readings.groupBy(sf.window("time", "5 minutes")).agg(
            sf.countDistinct("device", "number").alias("different")
        )

    @app.view(key=["device", "number"], within="device")
    def once_each(readings: DataFrame) -> DataFrame:
        return readings.groupBy("device", "number").agg(sf.count("*").alias("times"), sf.min("time").alias("first"))

    return app


def readings() -> list[dict[str, Any]]:
    """From two devices only, so some partitions of the topic stay empty."""
    random = Random(5)
    made = [
        {
            "time": (NOW - timedelta(seconds=random.randrange(300))).isoformat(),
            "device": random.choice(["north", "south"]),
            "number": number,
            "value": random.random(),
        }
        for number in range(30)
    ]
    random.shuffle(made)
    made += random.sample(made, 10)
    strays = ["2099-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "2099-12-31T23:59:30Z", None]
    made[5:5] = [{"time": time, "device": "north", "number": 900, "value": None} for time in strays]
    return made


BROKEN = [
    b'{"time": "yesterday", "device": "north", "number": 1}',
    b'{"time": "2026-01-01T00:00:00Z", "device": "north", "number": "many"}',
    b'{"device": "south", "number": 99999999999999999999}',
    b'{"device": ',
    b"\xff\xfe",
]


def test_nothing_stalls_and_both_modes_agree(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, devices(), spark)
    good = readings()
    lines = [json.dumps(each).encode() for each in good]
    for place, broken in enumerate(BROKEN):
        lines.insert(7 * place, broken)
    with Producer(lab.topics["readings"]) as producer:
        for start in range(0, len(lines), 12):
            producer.send(b"\n".join(lines[start : start + 12]))
            producer.flush()
        assert producer.stats.rejected == len(BROKEN)
    ends = lab.topics["readings"].end()
    assert sum(ends.values()) == len(good)
    assert 0 in ends.values(), "no partition is idle"

    expected = lab.batch()
    assert sum(row[2] for row in expected["counted"]) == len(good) - 1, "the one without a time is in no window"
    assert sum(row[1] for row in expected["in_time"] if row[0] is None) == 0
    assert len(expected["counted"]) > len(expected["in_time"]), "nothing came late"
    assert any(row[0][0].year == 2099 for row in expected["in_time"])
    assert {row[2] for row in expected["once_each"]} >= {1, 2, 4}
    for max_rows in (None, 11, 4):
        assert lab.stream(max_rows) == expected

    dead = lab.log.topic("readings.dead")
    letters = dead.slice(dead.start(), dead.end()).to_pylist()
    assert sorted(letter["raw"] for letter in letters) == sorted(BROKEN)
    assert all(letter["reason"] for letter in letters)
