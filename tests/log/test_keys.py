"""Idempotency keys: known after rolls, kills and reopening; outside the heads of segments; bounded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from penstock.check.checking import check_log
from penstock.errors import CorruptionError, PartitionReadOnly, TooManyKeys
from penstock.log import keys as keys_module
from penstock.log import tail
from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.keys import key_files, keys_path
from penstock.log.producers import ENTRY, Producers, Remembered, keyed_producer
from penstock.log.segment import Segment, segment_path
from penstock.testing import ManualClock
from tests.log.rows import START_US, numbers_of, rows, small_topic


def post(partition: FolderPartition, number: int) -> int:
    """Stores one record under a key of its own. Returns how many duplicates there were."""
    key = keyed_producer("sender", f"key {number}")
    return partition.append(rows([number]), producer=key, sequences=np.array([number])).duplicates


def are_known(partition: FolderPartition, numbers: Sequence[int]) -> bool:
    return all(post(partition, number) == 1 for number in numbers)


def test_a_key_is_known_after_rolls_sealing_and_reopening(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log, FolderLog(tmp_path, background=False) as other:
        (partition,), (beside,) = small_topic(log).partitions, small_topic(other, exist_ok=True).partitions
        for number in range(120):
            post(partition if number % 3 else beside, number)
        assert are_known(partition, range(120))
        assert are_known(beside, range(120))
        log.topic("events").seal(active=True)
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        assert are_known(partition, range(120))
        assert numbers_of(partition) == list(range(120))
        assert len(partition.remembered()) == 120
        assert all(report.is_whole and not report.findings for report in check_log(log))


def test_bytes_written_for_a_post_stay_the_same(tmp_path: Path) -> None:
    def written() -> int:
        line = next(line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("wchar"))
        return int(line.split()[1])

    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log, durability="os").partitions
        costs = []
        for start in range(0, 1500, 250):
            before = written()
            for number in range(start, start + 250):
                post(partition, number)
            costs.append(written() - before)
    assert max(costs[1:]) < 1.2 * costs[1], costs


@pytest.mark.parametrize("count", [200_000, pytest.param(4_000_000, marks=pytest.mark.long)])
def test_keys_in_the_head_of_an_older_segment_move_to_their_files(tmp_path: Path, count: int) -> None:
    """As the log wrote them before: with 4 million, no header could be read any more."""
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        ids = [keyed_producer("sender", f"key {number}") for number in range(count)]
        head = _Head({each: Remembered(0, number, log.clock()) for number, each in enumerate(ids)})
        path = segment_path(partition.directory, 0)
        Segment.create(path, 0, offset=0, now_us=0, arrived_us=0, epoch=0, producers=head)
        some = [*range(0, count, count // 50), count - 1]
        for _ in range(2):
            assert are_known(partition, some)
            assert post(partition, count) == (0 if _ == 0 else 1)
            partition.roll()
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        assert are_known(partition, [*some, count])
        for number in range(count + 1, count + 100):
            assert post(partition, number) == 0
        assert segment_path(partition.directory, partition.end().segment_base).stat().st_size < 5000
        assert are_known(partition, [*some, *range(count, count + 100)])
        assert numbers_of(partition) == list(range(count, count + 100))


class _Head(Producers):
    """The head of a segment with keys in it."""

    def __init__(self, found: dict[bytes, Remembered]) -> None:
        super().__init__()
        self._found = found

    def to_bytes(self) -> bytes:
        return b"".join(ENTRY.pack(key, *each) for key, each in self._found.items())


@pytest.mark.parametrize("where", ["before the closing frame", "before the next segment"])
@pytest.mark.parametrize("is_torn", [False, True])
def test_a_process_that_dies_while_it_closes_a_segment_forgets_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, is_torn: bool
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("as if it died here")

    for turn in range(3):
        with FolderLog(tmp_path, background=False) as log:
            (partition,) = small_topic(log, exist_ok=True).partitions
            for number in range(turn * 5, turn * 5 + 5):
                assert post(partition, number) == 0
            with monkeypatch.context() as patch:
                if where == "before the closing frame":
                    patch.setattr(tail, "encode_frame", fails)
                else:
                    patch.setattr(Segment, "create", fails)
                with pytest.raises((OSError, PartitionReadOnly)):
                    partition.roll()
            if is_torn:
                newest = keys_path(partition.directory, key_files(partition.directory)[-1])
                content = newest.read_bytes()
                newest.write_bytes(content[:-20])
        with FolderLog(tmp_path, background=False) as log:
            (partition,) = log.topic("events").partitions
            partition.roll()
            assert are_known(partition, range(turn * 5 + 5))
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        assert are_known(partition, range(15))
        assert numbers_of(partition) == list(range(15))


def test_what_a_dead_process_left_in_a_file_is_gone_when_another_file_follows(tmp_path: Path) -> None:
    """It died in the middle of a block, and meanwhile the file has become too old to go on with."""
    clock = ManualClock(START_US)
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        (partition,) = small_topic(log).partitions
        assert post(partition, 1) == 0
        partition.roll()
        assert post(partition, 2) == 0
        with keys_path(partition.directory, 0).open("ab") as file:
            file.write(b"PnKy" + bytes(20))
    clock.move(timedelta(hours=25))
    for number in (3, 4):
        with FolderLog(tmp_path, background=False, clock=clock) as log:
            (partition,) = log.topic("events").partitions
            partition.roll()
            assert len(key_files(partition.directory)) == 2
            assert are_known(partition, range(1, number))
            assert post(partition, number) == 0


def test_keys_are_known_where_the_only_segment_that_is_not_sealed_is_made_again(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = small_topic(log)
        (partition,) = topic.partitions
        for number in range(20):
            post(partition, number)
        topic.seal(active=True)
        newest = segment_path(partition.directory, partition.end().segment_base)
    newest.write_bytes(b"")
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        assert are_known(partition, range(20))
        assert numbers_of(partition) == list(range(20))


def test_damaged_keys_are_told_and_stop_only_posts_with_keys(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = small_topic(log).partitions
        post(partition, 1)
        partition.roll()
        path = keys_path(partition.directory, key_files(partition.directory)[0])
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)
        [report] = check_log(log)
        [finding] = report.findings
        assert (finding.subject, finding.is_damage, finding.path) == ("keys", True, path)
    with FolderLog(tmp_path, background=False) as log:
        (partition,) = log.topic("events").partitions
        with pytest.raises(CorruptionError) as caught:
            post(partition, 1)
        assert caught.value.path == path
        partition.append(rows([2]))
        path.unlink()
        partition.roll()
        assert post(partition, 1) == 0, "whoever deletes the file forgets its keys"
        assert numbers_of(partition) == [1, 2, 1]


def test_no_new_key_is_taken_beyond_the_bound_until_old_ones_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "KEYS_MAX", 60)
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        (partition,) = small_topic(log).partitions
        for number in range(60):
            post(partition, number)
        with pytest.raises(TooManyKeys) as refused:
            post(partition, 60)
        assert (refused.value.limit, refused.value.is_retryable) == (60, True)
        assert are_known(partition, range(60))
        partition.append(rows([61]))
        partition.roll()
        clock.move(timedelta(days=8))
        assert post(partition, 60) == 0
        assert numbers_of(partition) == [*range(60), 61, 60]


def test_files_of_forgotten_keys_are_deleted(tmp_path: Path) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        (partition,) = small_topic(log).partitions
        for number in range(30):
            post(partition, number)
            partition.roll()
            clock.move(timedelta(hours=23))
            assert len(key_files(partition.directory)) <= 9
        assert are_known(partition, range(23, 30))
