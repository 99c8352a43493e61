"""The Avro schema of a topic: made from its columns, always the same way, so that it need not be kept anywhere.

Every column may be null. Records inside, and the fixed types of decimals, are named after the way to them:
`penstock.orders.address`. So a decimal that became wider is another type, also to a fingerprint, which sees names but
no scale. A map whose keys are no text is an array of entries with a `key` and a `value`, for Avro has only text there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.events.ddl import ArrowField, ArrowType
from penstock.events.schema import comment_of

AvroSchema: TypeAlias = Any
"""A schema as JSON can hold it: a dict, a list (a union) or a name."""

NAMESPACE = "penstock"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE: dict[ArrowType, AvroSchema] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}


def avro_schema(topic: str, schema: pa.Schema) -> AvroSchema:
    """The schema of the records of a topic.

    >>> from penstock.events.schema import parse_ddl
    >>> avro_schema("late-orders", parse_ddl("cents bigint"))["fields"]
    [{'name': 'cents', 'type': ['null', 'long'], 'default': None}]
    """
    return _record(schema, f"{NAMESPACE}.{record_name(topic)}")


def record_name(topic: str) -> str:
    """The name of a topic as Avro can have it.

    >>> record_name("7-days.orders")
    '_7_days_orders'
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"_{name}" if name[0].isdigit() else name


def names_unfit_for_avro(fields: Iterable[ArrowField]) -> Iterator[str]:
    """The names of columns, and of fields inside, that Avro could not have."""
    for field in fields:
        if not _NAME.fullmatch(field.name):
            yield field.name
        yield from names_unfit_for_avro(_fields_inside(field.type))


def is_text_map(data_type: ArrowType) -> bool:
    """Whether it is a map as Avro has them."""
    return bool(pa.types.is_map(data_type) and pa.types.is_string(data_type.key_type))


def decimal_bytes(precision: int) -> int:
    """So many bytes hold every number of that many digits.

    >>> [decimal_bytes(digits) for digits in (1, 2, 3, 18, 19, 38)]
    [1, 1, 2, 8, 9, 16]
    """
    most: int = 10**precision
    return (most.bit_length() + 8) // 8


def _fields_inside(data_type: ArrowType) -> list[ArrowField]:
    types = pa.types
    if types.is_struct(data_type):
        return list(data_type)
    if types.is_map(data_type):
        return [*_fields_inside(data_type.key_type), *_fields_inside(data_type.item_type)]
    return _fields_inside(data_type.value_type) if types.is_list(data_type) else []


def _record(fields: Iterable[ArrowField], path: str) -> AvroSchema:
    return {"type": "record", **_named(path), "fields": [_field(field, f"{path}.{field.name}") for field in fields]}


def _named(path: str) -> dict[str, str]:
    namespace, _, name = path.rpartition(".")
    return {"name": name, "namespace": namespace}


def _field(field: ArrowField, path: str) -> AvroSchema:
    comment = comment_of(field)
    told = {} if comment is None else {"doc": comment}
    return {"name": field.name, "type": ["null", _type(field.type, path)], "default": None, **told}


def _type(data_type: ArrowType, path: str) -> AvroSchema:
    types = pa.types
    if types.is_struct(data_type):
        return _record(data_type, path)
    if is_text_map(data_type):
        return {"type": "map", "values": ["null", _type(data_type.item_type, path)]}
    if types.is_map(data_type):
        key = {"name": "key", "type": _type(data_type.key_type, f"{path}.key")}
        value = _field(pa.field("value", data_type.item_type), f"{path}.value")
        return {"type": "array", "items": {"type": "record", **_named(path), "fields": [key, value]}}
    if types.is_list(data_type):
        return {"type": "array", "items": ["null", _type(data_type.value_type, path)]}
    if types.is_decimal(data_type):
        digits, scale = data_type.precision, data_type.scale
        named = _named(f"{path}.decimal_{digits}_{scale}")
        of_decimals = {"logicalType": "decimal", "precision": digits, "scale": scale}
        return {"type": "fixed", **named, "size": decimal_bytes(digits), **of_decimals}
    if types.is_timestamp(data_type):
        kind = "local-timestamp-micros" if data_type.tz is None else "timestamp-micros"
        return {"type": "long", "logicalType": kind}
    return _SIMPLE[data_type]
