"""A repair brings back everything that is whole, asks before anything is lost, and the partition goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from penstock.check.checking import check_log
from penstock.check.findings import PartitionReport
from penstock.check.repair import Mended, repair_partition
from penstock.log.definition import read_definition
from penstock.log.folder_log import FolderLog
from penstock.log.keys import key_files, keys_path
from penstock.log.manifest import read_manifest
from penstock.log.producers import named_producer
from tests.check.test_checking import check, filled, flip, hot, parquet
from tests.log.rows import numbers_of, rows, small_topic
from tests.log.test_keys import post


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path, background=False) as opened:
        yield opened


def yes(question: str) -> bool:
    return True


def never(question: str) -> bool:
    raise AssertionError(f"nothing is lost, but it was asked: {question}")


def repaired(directory: Path, confirm: object = yes) -> list[Mended]:
    assert callable(confirm)
    return repair_partition(directory, read_definition(directory.parent), confirm)


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith("lock")}


def assert_goes_on(directory: Path, expected: list[int]) -> PartitionReport:
    """It is whole, holds these numbers, and takes further records behind them."""
    report = check(directory)
    assert [finding for finding in report.findings if finding.subject != "leftover"] == []
    with FolderLog(directory.parent.parent.parent, background=False) as log:
        partition = log.topic("events").partitions[0]
        end = partition.end().offset
        assert numbers_of(partition) == expected
        assert partition.append(rows([5000])).base_offset == end
        assert numbers_of(partition) == [*expected, 5000]
        partition.topic.seal(active=True)
        assert numbers_of(partition) == [*expected, 5000]
    assert check(directory).is_whole
    return report


def test_whole_partition_is_left_alone(log: FolderLog) -> None:
    directory = filled(log)
    before = content(directory)
    assert repaired(directory, never) == []
    assert content(directory) == before


@pytest.mark.parametrize("damaged", [None, b"", b"nonsense"])
def test_manifest_is_made_again_from_the_sealed_files(log: FolderLog, damaged: bytes | None) -> None:
    directory = filled(log)
    before = read_manifest(directory)
    manifest = directory / "manifest.json"
    manifest.unlink() if damaged is None else manifest.write_bytes(damaged)
    repaired(directory, never)
    assert read_manifest(directory) == before
    assert_goes_on(directory, list(range(1200)))


def test_manifest_is_made_again_after_retention_and_says_what_may_be_gone(log: FolderLog) -> None:
    topic = small_topic(log, retention_bytes=8000)
    for number in range(5):
        topic.partitions[0].append(rows(range(100 * number, 100 * number + 100)))
        topic.seal(active=True)
    topic.retain()
    directory = topic.partitions[0].directory
    before = read_manifest(directory)
    log.close()
    (directory / "manifest.json").unlink()
    repaired(directory, never)
    after = read_manifest(directory)
    assert (after.start_offset, after.sealed_end, after.segments) == (before.start_offset, 500, before.segments)
    assert after.removed_hours
    assert_goes_on(directory, list(range(before.start_offset, 500)))


def test_manifest_is_made_again_when_retention_removed_every_sealed_file(log: FolderLog) -> None:
    topic = small_topic(log, retention_bytes=1)
    topic.partitions[0].append(rows(range(100)))
    topic.seal(active=True)
    topic.retain()
    topic.partitions[0].append(rows(range(100, 150)))
    directory = topic.partitions[0].directory
    log.close()
    (directory / "manifest.json").unlink()
    assert not check(directory).is_whole
    repaired(directory, never)
    assert read_manifest(directory).start_offset == 100
    assert_goes_on(directory, list(range(100, 150)))


def test_manifest_takes_the_newest_version_of_a_compacted_segment(log: FolderLog) -> None:
    topic = small_topic(log, key="user", compact=True)
    for _ in range(3):
        topic.partitions[0].append(rows(range(100)))
        topic.seal(active=True)
    topic.compact()
    directory = topic.partitions[0].directory
    before = read_manifest(directory)
    log.close()
    (directory / "manifest.json").unlink()
    repaired(directory, never)
    assert read_manifest(directory).segments == before.segments


def test_sealed_file_whose_hot_segment_is_still_there_counts_once(log: FolderLog) -> None:
    directory = filled(log, sealed=0, hot=2)
    copy = hot(directory).read_bytes()
    with FolderLog(log.root, background=False) as again:
        again.topic("events").seal()
    hot(directory).with_name(f"{0:020d}.log").write_bytes(copy)
    (directory / "manifest.json").write_bytes(b"")
    repaired(directory, never)
    assert_goes_on(directory, list(range(600)))


@pytest.mark.parametrize("position", [4, 900, -30])
def test_of_a_damaged_sealed_file_the_rest_goes_on(log: FolderLog, position: int) -> None:
    directory = filled(log)
    path = parquet(directory)
    flip(path, position if position > 0 else path.stat().st_size + position)
    repaired(directory)
    manifest = read_manifest(directory)
    assert [(segment.start, segment.stop) for segment in manifest.segments] == [(0, 300), (300, 600)]
    assert manifest.segments[0].is_compacted or manifest.segments[0].rows == 300
    assert path.with_name(path.name + ".damaged").exists()
    assert_goes_on(directory, list(range(300 - manifest.segments[0].rows, 1200)))


def test_missing_sealed_file_becomes_a_gap(log: FolderLog) -> None:
    directory = filled(log)
    parquet(directory).unlink()
    done = repaired(directory)
    assert sum(mended.lost for mended in done) == 300
    assert_goes_on(directory, list(range(300, 1200)))


def test_missing_sealed_file_and_manifest_become_a_gap(log: FolderLog) -> None:
    directory = filled(log, sealed=2)
    with FolderLog(log.root, background=False) as again:
        again.topic("events").seal(active=True)
    (directory / "manifest.json").unlink()
    parquet(directory, 1).unlink()
    repaired(directory)
    assert_goes_on(directory, [*range(300), *range(600, 1200)])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_of_a_damaged_hot_segment_all_whole_frames_are_kept(log: FolderLog, number: int) -> None:
    directory = filled(log, hot=3)
    content = hot(directory, number).read_bytes()
    second = content.find(b"PnFr", 200)
    flip(hot(directory, number), second + 200)
    first = 600 + 300 * number
    done = repaired(directory)
    assert sum(mended.lost for mended in done) == 100
    assert_goes_on(directory, [*range(first + 100), *range(first + 200, 1500)])


@pytest.mark.parametrize("number", [0, 1])
def test_hot_segment_with_a_damaged_header_loses_nothing(log: FolderLog, number: int) -> None:
    directory = filled(log)
    flip(hot(directory, number), 30)
    repaired(directory)
    assert_goes_on(directory, list(range(1200)))


def test_hot_segment_of_nonsense_is_set_aside(log: FolderLog) -> None:
    directory = filled(log)
    hot(directory).write_bytes(b"PnFr" * 1000)
    repaired(directory)
    assert_goes_on(directory, [*range(600), *range(900, 1200)])


def test_missing_hot_segment_becomes_a_gap(log: FolderLog) -> None:
    directory = filled(log, hot=3)
    hot(directory, 1).unlink()
    repaired(directory)
    assert_goes_on(directory, [*range(900), *range(1200, 1500)])


def test_offsets_that_were_given_away_are_not_given_again(log: FolderLog) -> None:
    directory = filled(log)
    path = hot(directory, 1)
    flip(path, path.stat().st_size - 300)
    repaired(directory)
    with FolderLog(log.root, background=False) as again:
        assert again.topic("events").end() == {0: 1200}
    assert_goes_on(directory, list(range(1100)))


def test_producers_are_remembered_over_a_repair(log: FolderLog) -> None:
    partition = small_topic(log, segment_bytes=1 << 20).partitions[0]
    producer = named_producer("loader")
    for first in (0, 100, 200):
        batch = rows(range(first, first + 100))
        partition.append(batch, producer=producer, sequences=np.arange(first, first + 100))
    directory = partition.directory
    log.close()
    flip(hot(directory), 500)
    repaired(directory)
    with FolderLog(log.root, background=False) as again:
        appended = (
            again.topic("events")
            .partitions[0]
            .append(rows(range(200, 400)), producer=producer, sequences=np.arange(200, 400))
        )
        assert (appended.duplicates, appended.count) == (100, 100)


def posted(log: FolderLog) -> tuple[Path, Path]:
    """A partition with the keys of numbers up to 12, in blocks of four, and the file they are in."""
    partition = small_topic(log, segment_bytes=1 << 20).partitions[0]
    for number in range(12):
        assert post(partition, number) == 0
        if number % 4 == 3:
            partition.roll()
    log.close()
    [base] = key_files(partition.directory)
    return partition.directory, keys_path(partition.directory, base)


def known(directory: Path) -> list[int]:
    """Which of these numbers are stored no second time."""
    with FolderLog(directory.parent.parent.parent, background=False) as log:
        partition = log.topic("events").partitions[0]
        return [number for number in range(12) if post(partition, number)]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_of_damaged_keys_the_others_are_known_after_a_repair(log: FolderLog, number: int) -> None:
    directory, path = posted(log)
    block = (path.stat().st_size - 64) // 3
    flip(path, 64 + block * number + (3, 40, 9)[number])
    assert not check(directory).is_whole
    before = path.read_bytes()
    questions: list[str] = []

    def no(question: str) -> bool:
        questions.append(question)
        return False

    assert repaired(directory, no) == []
    assert path.read_bytes() == before
    assert f"{block} bytes of idempotency keys are damaged, 8 keys can be read" in questions[0]
    repaired(directory)
    assert [each for each in check(directory).findings if each.subject != "leftover"] == []
    assert path.with_name(path.name + ".damaged").read_bytes() == before
    assert known(directory) == [each for each in range(12) if each // 4 != number]
    assert known(directory) == list(range(12)), "and those that were stored again are known now"
    with FolderLog(log.root, background=False) as again:
        again.topic("events").partitions[0].roll()
    assert known(directory) == list(range(12))
    assert check(directory).is_whole


@pytest.mark.parametrize("position", [3, 12, 40, 63])
def test_keys_with_one_wrong_bit_in_the_header_of_their_file_are_all_known(log: FolderLog, position: int) -> None:
    directory, path = posted(log)
    before = path.read_bytes()
    flip(path, position)
    repaired(directory, never)
    assert path.read_bytes() == before
    assert known(directory) == list(range(12))


@pytest.mark.parametrize("left", [None, 0, 30, 100, 250])
def test_keys_in_a_file_that_is_gone_or_shortened_are_forgotten(log: FolderLog, left: int | None) -> None:
    directory, path = posted(log)
    content = path.read_bytes()
    path.unlink() if left is None else path.write_bytes(content[:left])
    repaired(directory)
    assert check(directory).is_whole
    block = (len(content) - 64) // 3
    assert known(directory) == list(range(4 * max(0, ((left or 0) - 64) // block)))
    assert known(directory) == list(range(12))


@pytest.mark.parametrize("damaged", [b"", b"nonsense"])
def test_end_is_made_again(log: FolderLog, damaged: bytes) -> None:
    directory = filled(log)
    before = (directory / "end").read_bytes()
    (directory / "end").write_bytes(damaged)
    repaired(directory, never)
    assert (directory / "end").read_bytes() == before


def test_without_consent_nothing_is_changed(log: FolderLog) -> None:
    directory = filled(log)
    flip(parquet(directory), 900)
    flip(hot(directory), 300)
    before = content(directory)
    questions: list[str] = []

    def no(question: str) -> bool:
        questions.append(question)
        return False

    assert repaired(directory, no) == []
    assert content(directory) == before
    assert "records of offsets 0 up to 300 are lost" in questions[0]


def test_repaired_partition_is_whole_for_the_next_check_of_all(log: FolderLog) -> None:
    directory = filled(log)
    flip(hot(directory), 300)
    repaired(directory)
    with FolderLog(log.root, background=False) as again:
        assert all(report.is_whole for report in check_log(again))


def wreck(directory: Path, random: Random) -> None:
    """One to three random wounds: a flipped bit, a shortened file, zeros, a missing file."""
    for _ in range(random.randint(1, 3)):
        names = [path for path in directory.iterdir() if not path.name.endswith("lock")]
        path = random.choice(sorted(names))
        content = bytearray(path.read_bytes())
        position = random.randrange(len(content)) if content else 0
        match random.choice(["flip", "cut", "zero", "gone"]):
            case "flip" if content:
                content[position] ^= 1 << random.randrange(8)
            case "cut":
                del content[position:]
            case "zero":
                content[position : position + 100] = bytes(len(content[position : position + 100]))
            case _:
                path.unlink()
                continue
        path.write_bytes(bytes(content))


@pytest.mark.parametrize("number", [0, 1, *(pytest.param(each, marks=pytest.mark.long) for each in range(2, 200))])
def test_any_damage_can_be_repaired_and_never_yields_wrong_records(log: FolderLog, seed: int, number: int) -> None:
    directory = filled(log)
    wreck(directory, Random(f"{seed} {number}"))
    repaired(directory)
    report = check(directory)
    assert report.is_whole, report.findings
    with FolderLog(log.root, background=False) as again:
        partition = again.topic("events").partitions[0]
        assert partition.end().offset <= 1200
        records = [event for batch in partition.read(partition.start_offset()) for event in batch.to_pylist()]
        assert all(event["n"] == event["_offset"] for event in records)
        assert partition.append(rows([5000])).count == 1
    assert check(directory).is_whole
