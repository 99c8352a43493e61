"""A log moved to Kafka: the same records at the same offsets, and everything goes on where it was."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import MoveRefused, NothingToMove
from penstock.kafka.log import KafkaLog
from penstock.kafka.partition import KafkaPartition
from penstock.load.loading import load
from penstock.load.moving import move_log
from penstock.log.folder_log import FolderLog
from penstock.log.producers import named_producer
from penstock.testing import ManualClock
from tests.eventually import LIMIT_SECONDS
from tests.log.rows import SCHEMA, rows, small_topic
from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services


@pytest.fixture
def folder(tmp_path: Path, clock: ManualClock) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False, clock=clock) as log:
        yield log


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_767_225_600_000_000)


@pytest.fixture
def target(kafka: KafkaCluster) -> Iterator[KafkaLog]:
    with KafkaLog(f"kafka://{kafka.bootstrap}", background=False) as log:
        yield log


def test_every_record_keeps_partition_offset_and_arrival(
    folder: FolderLog, target: KafkaLog, clock: ManualClock
) -> None:
    topic = small_topic(folder, "moved", partitions=2, key="user")
    for start in range(0, 300, 100):
        topic.append(rows(range(start, start + 100)))
        topic.seal(active=True)
        clock.move(timedelta(seconds=1))
    topic.append(rows(range(300, 350)))
    [moved] = move_log(folder, target, pattern="moved")
    assert (moved.records, moved.already, moved.filled) == (350, 0, 0)
    there = target.topic("moved")
    order = [("_partition", "ascending"), ("_offset", "ascending")]
    assert there.slice().sort_by(order).equals(topic.slice().sort_by(order))
    assert there.end() == topic.end()
    topic.append(rows(range(350, 360)))
    [again] = move_log(folder, target, pattern="moved")
    assert (again.records, again.already) == (10, 350), "what is there is not copied again"


@pytest.mark.parametrize("is_kept_now", [False, True])
def test_offsets_stay_though_compaction_left_gaps_and_retention_took_the_first(
    folder: FolderLog, target: KafkaLog, is_kept_now: bool
) -> None:
    name = f"gaps-{int(is_kept_now)}"
    topic = small_topic(folder, name, key="user", compact=True, retention_bytes=1)
    for start in range(0, 500, 100):
        topic.append(rows(range(start, start + 100)))
        topic.seal(active=True)
        if start == 100:
            topic.retain()
            topic.alter(retention_bytes=None if is_kept_now else 1 << 30)
    topic.compact()
    assert topic.start() != {0: 0}
    topic.append(rows(range(500, 510)))
    before = topic.slice()
    assert before.num_rows < 510
    [moved] = move_log(folder, target, pattern=name)
    assert moved.filled == 510 - before.num_rows
    assert target.topic(name).slice().equals(before)
    assert target.topic(name).end() == {0: 510}
    assert target.topic(name).start() == topic.start(), "what retention took is not there again"


def test_a_topic_with_values_in_avro_has_them_in_kafka(folder: FolderLog, target: KafkaLog) -> None:
    topic = small_topic(folder, "moved-avro", values="avro")
    topic.append(rows(range(100)))
    topic.alter(schema=f"{SCHEMA}, more string")
    topic.append(rows(range(100, 120)))
    move_log(folder, target, pattern="moved-avro")
    there = target.topic("moved-avro")
    assert (there.definition.values, there.slice().equals(topic.slice())) == ("avro", True)
    [partition] = there.partitions
    assert isinstance(partition, KafkaPartition)
    values = [each for found in partition._found(0, 120) for each in found.values]
    assert {each[:2] for each in values} == {b"\xc3\x01"}


def test_groups_and_named_producers_go_on_where_they_were(folder: FolderLog, target: KafkaLog) -> None:
    topic = small_topic(folder, "going-on")
    producer = named_producer("loader of going-on")
    topic.partitions[0].append(rows(range(50)), producer=producer, sequences=np.arange(50))
    with folder.consumer("going-on", group="readers-of-going-on", max_rows=20, auto_commit=None) as consumer:
        consumer.poll(LIMIT_SECONDS)
        consumer.commit()
    move_log(folder, target, pattern="going-on")
    [partition] = target.topic("going-on").partitions
    done = partition.append(rows(range(40, 60)), producer=producer, sequences=np.arange(40, 60))
    assert (done.count, done.duplicates) == (10, 10)
    found: list[int] = []
    with target.consumer("going-on", group="readers-of-going-on") as consumer:
        while len(found) < 40 and (batches := consumer.poll(LIMIT_SECONDS)):
            found += [n for each in batches for n in each.batch.column("n").to_pylist()]
    assert found == list(range(20, 60))


def test_a_topic_that_somebody_else_writes_to_is_refused(folder: FolderLog, target: KafkaLog) -> None:
    topic = small_topic(folder, "disturbed")
    topic.append(rows(range(10)))
    move_log(folder, target, pattern="disturbed")
    target.topic("disturbed").append(rows([99]))
    with pytest.raises(MoveRefused, match="disturbed/0"):
        move_log(folder, target, pattern="disturbed")
    small_topic(folder, "other")
    target.create("other", "something string")
    with pytest.raises(MoveRefused, match="other columns"):
        move_log(folder, target, pattern="other")


def test_a_file_that_was_loaded_before_the_move_is_not_loaded_again(
    folder: FolderLog, target: KafkaLog, tmp_path: Path
) -> None:
    path = tmp_path / "loaded.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(50)))
    first = folder.create("loaded", "n bigint")
    assert load(first, path).stored == 50
    move_log(folder, target, pattern="loaded")
    there = target.topic("loaded")
    assert there.definition.id == first.definition.id
    assert load(there, path).stored == 0
    target.delete("loaded")
    move_log(folder, target, pattern="loaded")
    assert target.topic("loaded").definition.id != first.definition.id, "what was known of the one before is of no use"
    assert target.topic("loaded").end() == {0: 50}


def test_a_number_that_is_none_is_moved_as_it_is(folder: FolderLog, target: KafkaLog) -> None:
    topic = folder.create("nan", "d double")
    topic.append(pa.table({"d": [1.5, math.nan, None, math.inf]}))
    move_log(folder, target, pattern="nan")
    assert str(target.topic("nan").slice(columns=["d"]).to_pylist()) == str(topic.slice(columns=["d"]).to_pylist())


def test_where_nothing_matches_nothing_is_called_moved(tmp_path: Path, folder: FolderLog, target: KafkaLog) -> None:
    small_topic(folder, "orders")
    with pytest.raises(NothingToMove, match="its topics: orders"):
        move_log(folder, target, pattern="ordres")
    with (
        FolderLog(tmp_path / "mistyped", background=False) as other,
        pytest.raises(NothingToMove, match="is this the folder"),
    ):
        move_log(other, target)
