"""penstock verify: does a pipeline give the same rows however it is run?"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from penstock.cli.options import AppFile, Json, LogUrl, settings_of

if TYPE_CHECKING:
    from penstock.verify.runs import Run

JVM_SECONDS = 5.0
"""Ctrl-C leaves the JVM so long to end by itself."""


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
    process with another time zone, locale and hash seed. The log is only read; the database of views is not touched,
    and a run may go on meanwhile. Exit code 0 only if every view has the same rows in all of them.

    \b
    Example:
      penstock verify weblogs.py --rows 100000 --html report.html
    """
    from penstock.cli.signals import Signals, StoppedEarly
    from penstock.log.log import open_log
    from penstock.pipeline.loading import load_pipeline
    from penstock.spark import session
    from penstock.spark.cluster import check_log
    from penstock.verify.page import page
    from penstock.verify.verify import SCRATCH
    from penstock.verify.verify import verify as verify_pipeline

    try:
        with Signals() as signals:
            pipeline = load_pipeline(app)
            settings = settings_of(context, log_url)
            check_log(settings)
            # In a thread, where PySpark takes no signal: one that interrupts a call to the JVM leaves tracebacks.
            with ThreadPoolExecutor(1, thread_name_prefix="verify-start") as starter:
                spark = starter.submit(session, settings.spark, name=f"penstock verify {pipeline.name}").result()
            with tempfile.TemporaryDirectory(prefix=SCRATCH) as folder, open_log(settings.log, background=False) as log:
                scratch = Path(folder)
                signals.begun(lambda: _end(scratch))
                report = verify_pipeline(
                    pipeline, log, spark, cuts=cuts, faults=faults, seed=seed, rows=rows, application=app,
                    scratch=scratch, on_run=_progress(),
                )  # fmt: skip
    except StoppedEarly:
        _end(None)
    if html is not None:
        html.write_text(page(report), encoding="utf-8")
    print(report.json() if as_json else report.text(), end="\n" if as_json else "")
    if not report.agrees:
        raise typer.Exit(1)


def _end(scratch: Path | None) -> NoReturn:
    """Ends this process, and all that it has started, here and now: there is nothing to finish.

    An exception would have to pass through calls to the JVM, which answer it with tracebacks.
    """
    from penstock.spark.private.process import end_jvm
    from penstock.verify.processes import kill_children

    os.write(2, b"stopped: nothing was compared to the end, and nothing was changed\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Spark complains of each job that ends with it.
    kill_children()
    if scratch is not None:  # Before the JVM, which may take seconds to end.
        shutil.rmtree(scratch, ignore_errors=True)
    end_jvm(JVM_SECONDS)
    os._exit(130)


def _progress() -> Callable[[Run], None] | None:
    """Names each run when it is done, on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        return None

    def tell(run: Run) -> None:
        took = sum({*run.seconds.values()})
        print(f"{run.name}: {took:.1f} s" if not run.errors else f"{run.name}: failed", file=sys.stderr)

    return tell
