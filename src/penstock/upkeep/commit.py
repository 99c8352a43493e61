"""Writing a step: rows, kept rows, changes and fence, all in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import KeptRowUnfit, ValueUnfit
from penstock.events.schema import parse_ddl
from penstock.produce.dead_letters import SCHEMA as DEAD_SCHEMA
from penstock.upkeep.changelog import changelog_rows
from penstock.upkeep.changes import KEY, Changes, first_halves, one_array, readable_rows
from penstock.upkeep.fold import FoldGroups
from penstock.upkeep.kept_rows import KeptChange
from penstock.views.catalog import Catalog, Counters, Generation
from penstock.views.fence import Fence
from penstock.views.outbox import enqueue
from penstock.views.values import is_window

if TYPE_CHECKING:
    from penstock.upkeep.compiled import CompiledView
    from penstock.upkeep.step import Step
    from penstock.views.store import Transaction, Unfit


ORDERED_ROWS = 10_000
"""From so many kept rows on it pays to put them in order before they are written."""


@dataclass(frozen=True)
class Committed:
    """What a step did to one set of views."""

    generation: Generation
    """As it is now: with the new fence and counters."""
    late: Mapping[str, int]
    corrected: Mapping[str, int]
    changed: Mapping[str, int]


def write_step(
    tx: Transaction,
    generation: Generation,
    views: Sequence[CompiledView],
    step: Step,
    fence: Fence,
    *,
    closed: Mapping[str, int],
    has_rows: bool = False,
) -> Committed:
    """Writes a step within the caller's transaction. `closed` says, per view, up to when windows were closed before.

    With `has_rows` the rows are there already: see `write_piece`.

    Only a live generation tells of its changes: what is being built is nobody's news.
    """
    counters: dict[str, Counters] = {}
    changed, lates, corrections = {}, {}, {}
    for view in views:
        changes = step.changes[view.name]
        if not has_rows:
            _write_view(tx, generation, view, changes)
        if generation.state == "live" and view.spec.changelog:
            records = changelog_rows(view.shape, changes, fence)
            enqueue(tx.connection, generation.pipeline, view.spec.changelog, records)
        late = sum(step.slices[topic].late for topic in view.topics)
        corrected = corrected_rows(view, changes, closed.get(view.name))
        old = generation.counters.get(view.name, Counters())
        counters[view.name] = replace(
            old,
            rows=old.rows + changes.after.num_rows - changes.before.num_rows,
            late=old.late + late,
            corrected=old.corrected + corrected,
        )
        lates[view.name], corrections[view.name], changed[view.name] = late, corrected, len(changes)
    for kept in step.kept:
        write_kept(tx, kept)
    moved = Catalog(tx.connection).set_fence(generation, fence, counters)
    return Committed(moved, lates, corrections, changed)


def write_piece(tx: Transaction, generation: Generation, view: CompiledView, rows: pa.Table) -> None:
    """Writes some of the first rows of a generation that nobody reads yet."""
    _write_view(tx, generation, view, Changes(rows.schema.empty_table(), rows))


def _write_view(tx: Transaction, generation: Generation, view: CompiledView, changes: Changes) -> None:
    """Writes the rows of one view; RowsUnfit, or ValueUnfit, if the database cannot hold some of them."""
    table = view.shape.table(generation.layers)
    if len(changes.gone):
        tx.delete(table, KEY, changes.gone)
    changes = replace(changes, after=in_order(changes.after, [KEY]))
    refused = tx.upsert(table, changes.after) if changes.after.num_rows else []
    if refused:
        _check_not_added_up(view, changes, refused)
        keys = one_array(changes.after.column(KEY)).take(pa.array([each.row for each in refused]))
        raise RowsUnfit(view.name, keys, _dead(view, changes, refused))


def _check_not_added_up(view: CompiledView, changes: Changes, refused: Sequence[Unfit]) -> None:
    """ValueUnfit if a row cannot be left out: what a fold has added up so far would be lost with it.

    A row whose key cannot be stored never could be, so nothing was added up for it.
    """
    if not isinstance(view.keeper, FoldGroups):
        return
    for each in refused:
        if each.column.partition(".")[0] not in view.shape.key:
            [row] = readable_rows(view.shape.visible(changes.after).slice(each.row, 1))
            raise ValueUnfit(view.name, view.spec.place, each.column, each.reason, str(row))


class RowsUnfit(Exception):
    """The database cannot hold some rows of a view: the step is made again without them."""

    def __init__(self, view: str, keys: pa.Array, letters: pa.Table) -> None:
        super().__init__(view)
        self.view = view
        self.keys = keys
        self.letters = letters


def write_kept(tx: Transaction, change: KeptChange) -> None:
    """Adds to the rows kept for later redos, and takes away what an upstream view no longer has.

    KeptRowUnfit if the database cannot hold one: left out, it would be missing from every redo to come.
    """
    if change.gone is not None and len(change.gone.values):
        tx.delete_where(change.table, change.gone)
    refused = tx.upsert(change.table, in_order(change.added, change.table.primary)) if change.added.num_rows else []
    if refused:
        raise KeptRowUnfit(change.table.name, refused[0].column, refused[0].reason)


def in_order(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Rows in the order in which they are stored: the table is then written page by page, not all over."""
    if list(columns) == [KEY]:
        return rows.take(pa.array(_nearly_sorted(one_array(rows.column(KEY)))))
    if rows.num_rows < ORDERED_ROWS:
        return rows
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns]))


def _nearly_sorted(keys: pa.Array) -> npt.NDArray[np.int64]:
    """The order of hashes by their first half, which is nearly always all of it, and found three times as fast."""
    order: npt.NDArray[np.int64] = np.argsort(first_halves(keys), kind="stable")
    return order


def dead_topic(pipeline: str, view: str) -> str:
    """Where rows of a view go that its database cannot hold."""
    return f"{pipeline}.{view}.dead"


def corrected_rows(view: CompiledView, changes: Changes, closed_us: int | None) -> int:
    """How many rows change although their window was closed before the step."""
    window = next((each.name for each in view.shape.columns if is_window(each.type)), None)
    if closed_us is None or window is None:
        return 0
    ended = _ended(changes.after, window, closed_us)
    if changes.before.num_rows and (window not in view.shape.key or len(changes.gone)):
        before = one_array(changes.before.column(KEY)).filter(_ended(changes.before, window, closed_us))
        return len(pc.unique(pa.concat_arrays([one_array(changes.after.column(KEY)).filter(ended), before])))
    return int(pc.sum(ended).as_py() or 0)  # Each row once; the window of one that stays is what it was.


def _ended(rows: pa.Table, window: str, moment_us: int) -> pa.Array:
    """Whether the window of each row ended by that moment."""
    ends = one_array(rows.column(window)).field("end").view(pa.int64())
    ended = pc.less_equal(ends, pa.scalar(moment_us, pa.int64()))
    return pc.fill_null(ended, False) if ended.null_count else ended


def _dead(view: CompiledView, changes: Changes, refused: Sequence[Unfit]) -> pa.Table:
    rows = readable_rows(view.shape.visible(changes.after).take(pa.array([each.row for each in refused])))
    columns: list[list[object]] = [
        [view.name] * len(refused),
        [each.reason for each in refused],
        [each.column for each in refused],
        [json.dumps(row, default=repr, ensure_ascii=False).encode() for row in rows],
        [f"view {view.name}"] * len(refused),
    ]
    schema = parse_ddl(DEAD_SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
