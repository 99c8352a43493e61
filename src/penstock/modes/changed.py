"""Is what is stored still what is written? Compares the views of a pipeline with their live generations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.plans.fingerprint import COLUMNS, QUERY
from penstock.views.catalog import Generation

if TYPE_CHECKING:
    from penstock.upkeep.compiled import CompiledView

NAMED_MAX = 8
"""So many things that changed are named."""
_OLDER = "what Penstock notes of a view; an older version made it"


def changed_views(sets: Sequence[Sequence[CompiledView]], known: Mapping[str, Generation]) -> dict[str, str]:
    """Views whose live generation was made by something else than what is written now, and what changed.

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
                found[view.name] = "it is new, over views that are there already"
            elif live.fingerprints[view.name] != view.fingerprint:
                stored = live.views[view.name]
                # A reader of rows cares for the columns first.
                is_columns = not stored.schema.equals(view.shape.columns)
                parts = dict.fromkeys([*([COLUMNS] if is_columns else []), *differences(stored.parts, view.parts)])
                found[view.name] = _listed([*parts]) or ("its code, settings or tables" if stored.parts else _OLDER)
            elif set(live.views) != names:
                found[view.name] = "the views it is connected with"
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs between two descriptions of one view, in words. Nothing where the first was never noted."""
    if not before:
        return []
    changed = [name for name in now if name in before and before[name] != now[name]]
    if "Python" in changed:
        # Another version compiles the same source to other code.
        changed = [name for name in changed if not name.startswith(("function ", "class ", "module "))]
    files = {name.rpartition(" in ")[2] for name in changed if " in " in name}
    changed = [name for name in changed if name.removeprefix("module ") not in files]
    if any(name.startswith((COLUMNS, "input ", "setting ", "Spark")) for name in changed):
        # The plan follows from these.
        changed = [name for name in changed if name != QUERY]
    if changed:
        return [_told(name, before[name], now[name]) for name in changed]
    return [f"{name} is new" for name in now if name not in before] + [
        f"{name} is gone" for name in before if name not in now
    ]


def _told(name: str, before: str, now: str) -> str:
    return name if now.startswith("#") else f"{name}: {before} before, {now} now"


def _listed(words: Sequence[str]) -> str:
    rest = f"; and {len(words) - NAMED_MAX} more" if len(words) > NAMED_MAX else ""
    return "; ".join(words[:NAMED_MAX]) + rest
