"""The command line: one file per command.

    topic.py     make, list, show, change and delete topics
    produce.py   send JSON lines or CSV, from a file or as they come
    load.py      bring a whole file in, with its history
    move_log.py  take a log from a folder to Kafka
    consume.py   print what is in a topic, and follow it
    log.py       look after what is on disk: check, inspect, seal, retain
    check.py     is a pipeline in order?
    plan.py      how its views are kept, and what a run would do
    run.py       run it (live.py, bar.py: what it shows meanwhile; realtime.py: record at a time)
    jars.py      fetch what Spark needs to run record at a time
    view.py      list, show, query, export, rebuild and drop views
    generation.py  which copy of a view people read: switch, rollback, diff
    lag.py       how far views are behind
    runs.py      who ran a pipeline, and how it went
    late.py      the late events of a topic
    explain.py   which records made this row
    verify.py    do all ways to run it agree?
    alert.py     what alerts have told, and to whom
    serve.py     views and topics over HTTP, and the dashboard
    token.py     who may use them
    demo.py      all of it at work

Exit codes: 0 fine, 1 error, 2 wrong usage, 130 stopped by Ctrl-C. Whatever is heavy is imported inside the commands, so
that `penstock --help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import (
    alert,
    check,
    consume,
    demo,
    explain,
    generation,
    jars,
    lag,
    late,
    load,
    log,
    move_log,
    plan,
    produce,
    run,
    runs,
    serve,
    token,
    topic,
    verify,
    view,
)
from penstock.cli.behaviour import Commands
from penstock.cli.options import LOG_HELP

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(topic.commands, name="topic")
app.command()(produce.produce)
app.command()(load.load)
app.command("move-log")(move_log.move_log)
app.command()(consume.consume)
app.add_typer(log.commands, name="log")
app.command()(check.check)
app.command()(plan.plan)
app.command()(run.run)
app.command()(jars.jars)
view.commands.command()(generation.generations)
app.add_typer(view.commands, name="view")
app.command()(generation.diff)
app.command()(generation.switch)
app.command()(generation.rollback)
app.command()(lag.lag)
app.command("runs")(runs.list_runs)
app.command()(late.late)
app.command("explain-row")(explain.explain_row)
app.command()(verify.verify)
app.add_typer(alert.commands, name="alert")
app.command()(serve.serve)
app.add_typer(token.commands, name="token")
app.command()(demo.demo)


def main() -> None:
    """Runs the command that the command line asks for, and ends the process with its exit code."""
    app(prog_name="penstock")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def penstock(
    context: typer.Context,
    log_url: Annotated[str | None, typer.Option("--log", metavar="URL", help=LOG_HELP)] = None,
    version: Annotated[  # noqa: ARG001 (its callback does it all)
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Events in, kept in order, and out again; pipelines over them, written once and run as batch or stream.

    \b
    Example:
      penstock topic create clicks --schema 'time timestamp, url string'
      echo '{"time": "2026-01-01T12:00:00Z", "url": "/"}' | penstock produce clicks
      penstock consume clicks
      penstock run clicks.py --once
      penstock view list
    """
    from penstock.log.open_files import raise_limit

    raise_limit()
    context.obj = log_url
