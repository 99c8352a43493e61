"""A beat: everything that all pages share, read once for all of them. Blocking: it is called in a work thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import sqlalchemy

from penstock.alerts import entries as entries_module
from penstock.alerts.entries import Entry
from penstock.clock import now_us
from penstock.errors import PenstockError, TopicError
from penstock.modes.lag import topics_of
from penstock.service.problems import problem_of
from penstock.views import runs as runs_module
from penstock.views.catalog import Counters, Generation, KnownView
from penstock.views.runs import Run
from penstock.views.store import Snapshot
from penstock.views.system_tables import ALERTS, RUNS

if TYPE_CHECKING:
    from penstock.service.service import Service

T = TypeVar("T")
logger = logging.getLogger("penstock.dashboard")

RUNS_READ = 20
ENTRIES_READ = 50


@dataclass(frozen=True)
class TopicState:
    """A topic, as of now."""

    start: Mapping[int, int]
    end: Mapping[int, int]
    """By partition, the offset of the next record."""
    arrived_us: int | None
    """When its newest record arrived."""
    event_time: str | None
    lateness_us: int

    @property
    def total(self) -> int:
        """Records that were ever appended."""
        return sum(self.end.values())

    @property
    def records(self) -> int:
        """Records that are there."""
        return self.total - sum(self.start.values())


@dataclass(frozen=True)
class ViewState:
    """A view as people read it now."""

    known: KnownView
    generation: Generation
    topics: tuple[str, ...]
    """Of what it is made in the end, through other views."""
    lag: int | None
    """Records that are not in it yet; None if one of its topics is not there."""

    @property
    def counters(self) -> Counters:
        return self.generation.counters[self.known.name]


@dataclass(frozen=True)
class Beat:
    """One moment of log, views, runs and alerts. What could not be read is empty, and the problem says why."""

    at_us: int
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    """Also those of dead letters."""
    views: Mapping[str, ViewState] = field(default_factory=dict)
    generations: tuple[Generation, ...] = ()
    runs: tuple[Run, ...] = ()
    """The newest first."""
    entries: tuple[Entry, ...] = ()
    """Alerts, the newest first."""
    log_problem: str = ""
    views_problem: str = ""
    has_views: bool = True
    """False where no run has made a database yet."""

    @property
    def lag(self) -> int:
        """Records that the view which is farthest behind has not seen yet."""
        return max((each.lag or 0 for each in self.views.values()), default=0)


def read_beat(service: Service, before: Beat | None, *, is_full: bool) -> Beat:
    """What is true now. Runs and alerts are read anew only if `is_full`. Raises nothing that can be waited out."""
    at_us = now_us()
    topics: dict[str, TopicState] = {}
    log_problem, views_problem = "", ""
    generations: list[Generation] = []
    runs, entries = (before.runs, before.entries) if before is not None else ((), ())
    has_views = False
    try:
        topics = service.prompt.ask(lambda: _topics(service))
        if not topics and not service.log.is_there():
            log_problem = "There is no log here yet: it begins with the first topic."
    except (PenstockError, OSError) as error:
        log_problem = told(error)
    try:
        has_views = service.store() is not None
        generations = service.generations()
        if is_full or before is None:
            runs = tuple(_recent(service, runs_module.recent, RUNS, RUNS_READ))
            entries = tuple(_recent(service, entries_module.recent, ALERTS, ENTRIES_READ))
    except (PenstockError, OSError, sqlalchemy.exc.SQLAlchemyError) as error:
        views_problem = told(error)
    views = {
        name: _view(generation, name, topics)
        for generation in generations
        if generation.state == "live"
        for name in generation.views
    }
    return Beat(at_us, topics, views, tuple(generations), runs, entries, log_problem, views_problem, has_views)


def told(error: BaseException) -> str:
    """An error for people who watch: one sentence, without a path of this machine."""
    if isinstance(error, PenstockError):
        message = str(problem_of(error)[1]["message"])
        return f"{message[:1].upper()}{message[1:]}."
    logger.warning("dashboard: something cannot be read: %s", error)
    return "Log or views cannot be read at the moment."


def _topics(service: Service) -> dict[str, TopicState]:
    found = {}
    for name in service.log.topics(dead=True):
        try:
            topic = service.log.topic(name)
            ends = {partition.number: partition.end() for partition in topic.partitions}
        except TopicError:
            continue  # It was deleted at this moment.
        found[name] = TopicState(
            topic.start(),
            {number: end.offset for number, end in ends.items()},
            max((end.arrived_us for end in ends.values()), default=0) or None,
            topic.definition.event_time,
            int(topic.definition.lateness.total_seconds() * 1e6),
        )
    return found


def _view(generation: Generation, name: str, topics: Mapping[str, TopicState]) -> ViewState:
    read = topics_of(generation, name)
    lag = None
    if all(topic in topics for topic in read):
        lag = generation.fence.lag_behind({topic: topics[topic].end for topic in read})
    return ViewState(generation.views[name], generation, read, lag)


def _recent(service: Service, recent: Callable[..., list[T]], table: sqlalchemy.Table, limit: int) -> list[T]:
    """What was noted of late. None of it where the database is older than that, or not there."""
    if service.store() is None:
        return []
    name = None if service.pipeline is None else service.pipeline.name

    def body(snapshot: Snapshot) -> list[T]:
        if not sqlalchemy.inspect(snapshot.connection).has_table(table.name):
            return []
        return recent(snapshot.connection, pipeline=name, limit=limit)

    return service.reading(body)
