"""A part of the log: the topics of one pipeline, and what did not fit them. The others are not there at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log.definition import DEAD_SUFFIX
from penstock.log.log import Log, open_log
from penstock.pipeline.receivers import parse_receiver

if TYPE_CHECKING:
    from penstock.pipeline.pipeline import Pipeline
    from penstock.settings import LogSettings


def part_of(pipeline: Pipeline, settings: LogSettings) -> Log:
    """The topics that a pipeline reads, those of its changes and alerts, and all dead letters of it."""
    names = {*pipeline.topics, *(each.changelog for each in pipeline.views.values() if each.changelog)}
    receivers = [parse_receiver(each) for alert in pipeline.alerts.values() for each in alert.receivers]
    names |= {each.topic for each in receivers if each.kind == "topic"}
    names |= {f"{name}{DEAD_SUFFIX}" for name in names}
    names |= {f"{pipeline.name}.{view}{DEAD_SUFFIX}" for view in pipeline.views}
    return open_log(settings, only=frozenset(names))
