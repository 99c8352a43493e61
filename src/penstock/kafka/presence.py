"""A consumer's seat in a group of Kafka: Kafka says which partitions it reads, and remembers how far it came.

The client that holds the seat fetches nothing: records are read as everywhere, by ranges of offsets.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.consume.assignment import TopicPartition as Place
from penstock.consume.groups import Desk
from penstock.consume.position import Position
from penstock.errors import KafkaRefused, LogError, MemberEvicted, TopicDeleted
from penstock.kafka.brokers import Brokers
from penstock.kafka.connection import client_id, is_passing

if TYPE_CHECKING:
    from confluent_kafka import Consumer

logger = logging.getLogger("penstock.kafka")

AGAIN_SECONDS = 0.1
LOST = (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID)
"""What the group answers to those whom it has given up."""
MENDED = (*LOST, KafkaError.UNKNOWN_TOPIC_OR_PART)
"""What nobody is told of: the client joins again by itself, and a topic that was deleted is left out."""
SESSION_SECONDS_MIN = 6.0
"""Brokers refuse less, unless they are told otherwise."""
HEARTBEAT_MS = 1000
"""How soon a member hears that others came or went."""
POLL_SECONDS = 0.02
TOPICS_SECONDS = 2.0
"""How often it is looked for topics that match and were made later."""
SAFE_SHARE = 0.9
"""So much of a session a member trusts in its last contact; the rest is for clocks that are read late."""


class _Commit:
    """What the application's thread wants to have committed."""

    def __init__(self, positions: list[Position]) -> None:
        self.positions = positions
        self.is_done = threading.Event()
        self.error: Exception | None = None


