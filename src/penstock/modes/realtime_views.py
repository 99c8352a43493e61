"""Which views can run record at a time, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import RealtimeRefused, UnknownTopic
from penstock.log.log import Log
from penstock.pipeline.pipeline import Pipeline
from penstock.plans.decision import Problem
from penstock.settings import Settings
from penstock.spark.private.analysis import plan_analysis
from penstock.upkeep.fold_rows import FoldRows

if TYPE_CHECKING:
    from penstock.upkeep.compiled import CompiledView

_IN_STEPS = "run it in steps"
_PYTHON = "PythonUDF"


def check_log(pipeline: Pipeline, settings: Settings) -> None:
    """RealtimeRefused if the log is not in Kafka: neither Spark's source nor its sink knows another one."""
    if not settings.log.url.startswith("kafka://"):
        message = f"its log is {settings.log.url}; records are read one at a time from Kafka, and written there"
        hint = 'log.url = "kafka://HOST:PORT" (penstock move-log takes a log there), or run it in steps'
        problems = [Problem(each.place, each.name, message, hint) for each in pipeline.views.values()]
        raise RealtimeRefused(pipeline.name, problems)


def check_views(pipeline: Pipeline, views: Sequence[CompiledView]) -> None:
    """RealtimeRefused names every view that cannot, with all that stands in its way."""
    told = {alert.view: alert.name for alert in pipeline.alerts.values()}
    problems = []
    for view in views:
        found = [*_problems(view), *_unread(pipeline, view)]
        if view.name in told:
            found.append((f"alert {told[view.name]!r} is told by steps", "watch a view that runs in steps"))
        if found:
            messages, hints = zip(*found, strict=True)
            hint = "; ".join(dict.fromkeys(hints))
            problems.append(Problem(view.spec.place, view.name, "; ".join(messages), hint))
    if problems:
        raise RealtimeRefused(pipeline.name, problems)


def check_changelogs(pipeline: Pipeline, views: Sequence[CompiledView], log: Log) -> None:
    """RealtimeRefused if a changelog has its values in Avro: its readers would take what Spark writes for dead."""
    problems = []
    for view in views:
        topic = str(view.spec.changelog)
        try:
            values = log.topic(topic).definition.values
        except UnknownTopic:
            continue  # The run makes it.
        if values != "json":
            message = f"its changelog {topic!r} has its values in Avro, and only JSON is written record at a time"
            hint = f'give it another topic, such as changelog="{topic}.2", or {_IN_STEPS}'
            problems.append(Problem(view.spec.place, view.name, message, hint))
    if problems:
        raise RealtimeRefused(pipeline.name, problems)


def _problems(view: CompiledView) -> Iterator[tuple[str, str]]:
    """What stands in the way of a view, and what to do about it."""
    if view.upstream:
        yield f"it reads the view {' and '.join(view.upstream)}", "let it read a topic"
    if len(view.topics) > 1:
        yield f"it reads {len(view.topics)} topics: {', '.join(view.topics)}", "make a view of each"
    if view.spec.key is not None:
        yield "it has a key: a new row may replace a stored one", f"leave key= out, or {_IN_STEPS}"
    if view.keeping.fold is None or view.keeping.how != "fold" or view.keeping.fold.kind != "rows":
        yield f"it does more than look at each record by itself ({view.keeping.why})", _IN_STEPS
    if view.spec.changelog is None:
        yield "it has no changelog, and its output can only be a topic", f'add changelog="{view.name}.changes"'
    if view.topics and _reads(view) > 1:
        yield "it reads its topic more than once", "look at each record once"
    if _PYTHON in plan_analysis.json(view.frame):
        yield "it calls a Python function, which Spark does not do record at a time", "use functions of Spark"
    if isinstance(view.keeper, FoldRows) and not view.keeper.prepared.is_swapped:
        yield "its function makes rows of its own", "let it only choose, compute and filter columns"


def _unread(pipeline: Pipeline, view: CompiledView) -> Iterator[tuple[str, str]]:
    """Topics whose values Spark does not know to read."""
    for name in view.topics:
        if pipeline.topics[name].options.get("values") == "avro":
            yield f"topic {name!r} has its values in Avro, and only JSON is read record at a time", _IN_STEPS


def _reads(view: CompiledView) -> int:
    """How often the topic stands in the plan."""
    return sum(mark is not None for mark in plan_analysis.marks(view.frame))
