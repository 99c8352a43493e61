"""What became of the events that were sent: `Ack` now, `Receipt` later.

Events that travel together share one `Delivery`; an `Ack` is only a delivery and a range of its rows, so that an
acknowledgement costs next to nothing per event.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from penstock.errors import NotAcknowledged
from penstock.log.partition import ranges_of

Positions = npt.NDArray[np.int64]


class OffsetRange(NamedTuple):
    """Consecutive offsets of one partition, from `start` up to, not including, `stop`."""

    partition: int
    start: int
    stop: int


@dataclass(frozen=True)
class Receipt:
    """Where the events of one `send` are: all of them are on disk, or counted here as what became of them."""

    ranges: tuple[OffsetRange, ...]
    """The offsets they got. Others may have written in between, so there can be several ranges per partition."""
    rejected: int = 0
    """How many did not fit the schema; they are in the dead-letter topic, with the reason."""
    duplicates: int = 0
    """How many were stored before, by a producer of the same name and with the same sequence."""
    dropped: int = 0
    """How many were dropped because the buffer was full (on_full="drop")."""

    @property
    def stored(self) -> int:
        """How many were stored in the topic."""
        return sum(stop - start for _, start, stop in self.ranges)

    @property
    def partition(self) -> int | None:
        """The partition, where one event was sent; None if it was not stored. For many, see `ranges`."""
        return self.ranges[0].partition if self.ranges else None

    @property
    def offset(self) -> int | None:
        """The offset, where one event was sent; None if it was not stored. For many, see `ranges`."""
        return self.ranges[0].start if self.ranges else None


class Ack:
    """The answer to one `send`, which comes when its events are on disk.

    Keep it or drop it: `flush()` of the producer waits for everything and raises what failed.
    """

    __slots__ = ("_count", "_delivery", "_start")

    def __init__(self, delivery: Delivery, start: int, count: int) -> None:
        self._delivery = delivery
        self._start = start
        self._count = count

    @property
    def done(self) -> bool:
        """Whether there is an answer, good or bad. Never waits."""
        return self._delivery.is_answered(self._start, self._count)

    def wait(self, timeout: float | None = None) -> Receipt:
        """Returns when the events are on disk. Raises what kept them from it.

        NotAcknowledged after `timeout` seconds: the events are still under way, and `wait` may be called again.
        """
        return self._delivery.wait(self._start, self._count, timeout)


class Stored(NamedTuple):
    """The answer of a partition for one part of a delivery."""

    partition: int
    offsets: Positions
    """Of the rows that were not duplicates."""
    duplicates: int
    """So many rows at the beginning of the part were stored before."""


class Buried(NamedTuple):
    """The answer for the part of a delivery that went to the dead letters."""

    rows: int


class Failed:
    """The answer for a part that could not be stored."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self._trace = error.__traceback__

    def raise_it(self) -> NoReturn:
        """Many may wait for one error; its traceback begins anew each time, at the place where it happened."""
        raise self.error.with_traceback(self._trace)


Answer = Stored | Buried | Failed
ALL_ROWS = -1
"""As the count of an `Ack`: every row of its delivery. How many JSON lines a text holds is known only later."""


