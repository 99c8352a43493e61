"""The thread behind a producer: takes what was sent, makes it Arrow, and puts it on the lanes or into the spill."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import ForkedHandle, NotAcknowledged, ProducerClosed
from penstock.events.encode import Encoded, encode
from penstock.events.schema import upgrade
from penstock.log.producers import spilled_producer
from penstock.produce import live_senders
from penstock.produce.ack import Failed, Positions
from penstock.produce.buffer import Buffer, OnFull, Shipment
from penstock.produce.lanes import Counts, Identity, Lanes
from penstock.produce.spill import Spill, Waiting
from penstock.produce.spill_file import Content

if TYPE_CHECKING:
    from penstock.log.topic import Topic

logger = logging.getLogger("penstock.log")

SPILL_FRAME_BYTES = 16 << 20


class Sender:
    """Everything of a producer but its public face. Lives until it is closed and all it was given has an answer.

    One thread encodes and decides the order; a lane per partition stores. All share one lock. An exception in any of
    the threads becomes the answer of those who wait for it: nobody waits for ever, and no error is lost.
    """

    def __init__(
        self, topic: Topic, identity: Identity, *, linger: float, batch_rows: int, buffer_bytes: int, on_full: OnFull,
        spill_directory: Path, check_sequence: Callable[[int | None, int], None],
    ) -> None:  # fmt: skip
        self._topic = topic
        self._identity = identity
        self._linger = linger
        self._can_spill = on_full == "spill"
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        # With a spill, a part of the memory is for what waits to be spilled, the rest for what is on the lanes.
        waiting_bytes = buffer_bytes // 4 if self._can_spill else buffer_bytes
        self.buffer = Buffer(
            self._lock, capacity=waiting_bytes, batch_rows=batch_rows, on_full=on_full, work=self._work,
            progress=self._progress, check_sequence=check_sequence, needs_sequence=identity.is_named,
        )  # fmt: skip
        self._lanes = Lanes(
            topic, identity, self._lock, self.buffer,
            length_max=buffer_bytes - waiting_bytes if self._can_spill else buffer_bytes,
            on_news=self._on_news, on_finished=self._on_finished,
        )  # fmt: skip
        self._spill = Spill(spill_directory, topic.definition.id, is_repeated=identity.is_named)
        self._finished: list[Waiting] = []
        self._next_sequence = 0
        self._urgent_number = 0
        self._is_closing = False
        self._waits_for_lanes = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"penstock sender {topic.name}", daemon=True)
        self._thread.start()
        live_senders.add(self)

    # --- for the producer ---

    def flush(self, timeout: float | None) -> None:
        """Returns when everything sent before has its answer. Raises the first error since the last flush."""
        deadline = None if timeout is None else monotonic() + timeout
        with self._lock:
            target = self.buffer.last_number
            self.buffer.close_open()
            self._urgent_number = max(self._urgent_number, target)
            self._work.notify()
            while next(iter(self.buffer.unsettled), target + 1) <= target:
                remaining = None if deadline is None else deadline - monotonic()
                if remaining is not None and remaining <= 0:
                    waiting = sum(number <= target for number in self.buffer.unsettled)
                    raise NotAcknowledged(f"what was sent to {self._topic.name!r}", timeout or 0.0, waiting)
                self._progress.wait(remaining)
            self._raise_failure()

    def close(self, timeout: float | None = None) -> None:
        """Takes everything to disk and ends the threads. Raises what failed. Harmless the second time."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._is_closing = True
            self.buffer.close_open()
            self.buffer.refuse(Failed(ProducerClosed(self._topic.name)))
            self._work.notify()
        self._thread.join(timeout)
        with self._lock:
            if self._thread.is_alive():
                waiting = len(self.buffer.unsettled)
                raise NotAcknowledged(f"what was sent to {self._topic.name!r}", timeout or 0.0, waiting)
            self._raise_failure()

    def abandon(self) -> None:
        """The producer was thrown away without closing it: what was sent still goes to disk, in the background."""
        # In a thread of its own: the garbage collector may have called from a place that holds our lock.
        threading.Thread(target=self._close_quietly, name="penstock abandoned producer", daemon=True).start()

    def forked(self) -> None:
        """In a child of a fork: its threads are not here, so nothing can be sent, and nothing is waited for."""
        failure = Failed(ForkedHandle(f"the producer of {self._topic.name}", self._pid, os.getpid()))
        self._lock = threading.Lock()  # The old one may be held by a thread that does not exist here.
        self._work = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        self.buffer.forked(self._lock, self._work, self._progress, failure)
        self._spill.let_go()

    def summary(self) -> tuple[Counts, Buffer]:
        """A copy of the counts, and the buffer for its own."""
        with self._lock:
            counts = copy(self._lanes.counts)
            counts.sent += sum(shipment.rows for shipment in self.buffer.queue)
            return counts, self.buffer

    def _raise_failure(self) -> None:
        failure, self._lanes.failure = self._lanes.failure, None
        if failure is not None:
            failure.raise_it()

    def _close_quietly(self) -> None:
        try:
            self.close()
        except Exception as error:
            logger.error("a producer of %s was thrown away without closing it: %s", self._topic.name, error)

    # --- the thread ---

    def _run(self) -> None:
        try:
            self._adopt()
            while (job := self._next_job()) is not None:
                job()
        except BaseException as error:  # Whatever it is, somebody waits for an answer.
            self._give_up(error)
        with self._lock:
            self._lanes.stop()
        self._lanes.join()
        live_senders.remove(self)
        self._finish_spilled()
        self._spill.close()

    def _next_job(self) -> Callable[[], None] | None:
        """Sleeps until there is something to do. None: everything is done, and the producer closed."""
        with self._lock:
            while True:
                if self._finished:
                    return self._finish_spilled
                if self._spill.waiting and self._lanes.has_room(self._spill.waiting[0].length):
                    return self._drain
                seconds = self._seconds_until_ready()
                if seconds is not None and seconds <= 0:
                    return partial(self._send, self.buffer.take())
                if self._is_closing and not self.buffer.unsettled:
                    return None
                self._work.wait(seconds)
                self.buffer.is_idle = self._waits_for_lanes = False

    def _seconds_until_ready(self) -> float | None:
        """How long to gather before the next batch is taken; None: until something happens."""
        queue = self.buffer.queue
        if not queue:
            self.buffer.is_idle = True
            self._waits_for_lanes = bool(self._spill.waiting) or self._is_closing
            return None
        if self._spill.waiting:  # What comes now goes behind it: to disk as well, but only if memory gets short.
            self._waits_for_lanes = True
            may_spill = self._can_spill and not self._spill.is_holding
            return 0.0 if may_spill and (self.buffer.is_half_full or self.buffer.blocked) else None
        if self._is_closing or queue[0].number <= self._urgent_number or self.buffer.is_large:
            return 0.0
        if self._can_spill and (self.buffer.is_half_full or self.buffer.blocked):
            return 0.0
        seconds = 0.0 if self.buffer.blocked else queue[0].born + self._linger - monotonic()
        if seconds > 0 or self._lanes.are_hungry:
            return seconds
        self._waits_for_lanes = True  # Every lane has more than it can do: the longer the batch, the better.
        return None

    def _send(self, shipments: Sequence[Shipment]) -> None:
        """Makes shipments ready for the log and dispatches them, in order."""
        for shipment in shipments:
            try:
                self._topic.refresh()
                encoded = encode(shipment.data, self._topic.schema)
                letters = encoded.rejected and self._lanes.dead_letters.batch(encoded.rejected, self._identity.label)
            except Exception as error:
                with self._lock:
                    self._lanes.fail(shipment, Failed(error))
            else:
                shipment.data = None
                self._dispatch(shipment, encoded, letters or None)

    def _dispatch(self, shipment: Shipment, encoded: Encoded, letters: pa.RecordBatch | None) -> None:
        """To the lanes if they have room and nothing waits in front, else into the spill."""
        sequences = self._sequences(shipment, encoded.batch.num_rows + len(encoded.rejected))
        self._shrink(shipment, encoded.batch.nbytes + (0 if letters is None else letters.nbytes))
        kept = np.arange(len(sequences)) if encoded.kept is None else encoded.kept
        content = Content(encoded.batch, sequences[kept], self._identity.producer, self._identity.epoch)
        with self._lock:
            is_full = bool(self._spill.waiting) or not self._lanes.has_room(shipment.length)
        is_spilled = self._can_spill and is_full and len(kept) > 0
        length = 0 if is_spilled else shipment.length
        load = self._lanes.load(length, room=0 if self._can_spill else shipment.length)
        if letters is not None:
            buried = np.array([one.index for one in encoded.rejected], np.int64)
            self._lanes.put_dead(shipment, content._replace(batch=letters, sequences=sequences[buried]), buried, load)
        if is_spilled:
            self._put_into_spill(shipment, content, kept)
        elif len(kept):
            self._lanes.put(shipment, content, kept, load)
        with self._lock:
            if self._can_spill:
                self.buffer.give_back(shipment.length)
            self._lanes.close_frame(shipment)
            self._lanes.close_load(load)

    def _sequences(self, shipment: Shipment, rows: int) -> Positions:
        """The sequence of each row: as the user gave them, or counted here."""
        with self._lock:
            self._lanes.counts.sent += rows
            shipment.rows = rows
        given = shipment.sequences
        if given is not None and len(given) == rows:
            return np.array(given, np.int64)
        first = self._next_sequence if given is None else given[0]
        self._next_sequence = first + rows
        return np.arange(first, first + rows, dtype=np.int64)

    def _shrink(self, shipment: Shipment, length: int) -> None:
        """As Arrow it takes less memory than as Python objects."""
        with self._lock:
            self.buffer.give_back(shipment.length - length)
            shipment.length = length

    def _on_news(self) -> None:
        if self._waits_for_lanes:
            self._work.notify()

    def _give_up(self, error: BaseException) -> None:
        """The thread cannot go on. Everybody who waits is told, and everybody who comes."""
        logger.error("the producer of %s stopped: %r", self._topic.name, error)
        failure = Failed(error)
        with self._lock:
            self._lanes.failure = self._lanes.failure or failure
            self.buffer.refuse(failure)
            self.buffer.fail_all(failure)

    # --- the spill ---

    def _put_into_spill(self, shipment: Shipment, content: Content, positions: Positions) -> None:
        content = content._replace(producer=spilled_producer(content.producer))
        batch, sequences = content.batch, content.sequences
        rows = max(1, batch.num_rows * SPILL_FRAME_BYTES // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            piece = content._replace(batch=batch.slice(start, rows), sequences=sequences[start : start + rows])
            shipment.open_frames += 1
            if self._spill.put(piece, (shipment, positions[start : start + rows])):
                with self._lock:
                    self._lanes.counts.spilled += piece.batch.num_rows

    def _adopt(self) -> None:
        """Takes over what dead producers of this topic left behind; it goes first."""
        try:
            rows = self._spill.adopt()
        except OSError as error:
            logger.warning("spill: cannot look for events left in %s: %s", self._spill.directory, error)
            return
        if rows:
            logger.warning("spill: sending %d events that dead producers of %s left behind", rows, self._topic.name)
        with self._lock:
            for frame in self._spill.waiting:
                frame.label = (self.buffer.adopt(frame.rows), np.arange(frame.rows))

    def _drain(self) -> None:
        """Puts the next frame of the spill on the lanes."""
        frame = self._spill.take()
        shipment, positions = frame.label
        load = self._lanes.load(frame.length, spilled=frame)
        try:
            content = frame.load()
            self._topic.refresh()
            if not content.batch.schema.equals(self._topic.schema):
                content = content._replace(batch=upgrade(content.batch, self._topic.schema))
        except Exception as error:
            logger.error("%s", error)
            with self._lock:
                self._lanes.fail_rows(shipment, positions, Failed(error))
        else:
            self._lanes.put(shipment, content, positions, load)
        with self._lock:
            self._lanes.close_frame(shipment)
            self._lanes.close_load(load)

    def _on_finished(self, frame: Waiting) -> None:
        self._finished.append(frame)
        self._work.notify()

    def _finish_spilled(self) -> None:
        with self._lock:
            finished, self._finished = self._finished, []
        for frame in finished:
            self._spill.finish(frame)
