"""The place of one member in its consumer group, and everything the member may do to the group."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping

from penstock.access import open_file
from penstock.consume.assignment import TopicPartition
from penstock.consume.group import Committed, Group, Offsets
from penstock.consume.membership import Member, Membership
from penstock.errors import MemberEvicted
from penstock.log.files import make_directory

LOST = "its partitions were given to others"


class Seat:
    """A member's place in its group, from joining to leaving.

    A member that was taken for dead gets `MemberEvicted` from everything it tries, and changes nothing: its partitions
    may be in other hands. A killed process gives up its seat at once, a frozen one after its session timeout. One
    thread at a time.
    """

    def __init__(self, group: Group, subscriptions: Iterable[str], *, session_timeout: float) -> None:
        """Joins the group. The member owns nothing until its first `reconcile`."""
        make_directory(group.members_directory)
        host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:40] or "host"
        self.group = group
        self.member = Member(
            id=f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            pid=os.getpid(),
            host=host,
            subscriptions=tuple(sorted(set(subscriptions))),
            session_timeout_us=round(session_timeout * 1_000_000),
            joined_us=group.clock(),
        )
        self.id = self.member.id
        self._fd = self._hold_file()
        self._beaten = group.monotonic()
        self._patient_until = 0.0
        try:
            group.beat(self._fd)
            group.change(lambda membership: membership.joined(self.member))
            group.sweep()
        except BaseException:
            self.abandon()
            raise

    def confirm(self) -> Membership:
        """Gives a sign of life, and then looks: for a session timeout from before this call the seat is safe."""
        now, timeout = self.group.monotonic(), self.member.session_timeout_us / 1e6
        if now - self._beaten > timeout / 2:
            # We stood still ourselves. Perhaps the whole machine did: let the others show first that they live.
            self._patient_until = now + timeout
        self._beaten = now
        self.group.beat(self._fd)
        return self.look()

    def look(self) -> Membership:
        """The membership as of now. Cheap if nothing changed."""
        return self._checked(self.group.membership())

    def suspects(self) -> dict[str, str]:
        """Other members that are gone or frozen and not taken out yet, and how we know."""
        dead = self.group.dead(self.look(), is_patient=self.group.monotonic() < self._patient_until)
        return {member: why for member, why in dead.items() if member != self.id}

    def quiet_for(self) -> float:
        """Seconds in which no other member can become a suspect unless its process dies."""
        now = self.group.monotonic()
        return max(0.0, self.group.expires_in(self.look(), apart_from=self.id), self._patient_until - now)

    def reconcile(self, given_up: Collection[TopicPartition] = ()) -> tuple[Membership, dict[str, str]]:
        """Brings the group in order as far as this member can: returns the membership, and who was taken out and why.

        Of `given_up`, what another member should have is let go: the caller has committed it and reads no more of it.
        What is meant for this member and free is taken; `begin` says where to start. All of it is one step.
        """
        evicted: dict[str, str] = {}

        def change(membership: Membership) -> Membership:
            dead = self.group.dead(self._checked(membership), is_patient=self.group.monotonic() < self._patient_until)
            evicted.clear()
            evicted.update((member, why) for member, why in dead.items() if member != self.id)
            membership = membership.without(evicted).balanced(self.group.find)
            return membership.given_up(self.id, given_up).taken(self.id)

        membership = self.group.change(change)
        for member in evicted:
            self.group.member_path(member).unlink(missing_ok=True)
        return membership, evicted

    def begin(
        self, partitions: Collection[TopicPartition], start: Callable[[TopicPartition], int]
    ) -> dict[TopicPartition, int]:
        """Where to start reading partitions that were just taken. From now on nobody else can commit there.

        Where the group has no committed offset `start` decides, and its answer is committed: should this member die
        at once, the next one starts at the same place.
        """

        def change(known: Offsets) -> Offsets:
            # Looked at after the offsets were read: if we were frozen in between and replaced, then either this shows
            # it, or the offsets have changed meanwhile and this attempt fails.
            if not self.look().owned_by(self.id).issuperset(partitions):
                raise self._eviction(LOST, partitions)
            begun = {
                key: Committed(known[key].offset, known[key].committed_us, self.id)
                if key in known
                else Committed(start(key), self.group.clock(), self.id)
                for key in partitions
            }
            ids = {key.topic: key.topic_id for key in partitions}
            kept = {key: each for key, each in known.items() if ids.get(key.topic, key.topic_id) == key.topic_id}
            return {**kept, **begun}

        if not partitions:
            return {}
        offsets = self.group.change_offsets(change)
        return {key: offsets[key].offset for key in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Everything before these offsets is processed. On disk when it returns; nothing is if it raises."""

        def change(known: Offsets) -> Offsets:
            lost = [key for key in offsets if key not in known or known[key].member != self.id]
            if lost:
                raise self._eviction(LOST, lost)
            moved = {key: offset for key, offset in offsets.items() if known[key].offset != offset}
            now = self.group.clock()
            return (
                {**known, **{key: Committed(offset, now, self.id) for key, offset in moved.items()}} if moved else known
            )

        if offsets:
            self.group.change_offsets(change)

    def leave(self) -> None:
        """Gives up the seat, and everything with it, at once. Commit before. Harmless after an eviction."""
        if self._fd >= 0:
            try:
                self.group.change(lambda membership: membership.without({self.id}))
            finally:
                try:
                    self.group.member_path(self.id).unlink(missing_ok=True)
                finally:  # Whatever the disk says: who keeps the file open counts as a living member.
                    self.abandon()

    def abandon(self) -> None:
        """Lets go without a word, as a crash would."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _hold_file(self) -> int:
        while True:
            fd = open_file(self.group.member_path(self.id), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                is_there = os.fstat(fd).st_nlink > 0
            except BaseException:
                os.close(fd)
                raise
            if is_there:
                return fd
            os.close(fd)  # Swept away between the two calls.

    def _checked(self, membership: Membership) -> Membership:
        if self.id not in membership.members:
            silence = f"it gave no sign of life for more than {self.member.session_timeout_us / 1e6:g} s"
            raise self._eviction(silence)
        return membership

    def _eviction(self, why: str, lost: Collection[TopicPartition] = ()) -> MemberEvicted:
        return MemberEvicted(self.group.name, self.id, why, sorted(map(str, lost)))
