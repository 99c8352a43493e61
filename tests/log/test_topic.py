"""Routing, schema growth and changes made by others."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import RecordsRefused, SchemaRefused, UnknownColumn
from penstock.log.folder_log import FolderLog
from tests.log.rows import SCHEMA, rows, small_topic


def test_equal_keys_share_a_partition_and_keep_their_order(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log, partitions=4, key="user", segment_bytes=1 << 20)
        for start in range(0, 300, 100):
            topic.append(rows(range(start, start + 100)))
        homes: dict[str, set[int]] = {}
        for event in topic.slice().to_pylist():
            homes.setdefault(event["user"], set()).add(event["_partition"])
        assert all(len(home) == 1 for home in homes.values())
        assert len(set().union(*homes.values())) > 1
        for partition in topic.partitions:
            numbers = [n for batch in partition.read(0) for n in batch.column("n").to_pylist()]
            assert numbers == sorted(numbers)


def test_without_a_key_partitions_take_turns(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log, partitions=4, segment_bytes=1 << 20)
        topic.append(rows(range(100)))
        assert topic.end() == {0: 25, 1: 25, 2: 25, 3: 25}
        for n in range(8):
            topic.append(rows([n]))
        assert topic.end() == {0: 27, 1: 27, 2: 27, 3: 27}


def test_routing_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        for key, count in itertools.product((None, "user"), (0, 1, 3, 50)):
            topic = small_topic(log, f"t{count}{key or ''}".lower(), partitions=4, key=key)
            batch = rows(range(count))
            parts = topic.route(batch)
            positions = sorted(int(position) for _, _, where in parts for position in where)
            assert positions == list(range(count))
            for _, part, where in parts:
                assert part.column("n").to_pylist() == where.tolist()


def test_a_change_made_by_another_process_is_taken_over(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log, FolderLog(tmp_path, background=False) as other:
        topic = small_topic(log)
        changed = other.topic("events").alter(lateness="1 hour", retention_age="2 days", schema=SCHEMA + ", more int")
        assert topic.definition != changed
        assert topic.refresh()
        assert not topic.refresh()
        assert topic.definition == changed
        assert topic.definition.lateness == timedelta(hours=1)
        assert len(topic.definition.schemas) == 2
        other.topic("events").alter(retention_age=None)
        assert log.topic("events").definition.retention_age is None


@pytest.mark.parametrize(
    "schema",
    ["time timestamp, user string", "time timestamp, user int, n bigint", "time timestamp, user string, n int"],
)
def test_a_schema_that_old_records_do_not_fit_is_refused(tmp_path: Path, schema: str) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log)
        with pytest.raises(SchemaRefused):
            topic.alter(schema=schema)
        assert len(topic.definition.schemas) == 1


def test_a_batch_made_before_the_schema_grew_is_upgraded(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log)
        batch = rows([1])
        topic.alter(schema=SCHEMA + ", more string")
        topic.append(batch)
        assert topic.slice().select(["n", "more"]).to_pylist() == [{"n": 1, "more": None}]


def test_a_table_of_several_chunks_keeps_its_arrivals(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log, partitions=2, key="user")
        table = pa.Table.from_batches([rows(range(10)), rows(range(10, 20))])
        arrived = pa.array(range(100, 120), pa.int64()).view(pa.timestamp("us", "UTC"))
        topic.append(table, arrived=arrived)
        read = topic.slice().to_pylist()
        assert {event["n"]: event["_arrived"].microsecond for event in read} == {n: 100 + n for n in range(20)}


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (pa.table({"user": ["x"], "n": ["many"]}), "n"),
        (
            pa.table(
                {"user": ["x", "y"], "n": [1, 2**70]}, pa.schema([("user", pa.string()), ("n", pa.decimal256(40))])
            ),
            "n",
        ),
        (pa.table({"user": ["x"], "nn": [1]}), "nn"),
    ],
)
def test_arrow_data_that_does_not_fit_is_refused_whole(tmp_path: Path, table: pa.Table, column: str) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log)
        with pytest.raises(RecordsRefused) as caught:
            topic.append(table)
        assert (caught.value.column, caught.value.count) == (column, 1)
        assert topic.slice().num_rows == 0
        with pytest.raises(UnknownColumn):
            topic.partitions[0].append(rows([1]).append_column("more", pa.array([1])))


def test_the_longest_name_can_have_dead_letters(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        log.create("a" * 128, SCHEMA)
        assert log.create("a" * 128 + ".dead", SCHEMA).definition.is_dead_letters


def test_a_column_that_is_never_null_can_be_sliced_hot_and_sealed(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = log.create("t", "a int NOT NULL, b string")
        topic.append(pa.Table.from_pylist([{"a": 1, "b": None}], topic.schema))
        for _ in ("hot", "sealed"):
            assert topic.slice().select(["a", "b"]).to_pylist() == [{"a": 1, "b": None}]
            assert not topic.slice().schema.field("a").nullable
            topic.seal(active=True)
