"""What every log holds, wherever it is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.consume.wakeup import Wakeup
from penstock.errors import (
    ArrivalRefused,
    OffsetOutOfRange,
    ProducerFenced,
    SchemaRefused,
    TopicDeleted,
    TopicExists,
    UnknownTopic,
)
from penstock.log.log import Log
from penstock.log.partition import ARRIVED
from penstock.log.producers import named_producer
from penstock.log.topic import Topic
from tests.log.rows import SCHEMA, START_US, rows

SECOND = 1_000_000


def numbers(topic: Topic, **options: object) -> list[int]:
    return topic.slice(**options).column("n").to_pylist()  # type: ignore[arg-type, no-any-return]


def stamps(*seconds: int) -> pa.Array:
    return pa.array([START_US + each * SECOND for each in seconds]).view(ARRIVED)


# --- topics ---


def test_a_topic_is_made_once_and_found_by_name_and_pattern(open_log: Callable[[], Log], name: str) -> None:
    log = open_log()
    made = log.create(name, SCHEMA, partitions=2, key="user", event_time="time")
    found = open_log().topic(name)
    assert (found.definition, len(found.partitions)) == (made.definition, 2)
    with pytest.raises(TopicExists):
        log.create(name, "other string")
    assert log.create(name, "other string", exist_ok=True).definition == made.definition
    assert name in log.topics(f"{name[:4]}*")
    with pytest.raises(UnknownTopic, match=name):
        log.topic(name + "x")


def test_of_several_that_make_a_topic_one_has_made_it(open_log: Callable[[], Log], name: str) -> None:
    made, refused = [], []

    def make(columns: str) -> None:
        try:
            made.append(open_log().create(name, columns).definition)
        except TopicExists:
            refused.append(columns)

    threads = [threading.Thread(target=make, args=(f"c{number} bigint",)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (len(made), len(refused)) == (1, 2)
    assert open_log().topic(name).definition == made[0]


def test_a_schema_grows_for_everybody_and_old_records_stay_readable(open_log: Callable[[], Log], name: str) -> None:
    topic = open_log().create(name, "n int")
    other = open_log().topic(name)
    topic.append(pa.table({"n": pa.array([1], pa.int32())}))
    topic.alter(schema="n bigint, word string")
    topic.append(pa.table({"n": [1 << 40], "word": ["new"]}))
    assert [(row["n"], row["word"]) for row in open_log().topic(name).slice().to_pylist()] == [
        (1, None),
        (1 << 40, "new"),
    ]
    assert sum(batch.num_rows for batch in other.partitions[0].read(0)) == 2, "one that knew the old schema reads on"
    assert other.schema.names == ["n", "word"]
    with pytest.raises(SchemaRefused):
        other.alter(schema="n int")


def test_a_deleted_topic_is_gone_and_another_of_its_name_is_another(open_log: Callable[[], Log], name: str) -> None:
    log = open_log()
    old = log.create(name, SCHEMA)
    old.append(rows([1, 2]))
    log.delete(name)
    assert name not in log.topics()
    with pytest.raises(TopicDeleted):
        old.refresh()
    new = open_log().create(name, SCHEMA)
    new.append(rows([3]))
    assert numbers(new) == [3]
    assert new.definition.id != old.definition.id


# --- appending and reading ---


def test_records_of_a_key_keep_their_order_in_one_partition(log: Log, name: str) -> None:
    topic = log.create(name, SCHEMA, partitions=3, key="user", event_time="time")
    for start in range(0, 60, 20):
        topic.append(rows(range(start, start + 20)))
    table = topic.slice().to_pandas()
    assert sorted(table.n) == list(range(60))
    assert table.groupby("user")._partition.nunique().max() == 1
    for _, part in table.groupby("_partition"):
        assert part.n.is_monotonic_increasing
        assert part._offset.is_monotonic_increasing


def test_a_slice_holds_what_came_between_two_cuts(log: Log, name: str) -> None:
    topic = log.create(name, SCHEMA, partitions=2, key="user")
    topic.append(rows(range(10)))
    middle = topic.end()
    topic.append(rows(range(10, 30)))
    assert sorted(numbers(topic, until=middle)) == list(range(10))
    assert sorted(numbers(topic, start=middle)) == list(range(10, 30))
    assert topic.slice(topic.end()).num_rows == 0


def test_every_type_comes_back_as_it_was(log: Log, name: str) -> None:
    ddl = (
        "a boolean, b tinyint, c bigint, d float, e double, f decimal(20,3), g string, h binary, i date, "
        "j timestamp, k timestamp_ntz, l array<int>, m map<string, double>, n struct<x: int, y: array<string>>"
    )
    topic = log.create(name, ddl)
    whole = {
        "a": True, "b": -7, "c": 1 << 60, "d": 0.5, "e": 0.1, "f": Decimal("12345678901234567.125"), "g": 'ä"\n€',
        "h": b"\x00\xff", "i": date(1969, 12, 31), "j": datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC),
        "k": datetime.fromisoformat("1900-01-01T00:00:00.000005"), "l": [1, None], "m": [("k", 1.5)],
        "n": {"x": 1, "y": ["", None]},
    }  # fmt: skip
    table = pa.Table.from_pylist([whole, dict.fromkeys(whole)], schema=topic.schema)
    topic.append(table)
    assert topic.slice().select(topic.schema.names).equals(table)


def test_not_a_number_and_infinity_come_back(log: Log, name: str) -> None:
    topic = log.create(name, "x double")
    topic.append(pa.table({"x": [float("nan"), float("inf"), float("-inf"), -0.0]}))
    assert str(topic.slice().column("x").to_pylist()) == "[nan, inf, -inf, -0.0]"


def test_arrivals_that_are_brought_along_are_kept_and_only_grow(log: Log, name: str) -> None:
    topic = log.create(name, SCHEMA, event_time="time", lateness="10 seconds")
    topic.append(rows([0, 1, 2]), arrived=stamps(5, 5, 60))
    table = topic.slice()
    assert table.column("_arrived").combine_chunks().equals(stamps(5, 5, 60))
    assert table.column("_late").to_pylist() == [False, False, True]
    assert topic.partitions[0].end().arrived_us == START_US + 60 * SECOND
    with pytest.raises(ArrivalRefused):
        topic.append(rows([3]), arrived=stamps(59))
    before = time.time_ns() // 1000
    topic.append(rows([4]))
    assert topic.slice().column("_arrived")[-1].value >= before - 5 * SECOND


def test_ranges_of_both_clocks_are_exact(log: Log, name: str) -> None:
    topic = log.create(name, SCHEMA, event_time="time")
    topic.append(rows(range(100)), arrived=stamps(*range(1000, 1100)))
    low, high = START_US + 1010 * SECOND, START_US + 1020 * SECOND
    assert numbers(topic, arrived=(low, high)) == list(range(10, 20))
    assert numbers(topic, event_time=(START_US + 95 * SECOND, None)) == list(range(95, 100))


def test_the_first_record_of_a_moment_is_found(log: Log, name: str) -> None:
    topic = log.create(name, SCHEMA)
    topic.append(rows(range(50)), arrived=stamps(*range(0, 100, 2)))
    [partition] = topic.partitions
    found = [partition.offset_at(START_US + second * SECOND) for second in (-5, 0, 1, 2, 97, 98, 99)]
    offsets = topic.slice().column("_offset").to_pylist()
    assert found[:6] == [offsets[0], offsets[0], offsets[1], offsets[1], offsets[49], offsets[49]]
    assert found[6] == partition.end().offset
    later = time.time_ns() // 1000
    topic.append(rows([50]))
    assert numbers(topic, start={0: partition.offset_at(later - 5 * SECOND)}) == [50]


def test_offsets_that_are_not_there_are_an_error(log: Log, name: str) -> None:
    topic = log.create(name, SCHEMA)
    topic.append(rows([1]))
    with pytest.raises(OffsetOutOfRange):
        list(topic.partitions[0].read(100))


def test_cuts_hold_everything_once_and_not_more_than_asked_for(log: Log, name: str) -> None:
    topic = log.create(name, SCHEMA, partitions=3, key="user")
    for start in range(0, 300, 50):
        topic.append(rows(range(start, start + 50)))
        time.sleep(0.01)
    at = dict.fromkeys(range(3), 0)
    found: list[int] = []
    while at != (end := topic.end()):
        following = topic.cut(at, max_rows=70)
        distance = sum(following[number] - at[number] for number in at)
        assert 0 < distance <= 70
        assert all(at[number] <= following[number] <= end[number] for number in at)
        found += numbers(topic, start=at, until=following)
        at = following
    assert sorted(found) == list(range(300))


def test_late_records_are_counted_and_the_last_arrival_is_known(log: Log, name: str) -> None:
    topic = log.create(name, SCHEMA, event_time="time", lateness="10 seconds")
    topic.append(rows(range(30)), arrived=stamps(*range(30, 60)))
    middle = topic.cut({0: 0}, max_rows=10)
    assert topic.count_late({0: 0}, topic.end()) == 30
    assert topic.latest_arrivals({0: 0}, middle) == {0: START_US + 39 * SECOND}
    assert topic.latest_arrivals(middle, topic.end()) == {0: START_US + 59 * SECOND}
    assert topic.latest_arrivals(topic.end(), topic.end()) == {}


# --- producers that repeat themselves ---


def test_what_a_named_producer_repeats_is_stored_once(open_log: Callable[[], Log], name: str) -> None:
    producer = named_producer(f"loader of {name}")
    partition = open_log().create(name, SCHEMA).partitions[0]
    assert partition.last_sequence(producer) is None
    first = partition.append(rows(range(5)), producer=producer, sequences=np.arange(10, 15))
    assert (first.count, first.duplicates) == (5, 0)
    again = open_log().topic(name).partitions[0]
    second = again.append(rows(range(8)), producer=producer, sequences=np.arange(10, 18))
    assert (second.count, second.duplicates) == (3, 5)
    third = partition.append(rows(range(10)), producer=producer, sequences=np.arange(10, 20))
    assert (third.count, third.duplicates) == (2, 8), "another one has stored some of it meanwhile"
    assert partition.append(rows([0]), producer=producer, sequences=np.array([12])).count == 0
    assert numbers(partition.topic) == list(range(10))
    assert again.last_sequence(producer) == 19


def test_a_newer_epoch_fences_off_the_older(open_log: Callable[[], Log], name: str) -> None:
    producer = named_producer(f"epochs of {name}")
    old = open_log().create(name, SCHEMA).partitions[0]
    new = open_log().topic(name).partitions[0]
    old.append(rows([1]), producer=producer, producer_epoch=1, sequences=np.array([1]))
    new.append(rows([2]), producer=producer, producer_epoch=2, sequences=np.array([2]))
    with pytest.raises(ProducerFenced):
        old.append(rows([3]), producer=producer, producer_epoch=1, sequences=np.array([3]))
    assert numbers(old.topic) == [1, 2]


# --- waking ---


def test_an_append_through_another_handle_wakes_a_reader(open_log: Callable[[], Log], name: str) -> None:
    topic = open_log().create(name, SCHEMA, partitions=2, key="user")
    with closing(Wakeup()) as wakeup:
        for partition in topic.partitions:
            wakeup.watch(partition.signal)
        while wakeup.wait(1.0):
            continue  # It may ring once, because it began to listen.
        writer = open_log().topic(name)
        threading.Timer(0.3, lambda: writer.append(rows(range(20)))).start()
        while not any(topic.end().values()):
            assert wakeup.wait(None)
