"""Values in JSON: one object with the columns of the topic. Everybody can read and write it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.ddl import ArrowField, ArrowType
from penstock.events.encoded import Encoded
from penstock.events.json_lines import encode_json_values

_PLAIN_SCALE_MOST = 6
"""Decimals with more places may get an exponent from Arrow."""
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def unfit_for_json(fields: Iterable[ArrowField]) -> Iterator[str]:
    """The columns that JSON cannot give back as they were: maps whose keys are no text, however deep inside."""
    for field in fields:
        if _has_other_keys(field.type):
            yield field.name


def _has_other_keys(data_type: ArrowType) -> bool:
    types = pa.types
    if types.is_map(data_type):
        return not types.is_string(data_type.key_type) or _has_other_keys(data_type.item_type)
    if types.is_list(data_type):
        return _has_other_keys(data_type.value_type)
    return bool(types.is_struct(data_type)) and any(_has_other_keys(field.type) for field in data_type)


class JsonValues:
    """Values of a topic in JSON."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def write(self, batch: pa.RecordBatch) -> list[bytes]:
        """One object per row."""
        names, columns = batch.schema.names, map(plain, batch.columns)
        write = orjson.dumps if all(map(_is_finite, batch.columns)) else to_json
        return [write(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]

    def read(self, values: Sequence[bytes]) -> Encoded:
        """The events of these values."""
        return encode_json_values(values, self._schema)


def to_json(value: Any) -> bytes:
    """A value as JSON, with the numbers that JSON has no words for as Python writes them: NaN, Infinity."""
    return _encoder.encode(value).encode()


def _is_finite(column: pa.Array) -> bool:
    """Whether it surely holds no float that orjson, which is ten times as fast, would write as null."""
    if pa.types.is_floating(column.type):
        return pc.all(pc.is_finite(column)).as_py() is not False
    return not pa.types.is_nested(column.type)


def plain(column: pa.Array) -> list[Any]:
    """The values as JSON can hold them, so that the same are read again."""
    types, kind = pa.types, column.type
    if types.is_decimal(kind) and kind.scale > _PLAIN_SCALE_MOST:
        return [_in_json(value) for value in column.to_pylist()]
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_decimal(kind):
        return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    values = column.to_pylist(maps_as_pydicts="strict") if types.is_nested(kind) else column.to_pylist()
    return [_in_json(value) for value in values] if types.is_nested(kind) or types.is_binary(kind) else values


def _in_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _in_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_in_json(each) for each in value]
    if isinstance(value, Decimal):
        return format(value, "f")  # Not every reader of decimals knows 1E-8.
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
