"""Dropping views: rows, kept rows and names, all in one transaction. The log keeps everything they were made of."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import UnknownView, ViewsConnected
from penstock.views.catalog import Catalog, Generation
from penstock.views.owner import own
from penstock.views.store import Store


def drop_views(store: Store, names: Sequence[str]) -> list[str]:
    """Drops views with all their generations; returns the tables that are gone.

    UnknownView. ViewsConnected if another view moves together with one of them: they are dropped together or not at
    all. PipelineOwned while a run works on them.
    """
    with store.snapshot() as snapshot:
        pipelines = {_pipeline_of(Catalog(snapshot.connection), name) for name in names}
    dropped: list[str] = []
    for pipeline in sorted(pipelines):
        with own(store.engine, pipeline) as owner, store.transaction(owner) as tx:
            catalog = Catalog(tx.connection)
            generations = [each for each in catalog.generations(pipeline) if set(each.views) & set(names)]
            _check_complete(generations, names)
            # What lies on top goes first.
            in_order = sorted(generations, key=lambda each: each.state == "batch")
            tables = [table for each in in_order for table in catalog.drop(each)]
            tx.exchange(drop=tables)
            dropped += tables
    return dropped


def _pipeline_of(catalog: Catalog, name: str) -> str:
    if name not in catalog.view_names():
        raise UnknownView(name, catalog.view_names())
    return catalog.find_view(name).pipeline


def _check_complete(generations: Sequence[Generation], names: Sequence[str]) -> None:
    for each in generations:
        others = [view for view in each.views if view not in names]
        if each.state == "live" and others:
            raise ViewsConnected(next(view for view in each.views if view in names), others, list(each.views))
