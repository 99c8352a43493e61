"""Record at a time: Spark's real-time mode, from a topic of Kafka to another one, in milliseconds.

It runs on Structured Streaming, which keeps its own account of how far it is, so it is outside of the transaction that
steps share with the database: what was written since the last checkpoint is written again after a crash. A query runs
for each view, and one for the dead letters of each topic; each holds a core for every partition that it reads.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.durations import parse_duration
from penstock.errors import (
    PenstockError,
    ProgressMissing,
    RealtimeFailed,
    RealtimeRefused,
    SchemaOutgrown,
)
from penstock.events.schema import format_ddl
from penstock.kafka.java_client import writer_options
from penstock.kafka.topic import KafkaTopic
from penstock.log.definition import DEAD_SUFFIX, TopicDefinition
from penstock.log.topic import Topic
from penstock.modes.engine import Engine
from penstock.modes.journal import Journal, journal_of
from penstock.modes.realtime_frames import OUTGROWN, changes, dead_letters, events, raw_records
from penstock.modes.realtime_spark import check_spark
from penstock.modes.realtime_views import check_changelogs, check_views
from penstock.modes.stream import Stop
from penstock.modes.ways import check_not_stepped
from penstock.plans.decision import Problem
from penstock.produce.dead_letters import SCHEMA as DEAD_SCHEMA
from penstock.settings import Settings, SparkSettings
from penstock.spark.private.context import made_folder
from penstock.views.realtime import note_topic, written_at_a_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.upkeep.compiled import CompiledView

JOURNAL_NAME = "realtime"
"""What the journal of runs calls it."""
LOOK_SECONDS = 0.2
GROWN_LOOK_SECONDS = 1.0
"""So often the log is asked whether a topic has grown."""
STOP_LOOK_SECONDS = 0.02
STOP_SPARE_SECONDS = 20.0
"""So much longer than a batch the end of one is waited for."""
_NOT_ALLOWED = "STREAMING_REAL_TIME_MODE"
_PLAN = "=== Streaming Query"


@dataclass(frozen=True)
class BatchReport:
    """What a query did between two checkpoints."""

    name: str
    """Of the view, or of the topic of dead letters."""
    records: int
    """Records read."""
    seconds: float


OnBatch = Callable[[BatchReport], None]


@dataclass
class Query:
    """One query of a run."""

    name: str
    running: StreamingQuery
    view: CompiledView | None
    topic: Topic
    known: TopicDefinition
    """The topic as it was when the query began."""
    batch: int = field(default=-1)
    """The last one that was told of."""


def run_realtime(
    engine: Engine,
    settings: Settings,
    *,
    on_start: Callable[[list[str]], None] | None = None,
    on_batch: OnBatch | None = None,
    stop: Stop | None = None,
) -> int:
    """Processes record at a time until it is asked to stop, and returns how many records it has read.

    Asked to stop, it goes on to the end of the batch, so that the next run repeats little. RealtimeRefused before
    anything is begun, ChangelogTaken, ProgressMissing; RealtimeFailed if Spark gives up.
    """
    stop = stop or Stop()
    check_views(engine.pipeline, engine.views)
    check_spark(engine.pipeline, engine.spark)
    check_changelogs(engine.pipeline, engine.views, engine.log)
    check_not_stepped(engine.store, engine.pipeline.name, engine.views)
    engine.make_topics(engine.sets)
    with journal_of(engine, JOURNAL_NAME, stop) as journal:
        run = RealtimeRun(engine, settings, journal, on_batch)
        try:
            run.start()
            if on_start is not None:
                on_start([each.name for each in run.queries])
            while not stop.is_asked:
                engine.check_owner()
                run.look()
                stop.wait(LOOK_SECONDS)
            run.finish()
        finally:
            run.close()
        return run.records


class RealtimeRun:
    """The queries of a run."""

    def __init__(self, engine: Engine, settings: Settings, journal: Journal, on_batch: OnBatch | None) -> None:
        self._engine = engine
        self._spark = engine.spark
        self._batch = parse_duration(settings.spark.realtime_batch)
        self._folder = checkpoints_url(settings.spark)
        self._is_quiet = settings.spark.log_level == "ERROR"
        self._journal = journal
        self._on_batch = on_batch
        self._grown_look = 0.0
        self.queries: list[Query] = []
        self.records = 0

    def start(self) -> None:
        """Begins to read, each topic for each of its views, and once for its dead letters."""
        if self._is_quiet:
            # Else it prints the whole stack of each task that is ended, and of an error that reaches us anyway.
            self._spark.sparkContext.setLogLevel("OFF")
        folders = {view.name: self._progress(view) for view in self._engine.views}
        for view in self._engine.views:
            source, target = self._topic(view.topics[0]), self._topic(str(view.spec.changelog))
            known = source.definition
            frame = changes(view, events(raw_records(self._spark, source), source), target)
            self._begin(view.name, frame, folders[view.name], view, source, known)
        for name in dict.fromkeys(view.topics[0] for view in self._engine.views):
            topic = self._topic(name)
            known = topic.definition
            self._engine.log.create(name + DEAD_SUFFIX, DEAD_SCHEMA, exist_ok=True)
            folder = f"{self._folder}/{self._engine.pipeline.name}/{name}{DEAD_SUFFIX}-{topic.definition.id[:8]}"
            frame = dead_letters(raw_records(self._spark, topic), topic)
            self._begin(name + DEAD_SUFFIX, frame, folder, None, topic, known)

    def look(self) -> None:
        """Tells of batches that were finished, and raises what a query ended with, or that a topic has grown."""
        for each in self.queries:
            self._tell(each)
            if not each.running.isActive:
                raise self._failure(each)
        self._look_for_growth()
        self._journal.note_if_due()

    def finish(self) -> None:
        """Ends each query as soon as its batch is over: the next run goes on there. Raises what one failed with."""
        failures = []
        deadline = time.monotonic() + self._batch.total_seconds() + STOP_SPARE_SECONDS
        waiting = {each.name: each.batch for each in self.queries}
        while waiting and time.monotonic() < deadline:
            self._look_for_growth()
            for each in self.queries:
                self._tell(each)
                if each.name not in waiting:
                    continue
                is_failed = not each.running.isActive
                if is_failed or each.batch != waiting[each.name]:
                    if is_failed:
                        failures.append(self._failure(each))
                    self._end(each)
                    del waiting[each.name]
            time.sleep(STOP_LOOK_SECONDS)
        if failures:  # The others came to the end of their batches meanwhile.
            raise failures[0]

    def close(self) -> None:
        """Ends what runs still, at once."""
        for each in self.queries:
            self._end(each)

    def _look_for_growth(self) -> None:
        """SchemaOutgrown if a topic has columns that its queries do not know. About once a second.

        Who writes without Penstock does not say of which schema a record is, so no query can tell.
        """
        if time.monotonic() < self._grown_look:
            return
        self._grown_look = time.monotonic() + GROWN_LOOK_SECONDS
        for each in self.queries:
            try:
                each.topic.refresh()
            except PenstockError as error:
                if error.is_retryable:
                    return  # Spark has its own patience with brokers that are away; it is asked again.
                raise
            if len(each.topic.definition.schemas) > len(each.known.schemas):
                raise _outgrown(each.topic, each.known, "columns that the query does not know")

    def _begin(
        self,
        name: str,
        frame: DataFrame,
        folder: str,
        view: CompiledView | None,
        topic: KafkaTopic,
        known: TopicDefinition,
    ) -> None:
        options = writer_options(topic.log.connection)
        writer = frame.writeStream.format("kafka").queryName(f"{self._engine.pipeline.name} {name}")
        writer = writer.options(**options, includeHeaders="true", checkpointLocation=folder).outputMode("update")
        writer = writer.trigger(realTime=f"{int(self._batch.total_seconds() * 1000)} milliseconds")  # type: ignore[call-overload]
        try:
            running = writer.start()
        except Exception as error:
            raise self._told(name, view, topic, known, str(error)) from error
        self.queries.append(Query(name, running, view, topic, known))

    def _end(self, query: Query) -> None:
        if query.running.isActive:
            query.running.stop()

    def _tell(self, query: Query) -> None:
        for progress in _progresses(query.running):
            if progress["batchId"] > query.batch:
                query.batch = progress["batchId"]
                records, seconds = progress["numInputRows"], progress["durationMs"].get("triggerExecution", 0) / 1000
                if query.view is not None:
                    self.records += records
                    self._journal.stepped(rows=records, seconds=seconds, lag=0)
                if self._on_batch is not None:
                    self._on_batch(BatchReport(query.name, records, seconds))

    def _failure(self, query: Query) -> Exception:
        error = query.running.exception()
        said = "it ended by itself" if error is None else str(error)
        return self._told(query.name, query.view, query.topic, query.known, said)

    def _told(self, name: str, view: CompiledView | None, topic: Topic, known: TopicDefinition, said: str) -> Exception:
        """What an error of Spark means."""
        said = said.partition(_PLAN)[0]  # What follows holds the text of every literal.
        if OUTGROWN in said:
            topic.refresh()
            return _outgrown(topic, known, "a record of a newer schema")
        reason = _reason(said)
        if _NOT_ALLOWED in said and view is not None:
            problem = Problem(view.spec.place, view.name, f"Spark cannot: {reason}", "run it in steps")
            return RealtimeRefused(self._engine.pipeline.name, [problem])
        return RealtimeFailed(f"view {name!r}" if view is not None else f"the dead letters {name!r}", reason)

    def _progress(self, view: CompiledView) -> str:
        """The folder of a view's checkpoint. ProgressMissing if it should be there and is not."""
        engine, topic = self._engine, str(view.spec.changelog)
        ids = [self._topic(name).definition.id[:8] for name in (view.topics[0], topic)]
        folder = f"{self._folder}/{engine.pipeline.name}/{view.name}-{'-'.join(ids)}"
        with engine.store.snapshot() as snapshot:
            is_noted = topic in written_at_a_time(snapshot.connection, engine.pipeline.name)
        if not made_folder(self._spark, folder, must_exist=is_noted):
            raise ProgressMissing(view.name, view.spec.place, topic, self._folder, folder)
        with engine.store.transaction(engine.owner) as tx:
            note_topic(tx.connection, engine.pipeline.name, topic, view.name)
        return folder

    def _topic(self, name: str) -> KafkaTopic:
        topic = self._engine.log.topic(name)
        assert isinstance(topic, KafkaTopic), topic
        return topic


def checkpoints_url(settings: SparkSettings) -> str:
    """Where checkpoints are, as Spark names places."""
    if settings.checkpoints.startswith("dir:"):
        # No more than a scheme before it: Hadoop takes the rest as it stands, %20 too.
        return f"file:{Path(settings.checkpoints.removeprefix('dir:')).absolute()}"
    return settings.checkpoints.rstrip("/")


def _outgrown(topic: Topic, known: TopicDefinition, why: str) -> SchemaOutgrown:
    return SchemaOutgrown(topic.name, format_ddl(known.schema), format_ddl(topic.schema), why)


def _progresses(query: StreamingQuery) -> list[Mapping[str, Any]]:
    return [*query.recentProgress]


def _reason(said: str) -> str:
    """The lines of an error of Spark that people can use."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    told = dict.fromkeys([*lines[:1], *causes[-1:]])
    return "\n  ".join(re.sub(r"\s*SQLSTATE: \w+$", "", line)[:400] for line in told)
