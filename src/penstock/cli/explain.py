"""penstock explain-row: which records of the log made a row of a view."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, LogUrl, ViewsUrl, open_views, settings_of
from penstock.cli.output import counted, delay_text, in_cell, in_json, plain, print_json, print_table, with_windows

if TYPE_CHECKING:
    from penstock.upkeep.explain import Explanation, Record


def explain_row(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="VIEW", help="The view.")],
    app: Annotated[str, typer.Option(metavar="APP", help="The file of the pipeline: app.py, or app.py:name.")],
    key: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY...", help="Values of the row's key, in its order, or COLUMN=VALUE."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="List at most so many; all are counted.")] = 50,
    as_json: Json = False,
    views_url: ViewsUrl = None,
    log_url: LogUrl = None,
) -> None:
    """Show which records of the log made a row: offset, arrival, event time, how late. Reads the log, changes nothing.

    Of a window its start is enough. For a view over a view, it names that view's rows and how to go on.

    \b
    Example:
      penstock explain-row hits 2026-01-01T12:00:00Z /home --app weblogs.py
    """
    from penstock.errors import UnknownView, ViewsChanged
    from penstock.log.log import open_log
    from penstock.modes.changed import changed_views
    from penstock.modes.engine import connected_sets
    from penstock.pipeline.loading import load_pipeline
    from penstock.spark import session
    from penstock.spark.cluster import check_log
    from penstock.upkeep.compiled import compile_pipeline
    from penstock.upkeep.explain import Explainer, asked_row
    from penstock.views.catalog import Catalog
    from penstock.views.find import stored_view

    pipeline = load_pipeline(app)
    settings = settings_of(context, log_url, views_url)
    check_log(settings)
    with open_log(settings.log, background=False) as log, open_views(settings) as store:
        if store is None:
            raise UnknownView(name, [])
        with store.snapshot() as snapshot:
            stored = stored_view(snapshot, name)
            row, row_key = asked_row(snapshot, stored, key or [])
            spark = session(settings.spark, name=f"penstock explain {pipeline.name}")
            views = {view.name: view for view in compile_pipeline(pipeline, spark)}
            if name not in views:
                raise UnknownView(name, list(views))
            sets = [[views[each] for each in names] for names in connected_sets(views)]
            changed = changed_views(sets, Catalog(snapshot.connection).views(pipeline.name))
            if name in changed:
                places = {each.name: each.spec.place for each in views.values()}
                raise ViewsChanged(pipeline.name, {name: changed[name]}, places)
            explainer = Explainer(views[name], stored.generation, snapshot, log, spark, limit)
            found = explainer.explain(row, row_key)
    given = {"--app": app, "--views": views_url, "--log": log_url or context.find_root().obj}
    options = [word for name, value in given.items() if value is not None for word in (name, shlex.quote(value))]
    if as_json:
        print_json(_document(found, options))
    else:
        _print(found, options)


def _print(found: Explanation, options: Sequence[str]) -> None:
    row = with_windows(found.row)
    print_table(list(row), [[in_cell(value) for value in row.values()]])
    if found.records:
        columns = list(dict.fromkeys(name for each in found.records for name in each.values or ()))
        print()
        print_table(
            ["topic", "partition", "offset", "arrived", "event time", "late by", *columns],
            [
                (each.topic, each.partition, each.offset, in_cell(each.arrived), in_cell(each.event_time), _late(each),
                 *(in_cell((each.values or {}).get(name)) for name in columns))
                for each in found.records
            ],
        )  # fmt: skip
    if found.records_total:
        records = counted(found.records_total, "record")
        print(f"\nmade of {records}: {found.how}{_rest(found.records_total, found.records)}")
    if found.upstream_total:
        rows = counted(found.upstream_total, "row")
        print(f"\nmade of {rows} of other views: {found.how}{_rest(found.upstream_total, found.upstream)}")
        for command in _next(found, options):
            print(f"  {command}")
    for note in found.notes:
        print(f"\n{note}")


def _rest(total: int, shown: Sequence[object]) -> str:
    return f"; the first {len(shown):,} are listed" if len(shown) < total else ""


def _next(found: Explanation, options: Sequence[str]) -> list[str]:
    """How to go on with each row of another view: commands for a shell, with the options of this one."""
    return [" ".join(["penstock explain-row", each.view, *each.words, *options]) for each in found.upstream]


def _late(record: Record) -> str | None:
    return None if record.late_by is None else delay_text(record.late_by)


def _document(found: Explanation, options: Sequence[str]) -> dict[str, Any]:
    return {
        "view": found.view,
        "row": _plain(found.row),
        "how": found.how,
        "records_total": found.records_total,
        "records": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "arrived": None if each.arrived is None else in_json(each.arrived),
                "event_time": None if each.event_time is None else in_json(each.event_time),
                "late_by_seconds": None if each.late_by is None else each.late_by.total_seconds(),
                "values": None if each.values is None else _plain(each.values),
            }
            for each in found.records
        ],
        "upstream_total": found.upstream_total,
        "upstream": [
            {
                "view": each.view,
                "key": _plain(each.key),
                "record": None if each.record is None else str(each.record),
                "next": command,
            }
            for each, command in zip(found.upstream, _next(found, options), strict=True)
        ],
        "notes": list(found.notes),
    }


def _plain(values: Any) -> Any:
    """Values as JSON has them: times as text."""
    import json

    return json.loads(json.dumps(plain(dict(values)), default=in_json))
