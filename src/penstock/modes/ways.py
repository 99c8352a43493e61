"""In steps or record at a time: a view's changelog is written in one of the two ways, and never in the other one too.

Each way keeps its own account of how far it is: steps in the database, Spark in a checkpoint. Neither knows what the
other one has written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.errors import ChangelogTaken, UnknownView
from penstock.views.catalog import Catalog
from penstock.views.realtime import written_at_a_time
from penstock.views.store import Store

if TYPE_CHECKING:
    from penstock.upkeep.compiled import CompiledView


def check_only_stepped(store: Store, pipeline: str, views: Iterable[CompiledView]) -> None:
    """ChangelogTaken if a view's changelog was written record at a time: steps would write it all again."""
    with store.snapshot() as snapshot:
        written = written_at_a_time(snapshot.connection, pipeline)
    for view in views:
        if view.spec.changelog is not None and view.spec.changelog in written:
            raise ChangelogTaken(view.name, view.spec.place, view.spec.changelog, by_steps=False)


def check_not_stepped(store: Store, pipeline: str, views: Iterable[CompiledView]) -> None:
    """ChangelogTaken if steps have written a view's changelog: record at a time it would all be written again."""
    with store.snapshot() as snapshot:
        catalog = Catalog(snapshot.connection)
        for view in views:
            try:
                stored = catalog.find_view(view.name, pipeline)
            except UnknownView:
                continue
            topic = view.spec.changelog
            if topic is not None and stored.fence.offsets and stored.views[view.name].details.get("changelog") == topic:
                raise ChangelogTaken(view.name, view.spec.place, topic, by_steps=True)
