"""Merging the rows of a step into the rows of a view: in Arrow, here and nowhere else.

A step reads the rows it touches (`align` puts them beside the new ones), merges column by column, and writes them.
Databases never merge: they would take NULL for the greater, decimals for floats, the order of text from a collation.
Nothing is changed in place, so a step has every row before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregates.rules import STATE_RULES
from penstock.errors.running import MergeOverflow
from penstock.upkeep.rules import PLAIN_RULES, Merge, Rule
from penstock.views.values import one_array

RULES: Mapping[str, Rule] = MappingProxyType(PLAIN_RULES | STATE_RULES)

ROWS = "_rows"
"""The hidden column that counts the rows of a group, where rows can leave it again."""
COUNT = "_count_"
"""The hidden column `_count_<name>` counts the values of sum `<name>` that are not NULL."""


def align(existing: pa.Table, keys: pa.Array, key: str = "_key") -> pa.Table:
    """The rows of `existing` in the order of `keys`, with NULLs where there is none; the key itself is never NULL."""
    keys = one_array(keys)
    if one_array(existing[key]).equals(keys):  # As they were asked for: nearly always, while they are at hand.
        return existing
    found = existing.take(pc.index_in(keys, value_set=one_array(existing[key])))
    return found.set_column(found.schema.get_field_index(key), existing.schema.field(key), keys)


def merge_rows(old: pa.Table | None, new: pa.Table, rules: Mapping[str, Rule]) -> pa.Table:
    """The rows as they are after a step: `new` merged into `old`, which is aligned with it; None where nothing is kept.

    Columns without a rule are those of `new`: the key, and what depends on it. States that come as Spark returned them
    are made compact first. The result has the columns of `new`, in its order.
    """
    assert old is None or old.num_rows == new.num_rows, (old.num_rows, new.num_rows)
    merged = new
    for place, field in enumerate(new.schema):
        rule = rules.get(field.name)
        if rule is None:
            continue
        came = one_array(new[field.name])
        if rule.has_state and pa.types.is_struct(field.type):
            came = rule.compact(came)
        kept = pa.nulls(len(came), came.type) if old is None else one_array(old[field.name]).cast(came.type)
        merged = merged.set_column(place, field.with_type(came.type), _apply(rule, rule.merge, kept, came, field.name))
    return merged


class Unmerged(NamedTuple):
    """What is left after rows have left their groups."""

    rows: pa.Table
    """All rows, aligned as before. A sum without values is NULL again."""
    is_empty: pa.Array
    """True where no row of the group is left: unless something is merged into it now, the view's row goes."""


def unmerge_rows(
    old: pa.Table, gone: pa.Table, rules: Mapping[str, Rule], counts: Mapping[str, str] | None = None
) -> Unmerged:
    """The rows as they were before those in `gone` came; both aligned, both with `_rows`.

    `counts` names for each sum the hidden column that counts its values; without it that is `_count_<name>`.
    Only rules that `undoes` says yes to may be given: count, and sums of whole numbers, decimals and durations.
    """
    counts = counts or {name: COUNT + name for name, rule in rules.items() if rule.name == "sum"}
    count, left = RULES["count"], old
    for name, rule in {**rules, **dict.fromkeys([ROWS, *counts.values()], count)}.items():
        place = old.schema.get_field_index(name)
        kept = one_array(old[name])
        assert rule.subtract is not None, f"rule {rule.name!r} of column {name!r} has no way back"
        assert rule.undoes(kept.type), f"{rule.name} of {kept.type} is not exact: column {name!r}"
        remaining = _apply(rule, rule.subtract, kept, one_array(gone[name]).cast(kept.type), name)
        left = left.set_column(place, old.schema.field(place), remaining)
    for name, counted in counts.items():
        place = old.schema.get_field_index(name)
        has_values = pc.greater(pc.fill_null(left[counted], 0), 0)
        emptied = pc.if_else(has_values, left[name], pa.scalar(None, left[name].type))
        left = left.set_column(place, old.schema.field(place), emptied)
    rows = pc.fill_null(one_array(left[ROWS]), 0)
    least = pc.min(rows).as_py()
    assert least is None or least >= 0, f"a group has {least} rows: more left it than ever came"
    return Unmerged(left, pc.equal(rows, 0))


def _apply(rule: Rule, function: Merge, kept: pa.Array, new: pa.Array, column: str) -> pa.Array:
    try:
        return function(kept, new)
    except MergeOverflow as overflow:
        raise overflow.in_column(column, rule.name) from overflow.__cause__
