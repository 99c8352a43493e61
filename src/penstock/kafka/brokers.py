"""The brokers, as one process speaks with them: topics, offsets, and readers that are used again."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec, ResourceType

from penstock.errors import KafkaRefused, KafkaUnavailable, LogError, TopicDeleted
from penstock.kafka.connection import ASKED_AGAIN_MS, Connection, is_passing
from penstock.log.partition import Offsets

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")
ASK_AGAIN_SECONDS = 0.1
REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""Who is not let in is not let in a second later either."""
UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""What writers are told of a topic that is not there."""
ASKED = "what it was asked"
GATHER_SECONDS = 0.01
MISSING_SECONDS = 5.0
"""Brokers learn of a new topic one after the other, in a moment: one that is missing for longer is deleted."""
READERS_MAX = 8
"""So many idle readers are kept: each has threads of its own."""


class Brokers:
    """What is open towards the brokers. Any thread may use it; none survives a fork."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._refusal: KafkaError | None = None
        self._cluster_id: str | None = None
        self._readers: deque[Reader] = deque()

    @property
    def admin(self) -> AdminClient:
        """Asks about topics, offsets and groups."""
        with self._lock:
            if self._admin is None:
                self._admin = self.connection.admin(self._on_error)
            return self._admin

    def ask(self, question: Callable[[], Mapping[Any, Future[T]]], what: str = ASKED) -> dict[Any, T]:
        """The answers to a question. KafkaUnavailable if none comes, KafkaRefused if it is a refusal, of `what`."""
        patience = self.connection.answer_seconds
        deadline = time.monotonic() + patience
        while True:
            try:
                asked = question()
                while not all(answer.done() for answer in asked.values()):
                    if time.monotonic() > deadline:
                        raise self.unavailable(f"no answer within {patience:g} seconds")
                    wait(asked.values(), ASK_AGAIN_SECONDS)
                    self._look_for_refusal()
                return {about: answer.result() for about, answer in asked.items()}
            except KafkaException as error:
                if not is_passing(error) or time.monotonic() > deadline:
                    raise self.told(error, what) from error
            time.sleep(ASK_AGAIN_SECONDS)  # A leader is being elected, or a broker comes back.
            self._learn_leaders()

    def _learn_leaders(self) -> None:
        """Else the next question goes to the broker that led before, and waits for it as long as this one did."""
        with suppress(KafkaException):
            self.admin.list_topics(timeout=1)

    def told(self, error: KafkaException, what: str = ASKED) -> LogError:
        """The error as people are told of it: brokers that cannot be reached, or that refuse `what` they were asked."""
        cause = error.args[0]
        if is_passing(error):
            return self.unavailable(cause.str())
        return KafkaRefused(self.connection.brokers, what, cause.str(), cause.code())

    def unavailable(self, reason: str) -> KafkaUnavailable:
        return KafkaUnavailable(self.connection.brokers, reason)

    def _look_for_refusal(self) -> None:
        """KafkaUnavailable if the brokers do not let us in; else nobody would say so before the patience is over."""
        self.admin.poll(0)
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise self.unavailable(f"it does not let us in: {refusal.str()}")

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in REFUSALS:
            self._refusal = error

    @property
    def cluster_id(self) -> str:
        """What no other cluster is called, whatever its address; the address where brokers do not tell."""
        if self._cluster_id is None:
            self.topics()
        return self._cluster_id or self.connection.brokers

    # --- topics ---

    def topics(self) -> dict[str, int]:
        """Every topic of Kafka and how many partitions it has."""
        deadline = time.monotonic() + self.connection.answer_seconds
        while True:
            try:
                known = self.admin.list_topics(timeout=min(1.0, self.connection.answer_seconds))
                self._cluster_id = known.cluster_id
                return {name: len(each.partitions) for name, each in known.topics.items()}
            except KafkaException as error:
                self._look_for_refusal()
                if not is_passing(error) or time.monotonic() > deadline:
                    raise self.told(error, "to name its topics") from error

    def make_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> bool:
        """Makes a topic of Kafka with as many replicas as the brokers say. False if it is there already."""
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(settings))
        try:
            self.ask(lambda: self.admin.create_topics([wanted]), f"to make topic {name!r}")
        except KafkaRefused as error:
            if error.code == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def settings_of(self, topic: str) -> dict[str, str]:
        """What Kafka was told of a topic."""
        asked = ConfigResource(ResourceType.TOPIC, topic)
        [found] = self.ask(
            lambda: self.admin.describe_configs([asked]), f"to show the settings of topic {topic!r}"
        ).values()
        return {name: entry.value for name, entry in found.items()}

    def set_up(self, topic: str, settings: Mapping[str, str]) -> None:
        """Changes what Kafka was told of a topic, where it was told something else."""
        known = self.settings_of(topic)
        changed = {name: value for name, value in settings.items() if known.get(name) != value}
        if changed:
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in changed.items()
            ]
            asked = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
            self.ask(lambda: self.admin.incremental_alter_configs([asked]), f"to change settings of topic {topic!r}")

    def id_of(self, topic: str) -> str:
        """Kafka's own name for a topic, which no other ever has; empty if it is not there."""
        try:
            asked = TopicCollection([topic])
            [found] = self.ask(lambda: self.admin.describe_topics(asked), f"to describe topic {topic!r}").values()
        except KafkaRefused as error:
            if error.code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return ""
            raise
        return str(found.topic_id)

    def drop_before(self, topic: str, partition: int, offset: int) -> None:
        """Drops the records before an offset. A topic that only ever compacts has to be told that it may."""
        policy = self.settings_of(topic)["cleanup.policy"]
        self.set_up(topic, {"cleanup.policy": "compact,delete" if policy == "compact" else policy})
        try:
            asked = TopicPartition(topic, partition, offset)
            self.ask(lambda: self.admin.delete_records([asked]), f"to drop the first records of {topic}/{partition}")
        finally:
            self.set_up(topic, {"cleanup.policy": policy})

    def delete_topic(self, name: str) -> None:
        """Deletes a topic of Kafka. Harmless if there is none."""
        try:
            self.ask(lambda: self.admin.delete_topics([name]), f"to delete topic {name!r}")
        except KafkaRefused as error:
            if error.code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise

    # --- offsets ---

    def starts(self, topic: str, partitions: Sequence[int]) -> Offsets:
        """The first offsets that retention has left."""
        return self._offsets(topic, partitions, OffsetSpec.earliest())

    def ends(self, topic: str, partitions: Sequence[int]) -> Offsets:
        """The offsets behind the last committed records."""
        return self._offsets(topic, partitions, OffsetSpec.latest())

    def stamped_at(self, topic: str, partitions: Sequence[int], milliseconds: int) -> Offsets:
        """The first offsets that the brokers stamped with this time or a later one; the ends where there is none."""
        found = self._offsets(topic, partitions, OffsetSpec.for_timestamp(milliseconds))
        missing = [number for number, offset in found.items() if offset < 0]
        return found | (self.ends(topic, missing) if missing else {})

    def undecided_end(self, topic: str, partition: int) -> int:
        """The offset behind the last record, decided or not: when all before it is decided, nothing is missed."""
        return self._offsets(topic, [partition], OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)[partition]

    def _offsets(
        self,
        topic: str,
        partitions: Sequence[int],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> Offsets:
        asked = {TopicPartition(topic, number): spec for number in partitions}
        seconds = min(ASKED_AGAIN_MS / 1000, self.connection.answer_seconds)
        began = time.monotonic()
        deadline = began + self.connection.answer_seconds
        while True:
            try:
                found = self.ask(
                    lambda: self.admin.list_offsets(asked, isolation_level=isolation, request_timeout=seconds),
                    f"to say where topic {topic!r} begins and ends",
                )
                return {about.partition: answer.offset for about, answer in found.items()}
            except KafkaRefused as error:
                # Said of a topic that is not there, and of one that has no leader yet.
                is_unknown = error.code in (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART)
                if not is_unknown or time.monotonic() > deadline:
                    raise
                if topic not in self.topics() and time.monotonic() > began + MISSING_SECONDS:
                    raise TopicDeleted(topic) from None
            time.sleep(ASK_AGAIN_SECONDS)

    # --- readers ---

    @contextmanager
    def reader(self, topic: str, partition: int, start: int) -> Iterator[Reader]:
        """A reader whose next record of this partition is the one at `start`, if there is one."""
        place = (topic, partition, start)
        with self._lock:
            chosen = next((each for each in self._readers if each.place == place), None)
            if chosen is None and len(self._readers) >= READERS_MAX:
                chosen = self._readers[0]
            if chosen is not None:
                self._readers.remove(chosen)
        chosen = chosen or Reader(self.connection.consumer())
        try:
            chosen.begin(place)
            yield chosen
        except GeneratorExit:  # Whoever read had enough: the reader is as good as before.
            self._give_back(chosen)
            raise
        except BaseException:
            chosen.consumer.close()
            raise
        self._give_back(chosen)

    def _give_back(self, chosen: Reader) -> None:
        with self._lock:
            self._readers.append(chosen)
            spare = self._readers.popleft() if len(self._readers) > READERS_MAX else None
        if spare is not None:
            spare.consumer.close()

    def close(self) -> None:
        """Lets go of everything."""
        with self._lock:
            readers, self._admin = list(self._readers), None
            self._readers.clear()
        for each in readers:
            each.consumer.close()


def take(consumer: Consumer, count: int, seconds: float) -> list[Message]:
    """The next messages, at most so many. Waits for the first of them only: it is not known how many will come."""
    first = consumer.poll(seconds)
    if first is None:
        return []
    return [first, *consumer.consume(count - 1, GATHER_SECONDS)] if count > 1 else [first]


class Reader:
    """A client and where it stands.

    It counts by itself what it has passed: the client does not count offsets without a record, and tells the end of a
    partition only once.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.place: tuple[str, int, int] | None = None

    def begin(self, place: tuple[str, int, int]) -> None:
        """Goes there, unless it stands there."""
        if self.place != place:
            self.consumer.assign([TopicPartition(*place)])
            self.place = place

    def passed(self, offset: int) -> None:
        """Everything before this offset was handed out."""
        assert self.place is not None, "begin() was not called"
        self.place = (*self.place[:2], offset)
