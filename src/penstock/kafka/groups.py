"""Consumer groups of a log in Kafka: Kafka's own, so its tools see them too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition

from penstock.consume.assignment import TopicPartition as Place
from penstock.consume.catalog import Catalog
from penstock.consume.groups import Desk, GroupStatus, MemberStatus, PartitionStatus
from penstock.consume.start import parse_start
from penstock.errors import GroupActive, KafkaRefused, TopicDeleted, UnknownGroup, UnknownTopic
from penstock.kafka.presence import KafkaPresence

if TYPE_CHECKING:
    from penstock.kafka.log import KafkaLog


class KafkaGroups:
    """The consumer groups that the brokers know."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self._catalog = Catalog(log)

    def names(self) -> list[str]:
        admin = self._log.brokers.admin
        found = self._log.brokers.ask(lambda: {None: admin.list_consumer_groups()}, "to name its groups")[None]
        return sorted(each.group_id for each in found.valid)

    def status(self, name: str) -> GroupStatus:
        if name not in self.names():
            raise UnknownGroup(name, self.names(), self._log.url)
        admin = self._log.brokers.admin
        about = f"to show group {name!r}"
        described = self._log.brokers.ask(lambda: admin.describe_consumer_groups([name]), about)[name]
        owners = {
            (each.topic, each.partition): member.member_id
            for member in described.members
            for each in (member.assignment.topic_partitions if member.assignment else ())
        }
        committed = self._committed(name)
        partitions = [
            found
            for topic, number in sorted({*owners, *committed})
            if (found := self._partition(topic, number, owners, committed)) is not None
        ]
        members = tuple(
            MemberStatus(
                id=member.member_id, pid=_pid(member.client_id), host=str(member.host).lstrip("/"), subscriptions=(),
                joined_us=0, partitions=[*owners.values()].count(member.member_id), silent_seconds=None, why_dead=None,
            )
            for member in described.members
        )  # fmt: skip
        return GroupStatus(name, 0, members, tuple(partitions))

    def reset(self, name: str, topics: Sequence[str], start: str | int | datetime) -> dict[tuple[str, int], int]:
        self._catalog.check(topics)
        where = parse_start(start)
        offsets = {key: where.offset_in(self._catalog.partition(key)) for key in self._catalog.find(topics)}
        found = {(key.topic, key.partition): offset for key, offset in sorted(offsets.items())}
        self.set_offsets(name, found)
        return found

    def set_offsets(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commits these offsets for a group, which is made if there is none. GroupActive while it has members."""
        asked = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        admin = self._log.brokers.admin
        self._refuse_active(
            name, lambda: admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, asked)])
        )

    def forget(self, name: str) -> None:
        if name not in self.names():
            raise UnknownGroup(name, self.names(), self._log.url)
        self._refuse_active(name, lambda: self._log.brokers.admin.delete_consumer_groups([name]))

    def join(self, name: str, desk: Desk) -> KafkaPresence:
        return KafkaPresence(self._log.brokers, name, desk)

    def _refuse_active(self, name: str, question: object) -> None:
        try:
            self._log.brokers.ask(question, f"to change group {name!r}")  # type: ignore[arg-type]
        except KafkaRefused as error:
            if error.code not in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
                raise
            members = [each.id for each in self.status(name).members]
            raise GroupActive(name, members) from None

    def _committed(self, name: str) -> dict[tuple[str, int], int]:
        admin = self._log.brokers.admin
        asked = [ConsumerGroupTopicPartitions(name)]
        found = self._log.brokers.ask(
            lambda: admin.list_consumer_group_offsets(asked), f"to say how far group {name!r} is"
        )[name]
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions if each.offset >= 0}

    def _partition(
        self, topic: str, number: int, owners: dict[tuple[str, int], str], committed: dict[tuple[str, int], int]
    ) -> PartitionStatus | None:
        try:
            found = self._log.topic(topic)
            partition = self._catalog.partition(Place(topic, number, found.definition.id))
        except (UnknownTopic, TopicDeleted):
            return None
        at = committed.get((topic, number))
        start, end = partition.start_offset(), partition.end().offset
        return PartitionStatus(topic, number, owners.get((topic, number)), None, at, None, start, end)


def _pid(client: str) -> int:
    """The process of a client of ours, from the name it gave; 0 for others."""
    last = client.rpartition("-")[2]
    return int(last) if last.isdigit() else 0
