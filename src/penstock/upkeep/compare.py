"""Two results of one view, compared row by row on the view's key.

Everything is compared exactly, with -0.0 equal to 0.0 and NaN equal to NaN, but for floating-point numbers of views
that add such numbers up: there the last digits depend on the order of adding. Such a number may be off by `RELATIVE`
of the larger of the two. What it should be measured against, the sum of the absolute values that were added, is not
known from the result; a sum whose parts cancelled out may be far smaller. So `CANCELLED` of the largest magnitude in
its column is allowed as well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.upkeep.changes import KEY
from penstock.views.keys import key_hashes
from penstock.views.values import one_array

RELATIVE = 1e-9
CANCELLED = 1e-12
EXAMPLES_MAX = 3

Kind = Literal["different", "missing", "extra"]


@dataclass(frozen=True)
class Example:
    """One row that is not the same in both results."""

    kind: Kind
    """`missing`: only in the expected result. `extra`: only in the other."""
    key: Mapping[str, Any]
    """Empty for a view without a key, and for a view of one row."""
    expected: Mapping[str, Any] | None
    found: Mapping[str, Any] | None
    columns: tuple[str, ...] = ()
    """Of a row that is different: where."""
    place: bytes = b""
    """The stored key: in a view without one, it names the record that the row comes from."""


@dataclass(frozen=True)
class Comparison:
    """How many rows are the same, and some that are not."""

    rows: int
    """Of the result that was compared."""
    equal: int
    different: int
    missing: int
    extra: int
    examples: tuple[Example, ...] = ()

    @property
    def agrees(self) -> bool:
        return not self.differing

    @property
    def differing(self) -> int:
        return self.different + self.missing + self.extra


def compare(
    expected: pa.Table,
    found: pa.Table,
    key: Sequence[str] | None,
    *,
    is_tolerant: bool = False,
    examples_max: int = EXAMPLES_MAX,
) -> Comparison:
    """Compares two tables of the same columns. A column `_key`, as stored, tells rows apart; else the hash of `key`.

    A view without a key (None) is a multiset: where both hold the same rows the same number of times, they agree.
    `is_tolerant` is for views that add floating-point numbers up. At most `examples_max` of each kind are shown.
    """
    assert expected.schema.equals(found.schema), f"{expected.schema}\n{found.schema}"
    columns = [name for name in expected.schema.names if name != KEY]
    hashes = [key_hashes(side, columns, remembers=False) for side in (expected, found)]
    if key is None and _same_multiset(*hashes):
        return Comparison(found.num_rows, found.num_rows, 0, 0, 0)
    keys = [_keys(side, key, columns) for side in (expected, found)]
    there = pc.index_in(keys[1], value_set=keys[0])
    is_extra = pc.is_null(there)
    is_missing = pc.invert(pc.is_in(keys[0], value_set=keys[1]))
    unlike = pc.fill_null(pc.not_equal(hashes[0].take(there), hashes[1]), False)
    pairs = _Pairs(expected.take(there.filter(unlike)), found.filter(unlike), columns)
    different = pairs.differing(_scales(expected, found, columns) if is_tolerant else None)
    missing, extra = expected.filter(is_missing), found.filter(is_extra)
    names = tuple(key or ())
    examples = [
        *(_example("different", names, *pairs.rows(place), where) for place, where in different[:examples_max]),
        *(_example("missing", names, row, None) for row in missing.slice(0, examples_max).to_pylist()),
        *(_example("extra", names, None, row) for row in extra.slice(0, examples_max).to_pylist()),
    ]
    equal = found.num_rows - extra.num_rows - len(different)
    return Comparison(found.num_rows, equal, len(different), missing.num_rows, extra.num_rows, tuple(examples))


def is_same(one: Any, other: Any, scale: float | None) -> bool:
    """Whether two values are the same; floating-point numbers within the tolerance, unless `scale` is None.

    >>> is_same(0.1 + 0.2, 0.3, None), is_same(0.1 + 0.2, 0.3, 0.3), is_same(3, 4, 10.0)
    (False, True, False)
    """
    if isinstance(one, float) and isinstance(other, float):
        if one == other or (math.isnan(one) and math.isnan(other)):
            return True
        if scale is None or not math.isfinite(one) or not math.isfinite(other):
            return False
        return abs(one - other) <= RELATIVE * max(abs(one), abs(other)) + CANCELLED * scale
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name], scale) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(is_same(*pair, scale) for pair in zip(one, other, strict=True))
    return bool(one == other)


class _Pairs:
    """Rows with the same key in both results that are not the same bytes."""

    def __init__(self, expected: pa.Table, found: pa.Table, columns: Sequence[str]) -> None:
        self._sides = expected, found
        self._columns = columns

    def differing(self, scales: Mapping[str, float] | None) -> list[tuple[int, tuple[str, ...]]]:
        """The places of those that really differ, and in which columns."""
        count = self._sides[0].num_rows
        where: list[list[str]] = [[] for _ in range(count)]
        for name in self._columns:
            scale = None if scales is None else scales[name]
            sides = [pa.table({name: side.column(name)}) for side in self._sides]
            unlike = pc.not_equal(*(key_hashes(side, [name], remembers=False) for side in sides))
            places = np.flatnonzero(unlike.to_numpy(zero_copy_only=False))
            ones, others = (side.column(name).take(pa.array(places)).to_pylist() for side in sides)
            for place, one, other in zip(places.tolist(), ones, others, strict=True):
                if not is_same(one, other, scale):
                    where[place].append(name)
        return [(place, tuple(names)) for place, names in enumerate(where) if names]

    def rows(self, place: int) -> tuple[dict[str, Any], dict[str, Any]]:
        one, other = (side.slice(place, 1).to_pylist()[0] for side in self._sides)
        return one, other


def _keys(table: pa.Table, key: Sequence[str] | None, columns: Sequence[str]) -> pa.Array:
    if KEY in table.schema.names:
        return one_array(table.column(KEY))
    return key_hashes(table, key) if key is not None else _numbered(key_hashes(table, columns, remembers=False))


def _numbered(hashes: pa.Array) -> pa.Array:
    """Equal rows told apart by a number: two of them are two rows."""
    seen: Counter[bytes] = Counter()
    keys = []
    for each in hashes.to_pylist():
        keys.append(each + seen[each].to_bytes(8))
        seen[each] += 1
    return pa.array(keys, pa.binary())


def _same_multiset(one: pa.Array, other: pa.Array) -> bool:
    counts = [{each["values"]: each["counts"] for each in pc.value_counts(side).to_pylist()} for side in (one, other)]
    return counts[0] == counts[1]


def _scales(expected: pa.Table, found: pa.Table, columns: Sequence[str]) -> dict[str, float]:
    """The largest magnitude in each column of either result; 0 where it holds no floating-point numbers."""
    return {name: max(_magnitude(one_array(side.column(name))) for side in (expected, found)) for name in columns}


def _magnitude(array: pa.Array) -> float:
    kind = array.type
    if pa.types.is_struct(kind):
        return max((_magnitude(pc.struct_field(array, [n])) for n in range(kind.num_fields)), default=0.0)
    if pa.types.is_map(kind):
        return max(_magnitude(array.keys), _magnitude(array.items))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _magnitude(array.flatten())
    if not pa.types.is_floating(kind):
        return 0.0
    numbers = np.abs(array.drop_null().to_numpy(zero_copy_only=False).astype(np.float64))
    return float(np.max(numbers[np.isfinite(numbers)], initial=0.0))


def _example(
    kind: Kind,
    key: Sequence[str],
    expected: dict[str, Any] | None,
    found: dict[str, Any] | None,
    where: tuple[str, ...] = (),
) -> Example:
    row = expected if expected is not None else found
    assert row is not None
    place = row.get(KEY, b"")
    for side in (expected, found):
        if side is not None:
            side.pop(KEY, None)
    return Example(kind, {name: row[name] for name in key}, expected, found, where, place)
