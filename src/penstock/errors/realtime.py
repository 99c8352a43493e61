"""What can go wrong where records are processed one at a time, and with the jars that this needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors.base import PenstockError
from penstock.errors.log import LogError
from penstock.errors.modes import RunError

if TYPE_CHECKING:
    from penstock.pipeline.place import Place
    from penstock.plans.decision import Problem


class RealtimeRefused(RunError):
    """Views that cannot be run record at a time. All of them are named, each with its line and the reason."""

    def __init__(self, pipeline: str, problems: Sequence[Problem]) -> None:
        self.pipeline = pipeline
        self.problems = tuple(problems)
        told = [f"  {each.place.shown}\n    view {each.view!r}: {each.message}\n    {each.hint}" for each in problems]
        super().__init__(
            f"run: pipeline {pipeline!r} cannot run record at a time (--trigger realtime)\n" + "\n".join(told) + "\n"
            "  nothing was done; without --trigger realtime they all run, in steps\n"
            "  a pipeline runs in one way: put the views that can run record at a time into a pipeline of their own"
        )


class RealtimeOptionError(RunError):
    """An option that a run record at a time cannot have."""

    def __init__(self) -> None:
        super().__init__(
            "run: trigger='realtime' goes with mode='stream' alone\n"
            "  expected: no once, until or max_rows; such a run has no steps that could end it\n"
            "  to end it: stop=, a penstock.modes.stream.Stop"
        )


class ChangelogTaken(RunError):
    """A view's changelog was written in the other way before: by steps, or record at a time."""

    def __init__(self, view: str, place: Place, topic: str, *, by_steps: bool) -> None:
        self.view = view
        self.topic = topic
        self.by_steps = by_steps
        before, now = ("in steps", "record at a time") if by_steps else ("record at a time", "in steps")
        super().__init__(
            f"run: view {view!r} was run {before}, and cannot go on {now}\n  {place.shown}\n"
            f"  topic {topic!r} has its records already; each way to run keeps its own account of how far it is, so\n"
            "  they would all be written a second time\n"
            f"  to go on as before: penstock run FILE{'' if by_steps else ' --trigger realtime'}\n"
            f'  to begin anew: give the view another topic, such as changelog="{topic}.2"'
        )


class ProgressMissing(RunError):
    """A view ran record at a time before, and the folder that knows how far it came is not there."""

    def __init__(self, view: str, place: Place, topic: str, folder: str, expected: str) -> None:
        self.view = view
        self.folder = folder
        super().__init__(
            f"run: nothing tells how far view {view!r} has come\n  {place.shown}\n"
            f"  expected: its progress in {expected}; found: no such folder under spark.checkpoints = {folder}\n"
            "  without it, every record would be written a second time\n"
            "  to go on: bring the folder back, or let spark.checkpoints name where it is (on a cluster: a place that\n"
            f'  all machines have); to begin anew: give the view another topic, such as changelog="{topic}.2"'
        )


class RealtimeFailed(RunError):
    """Spark ended a run that processes record at a time."""

    def __init__(self, what: str, reason: str) -> None:
        self.what = what
        self.reason = reason
        super().__init__(
            f"run: Spark ended {what}\n  {reason}\n"
            "  run it again: it goes on from its checkpoint, and what it wrote since is written once more"
        )


class ZoneNotUtc(RunError):
    """Spark has a time zone of its own, and times would be written as if it were UTC."""

    def __init__(self, pipeline: str, zone: str) -> None:
        self.zone = zone
        super().__init__(
            f"run: pipeline {pipeline!r} cannot run record at a time in the time zone {zone}\n"
            f"  expected: spark.sql.session.timeZone = UTC, as it is without a setting; found: {zone}\n"
            "  leave it out under [spark.conf], and let the view ask for the zone (from_utc_timestamp); or run it in\n"
            "  steps"
        )


class TooFewCores(RunError):
    """A cluster has fewer cores than a run needs that holds one for each partition that it reads."""

    def __init__(self, pipeline: str, needed: int, found: int) -> None:
        self.needed = needed
        self.found = found
        super().__init__(
            f"run: pipeline {pipeline!r} needs {needed} cores to run record at a time, and the cluster gives {found}\n"
            "  each view holds a core for each partition of its topic, and so do the dead letters of each topic\n"
            "  let it have more (spark.executor.instances, spark.cores.max, or spark.dynamicAllocation.minExecutors,\n"
            "  under [spark.conf]), or run it in steps"
        )


class KafkaSettingUnknown(LogError):
    """A setting of librdkafka that Spark's Kafka client has no word for."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(
            f"log: Spark's Kafka client cannot be told {', '.join(names)}\n"
            "  expected under [log.conf], for a run record at a time: security.protocol, sasl.*, ssl.* and timeouts\n"
            "  leave it out, or run in steps, without --trigger realtime"
        )


class JarsError(PenstockError):
    """Something about the jars of Spark's Kafka connector."""


class ConnectorMissing(JarsError):
    """Spark's Kafka connector is not here."""

    def __init__(self, folder: Path, found: str) -> None:
        self.folder = folder
        super().__init__(
            "spark: --trigger realtime needs Spark's Kafka connector, which is not part of Spark\n"
            f"  expected: its jars in {folder}, or named by spark.jars under [spark.conf]; found: {found}\n"
            "  to get them: penstock jars"
        )


class DownloadFailed(JarsError):
    """A jar could not be fetched."""

    is_retryable = True

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(
            f"jars: {url} could not be fetched\n  {reason}\n"
            "  what was fetched before is kept: try again, or name a mirror of Maven Central: --from URL, or\n"
            "  PENSTOCK_MAVEN_URL=URL"
        )


class ChecksumWrong(JarsError):
    """What came is not the jar that was meant. It was thrown away."""

    def __init__(self, url: str, expected: str, found: str) -> None:
        self.url = url
        self.expected = expected
        self.found = found
        super().__init__(
            f"jars: what came from {url} is not what was expected\n"
            f"  expected: SHA-256 {expected}\n  found:    SHA-256 {found}\n"
            "  it was thrown away; if it comes from a mirror, name another one: --from URL"
        )
