"""Which partitions a subscription means: names and patterns looked up among the topics that are there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.consume.assignment import TopicPartition
from penstock.errors import TopicDeleted, UnknownTopic
from penstock.log.definition import FILE_NAME, read_definition

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.partition import Partition


class Catalog:
    """The topics of a log as consumers see them. Looked up anew each time; a definition is read again if it changed."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: dict[str, tuple[tuple[int, int], frozenset[TopicPartition]]] = {}

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

    def unfinished(self) -> list[Path]:
        """Folders of topics that are being made right now: they become topics without the folder above noticing."""
        directory = self._log.topics_directory
        return [path for path in directory.iterdir() if not (path / FILE_NAME).exists()] if directory.is_dir() else []

    def _partitions_of(self, topic: str) -> frozenset[TopicPartition]:
        directory = self._log.topics_directory / topic
        try:
            status = os.stat(directory / FILE_NAME)
            version = (status.st_ino, status.st_mtime_ns)
            if topic not in self._known or self._known[topic][0] != version:
                definition = read_definition(directory)
                found = (TopicPartition(topic, each, definition.id) for each in range(definition.partitions))
                self._known[topic] = (version, frozenset(found))
        except FileNotFoundError:  # Deleted between the two looks.
            return frozenset()
        return self._known[topic][1]


def is_pattern(subscription: str) -> bool:
    """Whether it is a pattern such as `orders.*`, not the name of a topic."""
    return any(character in "*?[" for character in subscription)
