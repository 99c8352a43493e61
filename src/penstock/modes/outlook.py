"""What a run would do, without running: each view as it is written, beside what is stored of it. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import TopicError
from penstock.log.log import Log
from penstock.modes.changed import changed_views
from penstock.modes.lag import view_lag
from penstock.upkeep.compiled import CompiledView
from penstock.upkeep.kept_windows import COUNT, KeptWindows
from penstock.views.catalog import Catalog, Generation
from penstock.views.sizes import Size, size_of

if TYPE_CHECKING:
    from penstock.views.store import Store

Would = Literal["begin", "go on", "refuse"]


@dataclass(frozen=True)
class Outlook:
    """One view: how it would be kept, and what is there of it."""

    view: CompiledView
    live: Generation | None
    """What people read now; None before the first run."""
    changed: str | None
    """What differs from what the live generation was made with; None if nothing does."""
    would: Would
    """What a stream would do: begin at the start of the log, go on at the fence, or refuse since the set changed."""
    behind: int
    """Records that it would have to read."""
    kept: Size | None
    """What is kept beside the view for redoing; None if there is nothing of the kind."""

    @property
    def rows(self) -> int | None:
        """How many rows the live generation has."""
        return None if self.live is None else self.live.counters[self.view.name].rows


def outlook(pipeline: str, sets: Sequence[Sequence[CompiledView]], store: Store | None, log: Log) -> list[Outlook]:
    """The views of a pipeline, in order. Without a store nothing is there yet.

    ViewTaken if another pipeline of the store has a view of the same name.
    """
    if store is None:
        return [
            Outlook(view, None, None, "begin", records_of(view, views, log), None) for views in sets for view in views
        ]
    with store.snapshot() as snapshot:
        catalog = Catalog(snapshot.connection)
        catalog.check_names(pipeline, [view.name for views in sets for view in views])
        known = {name: each for name, each in catalog.views(pipeline).items() if not each.is_empty}
        changed = changed_views(sets, known)
        found = []
        for views in sets:
            is_refused = any(view.name in changed for view in views)
            for view in views:
                live = known.get(view.name)
                tables = {} if live is None else _kept_tables(live, view.name)
                sizes = [size_of(snapshot.connection, name, counted_by) for name, counted_by in tables.items()]
                if live is None or is_refused:
                    behind = records_of(view, views, log)
                else:
                    behind = sum(each.records for each in view_lag(live, view.name, log))
                would: Would = "refuse" if is_refused else "begin" if live is None else "go on"
                kept = sum(sizes, Size()) if sizes else None
                found.append(Outlook(view, live, changed.get(view.name), would, behind, kept))
    return found


def records_of(view: CompiledView, views: Sequence[CompiledView], log: Log) -> int:
    """How many records there are in the topics of a view; those of the views it reads count too."""
    by_name = {each.name: each for each in views}
    topics = _topics(view, by_name)
    return sum(_records(name, log) for name in topics)


def _topics(view: CompiledView, views: Mapping[str, CompiledView]) -> set[str]:
    return {*view.topics, *(topic for name in view.upstream for topic in _topics(views[name], views))}


def _records(name: str, log: Log) -> int:
    try:
        topic = log.topic(name)
    except TopicError:
        return 0  # The first run makes it.
    return sum(topic.end().values()) - sum(topic.start().values())


def _kept_tables(live: Generation, view: str) -> dict[str, str | None]:
    """What is kept for redoing, and the column that counts the rows of a piece where it is kept in pieces."""
    kept = {purpose: name for purpose, name in live.views[view].tables.items() if purpose.startswith("kept")}
    return {name: COUNT if purpose.startswith(KeptWindows.purpose) else None for purpose, name in kept.items()}
