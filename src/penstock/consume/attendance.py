"""A consumer's presence in its group: a quiet thread that keeps the seat and hands partitions over."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from penstock.consume.assignment import TopicPartition
from penstock.consume.group import Group
from penstock.consume.groups import Desk
from penstock.consume.membership import Membership
from penstock.consume.position import Position
from penstock.consume.seat import Seat
from penstock.consume.wakeup import Wakeup
from penstock.errors import MemberEvicted, PenstockError, TopicDeleted
from penstock.log.files import make_directory

logger = logging.getLogger("penstock.log")

SECOND_LOOK_SECONDS = 0.05
"""A dying process closes its files a moment before it lets go of its locks."""

SAFE_SHARE = 0.9
"""So much of a session timeout a member trusts in its last sign of life; the rest is for clocks that are read late."""


class Attendance:
    """Holds a seat in a group and keeps the consumer's positions in step with it.

    Sleeps until the group or the topics change, or a sign of life is due. What another member should have is given up
    once the application has nothing of it in hand, its progress committed first. `positions` is changed under `mutex`
    only; all methods but `stop` want it held. `wake` is called, from the thread, when positions came or went.
    """

    def __init__(
        self,
        group: Group,
        desk: Desk,
        topics_signals: Callable[[], Iterable[Path]],
    ) -> None:
        self.evictions = self.rebalances = self.commits = 0
        self._now = group.monotonic
        self.polled_at = self._now()
        self._group = group
        self._catalog = desk.catalog
        self._options = desk.options
        self._positions = desk.positions
        self._mutex = desk.mutex
        self._open_position = desk.open_position
        self._start_of = desk.start_of
        self._wake = desk.wake
        self._topics_signals = topics_signals
        self._session_timeout = desk.options.session_seconds
        self._is_auto_commit = desk.options.commit_seconds is not None
        self._seat: Seat | None = None
        self._eviction: MemberEvicted | None = None
        self._validated_at = 0.0
        self._is_stale = False
        self._is_stopping = False
        self._asked_at: dict[TopicPartition, float] = {}
        self._reconciled = Membership()
        make_directory(group.members_directory)
        self._wakeup = Wakeup()
        self._wakeup.watch(group.members_directory)  # Before the first look, so that no change falls in between.
        self._watch_topics()
        self._take_seat()
        self._thread = threading.Thread(
            target=_run, args=(weakref.ref(self), self._wakeup), name=f"penstock-group-{group.name}", daemon=True
        )
        if desk.is_threaded:
            self._thread.start()

    # --- for the application's thread ---

    def attend(self) -> float:
        """Makes sure of the seat before something is read: joins again if it was lost, hands over what is due.

        Returns after how many seconds it wants to be called again at the latest.
        """
        now = self._now()
        held_up = [each.key for each in self._positions.values() if each.is_wanted_elsewhere and each.is_in_hand]
        self._asked_at = {key: self._asked_at.get(key, now) for key in held_up}
        if self._seat is None:
            self._take_seat()
        elif self._is_stale or not self.is_current() or any(map(self._may_go, self._wanted_elsewhere())):
            self._rebalance()
        return min((asked + self._session_timeout - now for asked in self._asked_at.values()), default=float("inf"))

    def is_current(self) -> bool:
        """Whether the seat is certainly ours still. If not it may be lost, and must be looked after first."""
        return self._seat is not None and self._now() - self._validated_at < self._session_timeout * SAFE_SHARE

    def commit(self, positions: Iterable[Position]) -> None:
        """Commits what is processed. MemberEvicted if the seat was lost since the last `attend`."""
        if self._eviction is None:
            try:
                self._commit(positions)
                return
            except MemberEvicted as eviction:
                self._lose_seat(eviction)
        assert self._eviction is not None
        raise MemberEvicted(*self._eviction.fields)

    def stop(self) -> None:
        """Ends the thread and leaves the group. Commit before. The mutex must not be held."""
        self._is_stopping = True
        self._wakeup.notify()
        if self._thread.is_alive():
            self._thread.join()
        with self._mutex:
            self._close_all()
            if self._seat is not None:
                self._seat.leave()
                self._seat = None

    def __del__(self) -> None:
        # A consumer that was forgotten, not closed: to the group it is as if its process had died.
        seat: Seat | None = getattr(self, "_seat", None)
        if seat is not None:
            seat.abandon()
            self._wakeup.notify()

    def _watch_topics(self) -> None:
        for path in self._topics_signals():
            self._wakeup.watch(path)

    # --- for the thread ---

    def tick(self, *, is_changed: bool) -> float:
        """Looks after the seat. Returns after how many seconds to do so again, if nothing changes until then."""
        interval = self._session_timeout / 3
        with self._mutex:
            if self._is_stopping or self._seat is None:
                return interval
            try:
                self._watch_topics()
                before = set(self._positions)
                self._keep_seat(is_changed=is_changed)
                if set(self._positions) != before:
                    self._wake()
                if self._seat is None:
                    return interval
                until_suspect = self._seat.quiet_for() + SECOND_LOOK_SECONDS
                return min(interval, until_suspect, SECOND_LOOK_SECONDS if is_changed else interval)
            except (OSError, PenstockError) as error:
                # The next poll tries the same, and raises if it is still so.
                logger.warning("consumer: group %r cannot be looked after: %s", self._group.name, error)
                self._is_stale = True
                self._wake()
                return interval

    def _keep_seat(self, *, is_changed: bool) -> None:
        assert self._seat is not None
        try:
            now = self._now()
            # A change that nobody told us of, should there ever be one, is found with the next sign of life.
            is_changed |= self._seat.confirm() != self._reconciled
            self._validated_at = now
            if now - self.polled_at > self._options.processing_seconds:
                if self._is_auto_commit:
                    self._commit(self._positions.values())
                raise self._departure()
            is_due = is_changed or self._is_stale or any(map(self._may_go, self._wanted_elsewhere()))
            if is_due or self._seat.suspects():
                self._rebalance()
        except MemberEvicted as eviction:
            self._lose_seat(eviction)

    # --- inside ---

    def _take_seat(self) -> None:
        if self._eviction is not None:
            logger.warning("consumer: joins again after this:\n%s", self._eviction)
            self._eviction = None
        self._seat = Seat(self._group, self._options.topics, session_timeout=self._session_timeout)
        self._rebalance()

    def _rebalance(self) -> None:
        """Brings positions and group in step, until there is nothing left that could be done now."""
        try:
            before = set(self._positions)
            while self._rebalance_once():
                pass
            self.rebalances += set(self._positions) != before
        except MemberEvicted as eviction:
            self._lose_seat(eviction)
        except TopicDeleted:
            self._is_stale = True

    def _rebalance_once(self) -> bool:
        seat = self._seat
        assert seat is not None
        self._is_stale = True  # Until all of it is done: whatever interrupts it, the next look begins anew.
        now = self._now()
        membership = seat.confirm()
        self._validated_at = now
        for key, position in self._positions.items():
            position.is_wanted_elsewhere = membership.assignment.get(key) != seat.id
        ready = [position for position in self._wanted_elsewhere() if self._may_go(position)]
        if self._is_auto_commit:
            self._commit(ready)
        orphans = membership.owned_by(seat.id) - self._positions.keys()
        membership, evicted = seat.reconcile([*(position.key for position in ready), *orphans])
        for member, why in evicted.items():
            logger.warning("consumer: %s was taken out of group %r: %s", member, self._group.name, why)
        self._reconciled = membership
        owned = membership.owned_by(seat.id)
        for key in self._positions.keys() - owned:
            self._positions.pop(key).is_open = False
        self._is_stale = not self._begin(owned - self._positions.keys())
        return any(
            membership.assignment.get(key) != seat.id and not position.is_wanted_elsewhere
            for key, position in self._positions.items()
        )

    def _begin(self, taken: Iterable[TopicPartition]) -> bool:
        """Starts reading what was taken. False if a topic went away meanwhile: the next look gives it up."""
        assert self._seat is not None
        there, is_complete = [], True
        for key in sorted(taken):
            try:
                self._catalog.partition(key)
                there.append(key)
            except TopicDeleted:
                is_complete = False
        for key, offset in self._seat.begin(there, self._start_of).items():
            self._positions[key] = self._open_position(key, offset)
        return is_complete

    def _wanted_elsewhere(self) -> list[Position]:
        return [position for position in self._positions.values() if position.is_wanted_elsewhere]

    def _may_go(self, position: Position) -> bool:
        """Whether it can be given up without anything being delivered twice, or was asked for too long ago."""
        asked_at = self._asked_at.get(position.key, float("inf"))
        return not position.is_in_hand or self._now() - asked_at > self._session_timeout

    def _commit(self, positions: Iterable[Position]) -> None:
        moved = [position for position in positions if position.processed != position.committed]
        if moved:
            assert self._seat is not None, moved
            self._seat.commit({position.key: position.processed for position in moved})
            self.commits += 1
        for position in moved:
            position.committed = position.processed

    def _lose_seat(self, eviction: MemberEvicted) -> None:
        assert self._seat is not None
        lost = [str(key) for key in sorted(self._positions)]
        self._eviction = MemberEvicted(eviction.group, eviction.member, eviction.why, lost)
        self.evictions += 1
        self._close_all()
        seat, self._seat = self._seat, None
        with suppress(OSError):
            seat.leave()
        self._wake()

    def _close_all(self) -> None:
        for position in self._positions.values():
            position.is_open = False
        self._positions.clear()

    def _departure(self) -> MemberEvicted:
        assert self._seat is not None
        why = f"it did not poll for more than {self._options.processing_seconds:g} s"
        return MemberEvicted(self._group.name, self._seat.id, why)


def _run(reference: weakref.ref[Attendance], wakeup: Wakeup) -> None:
    """The thread. It holds no reference while it sleeps, so that a forgotten consumer goes away."""
    with wakeup:
        timeout = 0.0
        while True:
            is_changed = bool(wakeup.wait(timeout))
            attendance = reference()
            if attendance is None or attendance._is_stopping:
                return
            timeout = attendance.tick(is_changed=is_changed)
            del attendance
