"""How values of a view lie in a database: every Arrow type as numbers, text or bytes, and back to the very same value.

    logical column            physical columns          kept as
    boolean, numbers          one                       itself
    decimal                   one                       text of its digits (PostgreSQL: numeric)
    timestamp, date           one                       ISO text in UTC (PostgreSQL: timestamptz, timestamp, date)
    time                      one                       text, HH:MM:SS.fffffffff
    day-time interval         one                       microseconds
    array, map, struct        one                       JSON
    window                    NAME_start, NAME_end      as timestamps

Arrays go to *plain* ones (bool, integers, floats, string, binary), column by column; databases write and read those.
A value that no database here can hold is named in `Plain.misfits`; its place in the plain array is NULL.
A window that is NULL is NULL in both columns; a struct of two NULLs has the first moment of all (`NO_BOUNDS_US`) as its
end, which tells them apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.utf8 import rows_not_utf8

Kind = Literal["boolean", "integer", "real", "text", "binary", "decimal", "timestamp", "date", "json"]
"""What a physical column is to a database."""

TIMESTAMP_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The years 1 to 9999: what Spark promises, what ISO text sorts by, and what Python can show."""
DATE_DAYS = (-719_162, 2_932_896)
NO_BOUNDS_US = TIMESTAMP_US[0]
"""The stored end of a window that is a struct of two NULLs. Its start is NULL; no other value has both."""

_NAME_BYTES_MAX = 63
_TAKEN_BY_DATABASES = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "rowid", "oid", "_rowid_"}


@dataclass(frozen=True)
class Physical:
    """One column of a table in a database."""

    name: str
    logical: str
    """The view's column that it holds."""
    part: Literal["start", "end"] | None
    """Which half of a window it is, if it is one."""
    type: pa.DataType
    kind: Kind = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", kind_of(self.type))


@dataclass
class Plain:
    """A column on its way into a database."""

    array: pa.Array
    """bool, int, float, string or binary; NULL where the value does not fit. Text may be coded, where that was said."""
    misfits: dict[int, str] = field(default_factory=dict)
    """Why the value at this place cannot be kept."""


def physical_columns(schema: pa.Schema) -> tuple[Physical, ...]:
    """The columns a table has in any database: names that all of them take, no two the same in any case."""
    taken: set[str] = set()
    whole = [each for each in schema if not is_window(each.type)]
    names = {each.name: _free_name(each.name, taken) for each in whole}
    found: list[Physical] = []
    for each in schema:
        if each.name in names:
            found.append(Physical(names[each.name], each.name, None, each.type))
        else:
            for part in ("start", "end"):
                name = _free_name(f"{each.name}_{part}", taken)
                found.append(Physical(name, each.name, part, each.type.field(part).type))
    return tuple(found)


def is_window(kind: pa.DataType) -> bool:
    """Whether it is what Spark's `window` gives: a struct of start and end."""
    return (
        pa.types.is_struct(kind)
        and [each.name for each in kind] == ["start", "end"]
        and all(_is_microseconds(each.type) for each in kind)
    )


def kind_of(data_type: pa.DataType) -> Kind:
    """What a value of this type is to a database."""
    types = pa.types
    if types.is_boolean(data_type):
        return "boolean"
    if (types.is_integer(data_type) and not types.is_uint64(data_type)) or types.is_duration(data_type):
        return "integer"
    if types.is_float32(data_type) or types.is_float64(data_type):
        return "real"
    if _is_bytes(data_type):
        return "binary"
    if types.is_decimal(data_type):
        return "decimal"
    if _is_microseconds(data_type):
        return "timestamp"
    if types.is_date32(data_type):
        return "date"
    if types.is_nested(data_type) and not types.is_dictionary(data_type):
        return "json"
    assert _is_text(data_type) or types.is_time(data_type) or types.is_null(data_type), f"no view can hold {data_type}"
    return "text"


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def split(rows: pa.Table, columns: Sequence[Physical]) -> list[pa.Array]:
    """The rows as arrays of the physical columns."""
    found = []
    for each in columns:
        array = one_array(rows.column(each.logical))
        found.append(array if each.part is None else halves(array)[each.part == "end"])
    return found


def halves(windows: pa.Array) -> list[pa.Array]:
    """The start and the end of each window, as they are stored."""
    start, end = windows.flatten()
    if end.null_count > windows.null_count:
        has_no_bounds = pc.and_(windows.is_valid(), pc.and_(start.is_null(), end.is_null()))
        end = pc.if_else(has_no_bounds, _no_bounds(end.type), end)
    return [start, end]


def ambiguous_ends(windows: pa.Array) -> dict[int, str]:
    """By place, why the window cannot be kept: it looks like one without bounds."""
    start, end = windows.flatten()
    if not start.null_count > windows.null_count:
        return {}
    looks_so = pc.and_(start.is_null(), pc.equal(end, _no_bounds(end.type))).fill_null(False)
    why = "a struct of NULL and the first moment of the year 1 cannot be told from one of two NULLs"
    return dict.fromkeys(pc.indices_nonzero(looks_so).to_pylist(), why)


def _no_bounds(kind: pa.DataType) -> pa.Scalar:
    return pa.array([NO_BOUNDS_US]).view(kind)[0]


