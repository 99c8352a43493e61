"""What flows into a consumer: waits for records of the partitions it reads, and keeps count of what it handed out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.consume.assignment import TopicPartition
from penstock.consume.catalog import Catalog
from penstock.consume.groups import Desk, Positions, Presence
from penstock.consume.options import ConsumerOptions
from penstock.consume.position import Position, Records
from penstock.consume.start import EARLIEST
from penstock.consume.wakeup import Wakeup
from penstock.errors import LogError, MemberEvicted, TopicDeleted

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.log.log import Log

logger = logging.getLogger("penstock.log")

LOOK_SECONDS = 30.0
"""Even if nothing wakes it, a waiting consumer looks for records so often: some network file systems tell nobody."""

Found = list[tuple[Position, Records]]


class Intake:
    """The partitions of a consumer and the records that come from them.

    For the application's thread; a group's thread changes `positions` too, so everything here is done under `mutex`,
    except for waiting. `attendance` is None without a group: then every partition is read.
    """

    def __init__(
        self,
        log: Log,
        options: ConsumerOptions,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        is_threaded: bool = True,
    ) -> None:
        self.positions: Positions = {}
        self.mutex = threading.RLock()
        self.attendance: Presence | None = None
        self.delivered = self.removed = 0
        self._now = monotonic
        self._options = options
        self._catalog = Catalog(log)
        self._catalog.check(options.topics)
        self._early = frozenset(key.topic_id for key in self._catalog.find(options.topics))
        self._turn = 0
        self._commit_due = self._now() + (options.commit_seconds or 0.0)
        self._ends: frozenset[Path] = frozenset()
        self._topics_signals = log.topics_signals
        self._wakeup = Wakeup()
        if options.group is None:
            self._follow_topics()
        else:
            desk = Desk(
                self._catalog, options, self.positions, self.mutex, open_position=self._open, start_of=self._start_of,
                wake=self._wakeup.notify, monotonic=monotonic, is_threaded=is_threaded,
            )  # fmt: skip
            self.attendance = log.groups.join(options.group, desk)

    @property
    def is_settling(self) -> bool:
        """Whether coming back for more says that what was handed out before is done."""
        return self._options.commit_seconds is not None or self.attendance is None

    @property
    def is_commit_due(self) -> bool:
        """Whether it is time to commit, if there is anything to commit."""
        return self._now() >= self._commit_due

    def wait(self, seconds: float, *, is_delivered: bool) -> Found:
        """Waits for records; none after so many seconds. Unless `is_delivered`, `deliver` has to follow for each."""
        deadline = self._now() + seconds
        with self._presence():
            self._sleep(0.0)  # Where there are always records, or no time to wait for them, topics come and go as well.
            while True:
                with self.mutex:
                    self.settle()
                    pause = LOOK_SECONDS if self.attendance is None else min(LOOK_SECONDS, self.attendance.attend())
                    pause = min(pause, self.commit_if_due(), deadline - self._now())
                    self._watch_ends()
                    found = self._fetch()
                    is_ours = self.attendance is None or self.attendance.is_current()
                    if found and is_ours:
                        if is_delivered:
                            for position, records in found:
                                self.deliver(position, records.start, records.stop, len(records))
                        return found
                if is_ours:  # Else frozen while reading: whether we still have a seat is looked up first.
                    if self._now() >= deadline:
                        return []
                    self._sleep(max(0.0, pause))

    def _sleep(self, seconds: float) -> None:
        """Until something has changed. Without a group, topics that came or went are followed."""
        changed = self._wakeup.wait(seconds)
        if self.attendance is None and changed - self._ends:
            self._follow_topics()

    def deliver(self, position: Position, start: int, stop: int, count: int) -> bool:
        """Hands records out. False if they are not ours any more: handed over, lost, or left by a seek."""
        if not position.is_open or position.is_wanted_elsewhere or position.delivered != start:
            return False
        position.deliver(stop)
        self.delivered += count
        if self.attendance is not None:
            self.attendance.polled_at = self._now()
        return True

    def settle(self) -> None:
        """With automatic commits: what was handed out before is done."""
        if self.is_settling:
            for position in self.positions.values():
                position.settle()

    def commit_if_due(self) -> float:
        """Commits what is processed, if it is time. Returns in how many seconds that will be; infinity for nothing."""
        if self.attendance is None or self._options.commit_seconds is None:
            return float("inf")
        if all(position.processed == position.committed for position in self.positions.values()):
            return float("inf")
        if not self.is_commit_due:
            return self._commit_due - self._now()
        self._commit_due = self._now() + self._options.commit_seconds
        self.commit_quietly()
        return float("inf")

    def commit_quietly(self) -> None:
        """Commits what is processed; a failure is only logged, for the next commit or the next poll mends it."""
        try:
            if self.attendance is not None:
                self.attendance.commit(self.positions.values())
        except (MemberEvicted, LogError, OSError) as error:
            logger.warning("consumer: progress of %s was not committed: %s", self._options.reader, error)

    def close(self) -> None:
        """Leaves the group and lets go of everything."""
        try:
            if self.attendance is not None:
                self.attendance.stop()
        finally:
            self.positions.clear()
            self._wakeup.close()

    def _fetch(self) -> Found:
        """Records of as many partitions as fit. Each time another one comes first, so that none starves."""
        found: Found = []
        rows = self._options.max_rows
        positions = [position for position in self.positions.values() if not position.is_wanted_elsewhere]
        for step in range(len(positions)):
            position = positions[(self._turn + step) % len(positions)]
            records = self._next_records(position, rows)
            if records is not None:
                found.append((position, records))
                rows -= len(records)
                if rows <= 0:
                    self._turn = (self._turn + step + 1) % len(positions)
                    break
        return found

    def _next_records(self, position: Position, rows: int) -> Records | None:
        try:
            return position.next_records(rows)
        except (TopicDeleted, FileNotFoundError):
            try:
                self._catalog.partition(position.key)
            except TopicDeleted:  # The folder of topics has changed: we are about to hear of it.
                return None
            raise

    def _follow_topics(self) -> None:
        """Without a group: reads every partition there is."""
        for path in self._topics_signals():
            self._wakeup.watch(path)
        there = self._catalog.find(self._options.topics)
        for key in self.positions.keys() - there:
            logger.warning("consumer: %s was deleted while it was read", key)
            self.positions.pop(key).is_open = False
        for key in sorted(there - self.positions.keys()):
            try:
                self.positions[key] = self._open(key, self._start_of(key))
            except TopicDeleted:
                continue

    def _open(self, key: TopicPartition, offset: int) -> Position:
        return Position(
            key, self._catalog.partition(key), offset, reader=self._options.reader,
            on_removed=self._options.on_removed, count_removed=self._count_removed,
        )  # fmt: skip

    def _start_of(self, key: TopicPartition) -> int:
        start = self._options.start if key.topic_id in self._early else EARLIEST
        return start.offset_in(self._catalog.partition(key))

    def _count_removed(self, count: int) -> None:
        self.removed += count

    def _watch_ends(self) -> None:
        """Appends to the partitions we read wake us, and no others."""
        ends = frozenset(position.partition.signal for position in self.positions.values())
        for path in ends - self._ends:
            self._wakeup.watch(path)
        for path in self._ends - ends:
            self._wakeup.unwatch(path)
        self._ends = ends

    @contextmanager
    def _presence(self) -> Iterator[None]:
        """Who waits for records cannot be late in processing them."""
        if self.attendance is not None:
            self.attendance.polled_at = float("inf")
        try:
            yield
        finally:
            if self.attendance is not None:
                self.attendance.polled_at = self._now()
