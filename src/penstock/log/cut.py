"""Cuts: one offset per partition, chosen along arrival time over all partitions.

A cut at a moment takes, of every partition, the records that arrived before it. So however the log is cut into steps,
each step holds what arrived next, and no partition runs ahead of the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.log.partition import Offsets
from penstock.log.reading import FolderPiece, pieces, read

if TYPE_CHECKING:
    from penstock.log.folder_partition import FolderPartition
    from penstock.log.folder_topic import FolderTopic


def cut(
    topic: FolderTopic,
    after: Mapping[int, int],
    *,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    until: Mapping[int, int] | None = None,
) -> Offsets:
    """The next cut after `after`: as much as the limits allow, at least one record if there is any.

    `until` is the farthest it may go; without it that is the committed end.
    """
    assert max_rows is None or max_rows > 0, max_rows
    assert max_bytes is None or max_bytes > 0, max_bytes
    farthest = dict(topic.end() if until is None else until)
    lanes = [
        _Lane.of(topic.partitions[number], after.get(number, 0), stop, max_rows)
        for number, stop in sorted(farthest.items())
    ]
    behind = [lane for lane in lanes if lane.pieces]
    reached = {lane.partition.number: lane.start for lane in lanes}

    def fits(offsets: Offsets) -> bool:
        rows = sum(lane.rows(offsets[lane.partition.number]) for lane in behind)
        size = sum(lane.bytes(offsets[lane.partition.number]) for lane in behind)
        return (max_rows is None or rows <= max_rows) and (max_bytes is None or size <= max_bytes)

    def at(moment: int) -> Offsets:
        return {**reached, **{lane.partition.number: lane.offset_at(moment) for lane in behind}}

    everything = {lane.partition.number: lane.stop for lane in lanes}
    if not behind or fits(everything):
        return everything
    low = min(lane.pieces[0].arrived_min for lane in behind)
    high = max(lane.pieces[-1].arrived_max for lane in behind) + 1
    moment = _last(low, high, lambda candidate: fits(at(candidate)))
    return _fill(at(moment), at(moment + 1), fits, is_empty=at(moment) == reached)


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The greatest number in [low, high) for which `holds`, which is true for `low` and false from some point on."""
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _fill(base: Offsets, more: Offsets, fits: Callable[[Offsets], bool], *, is_empty: bool) -> Offsets:
    """Takes as many records of the next moment as still fit, partition by partition; one at least if there are none."""
    chosen = dict(base)
    for number, stop in sorted(more.items()):

        def with_stop(offset: int, number: int = number) -> Offsets:
            return {**chosen, number: offset}

        chosen[number] = _last(chosen[number], stop + 1, lambda offset: fits(with_stop(offset)))
    if is_empty and chosen == base:
        number = next(number for number, stop in sorted(more.items()) if stop > base[number])
        chosen[number] += 1
    return chosen


@dataclass
class _Lane:
    """One partition between two offsets."""

    partition: FolderPartition
    start: int
    stop: int
    pieces: list[FolderPiece]
    _arrivals: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)

    @staticmethod
    def of(partition: FolderPartition, start: int, stop: int, max_rows: int | None) -> _Lane:
        start = max(start, partition.start_offset())
        # One more than may be taken: enough to see that there is more.
        near = stop if max_rows is None else min(stop, start + max_rows + 1)
        found = pieces(partition, start, near) if near > start else []
        return _Lane(partition, start, near if near < stop else stop, found)

    def rows(self, offset: int) -> int:
        return offset - self.start

    def bytes(self, offset: int) -> int:
        total = 0.0
        for piece in self.pieces:
            taken = min(offset, piece.stop) - max(self.start, piece.start)
            if taken > 0:
                total += piece.bytes * taken / (piece.stop - piece.start)
        return int(total)

    def offset_at(self, moment: int) -> int:
        """The first offset that arrived at the moment or later."""
        number = bisect_left(self.pieces, moment, key=lambda piece: piece.arrived_max)
        if number == len(self.pieces):
            return self.stop
        piece = self.pieces[number]
        if piece.arrived_min >= moment:
            return min(max(piece.start, self.start), self.stop)
        if number not in self._arrivals:
            self._arrivals[number] = arrivals(self.partition, piece)
        offsets, stamps = self._arrivals[number]
        found = int(np.searchsorted(stamps, moment))
        offset = int(offsets[found]) if found < len(offsets) else piece.stop
        return min(max(offset, self.start), self.stop)


def arrivals(partition: FolderPartition, piece: FolderPiece) -> npt.NDArray[np.int64]:
    """Offsets and arrivals of the records of one piece, as two rows."""
    table = pa.Table.from_batches(read(partition, max(piece.start, partition.start_offset()), piece.stop, columns=[]))
    return np.stack(
        [table.column("_offset").to_numpy(), table.column("_arrived").combine_chunks().view(pa.int64()).to_numpy()]
    )


def offset_at(partition: FolderPartition, moment: int) -> int:
    """The first offset of a partition that arrived at the moment or later; its end if none did."""
    start = partition.start_offset()
    lane = _Lane.of(partition, start, partition.end().offset, None)
    return lane.offset_at(moment) if lane.pieces else lane.stop