def join(schema: pa.Schema, columns: Sequence[Physical], arrays: Sequence[pa.Array]) -> pa.Table:
    """The rows again, with the schema they had."""
    halves: dict[str, list[pa.Array]] = {}
    for each, array in zip(columns, arrays, strict=True):
        halves.setdefault(each.logical, []).append(array)
    logical = []
    for each in schema:
        parts = halves[each.name]
        if len(parts) == 2:
            parts = [_window(parts[0], parts[1], each.type)]
        logical.append(parts[0])
    return pa.Table.from_arrays(logical, schema=schema)


def _window(start: pa.Array, end: pa.Array, kind: pa.DataType) -> pa.Array:
    is_nothing = pc.and_(start.is_null(), end.is_null())
    if start.null_count > pc.sum(is_nothing, min_count=0).as_py():
        has_no_bounds = pc.and_(start.is_null(), pc.equal(end, _no_bounds(end.type))).fill_null(False)
        end = pc.if_else(has_no_bounds, pa.scalar(None, end.type), end)
    return pa.StructArray.from_arrays([start, end], fields=list(kind), mask=is_nothing)


def to_plain(array: pa.Array, *, may_code: bool = False) -> Plain:
    """A physical column as a database takes it. With `may_code` the same few texts may come as a dictionary array."""
    kind, data_type = kind_of(array.type), array.type
    if kind == "json":
        from penstock.views.json_values import to_json

        return to_json(array)
    if kind == "timestamp":
        return _times(array.view(pa.int64()), pa.timestamp("us"), TIMESTAMP_US, may_code=may_code)
    if kind == "date":
        return _times(array.view(pa.int32()), pa.date32(), DATE_DAYS, may_code=may_code)
    if pa.types.is_duration(data_type):
        return Plain(array.view(pa.int64()))
    if kind == "binary":
        return Plain(array.cast(pa.binary()))
    if kind == "decimal":
        return Plain(_digits(array))
    return _text(array.cast(pa.string())) if kind == "text" else Plain(array)


def decoded(array: pa.Array) -> pa.Array:
    """The same values, not coded."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type of the array that `to_plain` gives."""
    kind = kind_of(data_type)
    if kind == "binary":
        return pa.binary()
    if kind in ("boolean", "real", "integer"):
        return pa.int64() if pa.types.is_duration(data_type) else data_type
    return pa.string()


def from_plain(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The column again, from what a database gave back."""
    kind = kind_of(data_type)
    if kind == "json":
        from penstock.views.json_values import from_json

        return from_json(array, data_type)
    if pa.types.is_null(data_type):
        return pa.nulls(len(array))
    if kind == "timestamp":
        return array.cast(pa.timestamp("us")).view(pa.int64()).view(data_type)
    if pa.types.is_duration(data_type):
        return array.view(data_type)
    if pa.types.is_time(data_type):
        moments = pc.binary_join_element_wise("1970-01-01", array, " ").cast(pa.timestamp("ns"))
        return moments.view(pa.int64()).view(pa.time64("ns")).cast(data_type)
    return array.cast(data_type)


def _text(array: pa.Array) -> Plain:
    misfits = dict.fromkeys(rows_not_utf8(array), "its text is not UTF-8")
    if misfits:
        fits = pa.array([row not in misfits for row in range(len(array))])
        array = pc.if_else(fits, array, pa.scalar(None, array.type))
    return Plain(array, misfits)


def _digits(array: pa.Array) -> pa.Array:
    """Decimals as people write them: Arrow alone would make 1E-7 of 0.0000001."""
    texts = array.cast(pa.string())
    has_power = pc.match_substring(texts, "E")
    if not pc.any(has_power).as_py():
        return texts
    plain = pa.array([f"{value:f}" for value in array.filter(has_power.fill_null(False)).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, has_power.fill_null(False), plain)


def _times(numbers: pa.Array, data_type: pa.DataType, bounds: tuple[int, int], *, may_code: bool) -> Plain:
    """Times as ISO text, but for those outside of the years 1 to 9999; each that is there often is written once."""
    coded = numbers.dictionary_encode()
    if 4 * len(coded.dictionary) < len(numbers):
        plain = _bounded(coded.dictionary, data_type, bounds)
        if not plain.misfits:
            texts = pa.DictionaryArray.from_arrays(coded.indices, plain.array)
            return Plain(texts if may_code else decoded(texts))
    return _bounded(numbers, data_type, bounds)


def _bounded(numbers: pa.Array, data_type: pa.DataType, bounds: tuple[int, int]) -> Plain:
    there = numbers.drop_null().to_numpy()
    if not len(there) or (there.min() >= bounds[0] and there.max() <= bounds[1]):
        return Plain(numbers.view(data_type).cast(pa.string()))
    is_outside = pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1])).fill_null(False)
    inside = pc.if_else(is_outside, pa.scalar(None, numbers.type), numbers)
    misfits = {int(row): "its year is not between 1 and 9999" for row in np.flatnonzero(is_outside)}
    return Plain(inside.view(data_type).cast(pa.string()), misfits)


def _free_name(name: str, taken: set[str]) -> str:
    name = name.replace("\0", "") or "_"
    while name.lower() in taken or name.lower() in _TAKEN_BY_DATABASES:
        name += "_"
    if len(name.encode()) > _NAME_BYTES_MAX:
        digest = hashlib.blake2b(name.encode(), digest_size=5).hexdigest()
        name = f"{name.encode()[: _NAME_BYTES_MAX - 11].decode(errors='ignore')}_{digest}"
    taken.add(name.lower())
    return name


def _is_microseconds(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(data_type) and data_type.unit == "us")


def _is_bytes(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(data_type) or types.is_large_binary(data_type) or types.is_fixed_size_binary(data_type))


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))
