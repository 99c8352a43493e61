"""Tables and rows for the tests of the store, and every type that a view can have."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.views.keys import key_hashes
from penstock.views.store import StoredTable
from penstock.views.values import DATE_DAYS, TIMESTAMP_US, is_window

UTC_US = pa.timestamp("us", "UTC")
WINDOW = pa.struct([pa.field("start", UTC_US), pa.field("end", UTC_US)])
MINUTE = 60_000_000

HITS = StoredTable(
    "hits_1",
    pa.schema(
        [("_key", pa.binary(16)), ("window", WINDOW), ("url", pa.string()), ("hits", pa.int64()), ("time", UTC_US)]
    ),
    primary=("_key",),
    indexes=(("window",), ("url", "time")),
)


def hits(*rows: tuple[int | None, str | None, int]) -> pa.Table:
    """Rows of HITS, each given as the minute of its window, its URL and its hits. Its time is the window's start."""
    starts = [None if minute is None else minute * MINUTE for minute, _, _ in rows]
    windows = [None if start is None else {"start": start, "end": start + MINUTE} for start in starts]
    keys = pa.table({"window": pa.array(windows, WINDOW), "url": pa.array([url for _, url, _ in rows], pa.string())})
    return pa.table(
        [
            key_hashes(keys, ["window", "url"]),
            *keys.columns,
            pa.array([count for _, _, count in rows], pa.int64()),
            pa.array(starts, UTC_US),
        ],
        schema=HITS.schema,
    )


def seen(rows: pa.Table) -> list[tuple[int | None, str | None, int]]:
    """What `hits` was given for these rows, in order."""
    return sorted(
        (
            (None if row["window"] is None else int(row["window"]["start"].timestamp()) // 60, row["url"], row["hits"])
            for row in rows.to_pylist()
        ),
        key=str,
    )


# --- every type, and values of it as Arrow takes them ---

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
_LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    # From digits: arithmetic of Decimal would round to 28 of them.
    pa.decimal128(38, 10): st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -10))
    ),
    pa.decimal128(5, 0): st.integers(-99999, 99999).map(Decimal),
    pa.string(): _TEXT,
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.integers(*DATE_DAYS),
    UTC_US: st.integers(*TIMESTAMP_US),
    pa.timestamp("us", "Europe/Berlin"): st.integers(*TIMESTAMP_US),
    pa.timestamp("us"): st.integers(*TIMESTAMP_US),
    pa.time64("ns"): st.integers(0, 86_400_000_000_000 - 1),
    pa.duration("us"): st.integers(-(2**63), 2**63 - 1),
    pa.null(): st.none(),
}
_KEYS = (pa.string(), pa.int32(), UTC_US)


def types() -> st.SearchStrategy[pa.DataType]:
    """Any type of a view's column."""
    return st.one_of(
        st.sampled_from([*_LEAVES, WINDOW]),
        st.recursive(st.sampled_from(list(_LEAVES)), _nested, max_leaves=4),
    )


def _nested(inside: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.lists(st.tuples(_TEXT, inside), min_size=1, max_size=3, unique_by=lambda each: each[0])
    return st.one_of(
        inside.map(pa.list_),
        st.tuples(st.sampled_from(_KEYS), inside).map(lambda pair: pa.map_(*pair)),
        fields.map(pa.struct),
    )


def values(data_type: pa.DataType, *, nullable: bool = True) -> st.SearchStrategy[Any]:
    """Values of the type, as `pa.array` takes them."""
    found: st.SearchStrategy[Any]
    if is_window(data_type):
        moments = st.integers(*TIMESTAMP_US)
        found = st.fixed_dictionaries({"start": moments, "end": moments})
    elif pa.types.is_struct(data_type):
        found = st.fixed_dictionaries({each.name: values(each.type) for each in data_type})
    elif pa.types.is_map(data_type):
        pairs = st.tuples(values(data_type.key_type, nullable=False), values(data_type.item_type))
        found = st.lists(pairs, max_size=3)
    elif pa.types.is_list(data_type):
        found = st.lists(values(data_type.value_type), max_size=3)
    else:
        found = _LEAVES[data_type]
    return st.none() | found if nullable else found


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """A column of some rows of any type."""
    data_type = draw(types())
    return pa.array(draw(st.lists(values(data_type), min_size=1, max_size=6)), data_type)


def same(left: Any, right: Any) -> bool:
    """Whether two values are the very same: also -0.0 and 0.0 are told apart, and NaN is NaN."""
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("d", left) == struct.pack("d", right) or (math.isnan(left) and math.isnan(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, Sequence) and not isinstance(left, str | bytes):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    return bool(left == right)


def listed(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values that Python can hold, whatever the year: times and intervals as numbers."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind, types = array.type, pa.types
    if types.is_temporal(kind) and not types.is_date32(kind):
        array = array.view(pa.int64())
    elif types.is_struct(kind):
        fields = [listed(array.field(place)) for place in range(kind.num_fields)]
        rows = zip(*fields, strict=True) if fields else ((),) * len(array)
        named = [dict(zip((each.name for each in kind), row, strict=True)) for row in rows]
        return [row if is_there else None for row, is_there in zip(named, array.is_valid().to_pylist(), strict=True)]
    elif types.is_list(kind) and not types.is_null(kind.value_type):
        values, ends = listed(array.values), array.offsets.to_pylist()
        return [
            values[start:stop] if is_there else None
            for start, stop, is_there in zip(ends, ends[1:], array.is_valid().to_pylist(), strict=False)
        ]
    return array.to_pylist()  # type: ignore[no-any-return]
