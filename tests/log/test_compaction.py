"""Compaction: of each key the newest record stays."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import TopicDefinitionError
from penstock.log.compaction import READERS_GRACE_US
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.testing import ManualClock
from tests.log.rows import SCHEMA, rows


def table_of(topic: FolderTopic) -> dict[str, int]:
    """The topic read as a table: the last record of each key wins."""
    table = topic.slice(columns=["user", "n"])
    return dict(zip(table.column("user").to_pylist(), table.column("n").to_pylist(), strict=True))


def changes(log: FolderLog) -> FolderTopic:
    topic = log.create("users", SCHEMA, key="user", compact=True, segment_bytes=4096, event_time="time")
    for start in range(0, 300, 10):
        topic.append(rows(range(start, start + 10)))
    return topic


def test_a_compacted_topic_is_the_same_table_in_fewer_records(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = changes(log)
        before = table_of(topic)
        topic.seal()
        (done,) = topic.compact()
        assert done.after < done.before
        assert table_of(topic) == before
        end = topic.end()
        offsets = topic.slice(columns=[]).column("_offset").to_pylist()
        assert offsets == sorted(set(offsets))
        topic.append(rows([1000]))
        assert topic.end() == {0: end[0] + 1}, "offsets never change"
        topic.seal(active=True)
        topic.compact()
        assert table_of(topic) == {**before, "u6": 1000}
        assert topic.slice().num_rows == 7


def test_readers_of_a_replaced_file_have_time_to_finish(tmp_path: Path) -> None:
    clock = ManualClock()
    with FolderLog(tmp_path, background=False, clock=clock) as log:
        topic = changes(log)
        topic.seal(active=True)
        files = {s.file for s in topic.partitions[0].manifest().segments}
        topic.compact()
        assert files <= set(os.listdir(topic.partitions[0].directory))
        clock.move(timedelta(microseconds=READERS_GRACE_US))
        topic.compact()
        assert not files & set(os.listdir(topic.partitions[0].directory))
        assert topic.slice().num_rows == 7


def test_null_and_nan_are_keys_like_others(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = log.create("t", "k double, n int", key="k", compact=True)
        for n, key in enumerate([None, float("nan"), 0.0, -0.0, None, float("nan")]):
            topic.append(pa.Table.from_pylist([{"k": key, "n": n}], topic.schema))
        topic.seal(active=True)
        topic.compact()
        assert topic.slice().column("n").to_pylist() == [3, 4, 5]


def test_only_a_topic_with_a_key_can_be_compacted(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        with pytest.raises(TopicDefinitionError, match="a key to compact by"):
            log.create("t", SCHEMA, compact=True)
        topic = log.create("plain", SCHEMA)
        topic.append(rows([1, 1]))
        topic.seal(active=True)
        assert topic.compact() == []
