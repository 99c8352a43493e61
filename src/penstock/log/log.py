"""The log: all topics, wherever they are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.clock import Clock, steady_now_us
from penstock.durations import parse_duration
from penstock.errors import KafkaMissing, TopicExists, UnknownTopic
from penstock.events.schema import format_ddl, parse_ddl
from penstock.log.definition import DEAD_SUFFIX, Durability, TopicDefinition, ValueFormat, as_key
from penstock.log.row_sizes import RECORD_BYTES_MAX
from penstock.log.topic import Topic

if TYPE_CHECKING:
    from penstock.consume.consumer import Consumer
    from penstock.consume.groups import Groups
    from penstock.produce.producer import Producer
    from penstock.settings import LogSettings

DEFAULT_URL = "dir:./data/log"


class Log:
    """The append-only log: the system of record.

    `Log("dir:PATH")` keeps it in a folder, without a server (`FolderLog`), `Log("kafka://HOST:PORT")` in Apache Kafka
    (`KafkaLog`). Any number of processes may open the same log. Close it, or use it in a `with` statement: closing ends
    the background work and lets go of everything; what was acknowledged is safe either way. A log does not survive a
    fork: open it in the child.
    """

    def __new__(cls, url: str | Path = DEFAULT_URL, **_: Any) -> Self:
        return object.__new__(_kind_of(url) if cls is Log else cls)  # type: ignore[return-value]

    def __init__(
        self,
        url: str | Path = DEFAULT_URL,
        *,
        background: bool = True,
        clock: Clock = steady_now_us,
        only: frozenset[str] | None = None,
        conf: Mapping[str, str] | None = None,
        record_bytes_max: int = RECORD_BYTES_MAX,
        group_access: bool = False,
    ) -> None:
        """Opens the log. Without `background` nothing is tidied up unless you say so; of the topics, all or `only`.

        `conf` are settings of librdkafka, such as security.protocol, for a log in Kafka. A record of more than
        `record_bytes_max` is refused. With `group_access` the folder's group may use a log in a folder.
        """
        self.group_access = group_access
        self.record_bytes_max = record_bytes_max
        self.conf = dict(conf or {})
        self.clock = clock
        self._url = url
        self._is_background = background
        self._only = only

    # --- what every kind of log has in its own way ---

    @property
    def url(self) -> str:
        """Where it is, good for any process of this machine."""
        raise NotImplementedError

    @property
    def spill_directory(self) -> Path:
        """Where producers let events wait that the log has no room for."""
        raise NotImplementedError

    @property
    def groups(self) -> Groups:
        """The consumer groups that read it."""
        raise NotImplementedError

    def topics_signals(self) -> list[Path]:
        """Files and folders that change when topics come or go. Ask again after each change."""
        raise NotImplementedError

    def is_there(self) -> bool:
        """Whether anything was ever stored at this place."""
        raise NotImplementedError

    def delete(self, name: str) -> None:
        """Deletes a topic with all its records. Writers that wait at this moment are refused."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the background work and lets go of everything."""
        raise NotImplementedError

    def _make(self, definition: TopicDefinition) -> bool:
        """Makes a topic, whole or not at all. False if there is one of that name."""
        raise NotImplementedError

    def _find(self, name: str) -> Topic | None:
        """A handle that knows the newest definition; None if there is no such topic."""
        raise NotImplementedError

    def _names(self) -> list[str]:
        """Every topic."""
        raise NotImplementedError

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
        values: ValueFormat = "json",
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
            values=values,
            segment_bytes=segment_bytes,
        )
        if not self._make(definition) and not exist_ok:
            raise TopicExists(name)
        return self.topic(name)

    def topic(self, name: str) -> Topic:
        """A handle on a topic. UnknownTopic names the nearest one if there is none."""
        found = self._find(name) if self._only is None or name in self._only else None
        if found is None:
            raise UnknownTopic(name, self.topics(dead=True), self.url)
        return found

    def topics(self, pattern: str = "*", *, dead: bool = False) -> list[str]:
        """The topics that match, such as `orders.*`; dead letters only if asked for, or named in the pattern."""
        return sorted(
            name
            for name in self._names()
            if fnmatchcase(name, pattern)
            and (self._only is None or name in self._only)
            and (dead or pattern.endswith(DEAD_SUFFIX) or not name.endswith(DEAD_SUFFIX))
        )

    # --- reading and writing ---

    def producer(self, topic: str, **options: Any) -> Producer:
        """A producer for a topic; see `Producer` for the options."""
        return self.topic(topic).producer(**options)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """A consumer of topics by name or pattern; see `Consumer` for the options."""
        from penstock.consume.consumer import Consumer

        return Consumer(self, *topics, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Log({self.url!r})"


def open_log(settings: LogSettings, **options: Any) -> Log:
    """The log that the settings name, with all they say of how to reach it."""
    return Log(
        settings.url,
        conf=settings.kafka,
        record_bytes_max=settings.record_bytes_max,
        group_access=settings.access == "group",
        **options,
    )


def _kind_of(url: str | Path) -> type[Log]:
    """Which kind of log an address means. LogUrlError if none does."""
    if str(url).startswith("kafka:"):
        try:
            from penstock.kafka.log import KafkaLog
        except ImportError as error:
            raise KafkaMissing(str(url), str(error)) from error
        return KafkaLog
    from penstock.log.folder_log import FolderLog

    return FolderLog
