"""Consumer groups of a log in a folder: members, owners, committed offsets, lag; and setting a group back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.consume.attendance import Attendance
from penstock.consume.catalog import Catalog
from penstock.consume.group import Group
from penstock.consume.groups import Desk, GroupStatus, MemberStatus, PartitionStatus
from penstock.consume.start import parse_start
from penstock.errors import TopicDeleted, UnknownGroup

if TYPE_CHECKING:
    from penstock.log.folder_log import FolderLog


class FolderGroups:
    """The groups of a log in a folder: each is a folder beside the topics."""

    def __init__(self, log: FolderLog, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._catalog = Catalog(log)

    def names(self) -> list[str]:
        directory = self._log.root / "groups"
        return sorted(path.name for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []

    def status(self, name: str) -> GroupStatus:
        group = self._known(name)
        membership = group.membership()
        committed = group.committed()
        dead = group.dead(membership)
        owners = list(membership.owners.values())
        members = []
        for member in sorted(membership.members.values(), key=lambda each: (each.joined_us, each.id)):
            heartbeat = group.heartbeat(member.id)
            silent = None if heartbeat is None else max(0.0, group.monotonic() - heartbeat)
            members.append(
                MemberStatus(
                    member.id,
                    member.pid,
                    member.host,
                    member.subscriptions,
                    member.joined_us,
                    owners.count(member.id),
                    silent,
                    dead.get(member.id),
                )
            )
        partitions = []
        for key in sorted({*membership.assignment, *committed}):
            try:
                partition = self._catalog.partition(key)
                start, end = partition.start_offset(), partition.end().offset
            except TopicDeleted:
                continue
            owner, meant_for, at = membership.owners.get(key), membership.assignment.get(key), committed.get(key)
            partitions.append(
                PartitionStatus(
                    key.topic,
                    key.partition,
                    owner,
                    meant_for if meant_for != owner and members else None,
                    None if at is None else at.offset,
                    None if at is None else at.committed_us,
                    start,
                    end,
                )
            )
        return GroupStatus(name, membership.generation, tuple(members), tuple(partitions))

    def reset(self, name: str, topics: Sequence[str], start: str | int | datetime) -> dict[tuple[str, int], int]:
        self._catalog.check(topics)
        where = parse_start(start)
        offsets = {key: where.offset_in(self._catalog.partition(key)) for key in self._catalog.find(topics)}
        self._group(name).reset(offsets)
        return {(key.topic, key.partition): offset for key, offset in sorted(offsets.items())}

    def forget(self, name: str) -> None:
        self._known(name).forget()

    def join(self, name: str, desk: Desk) -> Attendance:
        group = Group(self._log.root, name, desk.catalog.find, clock=self._log.clock, monotonic=desk.monotonic)
        return Attendance(group, desk, self._log.topics_signals)

    def _group(self, name: str) -> Group:
        return Group(self._log.root, name, self._catalog.find, clock=self._log.clock, monotonic=self._monotonic)

    def _known(self, name: str) -> Group:
        group = self._group(name)
        if not group.exists():
            raise UnknownGroup(name, self.names(), self._log.url)
        return group
