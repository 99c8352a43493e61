"""Sealing: the same records, in Parquet, at every instant in exactly one place."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.errors import CorruptionError
from penstock.log import sealing
from penstock.log.files import locked
from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.segment import hot_bases
from tests.eventually import eventually
from tests.log.rows import numbers_of, rows, small_topic


def filled(log: FolderLog, count: int = 300) -> FolderPartition:
    (partition,) = small_topic(log).partitions
    for start in range(0, count, 10):
        partition.append(rows(range(start, start + 10)))
    return partition


def parquet_files(partition: FolderPartition) -> list[str]:
    return sorted(name for name in os.listdir(partition.directory) if name.endswith(".parquet"))


def test_sealed_records_are_the_same_records(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        partition = filled(log)
        before = partition.topic.slice()
        closed = len(hot_bases(partition.directory)) - 1
        assert partition.topic.seal() == closed > 3
        assert hot_bases(partition.directory) == [partition.manifest().sealed_end]
        assert partition.topic.slice().equals(before)
        partition.topic.seal(active=True)
        assert partition.manifest().sealed_end == 300
        assert partition.topic.slice().equals(before)
        partition.append(rows([300]))
        assert numbers_of(partition) == list(range(301))


def test_a_sealed_file_can_be_read_by_itself(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        partition = filled(log)
        partition.topic.seal(active=True)
        tables = [pq.read_table(partition.directory / name) for name in parquet_files(partition)]
        assert tables[0].column_names == ["time", "user", "n", "_partition", "_offset", "_arrived"]
        assert [n for table in tables for n in table.column("_offset").to_pylist()] == list(range(300))


def test_a_segment_of_many_row_groups_is_cut_anywhere_in_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.sealed.ROW_GROUP_ROWS", 100)
    monkeypatch.setattr("penstock.log.reading.JOIN_BYTES", 1)
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log, segment_bytes=1 << 20).partitions
        for start in range(0, 490, 70):
            partition.append(rows(range(start, start + 70)))
        partition.topic.seal(active=True)
        (segment,) = partition.manifest().segments
        assert [group.rows for group in segment.row_groups] == [100, 100, 100, 100, 90]
        assert numbers_of(partition) == list(range(490))
        assert [piece.start for piece in partition.pieces(150, 350)] == [100, 200, 300]


class Killed(BaseException):
    """Stands for a process that dies right here."""


@pytest.mark.parametrize("at", ["publish_file", "write_manifest", "unlink"])
def test_a_kill_while_sealing_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    def die(*_: object, **__: object) -> None:
        raise Killed

    targets = {
        "publish_file": "penstock.log.sealed.publish_file",
        "write_manifest": "penstock.log.sealing.write_manifest",
        "unlink": "penstock.log.sealing.os.unlink",
    }
    with FolderLog(tmp_path, background=False) as log:
        partition = filled(log)
        with monkeypatch.context() as patch:
            patch.setattr(targets[at], die)
            with pytest.raises(Killed):
                partition.topic.seal()
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        assert numbers_of(partition) == list(range(300))
        partition.topic.seal(active=True)
        assert numbers_of(partition) == list(range(300))
        named = [segment.file for segment in partition.manifest().segments]
        assert parquet_files(partition) == sorted(named), "nothing is left over"
        assert hot_bases(partition.directory) == [300]


def test_a_flipped_bit_in_a_sealed_file_stops_the_reader(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        partition = filled(log)
        partition.topic.seal(active=True)
    path = partition.directory / parquet_files(partition)[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 8
    path.write_bytes(content)
    with FolderLog(tmp_path, background=False) as log, pytest.raises(CorruptionError) as caught:
        numbers_of(log.topic("events"))
    assert caught.value.path == path


def test_a_reader_in_the_middle_never_notices_the_sealer(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        partition = filled(log, 1000)
        reader = partition.read(0, columns=["n"])
        seen = next(reader).column("n").to_pylist()
        with FolderLog(tmp_path, background=False) as other:
            other.topic("events").seal(active=True)
        seen += [n for batch in reader for n in batch.column("n").to_pylist()]
        assert seen == list(range(1000))


def test_readers_and_writers_go_on_while_another_thread_seals(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        partition = filled(log, 50)
        is_done = threading.Event()

        def keep_sealing() -> None:
            with FolderLog(tmp_path, background=False) as other:
                while not is_done.is_set():
                    other.topic("events").seal()

        sealer = threading.Thread(target=keep_sealing)
        sealer.start()
        try:
            for start in range(50, 600, 10):
                partition.append(rows(range(start, start + 10)))
                assert numbers_of(partition) == list(range(start + 10))
        finally:
            is_done.set()
            sealer.join()


def test_closed_segments_are_sealed_in_the_background(tmp_path: Path) -> None:
    with FolderLog(tmp_path) as log:
        partition = filled(log)
        eventually(lambda: hot_bases(partition.directory) == [partition.manifest(is_fresh=True).sealed_end])
        assert numbers_of(partition) == list(range(300))


def test_only_one_process_seals_and_the_other_does_not_wait(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        partition = filled(log)
        with locked(partition.directory / "maintenance.lock"):
            assert sealing.seal(partition, wait=False) == []
        assert sealing.seal(partition, wait=False) != []
