"""penstock runs: who ran a pipeline, since when, how fast, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, ViewsUrl, open_views, settings_of
from penstock.cli.output import moment, print_json, print_table

if TYPE_CHECKING:
    from penstock.views.runs import Run


def list_runs(
    context: typer.Context,
    pipeline: Annotated[str | None, typer.Argument(metavar="PIPELINE", help="Only runs of this pipeline.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")] = 20,
    as_json: Json = False,
    views_url: ViewsUrl = None,
) -> None:
    """Show the last runs: their mode, process, records and steps, and how they ended.

    \b
    Example:
      penstock runs
      penstock runs weblogs --limit 3 --json
    """
    from penstock.views.runs import recent

    found: list[Run] = []
    with open_views(settings_of(context, None, views_url)) as store:
        if store is not None:
            with store.snapshot() as snapshot:
                found = recent(snapshot.connection, pipeline=pipeline, limit=limit)
    if as_json:
        print_json([_line(each) for each in found])
        return
    print_table(
        ["pipeline", "mode", "state", "started", "ended", "records", "steps", "process"],
        [
            (each.pipeline, each.mode, each.state(), moment(each.started_us), moment(each.ended_us) or "",
             each.rows, each.steps, f"{each.pid} on {each.host}")
            for each in found
        ],
    )  # fmt: skip


def _line(run: Run) -> dict[str, Any]:
    return {
        "pipeline": run.pipeline,
        "mode": run.mode,
        "state": run.state(),
        "started": moment(run.started_us),
        "seen": moment(run.seen_us),
        "ended": moment(run.ended_us),
        "records": run.rows,
        "steps": run.steps,
        "views": {
            view: {"steps_in_driver": steps.in_driver, "steps_by_spark": steps.by_spark}
            for view, steps in run.views.items()
        },
        "pid": run.pid,
        "host": run.host,
        "samples": [
            {
                "at": moment(each.at_us),
                "records": each.rows,
                "steps": each.steps,
                "seconds": each.seconds,
                "late": each.late,
                "corrected": each.corrected,
                "lag": each.lag,
            }
            for each in run.samples
        ],
    }
