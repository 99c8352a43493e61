"""Consumer groups as people look at them: members, owners, committed offsets, lag; and setting a group back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.consume.catalog import Catalog
from penstock.consume.group import Group
from penstock.consume.start import parse_start
from penstock.errors import TopicDeleted, UnknownGroup

if TYPE_CHECKING:
    from penstock.log.log import Log


@dataclass(frozen=True)
class MemberStatus:
    """One member of a group."""

    id: str
    pid: int
    host: str
    subscriptions: tuple[str, ...]
    joined_us: int
    partitions: int
    """How many it owns."""
    silent_seconds: float | None
    """Since its last sign of life."""
    why_dead: str | None
    """None while it lives; a dead one goes with the next look of any other member."""


@dataclass(frozen=True)
class PartitionStatus:
    """How far a group is in one partition."""

    topic: str
    partition: int
    owner: str | None
    moving_to: str | None
    """The member that gets it as soon as the owner gives it up."""
    committed: int | None
    committed_us: int | None
    start: int
    """The first offset that retention has left."""
    end: int

    @property
    def lag(self) -> int:
        """Records that are there and not processed yet."""
        return self.end - max(self.start, self.committed or 0)


@dataclass(frozen=True)
class GroupStatus:
    """One group, as of now."""

    name: str
    generation: int
    members: tuple[MemberStatus, ...]
    partitions: tuple[PartitionStatus, ...]

    @property
    def lag(self) -> int:
        """Records of all its partitions that are not processed yet."""
        return sum(partition.lag for partition in self.partitions)


def group_names(log: Log) -> list[str]:
    """Every group that anybody ever joined."""
    directory = log.root / "groups"
    return sorted(path.name for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []


def group_status(log: Log, name: str) -> GroupStatus:
    """What a group is doing. Reads only, and disturbs nobody. UnknownGroup if there is none."""
    catalog = Catalog(log)
    group = _known_group(log, name, catalog)
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
            partition = catalog.partition(key)
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


def reset_group(log: Log, name: str, topics: Sequence[str], start: str | int | datetime) -> dict[tuple[str, int], int]:
    """Sets a group forward or back, to 'earliest', 'latest', an offset or a time; returns the new committed offsets.

    GroupActive while the group has living members: they would undo it with their next commit. A group that does not
    exist yet is made: its first consumer starts there.
    """
    catalog = Catalog(log)
    catalog.check(topics)
    where = parse_start(start)
    offsets = {key: where.offset_in(catalog.partition(key)) for key in catalog.find(topics)}
    Group(log.root, name, catalog.find, clock=log.clock).reset(offsets)
    return {(key.topic, key.partition): offset for key, offset in sorted(offsets.items())}


def forget_group(log: Log, name: str) -> None:
    """Deletes the progress of a group: its next consumer begins anew. GroupActive while it has living members."""
    _known_group(log, name, Catalog(log)).forget()


def _known_group(log: Log, name: str, catalog: Catalog) -> Group:
    group = Group(log.root, name, catalog.find, clock=log.clock)
    if not group.exists():
        raise UnknownGroup(name, group_names(log), log.root)
    return group
