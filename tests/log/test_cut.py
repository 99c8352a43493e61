"""Cuts along arrival time over all partitions."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.log.rows import rows, small_topic


def with_arrivals(log: FolderLog, lanes: list[list[int]], *, sealed: bool) -> FolderTopic:
    """One partition per list; each number is the arrival of one record."""
    topic = small_topic(log, partitions=len(lanes))
    for partition, arrivals in zip(topic.partitions, lanes, strict=True):
        for at in range(0, len(arrivals), 5):
            chunk = sorted(arrivals)[at : at + 5]
            stamps = pa.array(chunk, pa.int64()).view(pa.timestamp("us", "UTC"))
            partition.append(rows(range(len(chunk))), arrived=stamps)
    if sealed:
        topic.seal(active=True)
    return topic


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 50), max_size=30), min_size=1, max_size=3),
    st.integers(1, 20),
    st.booleans(),
)
def test_cuts_take_what_arrived_next_within_the_limit_and_reach_the_end(
    lanes: list[list[int]], max_rows: int, sealed: bool
) -> None:
    with tempfile.TemporaryDirectory() as root, FolderLog(Path(root), background=False) as log:
        topic = with_arrivals(log, lanes, sealed=sealed)
        at = topic.start()
        steps = 0
        while at != topic.end():
            after = topic.cut(at, max_rows=max_rows)
            taken = sum(after.values()) - sum(at.values())
            left = sum(topic.end().values()) - sum(at.values())
            assert taken == min(max_rows, left)
            assert all(after[number] >= at[number] for number in at)
            inside = [sorted(lane)[at[n] : after[n]] for n, lane in enumerate(lanes)]
            outside = [sorted(lane)[after[n] :] for n, lane in enumerate(lanes)]
            newest = max((stamp for lane in inside for stamp in lane), default=0)
            assert all(stamp >= newest for lane in outside for stamp in lane), "no partition runs ahead"
            at = after
            steps += 1
        assert steps == -(-sum(map(len, lanes)) // max_rows)


def test_a_limit_of_bytes_is_kept_and_one_record_always_goes(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = with_arrivals(log, [[*range(100)], [*range(100)]], sealed=False)
        total = sum(piece.bytes for partition in topic.partitions for piece in partition.pieces(0))
        half = topic.cut(topic.start(), max_bytes=total // 2)
        assert 80 <= sum(half.values()) <= 101
        assert abs(half[0] - half[1]) <= 1
        assert sum(topic.cut(topic.start(), max_bytes=1).values()) == 1


def test_without_limits_a_cut_is_the_end_and_never_passes_until(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        topic = with_arrivals(log, [[1, 2, 3], [5]], sealed=False)
        assert topic.cut({0: 0, 1: 0}) == {0: 3, 1: 1}
        assert topic.cut({0: 0, 1: 0}, until={0: 2, 1: 0}) == {0: 2, 1: 0}
        assert topic.cut({0: 3, 1: 1}, max_rows=5) == {0: 3, 1: 1}
