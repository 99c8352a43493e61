"""What all routes share: the log, the database of views, the threads, the bell and the tokens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from penstock.durations import parse_duration
from penstock.errors import TopicError, UnknownView
from penstock.log.log import Log
from penstock.modes.lag import topics_of
from penstock.service.answers import moment
from penstock.service.bell import Bell
from penstock.service.metrics import Metrics
from penstock.service.tokens import Tokens
from penstock.service.work import Work, busy, limited
from penstock.settings import Settings
from penstock.views.catalog import Catalog, Generation
from penstock.views.find import StoredView, stored_view
from penstock.views.store import Snapshot, Store, open_store

T = TypeVar("T")


class Service:
    """One service over one log and one database. It holds no state of its own that a restart would lose.

    `start` and `stop` belong to the event loop; what reads and writes is called in threads, through `work`.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings.serve
        self._views_url = settings.views.url
        self.log = Log(settings.log.url)
        self.seconds = parse_duration(self.settings.request_timeout).total_seconds()
        self.tokens = Tokens(self.settings.tokens_path)
        self.needs_token = bool(self.tokens.all())
        """Once there was a token, nobody comes in without one, even if the last one is removed."""
        self.work = Work(self.settings.threads, self.seconds)
        self.bell = Bell()
        self.metrics = Metrics()
        self._store: Store | None = None
        self._opening = threading.Lock()

    async def start(self) -> None:
        """Begins to listen for appends."""
        self.bell.start()

    def stop(self) -> None:
        """Streams and long polls end now."""
        self.bell.stop()

    async def close(self) -> None:
        """Lets go of everything. What was answered is on disk."""
        self.bell.stop()
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self.bell.close()
        self.work.close()
        if self._store is not None:
            self._store.close()
        self.log.close()

    # --- views ---

    def store(self) -> Store | None:
        """The database of views; None where no run has made it yet."""
        with self._opening:
            if self._store is None:
                scheme, _, path = self._views_url.partition(":")
                if scheme == "sqlite" and not Path(path).exists():
                    return None
                self._store = open_store(self._views_url)
            return self._store

    def reading(self, body: Callable[[Snapshot], T], name: str = "") -> T:
        """What `body` reads of one moment, whatever is switched meanwhile; broken off if it takes too long."""
        store = self.store()
        if store is None:
            raise UnknownView(name, [])

        def in_time(snapshot: Snapshot) -> T:
            with limited(snapshot, self.seconds):
                return body(snapshot)

        return store.reading(in_time)

    def live(self) -> list[Generation]:
        """What people read now."""
        if self.store() is None:
            return []
        found = self.reading(lambda snapshot: Catalog(snapshot.connection).generations())
        return [each for each in found if each.state == "live"]

    def view(self, name: str) -> StoredView:
        """A view as people read it now. UnknownView names the nearest."""
        return self.reading(lambda snapshot: known_view(snapshot, name), name)

    def as_of(self, generation: Generation, view: str) -> dict[str, Any]:
        """How fresh a view is: what of the log is in it, and what time it was there."""
        topics = topics_of(generation, view)
        offsets = {topic: dict(generation.fence.offsets.get(topic, {})) for topic in topics}
        try:
            behind: int | None = generation.fence.lag_behind({topic: self.log.topic(topic).end() for topic in topics})
        except TopicError:
            behind = None
        return {
            "clock": moment(generation.fence.clock_us or None),
            "offsets": offsets,
            "generation": generation.number,
            "behind": behind,
        }

    # --- streams ---

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """One of those who follow or wait. RequestRefused (503) if there are too many."""
        if self.metrics.streams_open >= self.settings.streams_max:
            raise busy(f"{self.settings.streams_max} streams are open already")
        self.metrics.stream_opened()
        try:
            yield
        finally:
            self.metrics.stream_closed()


def known_view(snapshot: Snapshot, name: str) -> StoredView:
    """The view of that name. UnknownView, also for what no database would take as a name."""
    if "\0" in name:
        raise UnknownView(name, Catalog(snapshot.connection).view_names())
    return stored_view(snapshot, name)
