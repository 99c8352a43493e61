"""Arrow tables and batches, and pandas DataFrames, become columns of a topic. Columns are matched by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import BatchTooLarge
from penstock.events.columns import from_array
from penstock.events.ddl import ArrowArray
from penstock.events.encoded import Encoded, Faults, column_of, raw_of, sort_out
from penstock.events.unfit import unknown_name
from penstock.events.utf8 import rows_not_utf8

if TYPE_CHECKING:
    import pandas as pd


def encode_table(data: pa.Table | pa.RecordBatch, schema: pa.Schema) -> Encoded:
    """Fit an Arrow table or batch to a schema. One with broken offsets or lengths raises ArrowInvalid."""
    data.validate()

    def column(position: int) -> ArrowArray:
        return _whole(data.column(position), data.schema.names[position])

    def raws(indexes: list[int]) -> list[bytes]:
        chosen = data.take(pa.array(indexes, pa.int64()))
        values = [_values(_whole(chosen.column(at), "")) for at in range(chosen.num_columns)]
        names = chosen.schema.names
        return [raw_of(dict(zip(names, row, strict=True))) for row in zip(*values, strict=True)]

    return _encode(data.schema.names, column, data.num_rows, schema, raws)


def encode_pandas(frame: pd.DataFrame, schema: pa.Schema) -> Encoded:
    """Fit a pandas DataFrame to a schema. NaN, NaT, NA and None are NULL; an index with a name counts as a column."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()

    def column(position: int) -> ArrowArray | list[Any]:
        series = frame.iloc[:, position]
        if series.dtype != object:
            try:
                return pa.array(series, from_pandas=True)
            except (pa.ArrowException, ValueError, TypeError):
                series = series.astype(object)
        # Arrow would guess one type for all values of a column, and one set of fields for all its dicts.
        values: list[Any] = series.where(series.notna(), None).tolist()
        return values

    def raws(indexes: list[int]) -> list[bytes]:
        try:
            return [raw_of(frame.iloc[index].to_dict()) for index in indexes]
        except UnicodeDecodeError:
            columns = {name: column(position) for position, name in enumerate(frame.columns)}
            return [raw_of({name: python_value(each[index]) for name, each in columns.items()}) for index in indexes]

    return _encode(list(frame.columns), column, len(frame), schema, raws)


def _encode(
    names: Sequence[Any],
    column: Callable[[int], ArrowArray | list[Any]],
    count: int,
    schema: pa.Schema,
    raws: Callable[[list[int]], list[bytes]],
) -> Encoded:
    """Fit `count` rows to a schema, given the names of their columns and how to get one, as array or as values."""
    faults: Faults = {}
    position_of: Mapping[Any, int] = {name: position for position, name in enumerate(names)}
    for name in names:
        if name not in schema.names:
            return _all_rejected((unknown_name(name, schema.names), str(name)), count, schema, raws)
    if len(position_of) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        return _all_rejected(("expected each column once, found it twice", twice), count, schema, raws)
    arrays: list[ArrowArray] = []
    for field in schema:
        found = column(position_of[field.name]) if field.name in position_of else pa.nulls(count)
        if not isinstance(found, list):
            found = found.dictionary_decode() if isinstance(found, pa.DictionaryArray) else found
            for row in rows_not_utf8(found):
                faults.setdefault(row, ("expected text in UTF-8, found bytes that are not", field.name))
        array = None if isinstance(found, list) else from_array(found, field)
        if array is None:
            array = column_of(found if isinstance(found, list) else _values(found), field, faults)
        arrays.append(array)
    return sort_out(arrays, schema, faults, raws)


def _all_rejected(
    fault: tuple[str, str], count: int, schema: pa.Schema, raws: Callable[[list[int]], list[bytes]]
) -> Encoded:
    arrays: list[ArrowArray] = [pa.array([None] * count, field.type) for field in schema]
    return sort_out(arrays, schema, dict.fromkeys(range(count), fault), raws)


def _whole(column: ArrowArray, name: str) -> ArrowArray:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    try:
        whole: ArrowArray = column.combine_chunks()
    except pa.ArrowInvalid:
        raise BatchTooLarge(name, len(column)) from None
    return whole


def _values(array: ArrowArray) -> list[Any]:
    """The Python values of an array. What Python has no value for, such as a time in the year 20000, comes as text."""
    try:
        values: list[Any] = array.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        values = [python_value(scalar) for scalar in array]
    return values


def python_value(scalar: Any) -> Any:
    """The value of an Arrow scalar; as text, if Python has no value for it or it is not UTF-8."""
    if not isinstance(scalar, pa.Scalar):
        return scalar
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _shown(scalar)
    except (pa.ArrowException, ValueError, OverflowError):
        return f"{scalar.type} {scalar.value}" if hasattr(scalar, "value") else f"{scalar.type}"


def _shown(scalar: Any) -> Any:
    """A value with bytes inside that are not UTF-8: those are written as in b"\\xff"."""
    if isinstance(scalar, pa.DictionaryScalar):
        return _shown(scalar.value)
    if isinstance(scalar, pa.StructScalar):
        return {name: _shown(scalar[place]) for place, name in enumerate(scalar.type.names)}
    if isinstance(scalar, pa.ListScalar | pa.LargeListScalar):
        return [_shown(each) for each in scalar.values] if scalar.is_valid else None
    if isinstance(scalar, pa.StringScalar | pa.LargeStringScalar):
        return scalar.as_buffer().to_pybytes().decode(errors="backslashreplace") if scalar.is_valid else None
    return python_value(scalar)