class KafkaPresence:
    """Holds a seat and keeps the consumer's positions in step with it.

    A thread speaks with the group's broker. What another member is to have is given up once the application has nothing
    of it in hand, its progress committed first, or after the session's length. Topics are subscribed to by their names:
    patterns mean what they mean everywhere else, and only topics of the log are shared out.
    """

    def __init__(self, brokers: Brokers, group: str, desk: Desk) -> None:
        self.commits = self.rebalances = self.evictions = 0
        self.polled_at = desk.monotonic()
        self._brokers = brokers
        self._group = group
        self._desk = desk
        self._session_seconds = max(desk.options.session_seconds, SESSION_SECONDS_MIN)
        self._eviction: str | None = None
        self._refusal: LogError | None = None
        """Why the group does not have us, or the brokers do not say where to begin; nobody was told yet."""
        self._is_seated = False
        self._is_stopping = threading.Event()
        self._seen_at = desk.monotonic()
        self._names: frozenset[str] = frozenset()
        self._given: dict[tuple[str, int], TopicPartition] = {}
        """What the group gave us and is not read yet: where to begin has to be asked first."""
        self._look_at = 0.0
        self._asked: deque[_Commit] = deque()
        milliseconds = int(self._session_seconds * 1000)
        self._consumer: Consumer = brokers.connection.consumer(
            **{"group.id": group, "session.timeout.ms": milliseconds, "heartbeat.interval.ms": HEARTBEAT_MS,
               "max.poll.interval.ms": max(milliseconds, 300_000),
               "partition.assignment.strategy": "cooperative-sticky",
               "topic.metadata.refresh.interval.ms": 5_000,
               "auto.offset.reset": "earliest", "enable.partition.eof": False}
        )  # fmt: skip
        self._is_seated = True
        self._thread = threading.Thread(target=self._run, name=f"penstock-group-{group}", daemon=True)
        if desk.is_threaded:
            self._thread.start()

    # --- for the application's thread ---

    def attend(self) -> float:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        self._eviction = None
        if not self._is_seated:
            self._look_at = 0.0
            self._is_seated = True
        return float("inf") if self.is_current() else POLL_SECONDS

    def is_current(self) -> bool:
        # The group's clock runs from our last heartbeat, which may be that much older than our last look at it.
        trusted = self._session_seconds * SAFE_SHARE - HEARTBEAT_MS / 1000
        return self._desk.monotonic() - self._seen_at < trusted

    def commit(self, positions: Iterable[Position]) -> None:
        if self._eviction is not None:
            raise self._evicted(self._eviction)
        changed = [each for each in positions if each.is_open and each.processed != each.committed]
        if not changed:
            return
        if self._desk.is_threaded:
            self._ask_thread(changed)
        else:
            self._store(changed)
        self.commits += 1

    def _ask_thread(self, positions: list[Position]) -> None:
        """Has the thread commit. Kafka answers no commit while the thread is in one of its callbacks.

        We hold the mutex meanwhile, and the thread, where it waits for that, serves us.
        """
        asked = _Commit(positions)
        self._asked.append(asked)
        if not asked.is_done.wait(self._session_seconds + self._brokers.connection.answer_seconds):
            raise self._brokers.unavailable(f"group {self._group!r} does not take what was committed")
        if asked.error is not None:
            raise asked.error

    def stop(self) -> None:
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._desk.mutex:
            self._close(list(self._desk.positions))
        self._consumer.close()

    # --- for the thread ---

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self._look_for_topics()
                self._listen()
                self._serve()
                self._begin_given()
                self._make_sure()
                self._look_at_the_clock()
            except (LogError, MemberEvicted, KafkaException) as error:
                self._keep(error)
                self._is_stopping.wait(AGAIN_SECONDS)
            except Exception:
                logger.exception("consumer: the seat in group %r", self._group)
                self._is_stopping.wait(1.0)

    def _listen(self) -> None:
        """Lets the client call us. Records do not come, but here it says why the group does not have us."""
        message = self._consumer.poll(POLL_SECONDS)
        error = None if message is None else message.error()
        if error is not None:
            self._keep(KafkaException(error))

    def _keep(self, error: Exception) -> None:
        """A refusal by the brokers is raised by the next `attend`: else nobody would say why no record comes."""
        logger.debug("consumer: the seat in group %r: %s", self._group, error)
        told = self._told(error) if isinstance(error, KafkaException) else error
        # Numbers below 0 are errors of the client, which goes on by itself.
        if isinstance(told, KafkaRefused) and told.code > 0 and told.code not in MENDED:
            self._refusal = told
            self._desk.wake()

    def _serve(self) -> None:
        """Commits what the application's thread asks for."""
        while self._asked:
            asked = self._asked.popleft()
            try:
                self._store(asked.positions)
            except Exception as error:
                asked.error = error
            asked.is_done.set()

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """The desk's mutex. Whoever has it may wait for a commit, which only we can make."""
        while not self._desk.mutex.acquire(timeout=0.005):
            self._serve()
        try:
            yield
        finally:
            self._desk.mutex.release()

    def _look_for_topics(self) -> None:
        """Subscribes to the topics that match by now."""
        if not self._is_seated or self._desk.monotonic() < self._look_at:
            return
        self._look_at = self._desk.monotonic() + TOPICS_SECONDS
        names = frozenset(place.topic for place in self._desk.catalog.find(self._desk.options.topics))
        if names and names != self._names:
            self._consumer.subscribe(
                sorted(names), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            self._names = names

    def _make_sure(self) -> None:
        """Who was frozen asks the group whether the seat is still its own, before anything is handed out."""
        if self.is_current() or self._still_has_seat():
            self._seen_at = self._desk.monotonic()

    def _still_has_seat(self) -> bool:
        """Says again how far we are: the group refuses that from those it has given up."""
        with self._holding():
            known = [TopicPartition(key.topic, key.partition, each.committed)
                     for key, each in self._desk.positions.items() if each.committed >= 0]  # fmt: skip
        try:
            if known:
                self._consumer.commit(offsets=known, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in LOST:
                raise
            with self._holding():
                self._evict("it was not heard of in time")
            self._desk.wake()
        return True

    def _look_at_the_clock(self) -> None:
        """Who takes too long with what it was given gives its seat up."""
        limit = self._desk.options.processing_seconds
        if self._is_seated and self._desk.monotonic() - self.polled_at > limit:
            with self._holding():
                self._evict(f"it did not poll for {limit:g} seconds")
            self._consumer.unsubscribe()
            self._names = frozenset()
            self._desk.wake()

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        if given:
            consumer.incremental_assign(given)
            consumer.pause(given)
            self._given |= {(each.topic, each.partition): each for each in given}
        self.rebalances += 1

    def _begin_given(self) -> None:
        """Opens what the group gave us. What cannot be asked for now is asked for again."""
        if not self._given:
            return
        answers = self._consumer.committed(list(self._given.values()), self._brokers.connection.answer_seconds)
        places = {(each.topic, each.partition): each for each in self._desk.catalog.find(self._desk.options.topics)}
        opened: list[Position] = []
        begun: list[Position] = []
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
            position = self._open(places.get((answer.topic, answer.partition)), answer.offset)
            if position is not None:
                opened.append(position)
                if answer.offset < 0:
                    begun.append(position)
        if begun:  # Should we die at once, the next one starts at the same place, whatever came meanwhile.
            self._store(begun)
        with self._holding():
            self._desk.positions.update((each.key, each) for each in opened)
            self._given.clear()
        self._desk.wake()

    def _open(self, place: Place | None, committed: int) -> Position | None:
        if place is None:
            return None
        try:
            offset = committed if committed >= 0 else self._desk.start_of(place)
            return self._desk.open_position(place, offset)
        except TopicDeleted:
            logger.warning("consumer: %s was deleted while group %r read it", place.topic, self._group)
            return None

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        keys = self._keys(taken)
        for each in taken:
            self._given.pop((each.topic, each.partition), None)
        deadline = time.monotonic() + self._session_seconds
        with self._holding():
            for key in keys:
                self._desk.positions[key].is_wanted_elsewhere = True
        self._desk.wake()
        while time.monotonic() < deadline and not self._is_stopping.is_set():
            with self._holding():
                if not any(key in self._desk.positions and self._desk.positions[key].is_in_hand for key in keys):
                    break
            time.sleep(0.01)
        with self._holding():
            if self._desk.options.commit_seconds is not None:
                changed = [self._desk.positions[key] for key in keys if key in self._desk.positions]
                self._store_quietly([each for each in changed if each.processed != each.committed])
            self._close(keys)
            consumer.incremental_unassign(taken)
        self._desk.wake()

    def _on_lost(self, consumer: Consumer, lost: list[TopicPartition]) -> None:
        self._given.clear()
        with self._holding():
            if self._desk.positions:
                self._evict("it was not heard of in time")
            consumer.incremental_unassign(lost)
            self._is_seated = True  # The client joins again by itself.
        self._desk.wake()

    # --- helpers ---

    def _keys(self, partitions: Iterable[TopicPartition]) -> list[Place]:
        meant = {(each.topic, each.partition) for each in partitions}
        return [key for key in self._desk.positions if (key.topic, key.partition) in meant]

    def _evict(self, why: str) -> None:
        self._eviction = why
        self._is_seated = False
        self.evictions += 1
        self._close(list(self._desk.positions))

    def _evicted(self, why: str) -> MemberEvicted:
        return MemberEvicted(self._group, client_id(), why)  # Asking for the member's id takes for ever by now.

    def _close(self, keys: Iterable[Place]) -> None:
        for key in keys:
            position = self._desk.positions.pop(key, None)
            if position is not None:
                position.is_open = False

    def _store(self, positions: list[Position]) -> None:
        offsets = [TopicPartition(each.key.topic, each.key.partition, each.processed) for each in positions]
        deadline = time.monotonic() + self._session_seconds
        while True:
            try:
                for answer in self._consumer.commit(offsets=offsets, asynchronous=False) or []:
                    if answer.error is not None:
                        raise KafkaException(answer.error)
                break
            except KafkaException as error:
                if not is_passing(error) or time.monotonic() > deadline:
                    raise self._refused(error) from error
            time.sleep(AGAIN_SECONDS)
        for each, offset in zip(positions, offsets, strict=True):
            each.committed = offset.offset

    def _refused(self, error: KafkaException) -> Exception:
        if error.args[0].code() in LOST:
            return self._evicted("the group has given its partitions to others")
        return self._told(error)

    def _told(self, error: KafkaException) -> LogError:
        return self._brokers.told(error, f"a member of group {self._group!r}")

    def _store_quietly(self, positions: list[Position]) -> None:
        if positions:
            try:
                self._store(positions)
                self.commits += 1
            except (MemberEvicted, LogError, KafkaException) as error:
                logger.warning("consumer: progress of group %r was not committed: %s", self._group, error)
