"""Which member of a consumer group reads which partition: one pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic. The topic's id is part of it: a topic deleted and made anew is another one."""

    topic: str
    partition: int
    topic_id: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def key(self) -> str:
        """As it is written in documents: `orders/3@5f0c`."""
        return f"{self.topic}/{self.partition}@{self.topic_id}"

    @classmethod
    def from_key(cls, key: str) -> TopicPartition:
        """Reads `key` back."""
        place, _, topic_id = key.partition("@")
        topic, _, partition = place.rpartition("/")
        return cls(topic, int(partition), topic_id)


def assign(
    topics_wanted: Mapping[str, frozenset[str]],
    partitions: Iterable[TopicPartition],
    owners: Mapping[TopicPartition, str],
) -> dict[TopicPartition, str]:
    """Gives each partition that some member wants to one of those who want it.

    `topics_wanted` says for each member which topics it reads, `owners` who has what today. The result is as balanced
    as the subscriptions allow: no partition, nor a chain of them, could be passed on so that a fuller member gets
    closer to an emptier one. Members keep what they have as far as that allows. The same input gives the same answer
    in every process.
    """
    takers: dict[str, list[str]] = {}
    for member in sorted(topics_wanted):
        for topic in topics_wanted[member]:
            takers.setdefault(topic, []).append(member)
    held: _Held = {member: {} for member in sorted(topics_wanted)}
    free: list[TopicPartition] = []
    for partition in sorted(set(partitions)):
        owner = owners.get(partition)
        if owner in held and partition.topic in topics_wanted[owner]:
            held[owner].setdefault(partition.topic, []).append(partition)
        elif partition.topic in takers:
            free.append(partition)
    # What few want comes first: what everybody wants can still go anywhere afterwards.
    for partition in sorted(free, key=lambda each: (len(takers[each.topic]), each)):
        topic = partition.topic
        member = min(takers[topic], key=lambda each: (_load(held, each), len(held[each].get(topic, ())), each))
        held[member].setdefault(topic, []).append(partition)
    while _even_out(held, takers):
        pass
    return {partition: member for member, topics in held.items() for kept in topics.values() for partition in kept}


_Held = dict[str, dict[str, list[TopicPartition]]]
"""Member, topic, partitions."""


def _load(held: _Held, member: str) -> int:
    return sum(map(len, held[member].values()))


def _even_out(held: _Held, takers: Mapping[str, list[str]]) -> bool:
    """Passes one partition, or a chain of them, from a fuller member to an emptier one. False if all is even."""
    loads = {member: _load(held, member) for member in held}
    for fullest in sorted(held, key=lambda member: (-loads[member], member)):
        if loads[fullest] < min(loads.values()) + 2:
            return False  # So is everybody after it.
        came_from: dict[str, tuple[str, str]] = {}
        layer = [fullest]
        while layer:  # The shortest chain moves the fewest.
            reached: list[str] = []
            for member in layer:
                for topic in sorted(held[member], key=lambda each: (-len(held[member][each]), each)):
                    for taker in takers[topic] if held[member][topic] else ():
                        if taker != fullest and taker not in came_from:
                            came_from[taker] = (member, topic)
                            reached.append(taker)
            emptiest = min(reached, key=lambda member: (loads[member], member), default=fullest)
            if loads[emptiest] <= loads[fullest] - 2:
                while emptiest != fullest:
                    giver, topic = came_from[emptiest]
                    held[emptiest].setdefault(topic, []).append(held[giver][topic].pop())
                    emptiest = giver
                return True
            layer = reached
    return False
