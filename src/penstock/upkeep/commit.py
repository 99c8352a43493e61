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
from penstock.upkeep.changes import KEY, Changes, readable_rows
from penstock.upkeep.fold import FoldGroups
from penstock.upkeep.kept_rows import KeptChange
from penstock.views.catalog import Counters, Generation
from penstock.views.fence import Fence
from penstock.views.outbox import enqueue
from penstock.views.values import one_array

if TYPE_CHECKING:
    from penstock.upkeep.compiled import CompiledView
    from penstock.upkeep.step import Step
    from penstock.views.store import Store, Transaction, Unfit, Upserts


ORDERED_ROWS = 10_000
"""From so many kept rows on it pays to put them in order before they are written."""


@dataclass(frozen=True)
class Committed:
    """What a step did to one set of views."""

    generation: Generation
    """As it is once the fence is set: with that and the new counters."""
    late: Mapping[str, int]
    corrected: Mapping[str, int]
    changed: Mapping[str, int]


@dataclass(frozen=True)
class ReadyKept:
    """A change of kept rows, ready to be written."""

    change: KeptChange
    added: Upserts


@dataclass(frozen=True)
class ReadyStep:
    """A step of one set with all that takes time done: a database ends a transaction that it hears nothing of."""

    done: Committed
    records: Sequence[tuple[str, pa.Table]]
    """What topics of changes are told."""
    kept: Sequence[ReadyKept]


def ready_step(
    store: Store,
    generation: Generation,
    views: Sequence[CompiledView],
    step: Step,
    fence: Fence,
    *,
    closed: Mapping[str, int],
) -> ReadyStep:
    """What `write_step` writes. `closed` says, per view, up to when windows were closed before.

    Only a live generation tells of its changes: what is being built is nobody's news.
    """
    counters: dict[str, Counters] = {}
    changed, lates, corrections = {}, {}, {}
    records: list[tuple[str, pa.Table]] = []
    for view in views:
        changes = step.changes[view.name]
        if generation.state == "live" and view.spec.changelog:
            records.append((view.spec.changelog, changelog_rows(view.shape, changes, fence)))
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
    done = Committed(generation.moved(fence, counters), lates, corrections, changed)
    return ReadyStep(done, records, [ready_kept(store, each) for each in step.kept])


def write_step(tx: Transaction, pipeline: str, ready: ReadyStep) -> None:
    """Writes a step in the caller's transaction, but for its rows (`write_rows`) and the fence, which go together."""
    for topic, records in ready.records:
        enqueue(tx.connection, pipeline, topic, records)
    for kept in ready.kept:
        write_kept(tx, kept)


Written = Sequence[tuple[Generation, "CompiledView", Changes]]
"""What changes in views of these generations."""


def ready_rows(store: Store, written: Written) -> Upserts:
    """The rows of views, to be written by `write_rows`.

    RowsUnfit, or ValueUnfit, if the database cannot hold some of them.
    """
    tables = [view.shape.table(generation.layers) for generation, view, _ in written]
    ready = store.prepared([(table, changes.after) for table, (_, _, changes) in zip(tables, written, strict=True)])
    for refused, (_, view, changes) in zip(ready.unfit, written, strict=True):
        if refused:
            _check_not_added_up(view, changes, refused)
            keys = one_array(changes.after.column(KEY)).take(pa.array([each.row for each in refused]))
            raise RowsUnfit(view.name, keys, _dead(view, changes, refused))
    for _, _, changes in written:
        _ = changes.gone  # Found once, and not in the transaction.
    return ready


def write_rows(tx: Transaction, written: Written, ready: Upserts) -> None:
    """Writes the rows of views as `ready_rows` gives them, and deletes those that are gone."""
    for generation, view, changes in written:
        if len(changes.gone):
            tx.delete(view.shape.table(generation.layers), KEY, changes.gone)
    tx.write(ready)


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


def ready_kept(store: Store, change: KeptChange) -> ReadyKept:
    """A change of the rows kept for later redos, to be written by `write_kept`.

    KeptRowUnfit if the database cannot hold one: left out, it would be missing from every redo to come.
    """
    added = store.prepared([(change.table, _in_order(change.added, change.table.primary))])
    [refused] = added.unfit
    if refused:
        raise KeptRowUnfit(change.table.name, refused[0].column, refused[0].reason)
    return ReadyKept(change, added)


def write_kept(tx: Transaction, ready: ReadyKept) -> None:
    """Adds to the rows kept for later redos, and takes away what an upstream view no longer has."""
    change = ready.change
    if change.gone is not None and len(change.gone.values):
        tx.delete_where(change.table, change.gone)
    tx.write(ready.added)


def _in_order(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Rows in the order in which they are stored, where they are many: the table is then written page by page."""
    if rows.num_rows < ORDERED_ROWS:
        return rows
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns]))


def dead_topic(pipeline: str, view: str) -> str:
    """Where rows of a view go that its database cannot hold."""
    return f"{pipeline}.{view}.dead"


def corrected_rows(view: CompiledView, changes: Changes, closed_us: int | None) -> int:
    """How many rows change although their window was closed before the step."""
    window = view.shape.window
    if closed_us is None or window is None:
        return 0
    ended = _ended(changes.after, window, closed_us)
    if changes.before.num_rows and (window not in view.shape.key or len(changes.gone)):
        before = one_array(changes.before.column(KEY)).filter(pa.array(_ended(changes.before, window, closed_us)))
        after = one_array(changes.after.column(KEY)).filter(pa.array(ended))
        return len(pc.unique(pa.concat_arrays([after, before])))
    return int(ended.sum())  # Each row once; the window of one that stays is what it was.


def _ended(rows: pa.Table, window: str, moment_us: int) -> npt.NDArray[np.bool_]:
    """Whether the window of each row ended by that moment; never so of one without an end."""
    ends = one_array(rows.column(window)).flatten()[1].view(pa.int64())
    ends = ends.fill_null(np.iinfo(np.int64).max) if ends.null_count else ends
    ended: npt.NDArray[np.bool_] = ends.to_numpy() <= moment_us
    return ended


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