class Delivery:
    """Events that travel together, until each part of them has its answer.

    The sender cuts the rows into parts (`add_part`), one for each partition that they go to; each is answered once.
    Everything but `is_answered` and `wait` needs the producer's lock, which all conditions of a producer share.
    """

    __slots__ = (
        "_answers",
        "_failure",
        "_is_cut",
        "_open_parts",
        "_part_of",
        "_slot_of",
        "_some",
        "is_settled",
        "rows",
    )

    def __init__(self, lock: threading.Lock, rows: int = 0) -> None:
        self.rows = rows
        """Known at once for dicts and tables, else when the sender has read the text."""
        self.is_settled = False
        """Whether everything has its answer."""
        self._some = threading.Condition(lock)
        self._answers: list[Answer | None] = []
        self._open_parts = 0
        self._is_cut = False
        self._part_of: npt.NDArray[np.int32] | None = None
        self._slot_of: npt.NDArray[np.int32] | None = None
        self._failure: Failed | None = None

    # --- for the sender ---

    def add_part(self, positions: Positions) -> int:
        """Rows that will be answered together. Returns the number of the part."""
        if self._part_of is None or self._slot_of is None:
            self._part_of = np.full(self.rows, -1, np.int32)
            self._slot_of = np.empty(self.rows, np.int32)
        part = len(self._answers)
        self._answers.append(None)  # First, for `done` reads without the lock.
        self._slot_of[positions] = np.arange(len(positions), dtype=np.int32)
        self._part_of[positions] = part
        self._open_parts += 1
        return part

    def cut_off(self, part: int, slots: Positions) -> int:
        """Some rows of a part, counted within it, will be answered on their own. Returns the number of their part."""
        assert self._part_of is not None, part
        assert self._slot_of is not None, part
        positions = np.flatnonzero(self._part_of == part)
        positions = positions[np.argsort(self._slot_of[positions])]
        self._slot_of[np.delete(positions, slots)] = np.arange(len(positions) - len(slots), dtype=np.int32)
        return self.add_part(positions[slots])

    def finish_cutting(self) -> bool:
        """All rows are in parts now. Whether the delivery is settled."""
        self._is_cut = True
        settled = self._settle_if_complete()
        self._some.notify_all()
        return settled

    def answer(self, part: int, answer: Answer) -> bool:
        """Wakes those who wait for these rows. Whether the delivery is settled."""
        assert self._answers[part] is None, (part, self._answers[part], answer)
        self._answers[part] = answer
        self._open_parts -= 1
        settled = self._settle_if_complete()
        self._some.notify_all()
        return settled

    def fail(self, failure: Failed, *, wake: bool = True) -> None:
        """Every row that has no answer yet gets this one."""
        self._failure = failure
        self.is_settled = True
        if wake:
            self._some.notify_all()

    def _settle_if_complete(self) -> bool:
        self.is_settled = self.is_settled or (self._is_cut and self._open_parts == 0)
        return self.is_settled

    # --- for those who wait ---

    def is_answered(self, start: int, count: int) -> bool:
        """Whether rows `start` to `start + count` have their answers."""
        if self.is_settled:
            return True
        if self._part_of is None or count == ALL_ROWS:
            return False
        parts = self._part_of[start : start + count]
        if count > 1:
            parts = np.unique(parts)
        return all(part >= 0 and self._answers[part] is not None for part in parts.tolist())

    def wait(self, start: int, count: int, timeout: float | None) -> Receipt:
        """The receipt for these rows. Raises the error of the first of them that failed."""
        if not self.is_settled:
            deadline = None if timeout is None else monotonic() + timeout
            with self._some:
                while not self.is_answered(start, count):
                    remaining = None if deadline is None else deadline - monotonic()
                    if remaining is not None and remaining <= 0:
                        raise NotAcknowledged("this send", timeout or 0.0)
                    self._some.wait(remaining)
        return self._receipt(start, self.rows if count == ALL_ROWS else count)

    def _receipt(self, start: int, count: int) -> Receipt:
        if self._part_of is None or self._slot_of is None:
            if self._failure is not None:
                self._failure.raise_it()
            return Receipt((), dropped=count)  # Settled without ever having been sent.
        part_of, slot_of = self._part_of[start : start + count], self._slot_of[start : start + count]
        ranges: list[OffsetRange] = []
        rejected = duplicates = 0
        for part in [int(part_of[0])] if count == 1 else np.unique(part_of).tolist():
            answer = (
                self._answers[part] if part >= 0 else None
            ) or self._failure  # A NamedTuple that is not empty is true.
            assert answer is not None, (part, self._answers)
            if isinstance(answer, Failed):
                answer.raise_it()
            elif isinstance(answer, Stored):
                slots = slot_of[part_of == part] - answer.duplicates
                new = answer.offsets[slots[slots >= 0]]
                duplicates += len(slots) - len(new)
                ranges.extend(OffsetRange(answer.partition, *each) for each in ranges_of(new))
            else:
                rejected += int((part_of == part).sum())
        return Receipt(tuple(ranges), rejected, duplicates)
