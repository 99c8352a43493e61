"""penstock late: the late events of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, LogUrl, open_log
from penstock.cli.output import counted, delay_text, in_cell, in_json, plain, print_json, print_table

if TYPE_CHECKING:
    from penstock.log.late import LateEvent


def late(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the latest arrivals.")] = 20,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what arrived then or later: 2026-01-01T00:00:00Z.")
    ] = None,
    as_json: Json = False,
    log_url: LogUrl = None,
) -> None:
    """Show late events: those that arrived longer after their event time than the topic's lateness allows.

    A view with late="drop" leaves them out; any other one counts them, as corrections.

    \b
    Example:
      penstock late access --limit 10
    """
    from penstock.consume.start import parse_time
    from penstock.durations import format_duration
    from penstock.errors import CommandRefused
    from penstock.log.late import late_events

    since_us = None if since is None else parse_time(since).arrived_us
    with open_log(context, log_url) as log:
        found = log.topic(topic)
        if found.definition.event_time is None:
            raise CommandRefused(
                f"nothing can be late in topic {topic!r}",
                "it has no event time, so nobody can tell when its events happened",
                "topics get one when they are made: penstock topic create ... --event-time COLUMN",
            )
        events, total = late_events(found, limit=limit, since_us=since_us)
        lateness = format_duration(found.definition.lateness)
    if as_json:
        print_json(
            {"topic": topic, "lateness": lateness, "late": total, "events": [_document(each) for each in events]}
        )
        return
    columns = list(events[0].columns) if events else []
    print_table(
        ["partition", "offset", "arrived", "event time", "late by", *columns],
        [
            (each.partition, each.offset, in_json(each.arrived), in_json(each.event_time), delay_text(each.delay),
             *(in_cell(each.columns[name]) for name in columns))
            for each in events
        ],
    )  # fmt: skip
    more = f", the last {len(events):,} are shown" if total > len(events) else ""
    print(f"\n{counted(total, 'event')} of {topic} came later than the {lateness} allowed{more}")


def _document(event: LateEvent) -> dict[str, Any]:
    return {
        "partition": event.partition,
        "offset": event.offset,
        "arrived": in_json(event.arrived),
        "event_time": in_json(event.event_time),
        "late_by_seconds": event.delay.total_seconds(),
        "columns": plain({name: _json_value(value) for name, value in event.columns.items()}),
    }


def _json_value(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | dict | list) else in_json(value)
