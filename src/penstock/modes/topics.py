"""The topics of a pipeline: made by the first run, grown when their definition grew, never changed otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.alerts.telling import TOPIC_DDL
from penstock.alerts.telling import TOPIC_KEY as ALERT_KEY
from penstock.errors import SchemaRefused, TopicDiffers
from penstock.events.schema import check_growth, format_ddl, parse_ddl
from penstock.log.log import Log
from penstock.log.topic import Topic
from penstock.pipeline.definition import TopicSpec
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.receivers import parse_receiver
from penstock.upkeep.changelog import TOPIC_KEY, changelog_ddl

if TYPE_CHECKING:
    from penstock.upkeep.compiled import CompiledView


def make_topics(pipeline: Pipeline, log: Log) -> dict[str, Topic]:
    """The topics that the pipeline defines. TopicDiffers if one is there that cannot become what is defined."""
    return {spec.name: _make(spec, log) for spec in pipeline.topics.values()}


def make_changelog(view: CompiledView, log: Log) -> Topic:
    """The topic that a view sends its changes to. TopicDiffers if one is there that could not take them."""
    name, ddl = str(view.spec.changelog), changelog_ddl(view.shape.columns)
    topic = log.create(name, ddl, key=TOPIC_KEY, exist_ok=True)
    pairs = {"key": (", ".join(topic.definition.key), TOPIC_KEY), "schema": (format_ddl(topic.schema), ddl)}
    for setting, (found, needed) in pairs.items():
        if found != needed:
            why = f"it holds changes of other rows than view {view.name!r} has: name another topic with changelog="
            raise TopicDiffers(name, view.spec.place, setting, found, needed, why)
    return topic


def make_alert_topics(pipeline: Pipeline, log: Log) -> list[Topic]:
    """The topics that alerts go to. TopicDiffers if one is there that could not take them."""
    made: dict[str, Topic] = {}
    for alert in pipeline.alerts.values():
        for receiver in map(parse_receiver, alert.receivers):
            if receiver.kind != "topic" or receiver.topic in made:
                continue
            topic = made[receiver.topic] = log.create(receiver.topic, TOPIC_DDL, key=ALERT_KEY, exist_ok=True)
            wanted = format_ddl(parse_ddl(TOPIC_DDL))
            pairs = {"key": (", ".join(topic.definition.key), ALERT_KEY), "schema": (format_ddl(topic.schema), wanted)}
            for setting, (found, needed) in pairs.items():
                if found != needed:
                    why = f"alert {alert.name!r} cannot be told there: name another topic with to="
                    raise TopicDiffers(receiver.topic, alert.place, setting, found, needed, why)
    return [*made.values()]


def recorded_topics(pipeline: Pipeline, log: Log) -> dict[str, Topic]:
    """The topics that the pipeline defines, as they are. UnknownTopic or TopicDiffers where a run would change one."""
    found = {}
    for spec in pipeline.topics.values():
        topic = found[spec.name] = log.topic(spec.name)
        _check(spec, topic)
        pairs = {
            "schema": (format_ddl(topic.schema), format_ddl(parse_ddl(spec.ddl))),
            "lateness": (str(topic.definition.lateness), str(spec.lateness)),
        }
        for setting, (has, wanted) in pairs.items():
            if has != wanted:
                raise TopicDiffers(spec.name, spec.place, setting, has, wanted, "only a run changes it")
    return found


def _make(spec: TopicSpec, log: Log) -> Topic:
    topic = log.create(
        spec.name,
        spec.ddl,
        key=spec.key or None,
        event_time=spec.event_time,
        lateness=spec.lateness,
        exist_ok=True,
        **spec.options,
    )
    _check(spec, topic)
    wanted = parse_ddl(spec.ddl)
    if not topic.schema.equals(wanted):
        try:
            check_growth(topic.schema, wanted)
        except SchemaRefused as refused:
            raise TopicDiffers(
                spec.name, spec.place, "schema", format_ddl(topic.schema), format_ddl(wanted), str(refused)
            ) from refused
        topic.alter(schema=spec.ddl)
    if topic.definition.lateness != spec.lateness:
        topic.alter(lateness=spec.lateness)
    return topic


def _check(spec: TopicSpec, topic: Topic) -> None:
    definition = topic.definition
    pairs = {
        "key": (list(definition.key), list(spec.key)),
        "event_time": (definition.event_time, spec.event_time),
        "partitions": (definition.partitions, spec.options.get("partitions", 1)),
        "values": (definition.values, spec.options.get("values", "json")),
    }
    for setting, (found, wanted) in pairs.items():
        if found != wanted:
            raise TopicDiffers(spec.name, spec.place, setting, str(found), str(wanted), "it cannot be changed")
