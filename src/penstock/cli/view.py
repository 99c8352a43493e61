"""penstock view: list, show, query, export, rebuild and drop views."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, LogUrl, ViewsUrl, is_terminal, open_views, settings_of
from penstock.cli.output import bytes_text, counted, in_cell, moment, plain, print_json, print_table, with_windows

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.log.log import Log
    from penstock.settings import Settings
    from penstock.views.catalog import Generation
    from penstock.views.export import Exported
    from penstock.views.find import StoredView
    from penstock.views.store import Snapshot, Store

commands = typer.Typer(
    help="List, show, query, export, rebuild and drop views.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The view.")]


@commands.command("list")
def list_views(
    context: typer.Context, as_json: Json = False, views_url: ViewsUrl = None, log_url: LogUrl = None
) -> None:
    """List views: how each is kept, how many rows it has, and how fresh it is.

    \b
    Example:
      penstock view list
    """
    settings = settings_of(context, log_url, views_url)
    with open_views(settings) as store, _log(settings) as log:
        generations = [] if store is None else _live(store)
        found = [_summary(each, name, log) for each in generations for name in each.views]
    if as_json:
        print_json(found)
        return
    print_table(
        ["view", "pipeline", "kept", "rows", "key", "generation", "behind", "as of", "late", "corrected"],
        [
            (each["view"], each["pipeline"], each["kept"], each["rows"], _key(each["key"]), each["generation"],
             each["behind"], each["clock"], each["late"], each["corrected"])
            for each in found
        ],
    )  # fmt: skip


@commands.command()
def show(
    context: typer.Context,
    name: Name,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help="Of the key, in its order, or COLUMN=VALUE. May repeat; a part will do."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = 20,
    order: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Sort by it; -COLUMN: downwards. Without it: by key.")
    ] = None,
    as_json: Json = False,
    views_url: ViewsUrl = None,
    log_url: LogUrl = None,
) -> None:
    """Show rows of a view, how fresh they are, and which of its windows are closed.

    A closed window is one that only late events change from now on.

    \b
    Example:
      penstock view show hits --order -hits --limit 10
      penstock view show hits --key 2026-01-01T12:00:00Z --key url=/home
    """
    from penstock.modes.lag import closed_us
    from penstock.views.find import conditions, find_rows, stored_view

    settings = settings_of(context, log_url, views_url)
    with _views(settings, name) as store, _log(settings) as log:

        def found(snapshot: Snapshot) -> tuple[StoredView, pa.Table]:
            view = stored_view(snapshot, name)
            return view, find_rows(snapshot, view, conditions(view, key or []), order=order, limit=limit)

        view, rows = store.reading(found)
        closed = closed_us(view.generation, name, log) if view.windows else None
        summary = _summary(view.generation, name, log)
    shown = _shown(view, rows, closed)
    if as_json:
        print_json({**summary, "closed_before": moment(closed), "data": [plain(_in_words(each)) for each in shown]})
        return
    columns = list(shown[0]) if shown else view.known.schema.names
    print_table(columns, [[in_cell(each[column]) for column in columns] for each in shown])
    behind = "" if summary["behind"] is None else f", {counted(summary['behind'], 'record')} behind the log"
    print(f"\n{counted(len(shown), 'row')} of {view.rows:,}, as of {summary['clock']} ({_fence(view)}){behind}")


@commands.command()
def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT over the views; a window is two columns.")],
    as_json: Json = False,
    views_url: ViewsUrl = None,
) -> None:
    """Run a SELECT over the views, in the language of their database. It can change nothing.

    \b
    Example:
      penstock view query 'SELECT url, sum(hits) FROM hits GROUP BY url ORDER BY 2 DESC LIMIT 10'
    """
    with _views(settings_of(context, None, views_url), None) as store:
        columns, rows = store.query(sql)
    if as_json:
        print_json([_in_words(dict(zip(columns, row, strict=True))) for row in rows])
    else:
        print_table(columns, [[in_cell(value) for value in row] for row in rows])


@commands.command()
def export(
    context: typer.Context,
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to: .csv, .parquet or .jsonl.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="CSV: leave text as it is that a spreadsheet would compute as a formula.")
    ] = False,
    as_json: Json = False,
    views_url: ViewsUrl = None,
) -> None:
    """Write a view to a file, as of one moment. The file appears whole or not at all.

    \b
    Example:
      penstock view export hits hits.parquet
    """
    from penstock.views.export import export as export_view
    from penstock.views.find import stored_view

    def exported(snapshot: Snapshot) -> tuple[StoredView, Exported]:
        view = stored_view(snapshot, name)
        return view, export_view(snapshot, view, file, raw=raw)

    with _views(settings_of(context, None, views_url), name) as store:
        view, done = store.reading(exported)
    if as_json:
        print_json({"view": name, "file": str(done.path), "rows": done.rows, "bytes": done.bytes,
                    "clock": moment(view.generation.fence.clock_us)})  # fmt: skip
        return
    as_of = moment(view.generation.fence.clock_us)
    print(f"{counted(done.rows, 'row')} of {name}, as of {as_of}, are in {file} ({bytes_text(done.bytes)})")


@commands.command()
def rebuild(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Views; those connected with them come along.")],
    app: Annotated[str, typer.Option(metavar="APP", help="The file of the pipeline: app.py, or app.py:name.")],
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Also if retention has removed records that views still count.")
    ] = False,
    as_json: Json = False,
    views_url: ViewsUrl = None,
    log_url: LogUrl = None,
) -> None:
    """Compute views anew from the log and switch over when that is done. Readers see the old rows until then.

    \b
    Example:
      penstock view rebuild hits --app weblogs.py
    """
    from penstock.cli.run import batch
    from penstock.cli.signals import Signals, StoppedEarly
    from penstock.modes.run import opened
    from penstock.pipeline.loading import load_pipeline

    pipeline = load_pipeline(app)
    try:
        with Signals() as signals, opened(pipeline, settings_of(context, log_url, views_url)) as engine:
            chosen = {engine.set_of(name)[0].name: engine.set_of(name) for name in names}
            batch(engine, signals, sets=list(chosen.values()), allow_loss=allow_loss, as_json=as_json)
    except StoppedEarly:
        typer.echo("stopped before the first step", err=True)


@commands.command()
def drop(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Views that are kept together go together.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    views_url: ViewsUrl = None,
) -> None:
    """Drop views with all their rows. Asks first. The log stays, so the next run computes them anew.

    \b
    Example:
      penstock view drop hits --yes
    """
    from penstock.errors import CommandRefused
    from penstock.views.dropping import drop_views
    from penstock.views.find import stored_view

    told = " and ".join(map(repr, names))
    with _views(settings_of(context, None, views_url), names[0]) as store:
        with store.snapshot() as snapshot:
            rows = sum(stored_view(snapshot, name).rows for name in names)
        if not yes:
            if not is_terminal():
                raise CommandRefused(
                    f"view {told} was not dropped", "there is no terminal to ask on", "to drop it without asking: --yes"
                )
            if not typer.confirm(f"drop view {told} with {counted(rows, 'row')}?"):
                raise typer.Exit(1)
        drop_views(store, names)
    print(f"view {told} is dropped, with {counted(rows, 'row')}")


@contextmanager
def _views(settings: Settings, wanted: str | None) -> Iterator[Store]:
    """The database of views, where there must be one."""
    from penstock.errors import UnknownView

    with open_views(settings) as store:
        if store is None:
            raise UnknownView(wanted or settings.views.url, [])
        yield store


@contextmanager
def _log(settings: Settings) -> Iterator[Log]:
    """The log, only to look. One that is not there has no topics."""
    from penstock.log.log import open_log

    with open_log(settings.log, background=False) as log:
        yield log


def _live(store: Store) -> list[Generation]:
    """What people read now, of all pipelines."""
    from penstock.views.catalog import Catalog

    with store.snapshot() as snapshot:
        return [each for each in Catalog(snapshot.connection).generations() if each.state == "live"]


def _summary(generation: Generation, name: str, log: Log) -> dict[str, Any]:
    """What is known of a view beside its rows."""
    from penstock.modes.lag import topics_of, view_lag

    known, counters = generation.views[name], generation.counters[name]
    lags = view_lag(generation, name, log)
    is_known = len(lags) == len(topics_of(generation, name))
    return {
        "view": name,
        "pipeline": generation.pipeline,
        "kept": known.kept,
        "rows": counters.rows,
        "key": None if known.key is None else list(known.key),
        "generation": generation.number,
        "behind": sum(each.records for each in lags) if is_known else None,
        "clock": moment(generation.fence.clock_us or None),
        "fence": {topic: dict(offsets) for topic, offsets in generation.fence.offsets.items()},
        "late": counters.late,
        "corrected": counters.corrected,
    }


def _shown(view: StoredView, rows: pa.Table, closed_us: int | None) -> list[dict[str, Any]]:
    """Rows for people: a window as two columns, and whether it is closed."""
    from penstock.upkeep.places import unpacked

    found = []
    topics = view.known.details.get("topics", ())
    for row, closed in zip(rows.to_pylist(maps_as_pydicts="lossy"), _closed(view, rows, closed_us), strict=True):
        record = {} if view.known.key is not None else {"_record": str(unpacked(row["_key"], topics))}
        row |= {name: row[name] or {"start": None, "end": None} for name in view.windows}
        shown = with_windows({**record, **{name: row[name] for name in view.known.schema.names}})
        found.append(shown if closed is None else {**shown, "closed": "yes" if closed else "no"})
    return found


def _closed(view: StoredView, rows: pa.Table, closed_us: int | None) -> list[bool | None]:
    """Whether the window of each row is closed; None where there is none, or it is not known."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not view.windows or closed_us is None:
        return [None] * rows.num_rows
    ends = pc.struct_field(rows.column(view.windows[0]).combine_chunks(), "end").view(pa.int64())
    return [None if each is None else each <= closed_us for each in ends.to_pylist()]


def _in_words(row: dict[str, Any]) -> dict[str, Any]:
    from penstock.cli.output import in_json

    return {
        name: value if value is None or isinstance(value, str | int | float | dict | list) else in_json(value)
        for name, value in row.items()
    }


def _key(key: list[str] | None) -> str | None:
    return None if key is None else ", ".join(key) or "one row"


def _fence(view: StoredView) -> str:
    return "; ".join(
        f"{topic} " + ", ".join(f"{number}={offset}" for number, offset in sorted(offsets.items()))
        for topic, offsets in view.generation.fence.offsets.items()
    )
