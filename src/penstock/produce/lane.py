"""A lane: the way of a producer's events into one partition, with a thread of its own so that syncs overlap."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import RecordTooLarge
from penstock.log.partition import Appended
from penstock.produce.ack import Answer, Buried, Delivery, Failed, Stored
from penstock.produce.spill import Waiting

ROWS_MAX = 1 << 16
BYTES_MAX = 16 << 20
"""What waits is stored together, up to these limits: one sync serves all."""

DEAD_LETTERS = -1
"""The number of the lane that leads to the dead letters."""


class Append(Protocol):
    """Stores a batch durably: `Partition.append`, or that of the dead letters."""

    def __call__(
        self,
        batch: pa.RecordBatch,
        *,
        producer: bytes | None,
        producer_epoch: int,
        sequences: npt.NDArray[np.int64] | None,
    ) -> Appended: ...


class Load:
    """What is put on the lanes together; it takes memory until all of it is answered."""

    __slots__ = ("length", "open_chunks", "room", "spilled")

    def __init__(self, length: int, room: int, spilled: Waiting | None) -> None:
        self.length = length
        """Bytes on the lanes."""
        self.room = room
        """Bytes of the buffer that it still occupies."""
        self.spilled = spilled
        """The frame of the spill that it was read from, if it is done with when all is answered."""
        self.open_chunks = 1
        """Chunks without an answer, and one more while chunks are being added."""


class Chunk:
    """Rows of one delivery for one partition."""

    __slots__ = ("batch", "delivery", "epoch", "load", "part", "producer", "sequences")

    def __init__(
        self, delivery: Delivery, part: int, load: Load, batch: pa.RecordBatch,
        sequences: npt.NDArray[np.int64], producer: bytes | None, epoch: int,
    ) -> None:  # fmt: skip
        self.delivery = delivery
        self.part = part
        self.load = load
        self.batch = batch
        self.sequences = sequences
        self.producer = producer
        self.epoch = epoch

    def can_follow(self, before: Chunk) -> bool:
        """Whether both can be stored as one batch."""
        return (
            self.producer == before.producer
            and self.epoch == before.epoch
            and (self.producer is None or self.sequences[0] > before.sequences[-1])
            and self.batch.schema.equals(before.batch.schema)
        )


Answered = Callable[[Sequence[tuple[Chunk, Answer]]], None]
TooLarge = Callable[[Sequence[Chunk], RecordTooLarge], list[Chunk]]


class Lane:
    """Stores the chunks of one partition, one after the other, in the order they were put.

    While a batch is being synced, further chunks gather and are then stored together (group commit). After the first
    failure the lane is closed for good: everything behind gets the same error, so nothing overtakes what was lost.
    """

    def __init__(
        self, number: int, name: str, append: Append, lock: threading.Lock, *,
        on_taken: Callable[[], None], on_answers: Answered, on_large: TooLarge,
    ) -> None:  # fmt: skip
        """All `on_` are called with the lock held, from the lane's thread; `on_large` gives back what is left."""
        self.number = number
        self.queue: deque[Chunk] = deque()
        self.failure: Failed | None = None
        self._append = append
        self._lock = lock
        self._ready = threading.Condition(lock)
        self._is_stopping = False
        self._on_taken = on_taken
        self._on_answers = on_answers
        self._on_large = on_large
        self._thread = threading.Thread(target=self._run, name=f"penstock lane {name}", daemon=True)
        self._is_started = False

    def put(self, chunk: Chunk) -> None:
        """Adds a chunk behind the others. Needs the lock."""
        if self.failure is not None:
            self._on_answers([(chunk, self.failure)])
            return
        self.queue.append(chunk)
        if not self._is_started:
            self._thread.start()
            self._is_started = True
        self._ready.notify()

    def stop(self) -> None:
        """Ends the thread once nothing is queued. Needs the lock."""
        self._is_stopping = True
        self._ready.notify()

    def join(self) -> None:
        """Waits for the end of the thread. Must not be called with the lock."""
        if self._is_started:
            self._thread.join()

    def _run(self) -> None:
        while chunks := self._take():
            try:
                answers = self._stored_without_large(chunks)
            except BaseException as error:  # Whatever it is, somebody waits for it.
                answers = None
                failure = Failed(error)
            with self._lock:
                if answers is not None:
                    self._on_answers(answers)
                else:
                    self._fail(chunks, failure)
            del chunks, answers  # A sleeping thread holds no memory.

    def _take(self) -> list[Chunk]:
        """The chunks to store next, empty when the lane ends."""
        with self._lock:
            while not self.queue:
                if self._is_stopping:
                    return []
                self._ready.wait()
            chunks = [self.queue.popleft()]
            rows, length = chunks[0].batch.num_rows, chunks[0].batch.nbytes
            while self.queue and self.queue[0].can_follow(chunks[-1]):
                rows += self.queue[0].batch.num_rows
                length += self.queue[0].batch.nbytes
                if rows > ROWS_MAX or length > BYTES_MAX:
                    break
                chunks.append(self.queue.popleft())
            if not self.queue:
                self._on_taken()
            return chunks

    def _stored_without_large(self, chunks: list[Chunk]) -> list[tuple[Chunk, Answer]]:
        """Records that the log has no place for are taken out of `chunks`; their neighbours are stored."""
        try:
            return self._stored(chunks)
        except RecordTooLarge as error:
            if not error.rows or self.number == DEAD_LETTERS:
                raise
            with self._lock:
                chunks[:] = self._on_large(chunks, error)
        return self._stored(chunks) if chunks else []

    def _stored(self, chunks: list[Chunk]) -> list[tuple[Chunk, Answer]]:
        first = chunks[0]
        together = len(chunks) > 1
        batch = pa.concat_batches([chunk.batch for chunk in chunks]) if together else first.batch
        sequences = None
        if first.producer is not None:
            sequences = np.concatenate([chunk.sequences for chunk in chunks]) if together else first.sequences
        appended = self._append(batch, producer=first.producer, producer_epoch=first.epoch, sequences=sequences)
        assert appended.count + appended.duplicates == batch.num_rows, (appended, batch.num_rows)
        return list(zip(chunks, self._answers(chunks, appended), strict=True))

    def _answers(self, chunks: list[Chunk], appended: Appended) -> list[Answer]:
        """What the answer for all means for each: duplicates come first, what was stored follows."""
        if self.number == DEAD_LETTERS:
            return [Buried(chunk.batch.num_rows) for chunk in chunks]
        answers: list[Answer] = []
        before = 0
        for chunk in chunks:
            rows = chunk.batch.num_rows
            duplicates = min(max(appended.duplicates - before, 0), rows)
            stored_before = max(before - appended.duplicates, 0)
            offsets = appended.offsets_of(stored_before, stored_before + rows - duplicates)
            answers.append(Stored(self.number, offsets, duplicates))
            before += rows
        return answers

    def _fail(self, chunks: list[Chunk], failure: Failed) -> None:
        """These chunks failed, and with them all behind."""
        self.failure = failure
        behind = list(self.queue)
        self.queue.clear()
        self._on_answers([(chunk, failure) for chunk in chain(chunks, behind)])
