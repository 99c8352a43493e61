"""Consumer groups, wherever they are kept: who reads, how far, and what a consumer needs to be one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock.consume.assignment import TopicPartition
from penstock.consume.catalog import Catalog
from penstock.consume.options import ConsumerOptions
from penstock.consume.position import Position

Positions = dict[TopicPartition, Position]


class Groups(Protocol):
    """The consumer groups of a log."""

    def names(self) -> list[str]:
        """Every group that anybody ever joined."""
        ...

    def status(self, name: str) -> GroupStatus:
        """What a group is doing. Reads only, and disturbs nobody. UnknownGroup if there is none."""
        ...

    def reset(self, name: str, topics: Sequence[str], start: str | int | datetime) -> dict[tuple[str, int], int]:
        """Sets a group to 'earliest', 'latest', an offset or a time; returns the new committed offsets.

        GroupActive while the group has living members: they would undo it with their next commit. A group that does not
        exist yet is made: its first consumer starts there.
        """
        ...

    def forget(self, name: str) -> None:
        """Deletes the progress of a group: its next consumer begins anew. GroupActive while it has living members."""
        ...

    def join(self, name: str, desk: Desk) -> Presence:
        """Makes a consumer a member. Its positions come and go from now on."""
        ...


class Presence(Protocol):
    """A consumer's seat in its group. All methods but `stop` want the desk's mutex held."""

    polled_at: float
    """When the application last came for more; infinity while it waits for it."""
    commits: int
    rebalances: int
    evictions: int

    def attend(self) -> float:
        """Makes sure of the seat before something is read. Returns after how many seconds to call it again, at most."""
        ...

    def is_current(self) -> bool:
        """Whether the seat is certainly ours still."""
        ...

    def commit(self, positions: Iterable[Position]) -> None:
        """Commits what is processed. MemberEvicted if the seat was lost since the last `attend`."""
        ...

    def stop(self) -> None:
        """Leaves the group. Commit before."""
        ...


@dataclass(frozen=True)
class Desk:
    """What a consumer lends to its group: the partitions that it reads, and how to begin with another one."""

    catalog: Catalog
    options: ConsumerOptions
    positions: Positions
    """Changed under `mutex` only."""
    mutex: threading.RLock
    open_position: Callable[[TopicPartition, int], Position]
    start_of: Callable[[TopicPartition], int]
    wake: Callable[[], None]
    """Called, from any thread, when positions came or went."""
    monotonic: Callable[[], float]
    is_threaded: bool = True


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
