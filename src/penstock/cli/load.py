"""penstock load: bring a whole file in, each row once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli.options import Json, LogUrl, fail_as_nothing_fits, open_log
from penstock.cli.output import print_json, rate_text

if TYPE_CHECKING:
    from penstock.load.loading import Progress


def load(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV with a header, JSON lines or Parquet; .gz too.")],
    topic: Annotated[str, typer.Option(help="Where to.")],
    kind: Annotated[
        Literal["csv", "jsonl", "parquet"] | None, typer.Option("--format", help="If the name does not tell.")
    ] = None,
    arrived: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The greatest value so far of this column is when a record arrived. "
                                            "Without it, records arrive now."),
    ] = None,
    as_json: Json = False,
    log_url: LogUrl = None,
) -> None:  # fmt: skip
    """Load a file. Each of its rows is stored once, however often this is run: after a kill, run it again.

    Rows that do not fit go to TOPIC.dead. With --arrived the history keeps its time: what was late then is late now;
    refused if the topic holds later arrivals. Retention counts from the load.

    \b
    Example:
      penstock load access-2025.csv.gz --topic access --arrived time
    """
    from penstock.load.loading import load as load_file

    if not file.is_file():
        raise typer.BadParameter(f"there is no file {file}", param_hint="FILE")
    with open_log(context, log_url, background=True) as log, _progress_bar() as progress:
        loaded = load_file(log.topic(topic), file, kind=kind, arrived=arrived, progress=progress)
    if as_json:
        print_json({**vars(loaded), "seconds": round(loaded.seconds, 3), "was_loaded": loaded.was_loaded})
    elif loaded.was_loaded:
        print(f"already loaded: 0 stored, {loaded.duplicates:,} duplicates (to store it again, give it another name)")
    else:
        print(
            f"{loaded.stored:,} of {loaded.rows:,} rows of {file.name} are stored in {topic}, in {loaded.seconds:.1f} s"
            f" ({rate_text(loaded.rows, loaded.seconds)})"
            + (f"; {loaded.duplicates:,} were there already" if loaded.duplicates else "")
            + (f"; {loaded.rejected:,} do not fit and are in {topic}.dead" if loaded.rejected else "")
        )
    if loaded.rejected and loaded.rejected == loaded.rows:
        fail_as_nothing_fits(topic)


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """Shows how far the load is, on a terminal; elsewhere nothing."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from penstock.cli.terminal import Terminal

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
        console=Terminal(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        tasks = {stage: bar.add_task(stage, total=None, rows=0, visible=False) for stage in ("reading", "storing")}

        def progress(stage: str, done: int, total: int, rows: int) -> None:
            for each, task in tasks.items():
                if each == stage:
                    bar.update(task, completed=done, total=total, rows=rows, visible=True)
                else:
                    bar.update(task, visible=False)

        yield progress
