"""Which partitions a subscription means: names and patterns looked up among the topics that are there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.consume.assignment import TopicPartition
from penstock.errors import TopicDeleted, UnknownTopic

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.partition import Partition


class Catalog:
    """The topics of a log as consumers see them. Looked up anew each time."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def check(self, subscriptions: Iterable[str]) -> None:
        """UnknownTopic if a plain name is none. A pattern may match nothing yet."""
        for name in subscriptions:
            if not is_pattern(name):
                self._log.topic(name)

    def find(self, subscriptions: Iterable[str]) -> frozenset[TopicPartition]:
        """The partitions of all topics that match; dead letters only by name, or by a pattern that ends so."""
        names = {topic for each in subscriptions for topic in self._log.topics(each, dead=not is_pattern(each))}
        return frozenset[TopicPartition]().union(*map(self._partitions_of, names))

    def partition(self, key: TopicPartition) -> Partition:
        """A handle on the partition. TopicDeleted if the topic is gone, or another one bears its name now."""
        try:
            topic = self._log.topic(key.topic)
        except UnknownTopic:
            raise TopicDeleted(key.topic) from None
        if topic.definition.id != key.topic_id:
            raise TopicDeleted(key.topic)
        return topic.partitions[key.partition]

    def _partitions_of(self, topic: str) -> frozenset[TopicPartition]:
        try:
            definition = self._log.topic(topic).definition
        except (UnknownTopic, TopicDeleted):  # Deleted between the two looks.
            return frozenset()
        return frozenset(TopicPartition(topic, each, definition.id) for each in range(definition.partitions))


def is_pattern(subscription: str) -> bool:
    """Whether it is a pattern such as `orders.*`, not the name of a topic."""
    return any(character in "*?[" for character in subscription)
