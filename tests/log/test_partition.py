"""Appending to a partition, and reading it back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.check.checking import check_log
from penstock.errors import (
    ArrivalRefused,
    ForkedHandle,
    OffsetOutOfRange,
    PartitionReadOnly,
    ProducerFenced,
    RecordTooLarge,
    TopicDeleted,
)
from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.producers import named_producer, new_producer, spilled_producer
from penstock.testing import ManualClock
from tests.log.rows import START_US, numbers_of, rows, small_topic


def test_what_was_appended_is_read_back_in_order_with_gapless_offsets(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        for start in range(0, 300, 30):
            assert partition.append(rows(range(start, start + 30))).base_offset == start
        offsets = [o for batch in partition.read(0, columns=[]) for o in batch.column("_offset").to_pylist()]
        assert offsets == list(range(300))
        assert numbers_of(partition) == list(range(300))
        assert len(os.listdir(partition.directory)) > 5, "little segments must have rolled"


def test_another_process_goes_on_where_this_one_stopped(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from penstock.log.log import Log; from tests.log.rows import rows\n"
        "log = Log(Path(sys.argv[1]), background=False)\n"
        "for n in range(10): log.topic('events').partitions[0].append(rows([n]))\n"
    )
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        partition.append(rows([100]))
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
        partition.append(rows([101]))
        assert numbers_of(partition) == [100, *range(10), 101]


def test_a_producer_that_sends_again_stores_nothing_twice(tmp_path: Path) -> None:
    me = named_producer("me")
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        assert partition.last_sequence(me) is None
        first = partition.append(rows([1, 2, 3]), producer=me, sequences=np.array([10, 12, 20]))
        again = partition.append(rows([2, 3, 4]), producer=me, sequences=np.array([12, 20, 21]))
        assert (first.count, first.duplicates, again.count, again.duplicates) == (3, 0, 1, 2)
        for n in range(5, 200):  # Rolls several times: what is remembered moves along.
            partition.append(rows([n]))
    with FolderLog(tmp_path, background=False) as log:
        log.topic("events").seal(active=True)
        (partition,) = log.topic("events").partitions
        assert partition.append(rows([2, 4]), producer=me, sequences=np.array([12, 21])).duplicates == 2
        assert partition.last_sequence(me) == 21
        assert numbers_of(partition) == [1, 2, 3, 4, *range(5, 200)]


def test_producers_that_another_process_may_continue_are_moved_with_the_log(tmp_path: Path) -> None:
    """One with a name, and one whose spilled events are sent by the process that finds them."""
    nameless = new_producer()
    continued = {named_producer("shop"), spilled_producer(nameless), spilled_producer(named_producer("bank"))}
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        for number, each in enumerate([nameless, *sorted(continued)]):
            partition.append(rows([number]), producer=each, sequences=np.array([1]))
        assert {*partition.remembered()} == continued
    assert spilled_producer(named_producer("bank")) == named_producer("bank")


def test_an_older_epoch_of_a_producer_is_refused(tmp_path: Path) -> None:
    me = named_producer("me")
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        partition.append(rows([1]), producer=me, producer_epoch=2, sequences=np.array([1]))
        with pytest.raises(ProducerFenced) as caught:
            partition.append(rows([2]), producer=me, producer_epoch=1, sequences=np.array([2]))
        assert (caught.value.epoch, caught.value.newest) == (1, 2)
        assert numbers_of(partition) == [1]


def test_arrival_never_decreases_though_the_clock_does(tmp_path: Path) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        (partition,) = small_topic(log).partitions
        for days in (0, 30, -60, 1, 0):
            clock.move(timedelta(days=days))
            partition.append(rows([days]))
        arrived = [a for batch in partition.read(0, columns=[]) for a in batch.column("_arrived").to_pylist()]
        assert arrived == sorted(arrived)
        assert arrived[1] - arrived[0] == timedelta(days=30)
        assert arrived[-1] == arrived[1]


def test_arrivals_brought_along_are_kept_and_may_not_go_back(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False, clock=ManualClock()) as log:
        (partition,) = small_topic(log).partitions
        stamps = pa.array([5, 5, 9], pa.int64()).view(pa.timestamp("us", "UTC"))
        partition.append(rows([1, 2, 3]), arrived=stamps)
        for sealed in (False, True):
            if sealed:
                partition.topic.seal(active=True)
            read = pa.Table.from_batches(partition.read(0))
            assert read.column("_arrived").combine_chunks().view(pa.int64()).to_pylist() == [5, 5, 9]
        with pytest.raises(ArrivalRefused) as caught:
            partition.append(rows([4]), arrived=stamps.slice(0, 1))
        assert caught.value.newest_us == 9
        with pytest.raises(ArrivalRefused):
            partition.append(rows([4, 5]), arrived=pa.array([30, 20], pa.int64()).view(stamps.type))
        assert numbers_of(partition) == [1, 2, 3]


def test_late_is_decided_by_arrival_and_event_time_alone(tmp_path: Path) -> None:
    clock = ManualClock(START_US)
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        topic = small_topic(log, lateness="10 seconds")
        times = [START_US - 10_000_000, START_US - 10_000_001, None, START_US + 10**15]
        batch = pa.RecordBatch.from_pylist([{"time": t, "user": "u", "n": 1} for t in times], topic.schema)
        topic.partitions[0].append(batch)
        expected = [False, True, False, False]
        assert topic.slice().column("_late").to_pylist() == expected
        topic.seal(active=True)
        assert topic.slice(columns=["n"]).column("_late").to_pylist() == expected


def test_a_failed_fsync_makes_the_partition_read_only_here_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        partition.append(rows([1]))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", lambda fd: (_ for _ in ()).throw(OSError(5, "Input/output error")))
            with pytest.raises(PartitionReadOnly):
                partition.append(rows([2]))
        with pytest.raises(PartitionReadOnly, match="start this process again"):
            partition.append(rows([3]))
        assert numbers_of(partition) == [1], "reading goes on"
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        partition.append(rows([4]))
        assert numbers_of(partition) == [1, 4]


def test_a_deleted_topic_takes_no_more_records(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log, FolderLog(tmp_path, background=False) as other:
        (partition,) = small_topic(log).partitions
        partition.append(rows([1]))
        other.delete("events")
        with pytest.raises(TopicDeleted):
            partition.append(rows([2]))
        small_topic(other)
        assert numbers_of(other.topic("events")) == []
        assert numbers_of(log.topic("events")) == []


def test_a_handle_does_not_survive_a_fork(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from penstock.log.log import Log; from tests.log.rows import rows\n"
        "from penstock.errors import ForkedHandle\n"
        "partition = Log(Path(sys.argv[1]), background=False).topic('events').partitions[0]\n"
        "partition.append(rows([1]))\n"
        "if os.fork() == 0:\n"
        "    try: partition.append(rows([2])); os._exit(1)\n"
        "    except ForkedHandle: os._exit(7)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    with FolderLog(tmp_path, background=False) as log:
        small_topic(log)
        assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 7
        assert numbers_of(log.topic("events")) == [1]
    assert "spawn" in str(ForkedHandle("a/0", 1, 2))


def test_offsets_outside_the_log_are_named(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        partition.append(rows([1]))
        with pytest.raises(OffsetOutOfRange) as caught:
            list(partition.read(5))
        assert (caught.value.offset, caught.value.start, caught.value.end) == (5, 0, 1)
        assert list(partition.read(1)) == []


def test_a_batch_larger_than_a_frame_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.folder_partition.FRAME_BYTES_MAX", 1000)
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        sequences = np.arange(500)
        assert partition.append(rows(range(500)), producer=named_producer("p"), sequences=sequences).count == 500
        assert len(partition.pieces(0)) > 5
        assert numbers_of(partition) == list(range(500))
        assert partition.append(rows(range(500)), producer=named_producer("p"), sequences=sequences).count == 0


MIB = 1 << 20
SIZES = [63 * MIB, 65 * MIB, 130 * MIB]


def texts(sizes: Sequence[int]) -> pa.RecordBatch:
    return pa.record_batch({"text": pa.array(["x" * size for size in sizes], pa.string())})


def sizes_of(partition: FolderPartition) -> list[int]:
    batches = partition.read(0, columns=["text"])
    return [n for batch in batches for n in pc.binary_length(batch.column("text")).to_pylist()]


@pytest.mark.parametrize("size", SIZES)
def test_a_large_record_is_stored_and_readable_or_refused(tmp_path: Path, size: int) -> None:
    is_fine = size < 64 * MIB
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.create("large", "text string").partitions
        partition.append(texts([1]))
        if is_fine:
            partition.append(texts([2, size, 3]))
        else:
            with pytest.raises(RecordTooLarge) as refused:
                partition.append(texts([2, size, 3]))
            assert (refused.value.limit, [*refused.value.rows]) == (64 * MIB, [1])
            assert refused.value.size >= size
        partition.append(texts([4]))
    expected = [1, 2, size, 3, 4] if is_fine else [1, 4]
    with FolderLog(tmp_path, background=False) as log:
        topic = log.topic("large")
        (partition,) = topic.partitions
        assert sizes_of(partition) == expected
        topic.seal(active=True)
        partition.append(texts([5]))
        assert sizes_of(partition) == [*expected, 5]
        assert all(report.is_whole for report in check_log(log))


@pytest.mark.parametrize("size", [60 * MIB, 130 * MIB])
def test_large_records_among_small_ones_are_stored_or_refused(tmp_path: Path, size: int) -> None:
    sizes = [size if n in (3, 4, 5) else 10 for n in range(2000)]
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.create("large", "text string").partitions
        if size == 60 * MIB:
            partition.append(texts(sizes))
        else:
            with pytest.raises(RecordTooLarge) as refused:
                partition.append(texts(sizes))
            assert [*refused.value.rows] == [3, 4, 5]
        partition.append(texts([7]))
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("large").partitions
        assert sizes_of(partition) == [*(sizes if size == 60 * MIB else []), 7]


def test_nothing_is_stored_in_any_partition_if_a_record_is_too_large(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False, record_bytes_max=1024) as log:
        topic = log.create("large", "text string", partitions=3)
        with pytest.raises(RecordTooLarge) as refused:
            topic.append(texts([1, 2, 3, 2000]))
        assert (refused.value.rows[3] >= 2000, [*refused.value.rows]) == (True, [3])
        assert set(topic.end().values()) == {0}


def test_a_batch_keeps_the_schema_version_it_was_fitted_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FolderLog(tmp_path, background=False) as log, FolderLog(tmp_path, background=False) as other:
        topic = log.create("growing", "n bigint")
        real = topic.fit

        def grows_meanwhile(batch: pa.RecordBatch) -> Any:
            fitted = real(batch)
            other.topic("growing").alter(schema="n bigint, more string")
            topic.refresh()
            return fitted

        monkeypatch.setattr(topic, "fit", grows_meanwhile)
        topic.partitions[0].append(pa.record_batch({"n": pa.array([1], pa.int64())}))
        assert topic.slice().to_pylist()[0] | {"_arrived": None} == {
            "n": 1, "more": None, "_partition": 0, "_offset": 0, "_arrived": None, "_late": False,
        }  # fmt: skip


def test_records_left_to_the_system_are_synced_soon_and_read_at_once(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log, durability="os").partitions
        partition.append(rows([1, 2]))
        end = partition.end()
        assert end.durable_position < end.position
        assert numbers_of(partition) == [1, 2]
        partition.sync()
        end = partition.end()
        assert end.durable_position == end.position
