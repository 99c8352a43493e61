"""Reading slices of offsets and of both clocks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.clock import HOUR_US
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.testing import ManualClock
from tests.log.rows import START_US, rows, small_topic

STRAYS = [-(10**9), 1_140_000 * HOUR_US // 1_000_000 - START_US // 1_000_000]
"""Seconds from the start to 1994 and to 2100."""


def ten_hours(log: FolderLog, clock: ManualClock) -> FolderTopic:
    """One frame an hour, 20 records each, with a stray in every frame; half of it sealed."""
    topic = small_topic(log, segment_bytes=1 << 20)
    for hour in range(10):
        start = START_US + hour * HOUR_US
        clock.now_us = start
        batch = rows([*range(20)], time_us=start)
        stray = rows([STRAYS[hour % 2]])
        topic.partitions[0].append(pa.concat_batches([batch, stray]))
        if hour == 4:
            topic.seal(active=True)
    return topic


def test_a_slice_of_event_time_is_exact_and_opens_only_what_it_needs(tmp_path: Path) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        topic = ten_hours(log, clock)
        everything = topic.slice()
        for low, high in [(2, 3), (3, 7), (8, 20), (-5, 1), (None, 2), (7, None)]:
            low_us = None if low is None else START_US + low * HOUR_US + 5_000_000
            high_us = None if high is None else START_US + high * HOUR_US + 5_000_000
            times = everything.column("time").combine_chunks().view(pa.int64()).to_pylist()
            expected = [
                offset
                for offset, time in enumerate(times)
                if (low_us is None or time >= low_us) and (high_us is None or time < high_us)
            ]
            found = topic.slice(columns=[], event_time=(low_us, high_us)).column("_offset").to_pylist()
            assert found == expected, (low, high)


def test_one_stray_event_does_not_make_a_slice_read_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        topic = ten_hours(log, clock)
        opened: list[int] = []
        from penstock.log.segment import Segment

        real = Segment.payloads

        def spy(self: Segment, frames: list[object]) -> object:
            opened.extend(1 for _ in frames)
            return real(self, frames)  # type: ignore[arg-type]

        monkeypatch.setattr(Segment, "payloads", spy)
        hour = START_US + 7 * HOUR_US
        assert topic.slice(event_time=(hour, hour + 10_000_000)).num_rows == 10
        assert len(opened) == 1


def test_slices_of_arrival_are_exact(tmp_path: Path) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        topic = ten_hours(log, clock)
        (partition,) = topic.partitions
        assert topic.slice(arrived=(START_US + 3 * HOUR_US, START_US + 5 * HOUR_US)).num_rows == 42
        assert topic.slice(arrived=[(None, START_US + 1), (START_US + 9 * HOUR_US, None)]).num_rows == 42
        assert [partition.offset_at(START_US + hour * HOUR_US) for hour in (-1, 0, 4, 9, 10)] == [0, 0, 84, 189, 210]
        assert partition.offset_at(START_US + 4 * HOUR_US + 1) == 105


def test_only_the_columns_asked_for_come(tmp_path: Path) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        topic = ten_hours(log, clock)
        assert topic.slice(columns=["n"]).column_names == ["n", "_partition", "_offset", "_arrived", "_late"]
        assert topic.slice(columns=[]).column_names == ["_partition", "_offset", "_arrived", "_late"]


def test_old_records_are_read_with_a_grown_schema(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = log.create("t", "a int, s struct<x: int>", segment_bytes=4096)
        topic.append(pa.Table.from_pylist([{"a": 1, "s": {"x": 2}}], topic.schema))
        topic.seal(active=True)
        topic.append(pa.Table.from_pylist([{"a": 3, "s": None}], topic.schema))
        with FolderLog(tmp_path, background=False) as other:
            other.topic("t").alter(schema="a bigint, s struct<x: bigint, y: string>, more string")
            newer = other.topic("t")
            newer.append(pa.Table.from_pylist([{"a": 2**40, "s": {"x": 1, "y": "y"}, "more": "m"}], newer.schema))
        topic.refresh()
        assert topic.slice().select(["a", "s", "more"]).to_pylist() == [
            {"a": 1, "s": {"x": 2, "y": None}, "more": None},
            {"a": 3, "s": None, "more": None},
            {"a": 2**40, "s": {"x": 1, "y": "y"}, "more": "m"},
        ]


def test_a_reader_that_has_not_heard_of_a_new_schema_learns_it_from_the_frames(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = log.create("t", "a int")
        with FolderLog(tmp_path, background=False) as other:
            other.topic("t").alter(schema="a int, b int")
            newer = other.topic("t")
            newer.append(pa.Table.from_pylist([{"a": 1, "b": 2}], newer.schema))
        assert topic.slice(columns=["a"]).column("a").to_pylist() == [1]
        assert topic.slice().select(["a", "b"]).to_pylist() == [{"a": 1, "b": 2}]


def test_time_moves_between_pieces(tmp_path: Path) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        (partition,) = small_topic(log).partitions
        for n in range(30):
            partition.append(rows([n]))
            clock.move(timedelta(seconds=1))
        assert partition.offset_at(START_US + 10_000_000) == 10
        assert partition.offset_at(START_US + 10_000_001) == 11
