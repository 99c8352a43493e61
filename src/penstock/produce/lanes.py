"""All lanes of one producer: which rows go where, what their answers mean, and what is still under way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyarrow as pa

from penstock.errors import ProducerFenced, RecordTooLarge, TopicDeleted
from penstock.events.encoded import Rejected, raw_of
from penstock.log.producers import named_producer
from penstock.produce.ack import Answer, Failed, Positions, Stored
from penstock.produce.buffer import Buffer, Shipment
from penstock.produce.dead_letters import DeadLetters
from penstock.produce.lane import DEAD_LETTERS, Chunk, Lane, Load
from penstock.produce.spill import Waiting
from penstock.produce.spill_file import Content

if TYPE_CHECKING:
    from penstock.log.topic import Routed, Topic

logger = logging.getLogger("penstock.log")

TURN_ROWS = 64
"""Without a key, so many events go to one partition before it is the next one's turn: fewer syncs."""


class Identity(NamedTuple):
    """Who sends: what makes it harmless to send something twice."""

    label: str
    """For people: the producer's name, or its id."""
    producer: bytes
    epoch: int
    is_named: bool
    """Whether its owner chose the name, and repeats what was not acknowledged."""
    is_remembered: bool
    """Whether partitions shall remember its sequences; who never sends anything twice needs it not."""


