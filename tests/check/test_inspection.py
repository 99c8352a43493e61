"""Looking into a partition shows its files as they are, damaged ones too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.check.inspection import Inspection
from penstock.errors import CorruptionError, OffsetOutOfRange
from penstock.log.definition import read_definition
from penstock.log.folder_log import FolderLog
from penstock.log.producers import named_producer
from tests.check.test_checking import filled, flip, hot, parquet
from tests.log.rows import START_US, rows, small_topic


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path, background=False) as opened:
        yield opened


def inspect(directory: Path) -> Inspection:
    return Inspection(directory, read_definition(directory.parent))


def test_segments_are_shown_in_order(log: FolderLog) -> None:
    seen = inspect(filled(log)).segments()
    assert [(each.kind, each.start, each.stop, each.records, each.pieces) for each in seen] == [
        ("sealed", 0, 300, 300, 1),
        ("sealed", 300, 600, 300, 1),
        ("hot", 600, 900, 300, 3),
        ("active", 900, 1200, 300, 3),
    ]


def test_pieces_are_shown_with_their_kinds(log: FolderLog) -> None:
    seen = list(inspect(filled(log)).pieces())
    assert [each.kind for each in seen] == [
        *["row group"] * 2, "opening", *["records"] * 3, "closing", "opening", *["records"] * 3,
    ]  # fmt: skip


def test_producer_and_sequences_are_shown(log: FolderLog) -> None:
    partition = small_topic(log).partitions[0]
    producer = named_producer("loader")
    partition.append(rows(range(5)), producer=producer, producer_epoch=3, sequences=np.arange(10, 15))
    piece = inspect(partition.directory).piece_at(2)
    assert (piece.producer, piece.producer_epoch, piece.sequences) == (producer.hex(), 3, (10, 14))
    assert piece.hours == ((START_US // 3_600_000_000,) * 2,)


@pytest.mark.parametrize(
    ("offset", "first", "stop"), [(0, 0, 300), (450, 300, 600), (750, 700, 800), (1199, 1100, 1200)]
)
def test_records_around_an_offset_are_shown(log: FolderLog, offset: int, first: int, stop: int) -> None:
    inspection = inspect(filled(log))
    piece = inspection.piece_at(offset)
    batch = inspection.records_of(piece)
    assert batch.column("_offset").to_pylist() == batch.column("n").to_pylist() == list(range(first, stop))


def test_offset_that_is_not_there_is_refused(log: FolderLog) -> None:
    with pytest.raises(OffsetOutOfRange) as refused:
        inspect(filled(log)).piece_at(1200)
    assert (refused.value.start, refused.value.end) == (0, 1200)


def test_damaged_place_is_shown_between_whole_frames(log: FolderLog) -> None:
    directory = filled(log)
    second = hot(directory).read_bytes().find(b"PnFr", 200)
    flip(hot(directory), second + 200)
    inspection = inspect(directory)
    assert inspection.segments()[2].kind == "damaged"
    piece = inspection.piece_at(750)
    assert (piece.kind, piece.start, piece.stop, piece.position) == ("damaged", 700, 800, second)
    with pytest.raises(CorruptionError):
        inspection.records_of(piece)
    assert inspection.records_of(inspection.piece_at(850)).num_rows == 100


def test_torn_tail_is_shown(log: FolderLog) -> None:
    directory = filled(log)
    with hot(directory, 1).open("ab") as file:
        file.write(bytes(100))
    last = list(inspect(directory).pieces())[-1]
    assert (last.kind, last.bytes) == ("torn", 100)


def test_damaged_row_group_says_so(log: FolderLog) -> None:
    directory = filled(log)
    flip(parquet(directory), 900)
    inspection = inspect(directory)
    with pytest.raises(CorruptionError):
        inspection.records_of(inspection.piece_at(10))
