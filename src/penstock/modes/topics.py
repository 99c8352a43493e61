"""The topics of a pipeline: made by the first run, grown when their definition grew, never changed otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.alerts.telling import TOPIC_DDL
from penstock.alerts.telling import TOPIC_KEY as ALERT_KEY
from penstock.errors import SchemaRefused, TopicDiffers, UnknownTopic
from penstock.events.schema import check_growth, format_ddl, parse_ddl
from penstock.log.log import Log
from penstock.log.topic import Topic
from penstock.pipeline.definition import AlertSpec, TopicSpec
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.place import Place
from penstock.pipeline.receivers import parse_receiver
from penstock.upkeep.changelog import TOPIC_KEY, changelog_ddl

if TYPE_CHECKING:
    from penstock.upkeep.compiled import CompiledView


def make_topics(pipeline: Pipeline, log: Log) -> dict[str, Topic]:
    """The topics that the pipeline defines. TopicDiffers if one is there that cannot become what is defined."""
    return {spec.name: _make(spec, log) for spec in pipeline.topics.values()}


def make_changelog(view: CompiledView, log: Log) -> Topic:
    """The topic that a view sends its changes to. TopicDiffers if one is there that could not take them."""
    topic = log.create(str(view.spec.changelog), changelog_ddl(view.shape.columns), key=TOPIC_KEY, exist_ok=True)
    _check_changelog(view, topic)
    return topic


def make_alert_topics(pipeline: Pipeline, log: Log) -> list[Topic]:
    """The topics that alerts go to. TopicDiffers if one is there that could not take them."""
    made = []
    for name, alert in told_topics(pipeline).items():
        made.append(log.create(name, TOPIC_DDL, key=ALERT_KEY, exist_ok=True))
        _check_told(alert, made[-1])
    return made


def check_topics(pipeline: Pipeline, log: Log) -> None:
    """TopicDiffers if a topic is there that `make_topics` would refuse. Changes nothing."""
    for spec in pipeline.topics.values():
        topic = found_topic(spec.name, log)
        if topic is not None:
            _check(spec, topic)
            _check_growth(spec, topic)


def check_sent_topics(pipeline: Pipeline, views: Iterable[CompiledView], log: Log) -> None:
    """TopicDiffers if a topic is there that could not take what views and alerts send to it. Changes nothing."""
    for view in views:
        topic = found_topic(view.spec.changelog, log) if view.spec.changelog else None
        if topic is not None:
            _check_changelog(view, topic)
    for name, alert in told_topics(pipeline).items():
        topic = found_topic(name, log)
        if topic is not None:
            _check_told(alert, topic)


def found_topic(name: str, log: Log) -> Topic | None:
    """The topic, if there is one."""
    try:
        return log.topic(name)
    except UnknownTopic:
        return None


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
            if has != wanted and not (setting == "schema" and _knows_all(spec, topic)):
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
    _check_growth(spec, topic)
    if not _knows_all(spec, topic):
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


def _check_growth(spec: TopicSpec, topic: Topic) -> None:
    if _knows_all(spec, topic):
        return
    wanted = parse_ddl(spec.ddl)
    try:
        check_growth(topic.schema, wanted)
    except SchemaRefused as refused:
        raise TopicDiffers(
            spec.name, spec.place, "schema", format_ddl(topic.schema), format_ddl(wanted), str(refused)
        ) from refused


def _knows_all(spec: TopicSpec, topic: Topic) -> bool:
    """Whether the topic has all that is defined, and perhaps more: others may have grown it."""
    try:
        check_growth(parse_ddl(spec.ddl), topic.schema)
    except SchemaRefused:
        return False
    return True


def _check_changelog(view: CompiledView, topic: Topic) -> None:
    why = f"it holds changes of other rows than view {view.name!r} has: name another topic with changelog="
    _check_sent(topic, TOPIC_KEY, changelog_ddl(view.shape.columns), view.spec.place, why)


def _check_told(alert: AlertSpec, topic: Topic) -> None:
    why = f"alert {alert.name!r} cannot be told there: name another topic with to="
    _check_sent(topic, ALERT_KEY, format_ddl(parse_ddl(TOPIC_DDL)), alert.place, why)


def _check_sent(topic: Topic, key: str, ddl: str, place: Place, why: str) -> None:
    pairs = {"key": (", ".join(topic.definition.key), key), "schema": (format_ddl(topic.schema), ddl)}
    for setting, (found, needed) in pairs.items():
        if found != needed:
            raise TopicDiffers(topic.name, place, setting, found, needed, why)


def told_topics(pipeline: Pipeline) -> dict[str, AlertSpec]:
    """The topics that alerts go to, each with the first of them."""
    found: dict[str, AlertSpec] = {}
    for alert in pipeline.alerts.values():
        for receiver in map(parse_receiver, alert.receivers):
            if receiver.kind == "topic":
                found.setdefault(receiver.topic, alert)
    return found
