"""A topic in a folder: its definition is a file, its partitions are folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.clock import DAY_US, steady_now_us
from penstock.errors import ClockAhead, RecordTooLarge, TopicDeleted
from penstock.log.compaction import Compacted, compact
from penstock.log.cut import cut
from penstock.log.definition import FILE_NAME, TopicDefinition, read_definition, write_definition
from penstock.log.files import locked
from penstock.log.folder_partition import FolderPartition
from penstock.log.late import count_late, latest_arrivals
from penstock.log.partition import Offsets
from penstock.log.retention import Removed, retain
from penstock.log.row_sizes import rows_over
from penstock.log.sealed import check_once
from penstock.log.sealing import seal
from penstock.log.topic import Topic

if TYPE_CHECKING:
    from penstock.log.folder_log import FolderLog

QUIET_MAX_US = 2 * 365 * DAY_US
"""So long a topic may be quiet; beyond it rather the clock is wrong, and somebody must say that it is not."""


class FolderTopic(Topic):
    """A handle on a topic that is kept in a folder."""

    partitions: tuple[FolderPartition, ...]

    def __init__(self, log: FolderLog, definition: TopicDefinition) -> None:
        super().__init__(definition)
        self.log: FolderLog = log
        self.directory = log.topics_directory / definition.name
        self._version = self._file_version()
        self._is_clock_checked = False
        self.partitions = tuple(
            FolderPartition(self, number, self.directory / str(number), log.clock)
            for number in range(definition.partitions)
        )

    def refresh(self, *, is_fresh: bool = False) -> bool:
        # Where a file system counts time in coarse steps, a new file may look like an old one.
        version = self._file_version()
        if version == self._version and not is_fresh:
            return False
        definition = read_definition(self.directory)
        if definition.id != self._definition.id:
            raise TopicDeleted(self.name)
        self._definition, self._version = definition, version
        return True

    def check_there(self) -> None:
        if self._file_version() != self._version and read_definition(self.directory).id != self._definition.id:
            raise TopicDeleted(self.name)

    def _change(self, change: Callable[[TopicDefinition], TopicDefinition]) -> None:
        with locked(self.directory / "lock"):
            self.refresh(is_fresh=True)
            write_definition(self.directory, change(self._definition))
            self.refresh(is_fresh=True)

    def check_clock(self) -> None:
        """Before this handle appends or drops anything: ClockAhead if the topic was not written for too long a time.

        A process that runs notices a jump of the clock by itself. One that has just begun has only the files to ask.
        """
        if self._is_clock_checked:
            return
        definition = self.directory / FILE_NAME
        written = [_written_us(path) for path in (definition, *(each.signal for each in self.partitions))]
        now_us = steady_now_us()
        if now_us > max(written) + QUIET_MAX_US:
            raise ClockAhead(self.name, now_us, max(written), definition)
        self._is_clock_checked = True

    def check_sizes(self, place: str, batch: pa.RecordBatch) -> None:
        large = rows_over(batch, self.log.record_bytes_max)
        if large:
            raise RecordTooLarge(place, large[min(large)], self.log.record_bytes_max, large)

    def cut(
        self,
        after: Mapping[int, int],
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        until: Mapping[int, int] | None = None,
    ) -> Offsets:
        return cut(self, after, max_rows=max_rows, max_bytes=max_bytes, until=until)

    def count_late(self, start: Mapping[int, int], until: Mapping[int, int]) -> int:
        return count_late(self, start, until)

    def latest_arrivals(self, start: Mapping[int, int], until: Mapping[int, int]) -> dict[int, int]:
        return latest_arrivals(self, start, until)

    # --- upkeep ---

    def seal(self, *, active: bool = False) -> int:
        """Rewrites closed segments as Parquet, with `active` also those being written. Returns how many."""
        return sum(len(seal(partition, active=active)) for partition in self.partitions)

    def retain(self, now_us: int | None = None) -> list[Removed]:
        """Drops what retention says, now. ClockAhead as for an append: a wrong clock would drop everything."""
        if now_us is None:
            self.check_clock()
        now = self.log.clock() if now_us is None else now_us
        return [retain(partition, now) for partition in self.partitions]

    def compact(self) -> list[Compacted]:
        """Keeps only the newest record of each key in the sealed part, if the topic is one that is compacted."""
        return (
            [compact(partition, self.log.clock()) for partition in self.partitions] if self._definition.compact else []
        )

    def check_sealed(self) -> None:
        """Compares every sealed file with its checksum, once per process. CorruptionError names the first bad one."""
        for partition in self.partitions:
            for segment in partition.manifest().segments:
                check_once(partition.directory / segment.file, segment.crc32c)

    def _file_version(self) -> tuple[int, int, int]:
        try:
            status = os.stat(self.directory / FILE_NAME)
        except FileNotFoundError:
            raise TopicDeleted(self.name) from None
        return status.st_ino, status.st_mtime_ns, status.st_size


def _written_us(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns // 1000
    except FileNotFoundError:
        return 0
