"""The memory of a producer: what was sent and not yet taken by its sender, and the choice when there is no room."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from time import monotonic
from typing import Any, Literal

import numpy as np

from penstock.produce.ack import ALL_ROWS, Ack, Delivery, Failed

OnFull = Literal["block", "drop", "spill"]
BATCH_BYTES = 4 << 20
"""A batch goes at once when it is this large."""

_FLAT = frozenset({int, float, bool, type(None), datetime, date, Decimal})


class Shipment(Delivery):
    """Events on their way: first as they were sent, then as Arrow, then only the answers."""

    __slots__ = ("born", "data", "is_adopted", "length", "number", "open_frames", "sequences")

    def __init__(self, lock: threading.Lock, number: int, data: Any, rows: int = 0) -> None:
        super().__init__(lock, rows)
        self.number = number
        """Counts up; `flush` waits for all up to one."""
        self.data = data
        self.sequences: list[int] | None = None
        """The sequence of each row, or of the first row only. None: the sender counts."""
        self.length = 0
        """Bytes that it takes, roughly."""
        self.born = monotonic()
        self.is_adopted = False
        """Whether it was sent by another producer, which died."""
        self.open_frames = 1
        """Frames of it that wait in the spill, and one more until all of it is encoded."""


class Buffer:
    """Gathers events until the sender takes them, and holds senders back (or drops) when the memory is full.

    Any number of threads may add. All methods but `add_event` and `add_many` need the lock.
    """

    def __init__(
        self, lock: threading.Lock, *, capacity: int, batch_rows: int, on_full: OnFull, work: threading.Condition,
        progress: threading.Condition, check_sequence: Callable[[int | None, int], None], needs_sequence: bool,
    ) -> None:  # fmt: skip
        self.queue: deque[Shipment] = deque()
        self.unsettled: dict[int, Shipment] = {}
        """Everything that has no answer yet, oldest first."""
        self.refusal: Failed | None = None
        """Why nothing more can be sent."""
        self.dropped = 0
        self.blocked = 0
        """How many threads wait for room."""
        self.blocked_seconds = 0.0
        self.last_number = 0
        self.is_idle = False
        """Whether the sender sleeps until something comes."""
        self._lock = lock
        self._capacity = capacity
        self._room = capacity
        self._batch_rows = batch_rows
        self._on_full = on_full
        self._work = work
        self._progress = progress
        self._check_sequence = check_sequence
        self._needs_sequence = needs_sequence
        self._open: Shipment | None = None
        self._dropped = Delivery(lock)
        self._dropped.is_settled = True

    def add_event(self, event: dict[str, Any], sequence: int | None) -> Ack:
        """Takes in one event, which may be changed by its owner afterwards."""
        event, length = own_copy(event)
        with self._lock:
            if (length > self._room or self.refusal is not None) and not self._make_room(length):
                self.dropped += 1
                return Ack(self._dropped, 0, 1)
            if sequence is not None or self._needs_sequence:
                self._check_sequence(sequence, 1)
            shipment = self._open
            if shipment is None:
                self._open = shipment = self._new_shipment([])
            row = shipment.rows
            shipment.rows = row + 1
            shipment.data.append(event)
            if sequence is not None:
                shipment.sequences = shipment.sequences or []
                shipment.sequences.append(sequence)
            shipment.length += length
            self._room -= length
            if self.is_idle:
                self._wake()
            if row + 1 >= self._batch_rows or shipment.length >= BATCH_BYTES:
                self.close_open()
                self._work.notify()
        return Ack(shipment, row, 1)

    def add_many(self, data: Any, rows: int | None, length: int, sequence: int | None) -> Ack:
        """Takes in what travels on its own. `rows` is None where only the sender will know."""
        with self._lock:
            if (length > self._room or self.refusal is not None) and not self._make_room(length):
                self.dropped += rows or 0
                return Ack(self._dropped, 0, rows or 0)
            if sequence is not None or self._needs_sequence:
                self._check_sequence(sequence, rows or 0)
            if rows == 0:
                return Ack(self._dropped, 0, 0)
            self.close_open()
            shipment = self._new_shipment(data, rows or 0)
            shipment.sequences = None if sequence is None else [sequence]
            shipment.length = length
            self._room -= length
            self._work.notify()
        return Ack(shipment, 0, ALL_ROWS if rows is None else rows)

    # --- for the sender ---

    def close_open(self) -> None:
        """What comes now begins a new batch."""
        self._open = None

    @property
    def is_large(self) -> bool:
        """Whether enough has gathered to make a good batch."""
        rows = length = 0
        for shipment in islice(self.queue, 64):
            rows += shipment.rows
            length += shipment.length
        return rows >= self._batch_rows or length >= BATCH_BYTES or len(self.queue) >= 64

    @property
    def is_half_full(self) -> bool:
        return self._room < self._capacity // 2

    def take(self) -> list[Shipment]:
        """The next batch: the oldest shipments, as many as go well together."""
        self._open = None
        taken = [self.queue.popleft()]
        rows, length = taken[0].rows, taken[0].length
        while self.queue and rows + self.queue[0].rows <= self._batch_rows and length < BATCH_BYTES:
            rows += self.queue[0].rows
            length += self.queue[0].length
            taken.append(self.queue.popleft())
        return taken

    def give_back(self, length: int) -> None:
        """So many bytes are free again, for those who wait for room."""
        if length:
            self._room += length
            self._progress.notify_all()

    def settle(self, shipment: Shipment) -> None:
        """All of this shipment has its answer."""
        self.unsettled.pop(shipment.number, None)
        self._progress.notify_all()

    def refuse(self, failure: Failed) -> None:
        """From now on, and for those who wait for room, there is only this. The first reason stays."""
        self.refusal = self.refusal or failure
        self._progress.notify_all()

    def fail_all(self, failure: Failed) -> None:
        """Everything that has no answer gets this one."""
        for shipment in self.unsettled.values():
            shipment.fail(failure)
        self.unsettled.clear()
        self.queue.clear()
        self._progress.notify_all()

    def adopt(self, rows: int) -> Shipment:
        """A shipment for what a dead producer left."""
        self.last_number += 1
        shipment = self.unsettled[self.last_number] = Shipment(self._lock, self.last_number, None, rows)
        shipment.is_adopted = True
        return shipment

    def forked(
        self, lock: threading.Lock, work: threading.Condition, progress: threading.Condition, failure: Failed
    ) -> None:
        """In a child of a fork nothing can be sent, and what the parent sent is the parent's."""
        self._lock, self._work, self._progress, self.refusal = lock, work, progress, failure
        for shipment in self.unsettled.values():
            shipment.fail(failure, wake=False)
        self.unsettled.clear()
        self.queue.clear()

    def _new_shipment(self, data: Any, rows: int = 0) -> Shipment:
        self.last_number += 1
        shipment = Shipment(self._lock, self.last_number, data, rows)
        self.unsettled[self.last_number] = shipment
        self.queue.append(shipment)
        return shipment

    def _wake(self) -> None:
        self.is_idle = False
        self._work.notify()

    def _make_room(self, length: int) -> bool:
        """Returns True when there is room, False if the event is to be dropped. Raises if there never will be."""
        while True:
            if self.refusal is not None:
                self.refusal.raise_it()
            # What is larger than the whole buffer goes alone, when there is nothing else.
            if length <= self._room or self._room >= self._capacity:
                return True
            if self._on_full == "drop":
                return False
            self.blocked += 1
            self._work.notify()
            since = monotonic()
            try:
                self._progress.wait()
            finally:
                self.blocked -= 1
                self.blocked_seconds += monotonic() - since


def own_copy(event: Any) -> tuple[Any, int]:
    """A copy that its owner cannot change any more, and roughly how many bytes of memory it takes."""
    if type(event) is not dict:
        return _deep_copy(event)
    event = event.copy()
    length = 128 + 64 * len(event)
    for value in event.values():
        kind = type(value)
        if kind is str or kind is bytes:
            length += len(value)
        elif kind not in _FLAT:
            return _deep_copy(event)
    return event, length


def _deep_copy(value: Any) -> tuple[Any, int]:
    """Copies what can be changed, all the way down."""
    if isinstance(value, dict):
        copies = {name: _deep_copy(item) for name, item in value.items()}
        return {name: copy for name, (copy, _) in copies.items()}, 128 + sum(length for _, length in copies.values())
    if isinstance(value, list | tuple):
        items = [_deep_copy(item) for item in value]
        return [copy for copy, _ in items], 128 + sum(length for _, length in items)
    if isinstance(value, bytearray | memoryview):
        return bytes(value), 64 + len(value)
    if isinstance(value, np.ndarray):
        return value.copy(), 128 + value.nbytes
    return value, 64 + (len(value) if isinstance(value, str | bytes) else 0)