class Counts:
    """What became of the events that left the buffer."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = self.rejected = self.duplicates = self.spilled = self.failed = self.adopted = 0


class Lanes:
    """A lane for each partition that is needed, and one for the dead letters.

    Everything needs the producer's lock but `put`, `put_dead`, `load` and `join`, which take it.
    """

    def __init__(
        self, topic: Topic, identity: Identity, lock: threading.Lock, buffer: Buffer, *, length_max: int,
        on_news: Callable[[], None], on_finished: Callable[[Waiting], None],
    ) -> None:  # fmt: skip
        """`on_news`: a lane has taken or answered something. `on_finished`: a frame of the spill is done with."""
        self.counts = Counts()
        self.failure: Failed | None = None
        """The first failure that nobody was told of by `flush`."""
        self.dead_letters = DeadLetters(topic)
        self._topic = topic
        self._identity = identity
        self._lock = lock
        self._buffer = buffer
        self._length = 0
        self._length_max = length_max
        self._on_news = on_news
        self._on_finished = on_finished
        self._halt: Failed | None = None
        self._lanes: dict[int, Lane] = {}

    def has_room(self, length: int) -> bool:
        """Whether so many bytes more may be put. There is always room for something."""
        return self._length == 0 or self._length + length <= self._length_max

    @property
    def are_hungry(self) -> bool:
        """Whether some lane has nothing queued behind what it is storing."""
        return not self._lanes or any(not lane.queue for lane in self._lanes.values())

    def load(self, length: int, *, room: int = 0, spilled: Waiting | None = None) -> Load:
        """Begins to put things that take so many bytes. `close_load` ends it."""
        with self._lock:
            self._length += length
        return Load(length, room, spilled)

    def put(self, shipment: Shipment, content: Content, positions: Positions, load: Load) -> None:
        """Rows of a shipment, at these positions in it: each goes to the lane of its partition."""
        producer = content.producer if self._identity.is_remembered or shipment.is_adopted else None
        routed = self._route(content)
        with self._lock:
            for number, batch, rows in routed:
                part = shipment.add_part(positions[rows])
                self._put(number, Chunk(shipment, part, load, batch, content.sequences[rows], producer, content.epoch))

    def put_dead(self, shipment: Shipment, letters: Content, positions: Positions, load: Load) -> None:
        """Rows of a shipment that were rejected, as dead letters."""
        # Only those who repeat could bury something twice.
        producer = letters.producer if self._identity.is_named else None
        with self._lock:
            part = shipment.add_part(positions)
            chunk = Chunk(shipment, part, load, letters.batch, letters.sequences, producer, letters.epoch)
            self._put(DEAD_LETTERS, chunk)

    def close_load(self, load: Load) -> None:
        """One chunk has its answer, or no more come: when that holds for all, the memory is free."""
        load.open_chunks -= 1
        if load.open_chunks == 0:
            self._length -= load.length
            self._buffer.give_back(load.room)
            if load.spilled is not None:
                self._on_finished(load.spilled)

    def close_frame(self, shipment: Shipment) -> None:
        """All rows of a frame of this shipment were put."""
        shipment.open_frames -= 1
        if shipment.open_frames == 0 and shipment.finish_cutting():
            self._buffer.settle(shipment)

    def fail(self, shipment: Shipment, failure: Failed) -> None:
        """Nothing of this shipment can be sent, and nobody knows to which partitions it would have gone."""
        self.counts.sent += shipment.rows
        self.counts.failed += shipment.rows
        self._note(failure)
        self._halt_if_named(failure)
        shipment.fail(failure)
        self._buffer.give_back(shipment.length)
        self._buffer.settle(shipment)

    def fail_rows(self, shipment: Shipment, positions: Positions, failure: Failed) -> None:
        """These rows of a shipment cannot be sent; nobody knows to which partitions they would have gone."""
        part = shipment.add_part(positions)
        self._count(shipment, len(positions), failure)
        self._halt_if_named(failure)
        shipment.answer(part, failure)

    def stop(self) -> None:
        """Ends the threads when they have nothing to do any more."""
        for lane in self._lanes.values():
            lane.stop()

    def join(self) -> None:
        """Waits for the threads. Nothing may be put any more."""
        for lane in self._lanes.values():
            lane.join()

    # --- where to ---

    def _route(self, content: Content) -> list[Routed]:
        """By key; without one by turns, but so that an event sent again comes to the same partition again."""
        count = len(self._topic.partitions)
        if count == 1 or self._topic.definition.key:
            return self._topic.route(content.batch)
        numbers = (content.sequences // TURN_ROWS + content.producer[-1]) % count
        routed: list[Routed] = []
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            routed.append((number, content.batch.take(pa.array(rows)), rows))
        return routed

    def _put(self, number: int, chunk: Chunk) -> None:
        chunk.load.open_chunks += 1
        if self._halt is not None:
            self._on_answers([(chunk, self._halt)])
            return
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = self._new_lane(number)
        lane.put(chunk)

    def _new_lane(self, number: int) -> Lane:
        is_dead = number == DEAD_LETTERS
        name = self.dead_letters.name if is_dead else f"{self._topic.name}/{number}"
        append = self.dead_letters.append if is_dead else self._topic.partitions[number].append
        return Lane(number, name, append, self._lock, on_taken=self._on_news, on_answers=self._on_answers,
                    on_large=self._set_aside)  # fmt: skip

    def _set_aside(self, chunks: Sequence[Chunk], error: RecordTooLarge) -> list[Chunk]:
        """Records that are too large for the log become dead letters. Returns the chunks without them."""
        rest, start = [], 0
        for chunk in chunks:
            stop = start + chunk.batch.num_rows
            large = np.array([row - start for row in error.rows if start <= row < stop], np.int64)
            if len(large) < stop - start:
                rest.append(chunk)
            if len(large):
                self._bury(chunk, large, [error.reason(start + int(row)) for row in large], error)
            start = stop
        return rest

    def _bury(self, chunk: Chunk, large: Positions, reasons: Sequence[str], error: RecordTooLarge) -> None:
        """Takes rows out of a chunk and puts them on the lane of the dead letters; all of them, if they are all."""
        raws = map(raw_of, chunk.batch.take(pa.array(large)).to_pylist())
        letters = self.dead_letters.batch(
            [Rejected(raw, reason, None, int(row)) for raw, reason, row in zip(raws, reasons, large, strict=True)],
            self._identity.label,
        )  # fmt: skip
        # Letters of other lanes may be ahead of these; then the log would take them for duplicates under the same id.
        producer = named_producer(f"too large for {error.place}: {chunk.producer.hex()}") if chunk.producer else None
        is_all = len(large) == chunk.batch.num_rows
        part = chunk.part if is_all else chunk.delivery.cut_off(chunk.part, large)
        sequences = chunk.sequences[large]
        self._put(DEAD_LETTERS, Chunk(chunk.delivery, part, chunk.load, letters, sequences, producer, chunk.epoch))
        if is_all:
            self.close_load(chunk.load)
        else:
            kept = np.delete(np.arange(chunk.batch.num_rows), large)
            chunk.batch, chunk.sequences = chunk.batch.take(pa.array(kept)), chunk.sequences[kept]

    # --- answers ---

    def _on_answers(self, answers: Sequence[tuple[Chunk, Answer]]) -> None:
        for chunk, answer in answers:
            shipment = cast(Shipment, chunk.delivery)
            self._count(shipment, chunk.batch.num_rows, answer)
            if isinstance(answer, Failed) and shipment.is_adopted:
                chunk.load.spilled = None  # It stays in its file: nobody but the next producer can send it again.
            if shipment.answer(chunk.part, answer):
                self._buffer.settle(shipment)
            self.close_load(chunk.load)
        self._on_news()

    def _count(self, shipment: Shipment, rows: int, answer: Answer) -> None:
        if isinstance(answer, Failed):
            if shipment.is_adopted:
                logger.error("spill: %d events of a dead producer could not be sent: %s", rows, answer.error)
                return
            self.counts.failed += rows
            self._note(answer)
        elif shipment.is_adopted:
            self.counts.adopted += rows
        else:
            self.counts.acknowledged += rows
            if isinstance(answer, Stored):
                self.counts.duplicates += answer.duplicates
            else:
                self.counts.rejected += rows

    def _note(self, failure: Failed) -> None:
        """The next flush raises it; and if nothing can be stored any more, so does every send."""
        self.failure = self.failure or failure
        failed = sum(lane.failure is not None for number, lane in self._lanes.items() if number != DEAD_LETTERS)
        is_final = isinstance(failure.error, ProducerFenced | TopicDeleted)
        if is_final or failed == len(self._topic.partitions):
            self._buffer.refuse(failure)

    def _halt_if_named(self, failure: Failed) -> None:
        """What is lost will be repeated by its owner; a later one that is stored first would make it a duplicate."""
        if self._identity.is_named:
            self._halt = self._halt or failure
            self._buffer.refuse(failure)
