"""Any schema that a topic can have, and values for its columns, for property tests."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.events.schema import TIMESTAMP, TIMESTAMP_NTZ

INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
SIMPLE = st.sampled_from(
    [
        pa.bool_(),
        *INTEGER_BITS,
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        TIMESTAMP,
        TIMESTAMP_NTZ,
    ]
)


@st.composite
def decimals(draw: st.DrawFn) -> Any:
    precision = draw(st.integers(1, 38))
    return pa.decimal128(precision, draw(st.integers(0, precision)))


def _nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = (SIMPLE | decimals()).filter(lambda kind: not pa.types.is_floating(kind))
    return (
        children.map(lambda kind: pa.list_(pa.field("element", kind)))
        | st.tuples(keys, children).map(lambda pair: pa.map_(*pair))
        | _fields(children, max_size=3).map(pa.struct)
    )


def _fields(kinds: st.SearchStrategy[Any], max_size: int, names: Any = NAMES) -> st.SearchStrategy[list[Any]]:
    comment = st.none() | st.text(st.characters(codec="utf-8"), max_size=5)
    field = st.builds(_field, names, kinds, st.booleans(), comment)
    return st.lists(field, min_size=1, max_size=max_size, unique_by=lambda field: field.name.lower())


def _field(name: str, kind: Any, is_nullable: bool, comment: str | None) -> Any:
    return pa.field(name, kind, is_nullable, None if comment is None else {b"comment": comment.encode()})


TYPES: st.SearchStrategy[Any] = st.recursive(SIMPLE | decimals(), _nested, max_leaves=4)
SCHEMAS = _fields(TYPES, 4, NAMES.filter(lambda name: not name.startswith("_"))).map(pa.schema)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values that fit a column of this type, as Python gives them."""
    types = pa.types
    if kind in INTEGER_BITS:
        half = 1 << (INTEGER_BITS[kind] - 1)
        return st.integers(-half, half - 1)
    if types.is_floating(kind):
        return st.floats(width=32 if kind == pa.float32() else 64)
    if types.is_decimal(kind):
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(lambda unscaled: Decimal(f"{unscaled}E-{kind.scale}"))
    if types.is_map(kind):
        return st.dictionaries(hashable_values_of(kind.key_type), nullable(kind.item_type), max_size=3)
    if types.is_list(kind):
        return st.lists(nullable(kind.value_type), max_size=3)
    if types.is_struct(kind):
        return st.fixed_dictionaries(
            {field.name: values_of(field.type) for field in kind if not field.nullable},
            optional={field.name: nullable(field.type) for field in kind if field.nullable},
        )
    simple: dict[Any, st.SearchStrategy[Any]] = {
        pa.bool_(): st.booleans(),
        pa.string(): st.text(st.characters(codec="utf-8"), max_size=5),
        pa.binary(): st.binary(max_size=5),
        pa.date32(): st.dates(),
        TIMESTAMP: st.datetimes(timezones=st.just(UTC)) | st.datetimes(),
        TIMESTAMP_NTZ: st.datetimes(),
    }
    return simple[kind]


def hashable_values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Keys for a map: a naive and an aware time may be the same key, so only one of them."""
    return st.datetimes(timezones=st.just(UTC)) if kind == TIMESTAMP else values_of(kind)


def nullable(kind: Any) -> st.SearchStrategy[Any]:
    return st.none() | values_of(kind)


ODD_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-300, 300),
    st.floats(),
    st.integers(-300, 300).map(float),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.binary(max_size=5).map(lambda value: base64.b64encode(value).decode()),
    st.decimals(),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.dates(),
    st.dates().map(str),
    st.datetimes(),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.datetimes(timezones=st.just(timezone(timedelta(hours=-2)))),
    st.datetimes(timezones=st.just(timezone(timedelta(hours=5, minutes=30)))).map(lambda moment: moment.isoformat()),
    st.just(datetime(2026, 1, 31, tzinfo=UTC).replace(tzinfo=None)),
    st.lists(st.integers() | st.text(max_size=2), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.sampled_from(["0000-01-01", "9999-12-31T23:59:59.9999999", "1.", "+1", ".5", "1e2", "\ud800", object(), {1}]),
)
