"""How far one consumer is in one partition, and the records that come next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from penstock.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from penstock.consume.assignment import TopicPartition
    from penstock.log.partition import Partition

logger = logging.getLogger("penstock.log")

OnRemoved = Literal["continue", "raise"]
STRETCH_RECORDS = 1 << 20
"""So many offsets are looked up at once while a consumer is far behind."""
BATCH_BYTES_MAX = 64 << 20
"""A batch is handed over as soon as it is larger than this."""


@dataclass(frozen=True)
class Records:
    """Consecutive records of one partition, as one Arrow batch.

    The columns are those of the topic, then `_partition`, `_offset`, `_arrived` and `_late`. Offsets run from `start`
    up to `stop`; on a compacted topic some in between are missing.
    """

    topic: str
    partition: int
    batch: pa.RecordBatch
    start: int
    stop: int

    def __len__(self) -> int:
        return int(self.batch.num_rows)


class Position:
    """How far a consumer is in one partition it owns.

    `processed <= delivered`: what is delivered is in the application's hands, what is processed may be committed. One
    thread at a time.
    """

    def __init__(
        self,
        key: TopicPartition,
        partition: Partition,
        offset: int,
        *,
        reader: str = "a consumer",
        on_removed: OnRemoved = "continue",
        count_removed: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.key = key
        self.partition = partition
        self.delivered = offset
        self.processed = offset
        self.committed = offset
        self.is_in_hand = False
        """The application has records of this partition that do not count as processed yet."""
        self.is_wanted_elsewhere = False
        """Another member is to have it: no more is read, and it is given up as soon as nothing is in hand."""
        self.is_open = True
        """False once it was given up or lost."""
        self._reader = reader
        self._on_removed = on_removed
        self._count_removed = count_removed
        self._read_to = self._stretch_stop = offset
        self._stretch: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None

    def lag(self) -> int:
        """How many records are there that were not delivered yet."""
        return max(0, self.partition.end().offset - self.delivered)

    def settle(self) -> None:
        """Everything delivered counts as processed."""
        self.processed = self.delivered
        self.is_in_hand = False

    def seek(self, offset: int) -> None:
        """Goes on from there. OffsetOutOfRange if the partition does not reach there."""
        start, end = self.partition.start_offset(), self.partition.end().offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(self.partition.place, offset, start, end)
        self.delivered = offset
        self.settle()

    def deliver(self, stop: int) -> None:
        """Records up to `stop` go to the application."""
        self.delivered = stop
        self.is_in_hand = True

    def next_records(self, rows_max: int) -> Records | None:
        """The records after the last delivered, at most so many; None if there are none. Delivers nothing by itself."""
        while True:
            if self.delivered != self._read_to:
                self._rewind()
            try:
                return self._read_on(rows_max)
            except BaseException as error:
                self._rewind()  # A stretch that was broken off looks like one that is finished.
                if not isinstance(error, OffsetOutOfRange):
                    raise
                self.partition.topic.refresh()  # TopicDeleted if another topic bears the name by now.
                if self._on_removed == "raise":
                    raise
                self._pass_over_removed(error)

    def _read_on(self, rows_max: int) -> Records | None:
        end = self.partition.end().offset
        if self.delivered > end:
            raise OffsetOutOfRange(self.partition.place, self.delivered, self.partition.start_offset(), end)
        while True:
            batches = self._take(rows_max)
            if batches:
                batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
                return Records(self.key.topic, self.key.partition, batch, self.delivered, self._read_to)
            self._pass_over(self._read_to)  # Compaction left nothing in between.
            if self._read_to >= end:
                return None
            self.partition.topic.refresh()
            self._stretch_stop = min(end, self._read_to + STRETCH_RECORDS)
            self._stretch = self.partition.read(self._read_to, self._stretch_stop)

    def _take(self, rows_max: int) -> list[pa.RecordBatch]:
        """Batches of the current stretch, up to the limits; none at its end."""
        taken: list[pa.RecordBatch] = []
        rows = size = 0
        while rows < rows_max and size < BATCH_BYTES_MAX:
            batch = self._rest if self._rest is not None else next(self._stretch, None)
            if batch is None:
                self._read_to = self._stretch_stop
                break
            part = batch.slice(0, rows_max - rows)
            self._rest = batch.slice(part.num_rows) if part.num_rows < batch.num_rows else None
            self._read_to = part.column("_offset")[-1].as_py() + 1
            taken.append(part)
            rows += part.num_rows
            size += part.nbytes
        return taken

    def _rewind(self) -> None:
        """Reads on after the last delivered: after a seek, or when what was read was not delivered."""
        self._read_to = self._stretch_stop = self.delivered
        self._stretch, self._rest = iter(()), None

    def _pass_over_removed(self, gone: OffsetOutOfRange) -> None:
        """Never silently: says how many are gone, counts them, and goes on with the nearest that is there."""
        nearest = max(gone.start, min(self.delivered, gone.end))
        logger.warning("consumer: %s reads %s on at offset %d\n%s", self._reader, self.key, nearest, gone)
        self._count_removed(max(0, nearest - self.delivered))
        self._pass_over(nearest)
        self._rewind()

    def _pass_over(self, offset: int) -> None:
        self.delivered = offset
        if not self.is_in_hand:
            self.processed = offset
