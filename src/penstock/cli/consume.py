"""penstock consume: print what is in topics, and follow them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli.options import LogUrl, open_log
from penstock.cli.output import in_cell, in_json, plain, print_table

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.consume.consumer import Consumer
    from penstock.consume.position import Records
    from penstock.log.log import Log

OWN = ("_partition", "_offset", "_arrived", "_late")
TABLE_ROWS = 100
IDLE_SECONDS = 0.2
POLL_ROWS = 8192


def consume(
    context: typer.Context,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names, or patterns such as 'orders.*'.")],
    group: Annotated[
        str | None, typer.Option(help="Go on where this group left off, and share the work with it.")
    ] = None,
    start: Annotated[
        str,
        typer.Option("--from", help="earliest, latest, an offset or a time of arrival; a group: for its first run."),
    ] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Stop after so many records.")] = None,
    kind: Annotated[
        Literal["jsonl", "table"], typer.Option("--format", help="JSON lines, or a table of at most --max (100) rows.")
    ] = "jsonl",
    meta: Annotated[bool, typer.Option("--meta", help="With _topic, _partition, _offset, _arrived and _late.")] = False,
    log_url: LogUrl = None,
) -> None:
    """Print the records of topics as JSON lines, up to now or, with --follow, for ever.

    A group is moved on after what was printed, so the next run goes on there.

    \b
    Example:
      penstock consume clicks --from 2026-01-01T00:00:00Z --max 10
      penstock consume 'orders.*' --group billing --follow --meta
    """
    if kind == "table":
        most = most or TABLE_ROWS
    with open_log(context, log_url) as log:
        options: dict[str, Any] = {} if group is None else {"group": group}
        rows_max = POLL_ROWS if most is None else min(most, POLL_ROWS)
        with log.consumer(*topics, start=start, auto_commit=None, max_rows=rows_max, **options) as consumer:
            printer = _Table(meta) if kind == "table" else _Lines(meta)
            ends = None if follow else _ends(log, topics)
            try:
                _run(consumer, printer, ends, most)
            finally:
                printer.finish()


def _run(consumer: Consumer, printer: _Lines, ends: dict[tuple[str, int], int] | None, most: int | None) -> None:
    """Polls and prints until the ends are reached, or as many records as wanted are printed, or for ever."""
    from penstock.errors import MemberEvicted, NotAssigned

    left = most
    while left is None or left > 0:
        found = consumer.poll(None if ends is None else IDLE_SECONDS)
        for records in found:
            stop = None if ends is None else ends.get((records.topic, records.partition), 0)
            batch, following = _up_to(records, left, stop)
            printer.print(records.topic, batch)
            left = None if left is None else left - batch.num_rows
            if following < records.stop:
                with suppress(NotAssigned):  # If it went to another member, so did what was not printed.
                    consumer.seek(records.topic, records.partition, following)
        printer.flush()  # What is committed was printed: the other way round, a closed pipe would lose records.
        if consumer.group is not None and found:
            try:
                consumer.commit()
            except MemberEvicted as error:
                typer.echo(str(error), err=True)
        if ends is not None:
            positions = consumer.positions()
            if not any(offset < ends.get(place, 0) for place, offset in positions.items()) and (positions or not found):
                return


def _up_to(records: Records, most: int | None, stop: int | None) -> tuple[pa.RecordBatch, int]:
    """So much of the records as is wanted, and the offset that comes next."""
    import numpy as np

    offsets = records.batch.column("_offset").to_numpy()
    count = len(offsets) if stop is None else int(np.searchsorted(offsets, stop))
    count = count if most is None else min(count, most)
    if count == len(offsets):
        return records.batch, records.stop
    return records.batch.slice(0, count), int(offsets[count])


def _ends(log: Log, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """Where every partition ends now."""
    from penstock.consume.catalog import Catalog

    catalog = Catalog(log)
    return {(key.topic, key.partition): catalog.partition(key).end().offset for key in catalog.find(topics)}


class _Lines:
    """Prints records as JSON lines, which `penstock produce` takes again."""

    def __init__(self, has_meta: bool) -> None:
        self._has_meta = has_meta

    def print(self, topic: str, batch: pa.RecordBatch) -> None:
        write = sys.stdout.write
        for event in self._events(topic, batch):
            write(json.dumps(event, ensure_ascii=False, default=in_json) + "\n")

    def flush(self) -> None:
        sys.stdout.flush()

    def finish(self) -> None:
        pass

    def _events(self, topic: str, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        if not self._has_meta:
            batch = batch.drop_columns(list(OWN))
        events = [plain(event) for event in batch.to_pylist(maps_as_pydicts="lossy")]
        return [{**event, "_topic": topic} for event in events] if self._has_meta else events


class _Table(_Lines):
    """Gathers records and prints them as a table."""

    def __init__(self, has_meta: bool) -> None:
        super().__init__(has_meta)
        self._gathered: list[dict[str, Any]] = []

    def print(self, topic: str, batch: pa.RecordBatch) -> None:
        self._gathered += self._events(topic, batch)

    def finish(self) -> None:
        columns = list(dict.fromkeys(name for event in self._gathered for name in event))
        rows = [[in_cell(event.get(name)) for name in columns] for event in self._gathered]
        print_table(columns, rows)
