"""Who is in a consumer group and who reads what, as one value, and every way it may change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.consume.assignment import TopicPartition, assign

FindPartitions = Callable[[tuple[str, ...]], frozenset[TopicPartition]]
"""The partitions that a subscription (names and patterns) means as of now."""


@dataclass(frozen=True)
class Member:
    """One consumer of a group."""

    id: str
    pid: int
    host: str
    subscriptions: tuple[str, ...]
    """Names and patterns of topics."""
    session_timeout_us: int
    """After so long without a sign of life it is taken for frozen."""
    joined_us: int


@dataclass(frozen=True)
class Membership:
    """The members of a group, who owns each partition, and who is to own it.

    Where owner and assigned member differ, the partition is on its way: a living owner first gives it up, only then
    does the new one take it. So no partition ever has two owners, and what a living owner has processed is committed
    before the next one starts. A member that is gone owns nothing, and its partitions are free at once.
    """

    generation: int = 0
    """Grows whenever the assignment changes."""
    members: Mapping[str, Member] = field(default_factory=dict)
    assignment: Mapping[TopicPartition, str] = field(default_factory=dict)
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)

    def joined(self, member: Member) -> Membership:
        """With one more member, who has nothing yet."""
        if self.members.get(member.id) == member:
            return self
        return replace(self, members={**self.members, member.id: member})

    def without(self, gone: Collection[str]) -> Membership:
        """Without these members; what they owned is free."""
        if not any(member in self.members for member in gone):
            return self
        return replace(
            self,
            members={name: member for name, member in self.members.items() if name not in gone},
            owners={partition: owner for partition, owner in self.owners.items() if owner not in gone},
        )

    def balanced(self, find: FindPartitions) -> Membership:
        """With the partitions that are there now shared out among the members that are there now."""
        wanted = {each: find(each) for each in {member.subscriptions for member in self.members.values()}}
        topics = {each: frozenset(partition.topic for partition in partitions) for each, partitions in wanted.items()}
        # Who is meant to have a partition keeps it; else who has it. So an assignment settles, whoever balances next.
        keepers = {
            **{partition: owner for partition, owner in self.owners.items() if owner in self.members},
            **{partition: owner for partition, owner in self.assignment.items() if owner in self.members},
        }
        assignment = assign(
            {name: topics[member.subscriptions] for name, member in self.members.items()},
            frozenset[TopicPartition]().union(*wanted.values()),
            keepers,
        )
        if assignment == self.assignment:
            return self
        return replace(self, generation=self.generation + 1, assignment=assignment)

    def given_up(self, member: str, partitions: Iterable[TopicPartition]) -> Membership:
        """Those of the partitions that the member owns and should not keep are free."""
        freed = {each for each in partitions if self.owners.get(each) == member and self.assignment.get(each) != member}
        if not freed:
            return self
        return replace(self, owners={each: owner for each, owner in self.owners.items() if each not in freed})

    def taken(self, member: str) -> Membership:
        """The member owns everything that is meant for it and free."""
        free = {each: member for each, to in self.assignment.items() if to == member and each not in self.owners}
        return replace(self, owners={**self.owners, **free}) if free else self

    def owned_by(self, member: str) -> frozenset[TopicPartition]:
        """What the member may read and commit."""
        return frozenset(partition for partition, owner in self.owners.items() if owner == member)

    def to_document(self) -> dict[str, Any]:
        """As it is written to disk."""
        return {
            "generation": self.generation,
            "members": {name: asdict(member) for name, member in self.members.items()},
            "assignment": {partition.key: member for partition, member in self.assignment.items()},
            "owners": {partition.key: member for partition, member in self.owners.items()},
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Membership:
        """Reads `to_document` back; an empty document is an empty group."""
        if not document:
            return cls()
        members = (
            Member(**{**fields, "subscriptions": tuple(fields["subscriptions"])})
            for fields in document["members"].values()
        )
        return cls(
            document["generation"],
            {member.id: member for member in members},
            {TopicPartition.from_key(key): member for key, member in document["assignment"].items()},
            {TopicPartition.from_key(key): member for key, member in document["owners"].items()},
        )
