"""Loading: a whole file becomes records of a topic, each row once, however often the load is run.

The rows of a file are numbered, and stored under a producer of their own that is known by the topic, the name of the
file and its content. So a load that was killed is run again: what is there is left out, what is missing is added.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import ArrivalColumnError, ArrivalRefused, FileChanged, RecordTooLarge
from penstock.events.encode import Encoded, Rejected
from penstock.events.encoded import raw_of
from penstock.events.keys import partition_of
from penstock.load.row_source import Format, RowSource, fingerprint, format_of, state_of
from penstock.log.partition import AHEAD_MAX_US, ARRIVED, Appended
from penstock.log.producers import named_producer
from penstock.produce.dead_letters import DeadLetters

if TYPE_CHECKING:
    from penstock.log.topic import Topic

Numbers = npt.NDArray[np.int64]
Progress = Callable[[str, int, int, int], None]
"""Is told what is being done ("reading" or "storing"), how many bytes of how many are done, and how many rows."""

TURN_ROWS = 4096
"""Without a key, so many rows go to one partition before it is the next one's turn. Never changed: a load that is run
again must find each row in the partition where it was put."""
THREADS_MAX = 8
BEFORE_ALL = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Loaded:
    """What became of the rows of a file: `rows` = `stored` + `duplicates` + `rejected`."""

    rows: int
    stored: int
    duplicates: int
    """Were stored before, by an earlier run of the same load; rows among the dead letters too."""
    rejected: int
    """Did not fit; they are in the dead-letter topic now."""
    seconds: float

    @property
    def was_loaded(self) -> bool:
        """Whether an earlier run had stored all of it already."""
        return self.duplicates > 0 and self.stored == 0 and self.rejected == 0


def load(
    topic: Topic,
    path: Path,
    *,
    kind: Format | None = None,
    arrived: str | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """Stores the rows of a file, durably, and says what became of them.

    `arrived` names the column whose running maximum over the file is when the records arrived; without it they arrive
    now. ArrivalRefused, before anything is stored, if the topic holds later arrivals. The column need not be one of the
    topic's. A kill leaves part of the rows; the same call then adds the others. Memory is bounded.
    """
    began = time.monotonic()
    one = _Load(topic, path, kind or format_of(path), arrived, progress or (lambda *_: None))
    one.run()
    return Loaded(one.rows, one.stored, one.duplicates, one.rejected, time.monotonic() - began)


class _Load:
    def __init__(self, topic: Topic, path: Path, kind: Format, arrived: str | None, progress: Progress) -> None:
        self.topic = topic
        self.path = path
        self.arrived = arrived
        self.rows = self.stored = self.duplicates = self.rejected = 0
        self._progress = progress
        self._state = state_of(path)
        schema, extra = self._schema()
        self._source = RowSource(path, kind, topic.name, schema, extra=extra)
        self._is_extra = bool(extra)
        content = fingerprint(path, lambda done, total: progress("reading", done, total, 0))
        self._producer = named_producer(f"load {topic.definition.id} {path.name} {content}")
        self._seen = {each.number: each.last_sequence(self._producer) for each in topic.partitions}
        self._dead_letters = DeadLetters(topic)
        self._greatest = BEFORE_ALL
        self._limits: dict[int, int] = {}
        self._is_checked = arrived is None

    def run(self) -> None:
        def advance(done: int, total: int) -> None:
            self._progress("storing", done, total, self.rows)

        with ThreadPoolExecutor(min(len(self.topic.partitions) + 1, THREADS_MAX)) as pool:
            under_way: list[Future[Appended]] = []
            for encoded in self._source.pieces(advance):
                if state_of(self.path) != self._state:
                    raise FileChanged(self.path, self.rows)
                # Read and sorted while the piece before is being stored; but piece after piece reaches the disk.
                jobs = self._jobs(encoded)
                self._settle(under_way)
                under_way = [pool.submit(job) for job in jobs]
            self._settle(under_way)

    def _settle(self, under_way: list[Future[Appended]]) -> None:
        for number, future in enumerate(under_way):
            answer = future.result()
            self.duplicates += answer.duplicates
            if number == 0:
                self.rejected += answer.count
            else:
                self.stored += answer.count

    def _jobs(self, encoded: Encoded) -> list[Callable[[], Appended]]:
        """What is to be stored of one piece: the dead letters first, then a part for each partition."""
        first = self.rows
        total = encoded.batch.num_rows + len(encoded.rejected)
        kept = np.arange(total, dtype=np.int64) if encoded.kept is None else encoded.kept
        batch, numbers, stamps, rejected = encoded.batch, kept + first, None, encoded.rejected
        self.rows += total
        if self.arrived is not None:
            batch, numbers, stamps, nowhere = self._arrivals(batch, numbers, first)
            rejected = [*rejected, *nowhere]
        try:
            self.topic.check_sizes(self.topic.name, batch)
        except RecordTooLarge as error:
            places = sorted(error.rows)
            raws = map(raw_of, batch.take(pa.array(places)).to_pylist())
            large = [
                Rejected(raw, error.reason(row), None, int(numbers[row]) - first)
                for raw, row in zip(raws, places, strict=True)
            ]
            rejected = [*rejected, *large]
            kept = np.delete(np.arange(batch.num_rows), places)
            batch, numbers = batch.take(pa.array(kept)), numbers[kept]
            stamps = None if stamps is None else stamps[kept]
        partitions = self._route(batch, numbers)
        if stamps is not None:
            self._check_arrivals(partitions, numbers, stamps)
        jobs = [self._bury(sorted(rejected, key=lambda one: one.index), first)]
        for number in np.unique(partitions).tolist():
            rows = np.flatnonzero(partitions == number)
            jobs.append(self._append(number, batch, rows, numbers[rows], None if stamps is None else stamps[rows]))
        return jobs

    def _append(
        self, number: int, batch: pa.RecordBatch, rows: Numbers, sequences: Numbers, stamps: Numbers | None
    ) -> Callable[[], Appended]:
        partition = self.topic.partitions[number]
        part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
        arrived = None if stamps is None else pa.array(stamps, pa.int64()).view(ARRIVED)
        return lambda: partition.append(part, arrived=arrived, producer=self._producer, sequences=sequences)

    def _bury(self, rejected: list[Rejected], first: int) -> Callable[[], Appended]:
        if not rejected:
            return lambda: Appended(0, 0, 0, 0)
        letters = self._dead_letters.batch(rejected, f"load {self.path.name}")
        sequences = np.array([first + one.index for one in rejected], np.int64)
        return lambda: self._dead_letters.append(letters, producer=self._producer, sequences=sequences)

    def _route(self, batch: pa.RecordBatch, numbers: Numbers) -> npt.NDArray[np.int32]:
        """The partition of each row, which depends on the row and its number and on nothing else."""
        count = len(self.topic.partitions)
        if self.topic.definition.key and batch.num_rows:
            return partition_of(batch, self.topic.definition.key, count)
        return (numbers // TURN_ROWS % count).astype(np.int32)

    # --- arrival ---

    def _schema(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The columns to read, and those of them that are not the topic's."""
        schema = self.topic.schema
        if self.arrived is None:
            return schema, ()
        if self.arrived not in schema.names:
            return schema.append(pa.field(self.arrived, ARRIVED)), (self.arrived,)
        found = schema.field(self.arrived).type
        if not pa.types.is_timestamp(found):
            raise ArrivalColumnError(self.path, self.arrived, f"a column of type {found}")
        return schema, ()

    def _arrivals(
        self, batch: pa.RecordBatch, numbers: Numbers, first: int
    ) -> tuple[pa.RecordBatch, Numbers, Numbers, list[Rejected]]:
        """The rows with their arrivals: the greatest value of the column so far. Before the first there is none."""
        column = batch.column(self.arrived).view(pa.int64())
        if first == 0 and batch.num_rows and column.null_count == len(column):
            raise ArrivalColumnError(self.path, self.arrived or "", f"no value in the first {len(column)} rows")
        given = column.fill_null(BEFORE_ALL).to_numpy()
        is_ahead = given > self.topic.log.clock() + AHEAD_MAX_US
        given = np.where(is_ahead, BEFORE_ALL, given)
        stamps = np.maximum.accumulate(np.maximum(given, self._greatest)) if len(given) else given
        if len(stamps):
            self._greatest = int(stamps[-1])
        has_none = is_ahead | (stamps == BEFORE_ALL)
        nowhere = [
            Rejected(
                raw_of(batch.slice(int(row), 1).to_pylist()[0]),
                "expected a time of arrival that has come, found one in the future"
                if is_ahead[row]
                else "expected a time of arrival in this row or one before it, found none",
                self.arrived,
                int(numbers[row]) - first,
            )
            for row in np.flatnonzero(has_none)
        ]
        if self._is_extra:
            batch = batch.drop_columns([self.arrived])
        if nowhere:
            batch = batch.filter(pa.array(~has_none))
        return batch, numbers[~has_none], stamps[~has_none], nowhere

    def _check_arrivals(self, partitions: npt.NDArray[np.int32], numbers: Numbers, stamps: Numbers) -> None:
        """Before the first row that is new: refused if a partition holds later arrivals that are not of this load.

        A partition may end with the arrival of the last row that an earlier run put there; one without any, with the
        first arrival of the file.
        """
        if self._is_checked or not len(numbers):
            return
        for number, last in self._seen.items():
            if last is None:
                self._limits.setdefault(number, int(stamps[0]))
            elif numbers[0] <= last <= numbers[-1]:
                self._limits[number] = int(stamps[np.searchsorted(numbers, last)])
        seen = np.array([-1 if last is None else last for _, last in sorted(self._seen.items())], np.int64)
        if not (numbers > seen[partitions]).any():
            return
        for number, limit in self._limits.items():
            partition = self.topic.partitions[number]
            newest_us = partition.end().arrived_us
            if newest_us > limit:
                raise ArrivalRefused(partition.place, limit, newest_us)
        self._is_checked = True
