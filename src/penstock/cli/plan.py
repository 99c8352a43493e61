"""penstock plan: how each view of a pipeline is kept, and what a run would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.options import AppFile, Json, LogUrl, ViewsUrl, open_views, settings_of
from penstock.cli.output import bytes_text, counted, moment, print_json, print_table

if TYPE_CHECKING:
    from penstock.modes.outlook import Outlook


def plan(
    context: typer.Context, app: AppFile, as_json: Json = False, views_url: ViewsUrl = None, log_url: LogUrl = None
) -> None:
    """Show how each view is kept (fold, redo, whole), why, what would make it cheaper, and what a run would do.

    Nothing is changed, and a run may go on meanwhile.

    \b
    Example:
      penstock plan weblogs.py
    """
    from penstock.log.log import open_log
    from penstock.modes.engine import connected_sets
    from penstock.modes.outlook import outlook
    from penstock.pipeline.loading import load_pipeline
    from penstock.spark import session
    from penstock.upkeep.compiled import compile_pipeline

    pipeline = load_pipeline(app)
    settings = settings_of(context, log_url, views_url)
    spark = session(settings.spark, name=f"penstock plan {pipeline.name}")
    compiled = {view.name: view for view in compile_pipeline(pipeline, spark)}
    sets = [tuple(compiled[name] for name in names) for names in connected_sets(compiled)]
    with open_log(settings.log, background=False) as log, open_views(settings) as store:
        found = outlook(pipeline.name, sets, store, log)
    written = list(pipeline.views)
    found.sort(key=lambda each: written.index(each.view.name) if each.view.name in written else -1)
    if as_json:
        print_json({"pipeline": pipeline.name, "views": [_document(each, app) for each in found]})
        return
    print_table(
        ["view", "kept", "key", "reads", "rows", "kept for redo", "behind"],
        [
            (each.view.name, each.view.keeping.how, _key(each), ", ".join(each.view.spec.inputs), each.rows,
             _size(each), each.behind)
            for each in found
        ],
    )  # fmt: skip
    for each in found:
        print(f"\n{each.view.name}   {each.view.spec.place}")
        print(f"  {each.view.keeping.how}: {each.view.keeping.why}")
        if each.view.keeping.advice:
            print(f"  cheaper: {each.view.keeping.advice}")
        print(f"  {_told(each, app)}")


def _key(outlook: Outlook) -> str | None:
    key = outlook.view.spec.key
    return None if key is None else ", ".join(key) or "one row"


def _size(outlook: Outlook) -> str | None:
    return None if outlook.kept is None else f"{counted(outlook.kept.rows, 'row')}, {bytes_text(outlook.kept.bytes)}"


def _told(outlook: Outlook, app: str) -> str:
    """What a run would do with this view."""
    name = outlook.view.name
    if outlook.would == "begin":
        return f"not there yet: a run computes it from the start of the log, {counted(outlook.behind, 'record')}"
    if outlook.would == "refuse":
        what = outlook.changed or "a view that it is connected with"
        return (
            f"changed: {what}\n  a stream refuses to go on with it; readers keep the old rows\n"
            f"  to replay {counted(outlook.behind, 'record')} beside them, compare, and switch over: "
            f"penstock run {app} --mode kappa\n"
            f"  to compute it anew as a batch: penstock view rebuild {name} --app {app}"
        )
    live = outlook.live
    assert live is not None
    return f"generation {live.number}, as of {moment(live.fence.clock_us)}: a stream goes on, " + (
        f"{counted(outlook.behind, 'record')} behind" if outlook.behind else "and has nothing to catch up with"
    )


def _document(outlook: Outlook, app: str) -> dict[str, Any]:
    view, live = outlook.view, outlook.live
    return {
        "view": view.name,
        "file": view.spec.place.file,
        "line": view.spec.place.line,
        "kept": view.keeping.how,
        "why": view.keeping.why,
        "advice": view.keeping.advice,
        "key": None if view.spec.key is None else list(view.spec.key),
        "inputs": list(view.spec.inputs),
        "late": view.spec.late,
        "columns": {field.name: field.dataType.simpleString() for field in view.schema},
        "generation": None if live is None else live.number,
        "rows": outlook.rows,
        "kept_rows": None if outlook.kept is None else outlook.kept.rows,
        "kept_bytes": None if outlook.kept is None else outlook.kept.bytes,
        "behind": outlook.behind,
        "changed": outlook.changed,
        "would": outlook.would,
        "next": f"penstock run {app} --mode kappa" if outlook.would == "refuse" else None,
    }
