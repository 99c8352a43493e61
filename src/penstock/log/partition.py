"""A partition: an ordered, append-only sequence of records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.clock import DAY_US
from penstock.errors import ArrivalAhead, ArrivalRefused
from penstock.log.hours import Hours, TimeRange

if TYPE_CHECKING:
    from penstock.log.topic import Topic

ARRIVED = pa.timestamp("us", tz="UTC")
AHEAD_MAX_US = DAY_US
"""An arrival that is brought along may lie so far ahead of the clock: another machine had another time."""
Offsets = dict[int, int]
"""One offset per partition. As an end it is exclusive: the offset of the next record."""
Ranges = TimeRange | Sequence[TimeRange] | None
"""One time range, several, or no limit."""
Sequences = npt.NDArray[np.int64]
"""Ascending numbers that a producer gives to its records."""


@dataclass(frozen=True)
class Appended:
    """What became of a batch."""

    base_offset: int
    """Offset of the first record that was stored."""
    count: int
    """How many were stored."""
    duplicates: int
    """How many were stored before already, by the same producer."""
    arrived_us: int
    offsets: Sequences | None = None
    """Of each record that was stored, where they need not follow one another."""

    def offsets_of(self, first: int, stop: int) -> Sequences:
        """The offsets of some of the records that were stored, counted from 0."""
        if self.offsets is None:
            return np.arange(self.base_offset + first, self.base_offset + stop)
        return self.offsets[first:stop]

    def ranges_of(self, first: int, stop: int) -> list[tuple[int, int]]:
        """The same as ranges of offsets that follow one another."""
        return ranges_of(self.offsets_of(first, stop))


def ranges_of(offsets: Sequences) -> list[tuple[int, int]]:
    """Ascending offsets as ranges, each from its first up to the one behind its last.

    >>> ranges_of(np.array([3, 4, 5, 9]))
    [(3, 6), (9, 10)]
    """
    if not len(offsets):
        return []
    breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(offsets, breaks)]


class Reached(Protocol):
    """Where a partition ends."""

    @property
    def offset(self) -> int:
        """The offset that the next record will get."""

    @property
    def arrived_us(self) -> int:
        """The greatest arrival so far; no later record has a smaller one."""


@dataclass(frozen=True)
class Piece:
    """Records that lie together and are read together. What is not known of them is said as wide as can be."""

    start: int
    stop: int
    rows: int
    bytes: int
    arrived_min: int
    arrived_max: int
    hours: Hours


@dataclass(frozen=True)
class Described:
    """What a partition holds, as numbers for people."""

    start: int
    end: int
    records: int
    bytes: int | None
    """None where nobody knows."""
    sealed: int | None
    """How many of its segments are sealed; None where there is no such thing."""
    hot: int | None
    arrived_us: tuple[int, int] | tuple[None, None]
    """The least and the greatest arrival; None without a record."""


class Partition(ABC):
    """One ordered part of a topic.

    `append` returns once the records are safe; only then can readers see them. Any number of threads and processes may
    use a partition at once, but a handle does not survive a fork.
    """

    def __init__(self, topic: Topic, number: int) -> None:
        self.topic = topic
        self.number = number
        self.place = f"{topic.name}/{number}"

    @abstractmethod
    def append(
        self,
        batch: pa.RecordBatch,
        *,
        arrived: pa.Array | None = None,
        producer: bytes | None = None,
        producer_epoch: int = 0,
        sequences: Sequences | None = None,
    ) -> Appended:
        """Stores the batch behind everything there is, and returns when it is safe.

        `arrived` brings arrival times along instead of taking them from the clock; they may not decrease, nor go back
        before what is there. With a `producer`, records whose sequence was stored before are left out.
        """

    @property
    @abstractmethod
    def signal(self) -> Path:
        """A file that changes whenever something was appended: watch it to be woken."""

    @abstractmethod
    def end(self) -> Reached:
        """The committed end: offsets below `end().offset` can be read. Cheap."""

    @abstractmethod
    def start_offset(self) -> int:
        """The first offset that retention has left."""

    @abstractmethod
    def last_sequence(self, producer: bytes) -> int | None:
        """The last sequence that this producer has stored here, removed records included; None if none."""

    @abstractmethod
    def read(
        self,
        start: int,
        stop: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        arrived: Ranges = None,
        event_time: Ranges = None,
    ) -> Iterator[pa.RecordBatch]:
        """The records from `start` up to `stop`: the columns asked for, then _partition, _offset, _arrived and _late.

        Raises OffsetOutOfRange where retention removed what `start` asks for.
        """

    @abstractmethod
    def pieces(self, start: int, stop: int | None = None) -> Sequence[Piece]:
        """The parts that hold these offsets, in order. Reads no records."""

    @abstractmethod
    def describe(self) -> Described:
        """What it holds."""

    @abstractmethod
    def offset_at(self, arrived_us: int) -> int:
        """The first offset that arrived at this moment or later; the end if none did."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of everything."""

    def _check_stamps(self, stamps: Sequences, after_us: int) -> None:
        """Arrivals that were brought along: ArrivalRefused where they go back, ArrivalAhead beyond the clock."""
        if not len(stamps):
            return
        if int(stamps[0]) < after_us or (np.diff(stamps) < 0).any():
            raise ArrivalRefused(self.place, int(stamps[0]), after_us)
        now_us = self.topic.log.clock()
        if int(stamps[-1]) > now_us + AHEAD_MAX_US:
            raise ArrivalAhead(self.place, int(stamps[-1]), now_us)
