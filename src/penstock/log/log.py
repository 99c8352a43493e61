"""The log: all topics in one folder."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.clock import Clock, now_us
from penstock.durations import parse_duration
from penstock.errors import LogUrlError, TopicExists, UnknownTopic
from penstock.events.schema import format_ddl, parse_ddl
from penstock.log.definition import (
    DEAD_SUFFIX,
    FILE_NAME,
    Durability,
    TopicDefinition,
    as_key,
    read_definition,
    write_definition,
)
from penstock.log.files import locked, make_directory, sync_directory
from penstock.log.topic import Topic
from penstock.log.upkeep import Upkeep

if TYPE_CHECKING:
    from penstock.consume.consumer import Consumer
    from penstock.log.partition import Partition
    from penstock.produce.producer import Producer

DELETED_PREFIX = "deleted-"
"""A folder of this name was a topic; only its files are left to be removed."""


class Log:
    """The append-only log: the system of record, in a folder, without a server.

    Any number of processes may open the same log. Nothing is written before a topic is made. Close it, or use it in
    a `with` statement: closing ends the background work and lets go of all files; what was acknowledged is safe
    either way. A log does not survive a fork: open it in the child.
    """

    def __init__(self, url: str | Path = "dir:./data/log", *, background: bool = True, clock: Clock = now_us) -> None:
        """Opens `dir:PATH`, or a plain path. Without `background` nothing is sealed or dropped unless you say so."""
        self.root = _root(url)
        self.topics_directory = self.root / "topics"
        self.clock = clock
        self._topics: dict[str, Topic] = {}
        self._lock = threading.RLock()
        self._upkeep = Upkeep(self) if background else None

    # --- topics ---

    def create(
        self,
        name: str,
        schema: str,
        *,
        key: str | Sequence[str] | None = None,
        event_time: str | None = None,
        lateness: str | timedelta = "10 minutes",
        partitions: int = 1,
        retention_age: str | timedelta | None = None,
        retention_bytes: int | None = None,
        compact: bool = False,
        durability: Durability = "disk",
        segment_bytes: int = TopicDefinition.segment_bytes,
        exist_ok: bool = False,
    ) -> Topic:
        """Makes a topic. It is there whole, or not at all. With `exist_ok` one of that name is returned as it is."""
        definition = TopicDefinition(
            name=name,
            schemas=(format_ddl(parse_ddl(schema)),),
            partitions=partitions,
            key=as_key(key),
            event_time=event_time,
            lateness=parse_duration(lateness),
            retention_age=None if retention_age is None else parse_duration(retention_age),
            retention_bytes=retention_bytes,
            compact=compact,
            durability=durability,
            segment_bytes=segment_bytes,
        )
        make_directory(self.topics_directory)
        with locked(self.root / "lock"):
            self._finish_deleting()
            directory = self.topics_directory / name
            if (directory / FILE_NAME).exists():
                if exist_ok:
                    return self.topic(name)
                raise TopicExists(name)
            for number in range(partitions):
                make_directory(directory / str(number))
            write_definition(directory, definition)
        return self.topic(name)

    def topic(self, name: str) -> Topic:
        """A handle on a topic. UnknownTopic names the nearest one if there is none."""
        with self._lock:
            try:
                definition = read_definition(self.topics_directory / name)
            except (FileNotFoundError, NotADirectoryError):
                raise UnknownTopic(name, self.topics(dead=True), self.root) from None
            known = self._topics.get(name)
            if known is None or known.definition.id != definition.id:
                known = self._topics[name] = Topic(self, definition)
            else:
                known.refresh()
            return known

    def topics(self, pattern: str = "*", *, dead: bool = False) -> list[str]:
        """The topics that match, such as `orders.*`; dead letters only if asked for, or named in the pattern."""
        if not self.topics_directory.is_dir():
            return []
        return sorted(
            entry.name
            for entry in self.topics_directory.iterdir()
            if fnmatchcase(entry.name, pattern)
            and (entry / FILE_NAME).exists()
            and (dead or pattern.endswith(DEAD_SUFFIX) or not entry.name.endswith(DEAD_SUFFIX))
        )

    def delete(self, name: str) -> None:
        """Deletes a topic with all its records. Writers that wait at this moment are refused."""
        topic = self.topic(name)
        with locked(self.root / "lock"), ExitStack() as locks:
            for partition in topic.partitions:
                locks.enter_context(locked(partition.directory / "lock"))
            topic.directory.rename(self.root / f"{DELETED_PREFIX}{uuid.uuid4().hex}")
            sync_directory(self.topics_directory)
            self._finish_deleting()
        with self._lock:
            self._topics.pop(name, None)
        topic.close()

    def _finish_deleting(self) -> None:
        """Removes the files of deleted topics, also of those whose process died half way. Needs the log's lock."""
        for gone in self.root.glob(f"{DELETED_PREFIX}*"):
            shutil.rmtree(gone)

    # --- reading and writing ---

    def producer(self, topic: str, **options: Any) -> Producer:
        """A producer for a topic; see `Producer` for the options."""
        return self.topic(topic).producer(**options)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """A consumer of topics by name or pattern; see `Consumer` for the options."""
        from penstock.consume.consumer import Consumer

        return Consumer(self, *topics, **options)

    # --- upkeep ---

    def seal_soon(self, partition: Partition) -> None:
        """A segment was closed: seal it in the background, if this log has one."""
        if self._upkeep is not None:
            self._upkeep.seal_soon(partition)

    def sync_soon(self, partition: Partition) -> None:
        """Records were left to the operating system: sync them in the background, if this log has one."""
        if self._upkeep is not None:
            self._upkeep.sync_soon(partition)

    def close(self) -> None:
        """Ends the background work and closes all files."""
        if self._upkeep is not None:
            self._upkeep.stop()
        with self._lock:
            for topic in self._topics.values():
                topic.close()
            self._topics.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Log('dir:{self.root}')"


def _root(url: str | Path) -> Path:
    if isinstance(url, Path):
        return url
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "dir" and rest:
        return Path(rest)
    if colon or not url:
        raise LogUrlError(url)
    return Path(url)
