"""Two generations of one view, compared row by row: what would change for readers, or has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.modes.switching import seen_shape
from penstock.upkeep.changes import KEY
from penstock.upkeep.compare import Comparison, compare
from penstock.views.catalog import Generation
from penstock.views.store import In, Snapshot

DIFFERING_MAX = 2_000_000
"""So many rows that may differ are looked at one by one: both sides of them are held in memory."""


@dataclass(frozen=True)
class Compared:
    """How one view differs between two generations."""

    view: str
    old: Generation
    new: Generation
    rows: Comparison | None
    """Over the columns that both have; None where rows cannot be told to be the same, or there are too many."""
    added: tuple[str, ...]
    """Columns that only the new one has."""
    removed: tuple[str, ...]
    retyped: tuple[str, ...]
    """Columns that both have, of another type."""
    why_not: str = ""

    @property
    def agrees(self) -> bool:
        """Whether readers would notice nothing."""
        has_same_columns = not (self.added or self.removed or self.retyped)
        return has_same_columns and self.rows is not None and self.rows.agrees

    @property
    def is_at_one_cut(self) -> bool:
        """Whether both have seen the same records: else some rows differ just because one has seen more."""
        return self.old.fence.offsets == self.new.fence.offsets


def compare_generations(
    snapshot: Snapshot, view: str, old: Generation, new: Generation, *, examples: int = 3
) -> Compared:
    """Compares a view in two generations over the columns that both have. Floating-point numbers as verify does."""
    sides = {name: each.views[view].schema for name, each in (("old", old), ("new", new))}
    types = {name: {field.name: field.type for field in schema} for name, schema in sides.items()}
    both = [name for name in sides["new"].names if types["old"].get(name) == types["new"][name]]
    retyped = tuple(name for name in sides["new"].names if name in types["old"] and name not in both)
    added = tuple(name for name in sides["new"].names if name not in types["old"])
    removed = tuple(name for name in sides["old"].names if name not in types["new"])
    key = new.views[view].key
    if key != old.views[view].key or any(name not in both for name in key or ()):
        why_not = "its key is another one"
        return Compared(view, old, new, None, added, removed, retyped, why_not)
    # The database finds the rows that may differ: most do not. Which of them do is told as verify tells it.
    before, after = (seen_shape(each.views[view]).table(each.layers) for each in (old, new))
    keys = snapshot.differing(before, after, both, DIFFERING_MAX + 1)
    if len(keys) > DIFFERING_MAX:
        why_not = f"more than {DIFFERING_MAX:,} of them differ"
        return Compared(view, old, new, None, added, removed, retyped, why_not)
    names = [KEY, *both]
    was, is_now = (snapshot.read(each, In(KEY, keys), names).select(names) for each in (before, after))
    found = compare(was, is_now, key, is_tolerant=_has_floats(was.schema), examples_max=examples)
    same = new.counters[view].rows - found.rows
    return Compared(
        view, old, new, replace(found, rows=found.rows + same, equal=found.equal + same), added, removed, retyped
    )


def compare_all(snapshot: Snapshot, old: Mapping[str, Generation], new: Generation) -> list[Compared]:
    """Every view of a generation that is there already, compared with what is read of it now."""
    return [compare_generations(snapshot, name, old[name], new) for name in new.views if name in old]


def _has_floats(schema: pa.Schema) -> bool:
    return any("float" in str(field.type) or "double" in str(field.type) for field in schema)
