"""Is what is stored still what is written? Compares the views of a pipeline with their live generations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.views.catalog import Generation

if TYPE_CHECKING:
    from penstock.upkeep.compiled import CompiledView


def changed_views(sets: Sequence[Sequence[CompiledView]], known: Mapping[str, Generation]) -> dict[str, str]:
    """Views whose live generation was made by something else than what is written now, and what differs.

    `known` is the live generation of each view that has one (`Catalog.views`). A set of which nothing is stored yet
    has not changed.
    """
    known = {name: each for name, each in known.items() if not each.is_empty}
    found: dict[str, str] = {}
    for views in sets:
        if not any(view.name in known for view in views):
            continue
        names = {view.name for view in views}
        for view in views:
            live = known.get(view.name)
            if live is None:
                found[view.name] = "new, over views that are there already"
            elif live.fingerprints[view.name] != view.fingerprint:
                is_columns = not live.views[view.name].schema.equals(view.shape.columns)
                found[view.name] = "its columns changed" if is_columns else "its code, settings or tables changed"
            elif set(live.views) != names:
                found[view.name] = "the views it is connected with changed"
    return found
