"""What all routes share: the log, the database of views, the threads, the bell and the tokens."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection
from starlette.types import Scope

from penstock.alerts.courier import Courier
from penstock.alerts.smtp import default_sender
from penstock.dashboard.sessions import Sessions
from penstock.durations import parse_duration
from penstock.errors import (
    KafkaRefused,
    KafkaUnavailable,
    RequestRefused,
    StoreUnavailable,
    TopicError,
    UnknownView,
)
from penstock.log.log import open_log
from penstock.log.topic import Topic
from penstock.modes.lag import topics_of
from penstock.service.answers import moment
from penstock.service.bell import Bell
from penstock.service.feed import Feeds
from penstock.service.metrics import Metrics
from penstock.service.part import part_of
from penstock.service.prompt import Prompt
from penstock.service.records import find_topic
from penstock.service.tokens import Tokens
from penstock.service.work import Work, busy, limited
from penstock.settings import Settings
from penstock.views.catalog import Catalog, Generation
from penstock.views.find import StoredView, stored_view
from penstock.views.outbox import sent_to
from penstock.views.store import Snapshot, Store, open_store

if TYPE_CHECKING:
    from penstock.dashboard.pulse import Pulse
    from penstock.pipeline.pipeline import Pipeline

T = TypeVar("T")
APPENDING_THREADS = 4
WRITTEN_SECONDS = 5.0
"""So long it is taken for true which topics pipelines write."""


class Service:
    """One service over one log and one database. It holds no state of its own that a restart would lose.

    With a pipeline only its views and topics are served. `start` and `stop` belong to the event loop; what reads and
    writes is called in threads, through `work`.
    """

    def __init__(self, settings: Settings, pipeline: Pipeline | None = None) -> None:
        self.settings = settings.serve
        self.pipeline = pipeline
        self._views = settings.views
        self.log = open_log(settings.log) if pipeline is None else part_of(pipeline, settings.log)
        self.prompt = Prompt(self.log)
        self.seconds = parse_duration(self.settings.request_timeout).total_seconds()
        self.tokens = Tokens(self.settings.tokens_path)
        self.needs_token = bool(self.tokens.all()) or self.tokens.is_there
        """Once there was a token, nobody comes in without one, even if the last one is removed."""
        self.sessions = Sessions(self.tokens)
        self.work = Work(self.settings.threads, self.seconds, waiting=self.settings.connections_max)
        self.log_reads = Work(self.settings.threads, self.seconds, waiting=self.settings.connections_max)
        """Others: brokers that do not answer must not keep views from being read."""
        self.appends = Work(APPENDING_THREADS, self.seconds, waiting=self.settings.connections_max)
        """Threads of their own: a database that does not answer must not keep events from being stored."""
        self.bell = Bell()
        self.feeds = Feeds(self)
        self.metrics = Metrics()
        self._streams_of: Counter[str | None] = Counter()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._pulse: Pulse | None = None
        self._store: Store | None = None
        self._left: list[Store] = []
        self._file: tuple[int, int] | None = None
        self._opening = threading.Lock()
        self._written: frozenset[str] = frozenset()
        self._written_until = 0.0
        self.courier = Courier(self.store, settings.alerts)
        self.sender = default_sender(settings.alerts)
        """From whom mails come."""

    async def start(self) -> None:
        """Begins to listen for appends."""
        self.loop = asyncio.get_running_loop()
        self.bell.start()
        self.work.begin(self._read_written)
        self.courier.start()

    @property
    def pulse(self) -> Pulse:
        """What the dashboard shows of the last minutes. Nothing is read before somebody watches."""
        with self._opening:
            if self._pulse is None:
                from penstock.dashboard.pulse import Pulse

                self._pulse = Pulse(self)
            return self._pulse

    def stop(self) -> None:
        """Streams and long polls end now."""
        self.bell.stop()

    async def close(self) -> None:
        """Lets go of everything. What was answered is on disk."""
        self.bell.stop()
        if self._pulse is not None:
            await self._pulse.close()
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self.bell.close()
        self.courier.close()
        self.appends.close()
        self.log_reads.close()
        self.work.close()
        for store in [*self._left, *([] if self._store is None else [self._store])]:
            store.close()
        self.log.close()

    # --- topics ---

    def topic_to_write(self, name: str) -> Topic:
        """A topic that clients may send events to. RequestRefused (403) for what only pipelines and the log write."""
        topic = find_topic(self.log, name)
        if topic.definition.is_dead_letters or name in self._written_by_pipelines():
            raise RequestRefused(
                403,
                f"topic {name!r} is written by Penstock alone",
                "what a client sent there could not be told from what a view or an alert has said",
            )
        return topic

    def _written_by_pipelines(self) -> frozenset[str]:
        """The topics of changes, alerts and dead letters, as runs have entered them some seconds ago.

        No event waits for the database: they are stored also while it is away.
        """
        now = time.monotonic()
        if now >= self._written_until:
            self._written_until = now + WRITTEN_SECONDS
            self.work.begin(self._read_written)
        return self._written

    def _read_written(self) -> None:
        with suppress(StoreUnavailable):
            store = self.store()
            if store is not None:
                self._written = store.reading(lambda snapshot: _written(snapshot.connection))

    # --- views ---

    def store(self) -> Store | None:
        """The database of views; None where no run has made it yet. A file that was replaced is opened again."""
        with self._opening:
            scheme, _, path = self._views.url.partition(":")
            if scheme == "sqlite":
                file = file_identity(path)
                if self._store is not None and file != self._file:
                    self._left.append(self._store)  # Somebody may be reading from it.
                    self._store = None
                if file is None:
                    return None
                self._file = file
            if self._store is None:
                self._store = open_store(self._views.url, password=self._views.password)
            return self._store

    def reading(self, body: Callable[[Snapshot], T], name: str = "") -> T:
        """What `body` reads of one moment, whatever is switched meanwhile; broken off if it takes too long."""
        store = self.store()
        if store is None:
            raise UnknownView(name, [])
        if self.pipeline is not None and name and name not in self.pipeline.views:
            raise UnknownView(name, [*self.pipeline.views])

        def in_time(snapshot: Snapshot) -> T:
            with limited(snapshot, self.seconds):
                return body(snapshot)

        return store.reading(in_time)

    def live(self) -> list[Generation]:
        """What people read now."""
        return [each for each in self.generations() if each.state == "live"]

    def generations(self) -> list[Generation]:
        """All generations of the views that are served."""
        if self.store() is None:
            return []
        name = None if self.pipeline is None else self.pipeline.name
        return self.reading(lambda snapshot: Catalog(snapshot.connection).generations(name))

    def view(self, name: str) -> StoredView:
        """A view as people read it now. UnknownView names the nearest."""
        return self.reading(lambda snapshot: known_view(snapshot, name), name)

    def as_of(self, generation: Generation, view: str) -> dict[str, Any]:
        """How fresh a view is: what of the log is in it, and what time it was there."""
        topics = topics_of(generation, view)
        offsets = {topic: dict(generation.fence.offsets.get(topic, {})) for topic in topics}
        try:
            ends = self.prompt.ask(lambda: {topic: self.log.topic(topic).end() for topic in topics})
            behind: int | None = generation.fence.lag_behind(ends)
        except (TopicError, KafkaUnavailable, KafkaRefused):
            behind = None
        return {
            "clock": moment(generation.fence.clock_us or None),
            "offsets": offsets,
            "generation": generation.number,
            "behind": behind,
        }

    # --- streams ---

    @contextmanager
    def streaming(self, scope: Scope) -> Iterator[None]:
        """One of those who follow or wait. RequestRefused (503) if there are too many, or too many of its token."""
        if self.metrics.streams_open >= self.settings.streams_max:
            raise busy(f"{self.settings.streams_max} streams are open already")
        token = scope.get("penstock.sender")
        if token is not None and self._streams_of[token] >= self.settings.streams_per_token:
            raise busy(f"token {token!r} has as many streams open as it may: {self.settings.streams_per_token}")
        self.metrics.stream_opened()
        self._streams_of[token] += 1
        try:
            yield
        finally:
            self.metrics.stream_closed()
            self._streams_of[token] -= 1


def known_view(snapshot: Snapshot, name: str) -> StoredView:
    """The view of that name. UnknownView, also for what no database would take as a name."""
    if "\0" in name:
        raise UnknownView(name, Catalog(snapshot.connection).view_names())
    return stored_view(snapshot, name)


def file_identity(path: str) -> tuple[int, int] | None:
    """Which file it is; None if it is not there."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _written(connection: Connection) -> frozenset[str]:
    """The topics that runs send to, and those of changes of all views that are kept."""
    generations = Catalog(connection).generations()
    told = [view.details.get("changelog") for each in generations for view in each.views.values()]
    return sent_to(connection) | {str(each) for each in told if each}
