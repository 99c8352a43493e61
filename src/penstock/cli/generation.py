"""penstock switch, rollback, diff and view generations: which copy of a view people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, ViewsUrl, open_views, settings_of
from penstock.cli.output import counted, in_cell, moment, print_json, print_table

if TYPE_CHECKING:
    from penstock.modes.compared import Compared
    from penstock.upkeep.compare import Example
    from penstock.views.catalog import Generation
    from penstock.views.store import Store

View = Annotated[str, typer.Argument(metavar="VIEW", help="The view; those connected with it come along.")]


def switch(
    context: typer.Context,
    pipeline: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="Its name; not needed if only one has something ready.")
    ] = None,
    as_json: Json = False,
    views_url: ViewsUrl = None,
) -> None:
    """Switch in the views that `penstock run --mode kappa --hold` has replayed: all of them, in one transaction.

    \b
    Example:
      penstock diff hits@old hits@new
      penstock switch
    """
    from penstock.errors import NothingReady
    from penstock.modes.rollback import switch_ready

    settings = settings_of(context, None, views_url)
    with open_views(settings) as store:
        if store is None:
            raise NothingReady(pipeline, [])
        live = switch_ready(store, pipeline, keep_old=settings.views.kept_old)
    _tell_live(live, as_json=as_json)


def rollback(context: typer.Context, view: View, as_json: Json = False, views_url: ViewsUrl = None) -> None:
    """Make the generation that was read before the one people read again. Said twice, nothing has changed.

    \b
    Example:
      penstock rollback hits
    """
    from penstock.modes.rollback import roll_back_together

    settings = settings_of(context, None, views_url)
    with open_views(settings) as store:
        live = roll_back_together(_there(store, view), view, keep_old=settings.views.kept_old)
    _tell_live(live, as_json=as_json)
    if not as_json:
        print("a stream goes on with it only by the code that made it; by other code: penstock run FILE --mode kappa")


def diff(
    context: typer.Context,
    old: Annotated[str, typer.Argument(metavar="VIEW@OLD", help="A view and old, new, live or a generation's number.")],
    new: Annotated[str, typer.Argument(metavar="VIEW@NEW", help="The same view in another generation.")],
    examples: Annotated[int, typer.Option(min=0, help="Of each kind, so many rows that differ are shown.")] = 3,
    as_json: Json = False,
    views_url: ViewsUrl = None,
) -> None:
    """Compare two generations of a view: how many rows are the same, and some that are not. Exit code 1 if any differ.

    \b
    Example:
      penstock diff hits@old hits@new
      penstock diff hits@3 hits@4 --json
    """
    from penstock.modes.compared import compare_generations
    from penstock.modes.rollback import find_generation

    (view, first), (other, second) = _parted(old), _parted(new)
    if view != other:
        raise typer.BadParameter(f"two generations of one view are compared, not {view!r} with {other!r}")
    with open_views(settings_of(context, None, views_url)) as store, _there(store, view).snapshot() as snapshot:
        sides = find_generation(snapshot, view, first), find_generation(snapshot, view, second)
        found = compare_generations(snapshot, view, *sides, examples=examples)
    if as_json:
        print_json(compared_document(found))
    else:
        print("\n".join(compared_lines(found)))
    if not found.agrees:
        raise typer.Exit(1)


def generations(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only those of this view.")] = None,
    as_json: Json = False,
    views_url: ViewsUrl = None,
) -> None:
    """List the generations of views: the one people read, those kept for a rollback, those being built.

    \b
    Example:
      penstock view generations hits
    """
    from penstock.views.catalog import Catalog

    with open_views(settings_of(context, None, views_url)) as store:
        found: list[Generation] = []
        if store is not None:
            with store.snapshot() as snapshot:
                found = Catalog(snapshot.connection).generations()
        if name is not None:
            _there(store, name)
    rows = [(view, each) for each in found for view in each.views if name in (None, view)]
    if as_json:
        print_json([_document(view, each) for view, each in rows])
        return
    print_table(
        ["view", "generation", "state", "lies on", "rows", "as of", "made", "switched in", "replaced"],
        [
            (view, each.number, each.state, each.beneath, each.counters[view].rows, moment(each.fence.clock_us or None),
             moment(each.created_us), moment(each.switched_us), moment(each.retired_us))
            for view, each in rows
        ],
    )  # fmt: skip


def compared_lines(found: Compared) -> list[str]:
    """Two generations of a view, for people."""
    old, new = (f"{each.number} (as of {moment(each.fence.clock_us or None)})" for each in (found.old, found.new))
    lines = [f"{found.view}: generation {old} and {new}"]
    if not found.is_at_one_cut:
        lines.append("  they have not seen the same records, so rows may differ for that alone")
    for words, names in (("new", found.added), ("gone", found.removed), ("of another type", found.retyped)):
        if names:
            lines.append(f"  columns {words}: {', '.join(names)}")
    if found.rows is None:
        return [*lines, f"  rows were not compared: {found.why_not}"]
    rows = found.rows
    lines.append(
        f"  {counted(rows.equal, 'row')} the same, {rows.different:,} different, {rows.missing:,} only in the old one, "
        f"{rows.extra:,} only in the new one"
    )
    return [*lines, *(f"    {_in_words(each)}" for each in rows.examples)]


def compared_document(found: Compared) -> dict[str, Any]:
    """The same, for programs."""
    rows = found.rows
    return {
        "view": found.view,
        "old": _document(found.view, found.old),
        "new": _document(found.view, found.new),
        "agrees": found.agrees,
        "same_records": found.is_at_one_cut,
        "columns": {"added": found.added, "removed": found.removed, "retyped": found.retyped},
        "equal": None if rows is None else rows.equal,
        "different": None if rows is None else rows.different,
        "only_old": None if rows is None else rows.missing,
        "only_new": None if rows is None else rows.extra,
        "not_compared": found.why_not or None,
        "examples": [
            {"kind": each.kind, "old": _plain(each.expected), "new": _plain(each.found), "columns": list(each.columns)}
            for each in (() if rows is None else rows.examples)
        ],
    }


def _in_words(example: Example) -> str:
    if example.expected is None:
        return f"only in the new one: {_plain(example.found)}"
    if example.found is None:
        return f"only in the old one: {_plain(example.expected)}"
    key = _plain(example.key) or "its only row"
    old, new = example.expected, example.found
    return f"{key}: " + ", ".join(f"{name} {in_cell(old[name])} -> {in_cell(new[name])}" for name in example.columns)


def _plain(row: Any) -> dict[str, Any] | None:
    return None if row is None else {name: in_cell(value) for name, value in row.items()}


def _parted(text: str) -> tuple[str, str]:
    view, at, which = text.partition("@")
    if not at or not view or not which:
        raise typer.BadParameter(f"expected VIEW@GENERATION, such as hits@old, hits@new or hits@3; found {text!r}")
    return view, which


def _there(store: Store | None, view: str) -> Store:
    """The database, if it has the view at all."""
    from penstock.errors import UnknownView
    from penstock.views.catalog import Catalog

    if store is None:
        raise UnknownView(view, [])
    with store.snapshot() as snapshot:
        Catalog(snapshot.connection).find_view(view)
    return store


def _tell_live(live: list[Generation], *, as_json: bool) -> None:
    if as_json:
        print_json([_document(view, each) for each in live for view in each.views])
        return
    for each in live:
        as_of = moment(each.fence.clock_us or None)
        print(f"{', '.join(each.views)}: generation {each.number} is read now, as of {as_of}")


def _document(view: str, generation: Generation) -> dict[str, Any]:
    return {
        "view": view,
        "pipeline": generation.pipeline,
        "generation": generation.number,
        "state": generation.state,
        "lies_on": generation.beneath,
        "rows": generation.counters[view].rows,
        "fence": _fence(generation),
        "clock": moment(generation.fence.clock_us or None),
        "made": moment(generation.created_us),
        "switched_in": moment(generation.switched_us),
        "replaced": moment(generation.retired_us),
    }


def _fence(generation: Generation) -> dict[str, dict[int, int]]:
    return {topic: dict(offsets) for topic, offsets in generation.fence.offsets.items()}
