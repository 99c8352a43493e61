"""A consumer: reads topics from where it left off, alone or sharing the work with others of its group."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.consume.events import Event, events_of
from penstock.consume.intake import Intake
from penstock.consume.options import consumer_options
from penstock.consume.position import OnRemoved, Position, Records
from penstock.consume.start import parse_time
from penstock.durations import parse_duration
from penstock.errors import ConsumerClosed, ForkedHandle, NoGroup, NotAssigned

if TYPE_CHECKING:
    from penstock.log.log import Log

Seconds = float | str | timedelta | None
"""A length of time: seconds, or "500ms" and the like. None: no limit."""

EVENTS_AT_ONCE = 1024
"""So many records are turned into dicts at a time."""


@dataclass(frozen=True)
class ConsumerStats:
    """What a consumer has done so far."""

    records: int
    """Records that were delivered."""
    removed: int
    """Records that retention removed before they could be delivered."""
    commits: int = 0
    rebalances: int = 0
    """How often its partitions changed."""
    evictions: int = 0
    """How often it lost all its partitions, because it was frozen or did not poll."""


class Consumer:
    """Reads topics, by name or pattern (`orders.*`), in the order of each partition.

    Without a `group` it reads every partition, from `start` on. The members of a group share the partitions, in any
    number of processes; each group gets every record. A group goes on where it left off; `start` counts only where it
    has no committed offset, and not for topics that were made later: those are read from their first record.

    **What is promised.** A group gets each record at least once, in the order of its partition. Members may come, go
    and be closed: nothing is delivered twice. If one is killed, or frozen for longer than `session_timeout`, others go
    on at its last commit. With `auto_commit`, what one `poll` returned counts as processed at the next; in a `with`
    block that an exception leaves, the last of it does not count. Without `auto_commit` only `commit` counts; a
    partition that another member is to have then waits for it, up to `session_timeout` after the next poll.

    **Losing the seat.** A member that was frozen, or did not poll for `processing_timeout`, loses its partitions and
    gets no more of their records. Then `commit` raises MemberEvicted, and `poll` joins the group again.

    A consumer that waits is woken by the kernel and needs no processor time. It is for one thread, and does not
    survive a fork.
    """

    def __init__(
        self,
        log: Log,
        *topics: str,
        group: str | None = None,
        start: str | int | datetime = "earliest",
        auto_commit: str | timedelta | None = "1s",
        session_timeout: str | timedelta = "10s",
        processing_timeout: str | timedelta = "5 minutes",
        max_rows: int = 65536,
        on_removed: OnRemoved = "continue",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts reading `topics`; a consumer of a group joins it.

        `start` is "earliest", "latest", an offset or a time of arrival. `auto_commit` says how often progress is
        committed, None that you do it. `processing_timeout` is the longest that you may take between two polls.
        `max_rows` bounds what one poll returns. `on_removed="raise"` raises OffsetOutOfRange where retention was
        faster than the consumer, instead of a warning and a count in `stats`. Tests pass `monotonic`, the clock in
        seconds of the timeouts that this process watches itself.
        """
        options = consumer_options(
            topics, group=group, start=start, auto_commit=auto_commit, session_timeout=session_timeout,
            processing_timeout=processing_timeout, max_rows=max_rows, on_removed=on_removed,
        )  # fmt: skip
        self.topics = options.topics
        self.group = group
        self._is_auto_commit = auto_commit is not None
        self._pid = os.getpid()
        self._is_closed = False
        self._intake = Intake(log, options, monotonic=monotonic)

    # --- reading ---

    def poll(self, timeout: Seconds = None) -> list[Records]:
        """The next records, at most one batch of each partition. Waits for some; none after `timeout`."""
        self._check()
        return [records for _, records in self._intake.wait(_seconds(timeout), is_delivered=True)]

    def batches(self, timeout: Seconds = None) -> Iterator[Records]:
        """Batch after batch, for ever, or until none came for `timeout`. Asking for the next says this one is done."""
        while found := self._wait(timeout):
            for position, records in found:
                with self._intake.mutex:
                    self._intake.settle()
                    self._intake.commit_if_due()
                    is_ours = self._intake.deliver(position, records.start, records.stop, len(records))
                if is_ours:
                    yield records

    def events(self, timeout: Seconds = None) -> Iterator[Event]:
        """Event after event as a dict, for ever, or until none came for `timeout`. `_topic` says where it is from.

        Asking for the next one says that this one is done.
        """
        while found := self._wait(timeout):
            for position, records in found:
                yield from self._events_of(position, records)

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    # --- where it is ---

    @property
    def assignment(self) -> tuple[tuple[str, int], ...]:
        """The partitions it reads at the moment, as (topic, partition)."""
        return tuple((position.key.topic, position.key.partition) for position in self._positions())

    def positions(self) -> dict[tuple[str, int], int]:
        """The offset that each partition is read from next."""
        return {(each.key.topic, each.key.partition): each.delivered for each in self._positions()}

    def lag(self) -> dict[tuple[str, int], int]:
        """For each partition it reads, how many records were not delivered yet."""
        return {(each.key.topic, each.key.partition): each.lag() for each in self._positions()}

    @property
    def stats(self) -> ConsumerStats:
        """What it has done so far."""
        intake, attendance = self._intake, self._intake.attendance
        if attendance is None:
            return ConsumerStats(intake.delivered, intake.removed)
        return ConsumerStats(
            intake.delivered, intake.removed, attendance.commits, attendance.rebalances, attendance.evictions
        )

    def commit(self) -> None:
        """Everything returned so far is processed: the group goes on after it. On disk when this returns.

        MemberEvicted if the group has given the partitions to others meanwhile: then nothing was committed, and others
        get those records again. It is raised until the next `poll` has joined the group again.
        """
        self._check()
        attendance = self._intake.attendance
        if attendance is None:
            raise NoGroup(self.topics)
        with self._intake.mutex:
            for position in self._intake.positions.values():
                position.settle()
            attendance.commit(self._intake.positions.values())

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Reads on from this offset. OffsetOutOfRange if the partition does not hold it."""
        self._check()
        with self._intake.mutex:
            for position in self._positions():
                if (position.key.topic, position.key.partition) == (topic, partition):
                    position.seek(offset)
                    return
        raise NotAssigned(f"{topic}/{partition}", self._places())

    def seek_time(self, topic: str, when: str | datetime) -> None:
        """Reads the topic on from the first records that arrived at `when` or later, in each partition it reads."""
        self._check()
        start = parse_time(when)
        with self._intake.mutex:
            found = [position for position in self._positions() if position.key.topic == topic]
            for position in found:
                position.seek(max(position.partition.start_offset(), start.offset_in(position.partition)))
        if not found:
            raise NotAssigned(topic, self._places())

    # --- the end ---

    def close(self) -> None:
        """Commits (with `auto_commit`), leaves the group at once, lets go of everything. Harmless the second time."""
        self._close(is_done=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(is_done=kind is None)

    def __repr__(self) -> str:
        return f"Consumer({', '.join(map(repr, self.topics))}, group={self.group!r})"

    def _close(self, *, is_done: bool) -> None:
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed = True
        try:
            if self._is_auto_commit:
                with self._intake.mutex:
                    if is_done:
                        self._intake.settle()
                    self._intake.commit_quietly()
        finally:
            self._intake.close()

    def _wait(self, timeout: Seconds) -> list[tuple[Position, Records]]:
        self._check()
        return self._intake.wait(_seconds(timeout), is_delivered=False)

    def _events_of(self, position: Position, records: Records) -> Iterator[Event]:
        reached = records.start
        for start in range(0, len(records), EVENTS_AT_ONCE):
            for event in events_of(records.batch.slice(start, EVENTS_AT_ONCE)):
                with self._intake.mutex:
                    if self._intake.is_settling:
                        position.settle()
                    if self._intake.is_commit_due:
                        self._intake.commit_if_due()
                    if not self._intake.deliver(position, reached, event["_offset"] + 1, 1):
                        return
                reached = position.delivered
                event["_topic"] = records.topic
                yield event

    def _positions(self) -> list[Position]:
        with self._intake.mutex:
            return [position for _, position in sorted(self._intake.positions.items())]

    def _places(self) -> list[str]:
        return [str(position.key) for position in self._positions()]

    def _check(self) -> None:
        if self._is_closed:
            raise ConsumerClosed(self.topics)
        if os.getpid() != self._pid:
            raise ForkedHandle(repr(self), self._pid, os.getpid())


def _seconds(timeout: Seconds) -> float:
    if timeout is None:
        return float("inf")
    return float(timeout) if isinstance(timeout, int | float) else parse_duration(timeout).total_seconds()
