"""Dicts become columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from penstock.events.encoded import Encoded, Faults, column_of, raw_of, sort_out
from penstock.events.unfit import described, shortened, unknown_name


def encode_rows(
    rows: Sequence[Any], schema: pa.Schema, raws: Callable[[list[int]], list[bytes]] | None = None
) -> Encoded:
    """Fit dicts to a schema. `raws` gives the bytes of rows that are refused; without it they are written as JSON."""
    faults: Faults = {}
    names = schema.names
    checked = rows if _are_plain(rows, names) else [_checked(row, names, at, faults) for at, row in enumerate(rows)]
    arrays = [column_of(_values(checked, field.name), field, faults) for field in schema]
    return sort_out(arrays, schema, faults, raws or (lambda indexes: [raw_of(rows[index]) for index in indexes]))


def _are_plain(rows: Sequence[Any], names: list[str]) -> bool:
    """Whether all rows are dicts that hold only known names."""
    return set(map(type, rows)) <= {dict} and all(map(set(names).issuperset, rows))


def _checked(row: Any, names: list[str], index: int, faults: Faults) -> dict[str, Any]:
    """The row, or an empty one with its fault noted."""
    if not isinstance(row, Mapping):
        faults[index] = (f"expected an event with the columns {', '.join(names)}, found {described(row)}", None)
        return {}
    for name in row:
        if name not in names:
            faults[index] = (unknown_name(name, names), shortened(name if isinstance(name, str) else repr(name)))
            return {}
    # A copy: looking into a defaultdict would add to it.
    return dict(row)


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]
