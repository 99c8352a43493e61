"""What a run record at a time makes of the records that Spark's Kafka source gives, without Kafka."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from penstock import Log
from penstock.kafka.dead import name_in_grave
from penstock.kafka.values import ARRIVED_HEADER, SCHEMA_HEADER
from penstock.modes.realtime_frames import OUTGROWN, dead_letters, events
from penstock.produce.dead_letters import RAW_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RAW = "value binary, partition int, offset bigint, timestamp timestamp, headers array<struct<key:string,value:binary>>"
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path) as opened:
        yield opened


def raw(spark: SparkSession, *values: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> DataFrame:
    """Records of partition 3, as Spark's source has them."""
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    pairs = [(name, bytearray(text.encode())) for name, text in (headers or {}).items()]
    return spark.createDataFrame([(bytearray(text), 3, place, AT, pairs) for place, text in enumerate(texts)], RAW)


def test_columns_may_be_named_as_ours_are(spark: SparkSession, log: Log) -> None:
    names = ["value", "event", "offset", "partition", "members", "problem", "a`b", "c.d", "timestamp", "headers"]
    ddl = ", ".join(f"`{name.replace('`', '``')}` bigint" for name in names)
    topic = log.create("odd", f"arrived timestamp, {ddl}", event_time="arrived", lateness="1 minute")
    event = {name: number for number, name in enumerate(names)}
    sent = [{**event, "arrived": "2026-01-01T11:58:00Z"}, {**event, "arrived": "2026-01-01T11:59:30Z"}]
    found = events(raw(spark, *sent), topic).toArrow().to_pylist()
    assert [{name: row[name] for name in names} for row in found] == [event, event]
    assert [row["_late"] for row in found] == [True, False]
    assert [(row["_partition"], row["_offset"], row["_arrived"]) for row in found] == [(3, 0, AT), (3, 1, AT)]


@pytest.mark.parametrize("value", ["2026-01-01T00:00:00Z", "", "1767225600000000000", "-99999999999999999"])
def test_an_arrival_that_is_none_counts_for_nothing(spark: SparkSession, log: Log, value: str) -> None:
    topic = log.create("clicks", "n int")
    for text, arrived in ((value, AT), ("1767225600000000", datetime(2026, 1, 1, tzinfo=UTC))):
        [row] = events(raw(spark, {"n": 1}, headers={ARRIVED_HEADER: text}), topic).toArrow().to_pylist()
        assert row["_arrived"] == arrived


def test_a_large_record_that_is_no_event_is_kept_from_its_beginning(spark: SparkSession, log: Log) -> None:
    topic = log.create("clicks", "n int")
    large, small = b"x" * (7 << 20), b"y" * RAW_BYTES_MAX
    strange = b'{"%s": 1}' % (b"z" * 40_000)
    letters = dead_letters(raw(spark, large, small, strange, {"n": 1}), topic).select("value").toArrow().to_pylist()
    assert max(len(each["value"]) for each in letters) < 6 << 20
    found = [json.loads(each["value"]) for each in letters]
    assert [base64.b64decode(each["raw"], validate=True) for each in found] == [large[:RAW_BYTES_MAX], small, strange]
    assert found[0]["reason"].endswith("found another text; kept are 4,194,304 of its 7,340,032 bytes")
    assert found[1]["reason"].endswith("found another text")
    assert found[2]["column"] == "z" * 80
    assert [each["producer"] for each in found] == [f"{name_in_grave(topic)}/3 offset {place}" for place in range(3)]


def test_a_record_of_a_newer_schema_ends_the_query(spark: SparkSession, log: Log) -> None:
    topic = log.create("clicks", "n int")
    old = {SCHEMA_HEADER: "0", ARRIVED_HEADER: "1767225600000000"}
    [row] = events(raw(spark, {"n": 1}, headers=old), topic).toArrow().to_pylist()
    assert (row["n"], row["_arrived"]) == (1, datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(PySparkException, match=OUTGROWN):
        events(raw(spark, {"n": 1, "m": 1}, headers={SCHEMA_HEADER: "1"}), topic).collect()
