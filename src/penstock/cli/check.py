"""penstock check: is a pipeline in order?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.options import AppFile, Json, ViewsUrl, open_views, settings_of
from penstock.cli.output import counted, print_json

if TYPE_CHECKING:
    from penstock.errors import PipelineError
    from penstock.pipeline.pipeline import Pipeline
    from penstock.plans.decision import Problem
    from penstock.settings import Settings


def check(context: typer.Context, app: AppFile, as_json: Json = False, views_url: ViewsUrl = None) -> None:
    """Check a pipeline: names, keys, and what each view computes. Exit code 1 if there is a problem.

    Every view is analysed on empty input; all problems are told, each with its file and line. Nothing is changed: of
    the log nothing is read, of the views whether another pipeline has one of the same name.

    \b
    Example:
      penstock check weblogs.py
    """
    from penstock.pipeline.loading import load_pipeline
    from penstock.spark import session
    from penstock.upkeep.checked import check_pipeline

    pipeline = load_pipeline(app)
    settings = settings_of(context, None, views_url)
    spark = session(settings.spark, name=f"penstock check {pipeline.name}")
    _, problems = check_pipeline(pipeline, spark)
    problems = (*problems, *_taken(pipeline, settings))
    if as_json:
        print_json(
            {
                "pipeline": pipeline.name,
                "topics": len(pipeline.topics),
                "tables": len(pipeline.tables),
                "views": len(pipeline.views),
                "alerts": len(pipeline.alerts),
                "problems": [_document(each) for each in problems],
            }
        )
    else:
        for each in problems:
            print(_told(each), end="\n\n")
        print(f"{_contents(pipeline)}: {counted(len(problems), 'problem') if problems else 'all in order'}")
    if problems:
        raise typer.Exit(1)


def _taken(pipeline: Pipeline, settings: Settings) -> list[Problem]:
    """The views whose names another pipeline has taken; nothing is said where the database is not there."""
    from penstock.errors import StoreUnavailable
    from penstock.plans.decision import Problem
    from penstock.views.catalog import Catalog

    try:
        with open_views(settings) as store:
            if store is None:
                return []
            with store.snapshot() as snapshot:
                taken = Catalog(snapshot.connection).taken_names(pipeline.name, pipeline.views)
    except StoreUnavailable as error:
        typer.echo(f"{error}\n  the names of views were not compared with those in it", err=True)
        return []
    return [
        Problem(
            pipeline.views[name].place,
            name,
            f"pipeline {other!r} keeps a view of that name in the same database",
            "give one of them another name, or a database of its own ([views] url)",
        )
        for name, other in taken.items()
    ]


def _contents(pipeline: Pipeline) -> str:
    kinds = {
        "topic": len(pipeline.topics),
        "table": len(pipeline.tables),
        "view": len(pipeline.views),
        "alert": len(pipeline.alerts),
    }
    return ", ".join(counted(count, kind) for kind, count in kinds.items() if count or kind in ("topic", "view"))


def _document(problem: Problem | PipelineError) -> dict[str, Any]:
    place = problem.place
    return {
        "file": None if place is None else place.file,
        "line": None if place is None else place.line,
        "view": problem.view,
        "message": problem.message,
        "hint": problem.hint or None,
    }


def _told(problem: Problem | PipelineError) -> str:
    """A problem as the compilers of other languages tell it: the place first, so that editors jump there."""
    title = getattr(problem, "title", None) or f"view {problem.view!r}"
    first = f"{problem.place.shown}\n  {title}" if problem.place is not None else f"pipeline: {title}"
    lines = [problem.message, problem.hint]
    return "\n".join([first, *(f"  {line}" for text in lines if text for line in text.splitlines())])
