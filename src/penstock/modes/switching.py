"""Switching: another generation becomes the one people read, in one transaction, and what differs is told.

It needs neither Spark nor the pipeline's code: everything is known from the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from penstock.clock import now_us
from penstock.pipeline.place import Place
from penstock.upkeep.changelog import changelog_rows
from penstock.upkeep.changes import KEY, Changes, difference
from penstock.upkeep.shape import Shape
from penstock.views.catalog import Catalog, Generation, KnownView
from penstock.views.outbox import enqueue
from penstock.views.store import SENT_AT_ONCE, In, Published, Transaction

KEEP_OLD = timedelta(days=1)
"""So long a generation that was replaced is kept for a rollback."""


def switch_in(
    tx: Transaction,
    generations: Sequence[Generation],
    *,
    keep_old: timedelta = KEEP_OLD,
    is_same_code: bool = False,
) -> list[Generation]:
    """Makes these the generations people read, all at once; returns them as they are now.

    Topics of changes are told what turns the rows that were read before into those that are read from now on. What
    was replaced longer than `keep_old` ago goes; of the same code, what is replaced now goes too.
    """
    catalog = Catalog(tx.connection)
    publish: list[Published] = []
    withdraw: list[str] = []
    drop: list[str] = []
    live = []
    # Before anything is switched: a set that was parted is replaced by several of these.
    read = {pipeline: catalog.views(pipeline) for pipeline in {each.pipeline for each in generations}}
    for generation in generations:
        known = read[generation.pipeline]
        replaced = {each.set: each for name in generation.views if (each := known.get(name))}
        for name, view in generation.views.items():
            if view.details.get("changelog"):
                _tell_difference(tx, generation, view, known.get(name))
        others = [each for each in replaced.values() if each.set != generation.set]
        switched = catalog.switch(generation, replaces=others)
        live.append(switched.live)
        if is_same_code:
            drop += _forget(catalog, generation.pipeline, switched.old)
        withdraw += switched.withdraw
        publish += [
            Published(view.name, seen_shape(view).table(switched.live.layers), view.schema.names)
            for view in switched.publish
        ]
    for pipeline in {each.pipeline for each in generations}:
        drop += _expired(catalog, pipeline, keep_old)
    tx.exchange(publish, [name for name in withdraw if name not in {each.name for each in publish}], drop)
    return live


def is_expired(generation: Generation, keep_old: timedelta) -> bool:
    """Whether it was replaced longer ago than that."""
    moment = now_us() - keep_old // timedelta(microseconds=1)
    return generation.state == "old" and (generation.retired_us or 0) <= moment


def drop_expired(tx: Transaction, pipeline: str, keep_old: timedelta) -> None:
    """Drops the generations that were replaced longer ago than that, and batch parts that nothing lies on any more."""
    tx.exchange(drop=_expired(Catalog(tx.connection), pipeline, keep_old))


def drop_generations(tx: Transaction, pipeline: str, gone: Sequence[Generation]) -> None:
    """Drops generations with their tables, then the batch parts that nothing lies on any more."""
    tx.exchange(drop=_forget(Catalog(tx.connection), pipeline, gone))


def _expired(catalog: Catalog, pipeline: str, keep_old: timedelta) -> list[str]:
    return _forget(catalog, pipeline, [each for each in catalog.generations(pipeline) if is_expired(each, keep_old)])


def _forget(catalog: Catalog, pipeline: str, gone: Sequence[Generation]) -> list[str]:
    """Takes generations out of the catalog; returns the tables that have to go, in that order."""
    tables = [name for each in gone for name in catalog.drop(each)]
    left = catalog.generations(pipeline)
    used = {(each.set, each.beneath) for each in left}
    unused = [each for each in left if each.state == "batch" and (each.set, each.number) not in used]
    return [*tables, *(name for each in unused for name in catalog.drop(each))]


def seen_shape(view: KnownView) -> Shape:
    """What readers see of a stored view: its columns and key, without what is hidden."""
    return Shape(view.name, Place("", 0, ""), view.key or (), view.schema)


def _tell_difference(tx: Transaction, new: Generation, view: KnownView, before: Generation | None) -> None:
    """Tells the topic of changes what turns the older rows into the new ones: all rows, where it knew of none."""
    shape = seen_shape(view)
    for changes in _difference(tx, shape, new, view, before):
        records = changelog_rows(shape, changes, new.fence)
        enqueue(tx.connection, new.pipeline, str(view.details["changelog"]), records)


def _difference(
    tx: Transaction, shape: Shape, new: Generation, view: KnownView, before: Generation | None
) -> Iterator[Changes]:
    """Not too many rows at once: PostgreSQL ends a transaction that it hears nothing of."""
    table = shape.table(new.layers)
    if before is None or not _is_told_of(view, before.views[view.name]):
        for rows in tx.batches(table):
            yield Changes(table.schema.empty_table(), rows)
        return
    # The database finds what differs: most rows do not, and need not be read.
    older = shape.table(before.layers)
    keys = tx.differing(older, table, view.schema.names)
    for start in range(0, len(keys), SENT_AT_ONCE):
        unlike = In(KEY, keys[start : start + SENT_AT_ONCE])
        yield difference(tx.read(older, unlike), tx.read(table, unlike))


def _is_told_of(view: KnownView, before: KnownView) -> bool:
    """Whether the topic of changes knows the older rows. For other columns it is a new one, if of the same name."""
    is_same_topic = before.details.get("changelog") == view.details.get("changelog")
    return is_same_topic and before.schema.equals(view.schema)
