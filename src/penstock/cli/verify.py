"""penstock verify: does a pipeline give the same rows however it is run?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import AppFile, Json, LogUrl, settings_of

if TYPE_CHECKING:
    from penstock.verify.runs import Run


def verify(
    context: typer.Context,
    app: AppFile,
    cuts: Annotated[int, typer.Option(metavar="N", min=0, help="How many streams with random cuts.")] = 3,
    faults: Annotated[bool, typer.Option("--faults", help="Also in processes that are killed and restarted.")] = False,
    seed: Annotated[int | None, typer.Option(metavar="S", min=0, help="Repeat the random cuts of a report.")] = None,
    rows: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the first N records along arrival.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as a page of HTML too.")] = None,
    as_json: Json = False,
    log_url: LogUrl = None,
) -> None:
    """Run a pipeline over the recorded log in every way there is, and compare all results row by row.

    As a batch, twice; as streams in one step, in ten, cut at random, record by record, stopped and continued, and in a
    process with another time zone, locale and hash seed. The log
    is only read; the database of views is not touched, and a run may go on meanwhile. Exit code 0 only if every view
    has the same rows in all of them.

    \b
    Example:
      penstock verify weblogs.py --rows 100000 --html report.html
    """
    from penstock.log.log import open_log
    from penstock.pipeline.loading import load_pipeline
    from penstock.spark import session
    from penstock.spark.cluster import check_log
    from penstock.verify.page import page
    from penstock.verify.verify import verify as verify_pipeline

    pipeline = load_pipeline(app)
    settings = settings_of(context, log_url)
    check_log(settings)
    spark = session(settings.spark, name=f"penstock verify {pipeline.name}")
    with open_log(settings.log, background=False) as log:
        report = verify_pipeline(
            pipeline, log, spark, cuts=cuts, faults=faults, seed=seed, rows=rows, application=app, on_run=_progress()
        )
    if html is not None:
        html.write_text(page(report), encoding="utf-8")
    print(report.json() if as_json else report.text(), end="\n" if as_json else "")
    if not report.agrees:
        raise typer.Exit(1)


def _progress() -> Callable[[Run], None] | None:
    """Names each run when it is done, on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        return None

    def tell(run: Run) -> None:
        took = sum({*run.seconds.values()})
        print(f"{run.name}: {took:.1f} s" if not run.errors else f"{run.name}: failed", file=sys.stderr)

    return tell
