"""Arrays, maps and structs as JSON that reads back to the very same Arrow values.

    struct   {"a": 1, "b": "x"}                 (as a list of values, if two fields have the same name)
    array    [1, 2, null]
    map      [["key", "value"], ...]            in order, with keys of any type
    float    1.5, "NaN", "Infinity", "-Infinity", "-0.0"
    bytes    "00ff" in hexadecimal
    decimal, time, date and timestamp as text, intervals as microseconds

Columns are taken apart and put together whole, not value by value: times and numbers never become Python objects of
their own types, so none is too large for them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.views.values import Plain, from_plain, kind_of, plain_type, to_plain


def to_json(array: pa.Array) -> Plain:
    """Each value as JSON text; NULL where it is NULL or cannot be kept."""
    misfits: dict[int, str] = {}
    texts: list[str | None] = []
    dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_refuse).encode
    for row, value in enumerate(_values(array)):
        try:
            texts.append(None if value is None else dump(value))
        except _Refused as refused:
            misfits[row] = str(refused)
            texts.append(None)
    return Plain(pa.array(texts, pa.string()), misfits)


def from_json(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The values again."""
    load = json.loads
    return _array([None if text is None else load(text) for text in texts.to_pylist()], data_type)


class _Misfit:
    """Stands for a value that cannot be kept, until the row it is in is known."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _Refused(Exception):
    pass


def _refuse(value: object) -> None:
    assert isinstance(value, _Misfit), value
    raise _Refused(f"a value inside it does not fit: {value.reason}")


def _values(array: pa.Array) -> list[Any]:
    """What `json` can write, for each place of the array."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        entries = list(
            map(list, zip(_values(_inside(array, array.keys)), _values(_inside(array, array.items)), strict=True))
        )
        return _lists(array, entries)
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.list_(kind.value_field))
        kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, _values(_inside(array, array.values)))
    plain = to_plain(array)
    values: list[Any] = plain.array.to_pylist()
    if kind_of(kind) == "real":
        values = [each if each is None else _number(each) for each in values]
    elif kind_of(kind) == "binary":
        values = [each if each is None else each.hex() for each in values]
    for row, reason in plain.misfits.items():
        values[row] = _Misfit(reason)
    return values


def _number(value: float) -> float | str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return "-0.0" if value == 0 and str(value)[0] == "-" else value


def _structs(array: pa.Array) -> list[Any]:
    names = [each.name for each in array.type]
    fields = [_values(pc.struct_field(array, [place])) for place in range(len(names))]
    rows: list[Any]
    if not names:
        rows = [{} for _ in range(len(array))]
    elif len(set(names)) == len(names):
        rows = [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
    else:
        rows = [list(row) for row in zip(*fields, strict=True)]
    return _with_nulls(array, rows)


def _inside(array: pa.Array, values: pa.Array) -> pa.Array:
    """The part of the values that the array's lists reach over: a slice keeps the values of its whole."""
    offsets = array.offsets
    return values.slice(offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()) if len(array) else values[:0]


def _lists(array: pa.Array, values: list[Any]) -> list[Any]:
    offsets = array.offsets.to_pylist() if len(array) else [0]
    first = offsets[0]
    return _with_nulls(array, [values[low - first : high - first] for low, high in pairwise(offsets)])


def _with_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    return [value if is_valid else None for value, is_valid in zip(values, array.is_valid().to_pylist(), strict=True)]


def _array(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """The reverse of `_values`."""
    is_null = [each is None for each in values]
    if pa.types.is_struct(data_type):
        names = [each.name for each in data_type]
        is_named = len(set(names)) == len(names)
        fields = [
            _array([None if each is None else each[name if is_named else place] for each in values], part.type)
            for place, (name, part) in enumerate(zip(names, data_type, strict=True))
        ]
        if not names:
            return pa.array([None if each else {} for each in is_null], data_type)
        return pa.StructArray.from_arrays(fields, fields=list(data_type), mask=pa.array(is_null, pa.bool_()))
    if pa.types.is_map(data_type):
        entries = [entry for each in values if each is not None for entry in each]
        keys = _array([entry[0] for entry in entries], data_type.key_type)
        items = _array([entry[1] for entry in entries], data_type.item_type)
        return pa.MapArray.from_arrays(_offsets(values, pa.int32()), keys, items, type=data_type)
    if pa.types.is_fixed_size_list(data_type):
        return _array(values, pa.list_(data_type.value_field)).cast(data_type)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        inside = _array([item for each in values if each is not None for item in each], data_type.value_type)
        if pa.types.is_large_list(data_type):
            return pa.LargeListArray.from_arrays(_offsets(values, pa.int64()), inside, type=data_type)
        return pa.ListArray.from_arrays(_offsets(values, pa.int32()), inside, type=data_type)
    if kind_of(data_type) == "real":
        values = [None if each is None else float(each) for each in values]
    elif kind_of(data_type) == "binary":
        values = [None if each is None else bytes.fromhex(each) for each in values]
    return from_plain(pa.array(values, plain_type(data_type)), data_type)


def _offsets(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Where each list begins; NULL there makes the list NULL."""
    offsets: list[int | None] = []
    end = 0
    for each in values:
        offsets.append(None if each is None else end)
        end += len(each or ())
    return pa.array([*offsets, end], data_type)
