"""Everything that is wrong with a pipeline, found on empty input: no log and no views are needed, or touched."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.alerts.compiled import compile_alerts
from penstock.errors import BindingError, CycleError, DefinitionError, PipelineError, TableUnreadable
from penstock.pipeline.pipeline import Pipeline
from penstock.plans.decision import Problem
from penstock.upkeep.compiled import CompiledView, try_compile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_pipeline(
    pipeline: Pipeline, spark: SparkSession
) -> tuple[tuple[CompiledView, ...], tuple[Problem | PipelineError, ...]]:
    """The views that are in order, and every problem: of names, of tables, and of what each view computes.

    A view that reads another with a problem is not judged before that one is repaired.
    """
    problems: list[Problem | PipelineError] = [*pipeline.check_names()]
    sound = pipeline
    for error in problems:
        assert isinstance(error, PipelineError)
        sound = _without(sound, _culprits(sound, error))
    while (circle := next((each for each in sound.check_names() if isinstance(each, CycleError)), None)) is not None:
        problems.append(circle)
        sound = _without(sound, circle.views)
    while True:
        try:
            compiled, found = try_compile(sound, spark)
        except PipelineError as error:
            culprits = _culprits(sound, error)
            if not culprits:
                raise
            problems.append(error)
            sound = _without(sound, culprits)
        else:
            _, unclear = compile_alerts(sound.alerts.values(), compiled, spark)
            return compiled, (*problems, *found, *unclear)


def _culprits(pipeline: Pipeline, error: PipelineError) -> tuple[str, ...]:
    """The views and tables that an error is about."""
    if isinstance(error, CycleError):
        return error.views
    if isinstance(error, TableUnreadable):
        return (error.table,)
    if error.view is not None:
        return (error.view,)
    if isinstance(error, BindingError | DefinitionError):
        return tuple(name for name, table in pipeline.tables.items() if table.place == error.place)
    return ()


def _without(pipeline: Pipeline, names: Iterable[str]) -> Pipeline:
    """The same pipeline less some views and tables, and less all views that read them."""
    gone = set(names)
    while True:
        readers = {name for name, view in pipeline.views.items() if gone & set(view.inputs)} - gone
        if not readers:
            break
        gone |= readers
    smaller = copy.copy(pipeline)
    smaller.views = {name: view for name, view in pipeline.views.items() if name not in gone}
    smaller.tables = {name: table for name, table in pipeline.tables.items() if name not in gone}
    smaller.alerts = {name: alert for name, alert in pipeline.alerts.items() if alert.view in smaller.views}
    return smaller
