"""Whole columns at once, when every value is plainly what the column wants.

Both functions give an array of the column's type, or None: "some value needs a closer look". Then the caller asks
`values.py` about each value. They never guess: what they accept, `values.py` accepts too, as the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.ddl import TIMESTAMP, ArrowArray, ArrowField, ArrowType
from penstock.events.times import DATE_LEAST, DATE_MOST, TIME_LEAST_US, TIME_MOST_US
from penstock.events.values import DECIMAL_TEXT

_NOTHING = type(None)
_PLAIN_TYPES: dict[ArrowType, frozenset[type]] = {
    pa.bool_(): frozenset({bool, _NOTHING}),
    pa.int8(): frozenset({int, _NOTHING}),
    pa.int16(): frozenset({int, _NOTHING}),
    pa.int32(): frozenset({int, _NOTHING}),
    pa.int64(): frozenset({int, _NOTHING}),
    pa.float32(): frozenset({float, int, _NOTHING}),
    pa.float64(): frozenset({float, int, _NOTHING}),
    pa.string(): frozenset({str, _NOTHING}),
    pa.binary(): frozenset({bytes, _NOTHING}),
    pa.date32(): frozenset({date, _NOTHING}),
    TIMESTAMP: frozenset({datetime, _NOTHING}),
}
_INT32 = pa.int32()
_INT64 = pa.int64()
_TEXT = frozenset({str, _NOTHING})
_TIME = frozenset({datetime, _NOTHING})
_DECIMAL = frozenset({Decimal, int, _NOTHING})


def from_values(values: list[Any], field: ArrowField) -> ArrowArray | None:
    """A column from Python values."""
    try:
        if _is_plain(values, field.type, field.nullable):
            return _checked(pa.array(values, field.type), field)
        if _is_read_from_text(field.type) and _TEXT.issuperset(map(type, values)):
            return from_array(pa.array(values, pa.string()), field)
    except (pa.ArrowException, ValueError, OverflowError):
        pass
    return None


def from_array(array: ArrowArray, field: ArrowField) -> ArrowArray | None:
    """A column from an Arrow array of another or the same type."""
    try:
        cast = _cast(array, field.type)
        return None if cast is None else _checked(cast, field)
    except (pa.ArrowException, ValueError, OverflowError):
        return None


def _is_plain(values: Sequence[Any], data_type: ArrowType, is_nullable: bool) -> bool:
    """Whether pyarrow makes an exact array of these values, or an error, but never something else."""
    kinds = set(map(type, values))
    if not is_nullable and _NOTHING in kinds:
        return False
    plain = _PLAIN_TYPES.get(data_type)
    if plain is not None:
        return kinds <= plain
    types = pa.types
    if types.is_map(data_type):
        if not kinds <= {dict, _NOTHING}:
            return False
        maps = [value for value in values if value]
        return _is_plain(list(chain.from_iterable(maps)), data_type.key_type, False) and _is_plain(
            [item for value in maps for item in value.values()], data_type.item_type, True
        )
    if types.is_list(data_type):
        if not kinds <= {list, tuple, _NOTHING}:
            return False
        return _is_plain(list(chain.from_iterable(filter(None, values))), data_type.value_type, True)
    if types.is_struct(data_type):
        if not kinds <= {dict, _NOTHING}:
            return False
        structs = [value for value in values if value is not None]
        names = {field.name for field in data_type}
        return all(map(names.issuperset, structs)) and all(
            _is_plain([struct.get(field.name) for struct in structs], field.type, field.nullable) for field in data_type
        )
    if types.is_timestamp(data_type):
        return kinds <= _TIME and all(value is None or value.tzinfo is None for value in values)
    assert types.is_decimal(data_type), f"a topic cannot keep {data_type}"
    return kinds <= _DECIMAL


def _is_read_from_text(data_type: ArrowType) -> bool:
    return bool(pa.types.is_temporal(data_type) or pa.types.is_decimal(data_type))


def _cast(array: ArrowArray, data_type: ArrowType) -> ArrowArray | None:
    types = pa.types
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    found = array.type
    if types.is_null(found):
        return pa.nulls(len(array), data_type)
    if types.is_string(found) or types.is_large_string(found) or types.is_string_view(found):
        return _cast_text(array.cast(pa.string()), data_type)
    if found.equals(data_type):
        return array
    if types.is_nested(data_type):
        return _cast_nested(array, data_type)
    if types.is_timestamp(data_type):
        if not types.is_timestamp(found) or (data_type.tz is None and found.tz is not None):
            return None
        return array.cast(pa.timestamp("us", found.tz)).cast(data_type)
    is_alike = (
        (types.is_integer(data_type) and (types.is_integer(found) or types.is_floating(found)))
        or (types.is_floating(data_type) and (types.is_integer(found) or types.is_floating(found)))
        or (types.is_decimal(data_type) and (types.is_integer(found) or types.is_decimal(found)))
        or (types.is_binary(data_type) and (types.is_large_binary(found) or types.is_fixed_size_binary(found)))
    )
    return array.cast(data_type) if is_alike else None


def _cast_text(array: ArrowArray, data_type: ArrowType) -> ArrowArray | None:
    types = pa.types
    if types.is_string(data_type) or types.is_date(data_type):
        return array.cast(data_type)
    if types.is_decimal(data_type):
        plain = pc.match_substring_regex(array, f"^(?:{DECIMAL_TEXT.pattern})$")
        return array.cast(data_type) if pc.all(plain, min_count=0).as_py() else None
    if types.is_timestamp(data_type):
        if data_type.tz is None:
            return array.cast(data_type)
        try:
            return array.cast(data_type)
        except pa.ArrowException:
            return array.cast(pa.timestamp("us")).cast(data_type)
    return None


def _cast_nested(array: ArrowArray, data_type: ArrowType) -> ArrowArray | None:
    """Only nested arrays that differ in the names of their inner fields, or in NOT NULL, are taken as a whole."""
    return array.cast(data_type) if _is_alike(array.type, data_type) else None


def _is_alike(found: ArrowType, wanted: ArrowType) -> bool:
    types = pa.types
    if types.is_struct(wanted):
        return (
            types.is_struct(found)
            and [field.name for field in found] == [field.name for field in wanted]
            and all(_is_alike(a.type, b.type) for a, b in zip(found, wanted, strict=True))
        )
    if types.is_map(wanted):
        return (
            types.is_map(found)
            and _is_alike(found.key_type, wanted.key_type)
            and _is_alike(found.item_type, wanted.item_type)
        )
    if types.is_list(wanted):
        is_list = types.is_list(found) or types.is_large_list(found)
        return is_list and _is_alike(found.value_type, wanted.value_type)
    return bool(found.equals(wanted))


def _checked(array: ArrowArray, field: ArrowField) -> ArrowArray | None:
    """The array, unless it holds what a closer look would refuse: a hidden NULL, a time out of range, an overflow."""
    if isinstance(array, pa.ChunkedArray):
        return None
    if not field.nullable and array.null_count:
        return None
    return array if _is_sound(array, field.type) else None


def _is_sound(array: ArrowArray, data_type: ArrowType) -> bool:
    types = pa.types
    if types.is_timestamp(data_type):
        return _is_within(array.view(_INT64), TIME_LEAST_US, TIME_MOST_US)
    if types.is_date32(data_type):
        return _is_within(array.view(_INT32), DATE_LEAST, DATE_MOST)
    if types.is_float32(data_type):
        return not np.isinf(array.drop_null().to_numpy()).any()
    if types.is_list(data_type):
        return _is_sound(array.flatten(), data_type.value_type)
    if types.is_map(data_type):
        # `keys` and `items` of a slice reach beyond it, and beyond may be anything.
        return (
            array.offset == 0
            and _is_sound(array.keys, data_type.key_type)
            and _is_sound(array.items, data_type.item_type)
        )
    if types.is_struct(data_type):
        present = array.drop_null() if array.null_count else array
        children = zip(present.flatten(), data_type, strict=True)
        return all(
            (field.nullable or not child.null_count) and _is_sound(child, field.type) for child, field in children
        )
    return True


def _is_within(numbers: ArrowArray, least: int, most: int) -> bool:
    if numbers.null_count:
        numbers = numbers.drop_null()
    if not len(numbers):
        return True
    plain = numbers.to_numpy()
    return bool(plain.min() >= least and plain.max() <= most)
