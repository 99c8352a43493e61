"""Waking those who wait for records: a small file for each partition, written anew when something was appended.

Whoever waits watches files, wherever the log is kept. Here a thread listens to the brokers and writes the files; they
are this process's own, in memory where there is such a place.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition

from penstock.errors import KafkaRefused, PenstockError, TopicDeleted
from penstock.kafka.brokers import Brokers
from penstock.kafka.journal import offset_of
from penstock.memory_folder import memory_folder

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from penstock.kafka.definitions import Definitions

logger = logging.getLogger("penstock.kafka")

TOPICS_SECONDS = 2.0
"""How often it is looked for topics that came or went."""
REST_SECONDS = 0.005
"""So long nobody is woken again: more may come, and one waking is enough for all of it."""


class Signals:
    """The files to watch. The thread begins with the first of them."""

    def __init__(self, brokers: Brokers, definitions: Definitions) -> None:
        self._brokers = brokers
        self._definitions = definitions
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._wanted: list[tuple[str, int]] = []
        self._known: set[tuple[str, int]] = set()
        self._is_about_topics = False
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._counter = itertools.count()

    def of(self, topic: str, partition: int) -> Path:
        """The file that changes when the partition grows."""
        with self._lock:
            if (topic, partition) not in self._known:
                self._known.add((topic, partition))
                self._wanted.append((topic, partition))
            return self._begin() / f"{topic}-{partition}"

    def of_topics(self) -> Path:
        """The file that changes when topics come or go."""
        with self._lock:
            self._is_about_topics = True
            return self._begin() / "topics"

    def close(self) -> None:
        """Ends the thread and removes the files."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="penstock-signals-", dir=memory_folder()))
            self._thread = threading.Thread(target=self._run, name="penstock-signals", daemon=True)
            self._thread.start()
        return self._folder

    def _run(self) -> None:
        # One record is enough to know; what comes after it is read by those who want it.
        consumer = self._brokers.connection.consumer(
            **{"queued.min.messages": 1, "fetch.message.max.bytes": 1 << 16,
               "fetch.wait.max.ms": 500, "enable.partition.eof": False, "auto.offset.reset": "latest"}
        )  # fmt: skip
        look_at = 0.0
        topics: frozenset[str] = frozenset()
        try:
            while not self._is_closed.is_set():
                self._listen(consumer)
                if self._is_about_topics and time.monotonic() >= look_at:
                    look_at = time.monotonic() + TOPICS_SECONDS
                    topics = self._look(topics)
        except Exception:
            if not self._is_closed.is_set():
                logger.exception("log: nobody is woken by new records any more; they are looked for now and then")
        finally:
            consumer.close()

    def _listen(self, consumer: Consumer) -> None:
        self._begin_new(consumer)
        if not self._known:
            self._is_closed.wait(0.1)
            return
        heard: dict[tuple[str, int], int] = {}
        for message in consumer.consume(100, 0.1):
            if message.error() is None:
                heard[str(message.topic()), message.partition() or 0] = offset_of(message)
        for topic, partition in heard:
            self._ring(f"{topic}-{partition}")
        if heard:
            time.sleep(REST_SECONDS)
            for place, offset in heard.items():
                self._skip(consumer, place, offset)

    def _begin_new(self, consumer: Consumer) -> None:
        with self._lock:
            new, self._wanted = self._wanted, []
        for topic, partition in new:
            try:
                end = self._brokers.ends(topic, [partition])[partition]
            except (TopicDeleted, KafkaRefused):
                continue
            except PenstockError as error:
                logger.debug("log: %s/%d cannot be listened to yet: %s", topic, partition, error)
                with self._lock:
                    self._wanted.append((topic, partition))
                continue
            # At a certain offset: the end that the client would look for is that of a moment later.
            consumer.incremental_assign([TopicPartition(topic, partition, end)])
            self._ring(f"{topic}-{partition}")  # It may have grown before it was listened to.

    def _skip(self, consumer: Consumer, place: tuple[str, int], heard: int) -> None:
        """Passes over what came meanwhile, and rings for it: who was woken before may not have seen it."""
        try:
            end = self._brokers.ends(place[0], [place[1]])[place[1]]
            if end > heard + 1:
                consumer.seek(TopicPartition(*place, end))
                self._ring(f"{place[0]}-{place[1]}")
        except (PenstockError, KafkaException) as error:
            logger.debug("log: %s/%d cannot be skipped: %s", *place, error)

    def _look(self, before: frozenset[str]) -> frozenset[str]:
        try:
            found = frozenset(each.id for each in self._definitions.all().values())
        except (PenstockError, KafkaException) as error:
            logger.debug("log: topics cannot be looked for: %s", error)
            return before
        if found != before:
            self._ring("topics")
        return found

    def _ring(self, name: str) -> None:
        if self._folder is not None:
            (self._folder / name).write_text(str(next(self._counter)))
