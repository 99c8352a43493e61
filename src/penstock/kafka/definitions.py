"""What topics are: their definitions, in a topic of Kafka that every process reads in the same order.

A record says that a topic was made, changed or deleted. Who comes second has lost: a topic that is there is not made
again, and a change counts only if it was made to what was in force. So all processes agree, without a lock.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.kafka.brokers import Brokers
from penstock.kafka.journal import KEPT_FOR_EVER, Journal, offset_of
from penstock.log.definition import TopicDefinition, from_document, to_document

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.kafka.writing import Writer

TOPIC = "_penstock.topics"


class Definitions:
    """The definitions of all topics, as of the last `follow`."""

    def __init__(self, brokers: Brokers, writer: Writer) -> None:
        self._journal = Journal(brokers, TOPIC, KEPT_FOR_EVER, self._take)
        self._writer = writer
        self._known: dict[str, tuple[TopicDefinition, int]] = {}
        self._ids: set[str] = set()
        self._deleted: dict[str, str] = {}

    def all(self) -> dict[str, TopicDefinition]:
        """Every topic there is."""
        self._journal.follow()
        return {name: definition for name, (definition, _) in self._known.items()}

    def add(self, definition: TopicDefinition) -> bool:
        """Makes a topic. False if there is one of that name."""
        self._say({"do": "make", "definition": to_document(definition)})
        return self._known[definition.name][0].id == definition.id

    def change(self, definition: TopicDefinition, known: TopicDefinition) -> bool:
        """Exchanges what was `known`. False if it is no longer in force."""
        found = self._known.get(known.name)
        if found is None or found[0] != known:
            return False
        self._say({"do": "change", "after": found[1], "definition": to_document(definition)})
        return self._known.get(known.name, (None,))[0] == definition

    def remove(self, definition: TopicDefinition, kafka_id: str) -> None:
        """Deletes a topic, whose topic in Kafka goes by that id of Kafka's and is to be deleted next."""
        self._say({"do": "delete", "name": definition.name, "id": definition.id, "kafka_id": kafka_id})

    def has_known(self, topic_id: str) -> bool:
        """Whether there ever was a topic of this id."""
        self._journal.follow()
        return topic_id in self._ids

    def deleted(self, name: str) -> str | None:
        """Kafka's id of the topic that was the last one of this name to be deleted."""
        return self._deleted.get(name)

    def close(self) -> None:
        self._journal.close()

    def _say(self, entry: dict[str, Any]) -> None:
        self._journal.make()
        self._writer.store(TOPIC, 0, [(None, json.dumps(entry).encode(), None)])
        self._journal.follow()

    def _take(self, message: Message) -> None:
        entry = json.loads(message.value() or b"")
        if entry["do"] == "delete":
            found = self._known.get(entry["name"])
            if found is not None and found[0].id == entry["id"]:
                del self._known[entry["name"]]
                self._deleted[entry["name"]] = entry["kafka_id"]
            return
        definition = from_document(entry["definition"])
        self._ids.add(definition.id)
        found = self._known.get(definition.name)
        is_in_force = found is None if entry["do"] == "make" else found is not None and found[1] == entry["after"]
        if is_in_force:
            self._known[definition.name] = (definition, offset_of(message))
