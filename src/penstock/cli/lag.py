"""penstock lag: how far views are behind the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, LogUrl, ViewsUrl, open_views, settings_of
from penstock.cli.output import moment, print_json, print_table

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.views.catalog import Generation


def lag(
    context: typer.Context,
    app: Annotated[
        str | None, typer.Argument(metavar="APP", help="Only the views of this pipeline: app.py, or app.py:name.")
    ] = None,
    as_json: Json = False,
    views_url: ViewsUrl = None,
    log_url: LogUrl = None,
) -> None:
    """Show how far each view is behind each of its topics: in records, and in seconds since the oldest unread arrived.

    \b
    Example:
      penstock lag
      penstock lag weblogs.py --json
    """
    from penstock.log.log import open_log
    from penstock.views.catalog import Catalog

    pipeline = None
    if app is not None:
        from penstock.pipeline.loading import load_pipeline

        pipeline = load_pipeline(app).name
    settings = settings_of(context, log_url, views_url)
    lines: list[dict[str, Any]] = []
    with open_views(settings) as store, open_log(settings.log, background=False) as log:
        if store is not None:
            with store.snapshot() as snapshot:
                generations = Catalog(snapshot.connection).generations(pipeline)
            lines = [line for each in generations if each.state == "live" for line in _lines(each, log)]
    if as_json:
        print_json(lines)
        return
    print_table(
        ["view", "topic", "records behind", "seconds behind", "as of", "fence"],
        [
            (line["view"], line["topic"], line["records"], line["seconds"], line["clock"],
             ", ".join(f"{number}={offset}" for number, offset in line["fence"].items()))
            for line in lines
        ],
    )  # fmt: skip


def _lines(generation: Generation, log: Log) -> list[dict[str, Any]]:
    from penstock.modes.lag import topics_of, view_lag

    found = []
    for view in generation.views:
        lags = {each.topic: each for each in view_lag(generation, view, log)}
        for topic in topics_of(generation, view):
            known = lags.get(topic)  # None: the topic is gone, and only the fence tells of it.
            found.append(
                {
                    "pipeline": generation.pipeline,
                    "view": view,
                    "topic": topic,
                    "records": None if known is None else known.records,
                    "seconds": None if known is None else round(known.seconds, 3),
                    "clock": moment(generation.fence.clock_us or None),
                    "fence": dict(generation.fence.offsets.get(topic, {})),
                    "ends": None if known is None else dict(known.ends),
                }
            )
    return found
