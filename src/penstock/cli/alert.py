"""penstock alert: what was told, to whom, and how it went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, LogUrl, ViewsUrl, open_views, settings_of
from penstock.cli.output import counted, moment, print_json, print_table

if TYPE_CHECKING:
    from penstock.alerts.entries import Entry

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="The name of the pipeline.")]
AlertName = Annotated[str, typer.Argument(metavar="ALERT", help="The name of the alert.")]
OnlyPipeline = Annotated[str | None, typer.Option("--pipeline", metavar="NAME", help="Only of this pipeline.")]


@commands.callback()
def alert() -> None:
    """See what alerts have told, and send again what could not be sent.

    \b
    Example:
      penstock alert list
    """


@commands.command("list")
def list_alerts(
    context: typer.Context,
    pipeline: OnlyPipeline = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 50,
    as_json: Json = False,
    views_url: ViewsUrl = None,
    log_url: LogUrl = None,
) -> None:
    """List what was told, the newest first: to whom, whether it is sent, and what went wrong.

    \b
    Example:
      penstock alert list --pipeline weblogs
    """
    from penstock.alerts.entries import recent

    with open_views(settings_of(context, log_url, views_url)) as store:
        found: list[Entry] = []
        if store is not None:
            with store.snapshot() as snapshot:
                found = recent(snapshot.connection, pipeline=pipeline, limit=limit)
    if as_json:
        print_json([_document(each) for each in found])
        return
    print_table(
        ["pipeline", "alert", "number", "as of", "rows", "to", "state", "attempts", "text"],
        [
            (each.pipeline, each.alert, each.number, moment(each.clock_us), each.rows_total, each.receiver or "nobody",
             each.state, each.attempts, each.error or each.text.partition("\n")[0])
            for each in found
        ],
    )  # fmt: skip
    waiting = sum(each.state == "waiting" for each in found)
    failed = sum(each.state == "failed" for each in found)
    print(f"\n{counted(len(found), 'message')}: {waiting} waiting, {failed} failed")


@commands.command()
def show(
    context: typer.Context,
    pipeline: PipelineName,
    alert: AlertName,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Its number, as `list` tells it.")],
    as_json: Json = False,
    views_url: ViewsUrl = None,
    log_url: LogUrl = None,
) -> None:
    """Show one message with its rows.

    \b
    Example:
      penstock alert show weblogs too_many_errors 17
    """
    from penstock.alerts.entries import find
    from penstock.alerts.telling import cell
    from penstock.errors import UnknownAlert

    found = None
    with open_views(settings_of(context, log_url, views_url)) as store:
        if store is not None:
            with store.snapshot() as snapshot:
                found = find(snapshot.connection, pipeline, alert, number)
    if found is None:
        raise UnknownAlert(pipeline, alert, number)
    if as_json:
        print_json(_document(found))
        return
    print(f"{found.pipeline} {found.alert} {found.number}: {counted(found.rows_total, 'row')} of {found.view}")
    print(f"as of {moment(found.clock_us)}, to {found.receiver or 'nobody'}: {_state(found)}")
    print(f"\n{found.text}\n")
    names = list(dict.fromkeys(name for row in found.rows for name in row))
    if names:
        print_table(names, [[_shown(row.get(name), cell) for name in names] for row in found.rows])


@commands.command()
def retry(
    context: typer.Context,
    pipeline: OnlyPipeline = None,
    alert: Annotated[str | None, typer.Option("--alert", metavar="NAME", help="Only of this alert.")] = None,
    views_url: ViewsUrl = None,
    log_url: LogUrl = None,
) -> None:
    """Let what has failed wait again: the next run of the pipeline, or `penstock serve`, sends it.

    \b
    Example:
      penstock alert retry --pipeline weblogs
    """
    from penstock.alerts.entries import retry as wait_again
    from penstock.views.database_clock import DATABASE_NOW_US

    count = 0
    with open_views(settings_of(context, log_url, views_url)) as store:
        if store is not None:
            with store.transaction(None) as tx:
                count = wait_again(tx.connection, DATABASE_NOW_US, pipeline, alert)
    print(f"{counted(count, 'message')} that had failed {'waits' if count == 1 else 'wait'} again")


@commands.command()
def test(
    context: typer.Context,
    to: Annotated[str, typer.Argument(metavar="TO", help="mailto:ADDRESS or https://HOST/PATH.")],
) -> None:
    """Send one test message now, with the settings in force, and say how it went.

    \b
    Example:
      penstock alert test mailto:ops@example.com
    """
    from penstock.alerts.courier import send_test
    from penstock.pipeline.receivers import ReceiverUnclear, parse_receiver, shown_receiver

    try:
        receiver = parse_receiver(to)
    except ReceiverUnclear as error:
        raise typer.BadParameter(f"{shown_receiver(to)!r}; expected {error.expected}") from error
    note = send_test(receiver, settings_of(context).alerts)
    print(f"{receiver.shown} has taken a test message" + (f"; {note}" if note else ""))


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "pipeline": entry.pipeline,
        "alert": entry.alert,
        "number": entry.number,
        "view": entry.view,
        "to": entry.receiver or None,
        "text": entry.text,
        "rows": entry.rows,
        "rows_total": entry.rows_total,
        "clock": moment(entry.clock_us),
        "created": moment(entry.created_us),
        "state": entry.state,
        "attempts": entry.attempts,
        "next": moment(entry.next_us),
        "sent": moment(entry.sent_us),
        "error": entry.error,
    }


def _state(entry: Entry) -> str:
    tried = f", tried {entry.attempts} times" if entry.attempts > 1 else ""
    why = f": {entry.error}" if entry.error else ""
    when = {"sent": f" {moment(entry.sent_us)}", "waiting": f" until {moment(entry.next_us)}"}.get(entry.state, "")
    return f"{entry.state}{when}{tried}{why}"


def _shown(value: Any, cell: Any) -> Any:
    return value if value is None or isinstance(value, int | float) else cell(value)
