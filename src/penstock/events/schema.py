"""The columns of a topic: written as Spark DDL, kept as an Arrow schema, allowed to grow.

A schema may gain nullable columns and widen its numbers, inside structs, arrays and maps too. Then everything written
before can still be read, by `upgrade`, without being rewritten. Any other change is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SchemaError, SchemaRefused, did_you_mean
from penstock.events.ddl import SIMPLE_TYPES, TIMESTAMP, TIMESTAMP_NTZ, ArrowArray, ArrowField, ArrowType, parse_ddl

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

__all__ = [
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "check_growth",
    "format_ddl",
    "format_type",
    "parse_ddl",
    "to_spark",
    "upgrade",
]

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WIDER: dict[ArrowType, tuple[ArrowType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64()),
    pa.int16(): (pa.int32(), pa.int64()),
    pa.int32(): (pa.int64(),),
    pa.float32(): (pa.float64(),),
}
_DIGITS: dict[ArrowType, int] = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def format_ddl(schema: pa.Schema) -> str:
    """The schema as Spark DDL, always spelled the same way; `parse_ddl` reads it back as the same schema.

    Raises `SchemaError` for a type that a topic cannot keep, such as unsigned integers.

    >>> format_ddl(parse_ddl("TIME Timestamp_LTZ,Status INTEGER not null"))
    'TIME timestamp, Status int NOT NULL'
    """
    return ", ".join(_format_field(field, " ") for field in schema)


def format_type(data_type: ArrowType) -> str:
    """One type as Spark DDL."""
    types = pa.types
    if types.is_decimal128(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if types.is_map(data_type):
        return f"map<{format_type(data_type.key_type)}, {format_type(data_type.item_type)}>"
    if types.is_list(data_type):
        return f"array<{format_type(data_type.value_type)}>"
    if types.is_struct(data_type):
        return f"struct<{', '.join(_format_field(field, ': ') for field in data_type)}>"
    for name, simple in SIMPLE_TYPES.items():
        if simple == data_type:
            return name
    found = str(data_type)
    raise SchemaError(found, 0, "a type that Spark DDL can name", f"the Arrow type {found}", "cast the column first")


def _format_field(field: ArrowField, separator: str) -> str:
    name = field.name if _PLAIN_NAME.fullmatch(field.name) else "`" + field.name.replace("`", "``") + "`"
    text = f"{name}{separator}{format_type(field.type)}"
    if not field.nullable:
        text += " NOT NULL"
    comment = comment_of(field)
    if comment is not None:
        escaped = comment.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
        text += f" COMMENT '{escaped}'"
    return text


def comment_of(field: ArrowField) -> str | None:
    """The column's comment, if its DDL gave one."""
    comment = (field.metadata or {}).get(b"comment")
    return None if comment is None else comment.decode()


def check_growth(old: pa.Schema, new: pa.Schema) -> None:
    """Refuse, with `SchemaRefused`, a new schema in which records of the old one could not be read.

    Allowed: new nullable columns anywhere, wider numbers (tinyint < smallint < int < bigint, float < double, decimals
    with no fewer digits on either side of the point, integers to a decimal that holds them all), other comments.
    Columns keep their names and their order.
    """
    _check_fields(list(old), list(new), "")


def _check_fields(old: list[ArrowField], new: list[ArrowField], path: str) -> None:
    old_names = [field.name for field in old]
    new_by_name = {field.name: field for field in new}
    for field in old:
        if field.name not in new_by_name:
            hint = did_you_mean(field.name, [name for name in new_by_name if name not in old_names]).strip()
            raise SchemaRefused(path + field.name, _format_field(field, " "), "not there", hint)
    kept = [field.name for field in new if field.name in old_names]
    for before, after in zip(old_names, kept, strict=True):
        if before != after:
            raise SchemaRefused(
                path + before, f"in the order {', '.join(old_names)}", f"in the order {', '.join(kept)}"
            )
    for field in new:
        if field.name not in old_names and not field.nullable:
            raise SchemaRefused(
                path + field.name,
                "not there",
                _format_field(field, " "),
                "records written before have no value for it: leave out NOT NULL",
            )
    for field in old:
        _check_field(field, new_by_name[field.name], path + field.name)


def _check_field(old: ArrowField, new: ArrowField, path: str) -> None:
    if old.nullable != new.nullable:
        raise SchemaRefused(path, _format_field(old, " "), _format_field(new, " "))
    _check_type(old.type, new.type, path)


def _check_type(old: ArrowType, new: ArrowType, path: str) -> None:
    types = pa.types
    if types.is_struct(old) and types.is_struct(new):
        _check_fields(list(old), list(new), path + ".")
    elif types.is_map(old) and types.is_map(new):
        _check_type(old.key_type, new.key_type, path + ".key")
        _check_type(old.item_type, new.item_type, path + ".value")
    elif types.is_list(old) and types.is_list(new):
        _check_type(old.value_type, new.value_type, path + ".element")
    elif old != new and not _is_wider(old, new):
        raise SchemaRefused(path, format_type(old), format_type(new))


def _is_wider(old: ArrowType, new: ArrowType) -> bool:
    if pa.types.is_decimal(new):
        digits = _DIGITS.get(old)
        scale = 0
        if pa.types.is_decimal(old):
            digits, scale = old.precision - old.scale, old.scale
        return digits is not None and new.scale >= scale and new.precision - new.scale >= digits
    return new in _WIDER.get(old, ())


def upgrade(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch as if it had been written with `schema`, which `check_growth` allowed to grow from the batch's own.

    Missing columns are NULL, numbers are widened; columns that are the same are not copied.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [
        _upgrade_array(batch.column(field.name), field.type)
        if batch.schema.get_field_index(field.name) >= 0
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _upgrade_array(array: ArrowArray, data_type: ArrowType) -> ArrowArray:
    types = pa.types
    if array.type.equals(data_type):
        return array
    if types.is_struct(data_type):
        children = {field.name: array.field(index) for index, field in enumerate(array.type)}
        arrays = [
            _upgrade_array(children[field.name], field.type)
            if field.name in children
            else pa.nulls(len(array), field.type)
            for field in data_type
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(arrays, fields=list(data_type), mask=mask)
    return _upgrade_other(array, data_type)


def _upgrade_other(array: ArrowArray, data_type: ArrowType) -> ArrowArray:
    """Lists and maps keep their offsets and nulls, and get a new child; numbers are cast."""
    types = pa.types
    if types.is_map(data_type) or types.is_list(data_type):
        if array.offset:
            array = pa.concat_arrays([array.slice(0, 0), array])
        validity, offsets = array.buffers()[:2]
        if types.is_map(data_type):
            keys = _upgrade_array(array.keys, data_type.key_type)
            items = _upgrade_array(array.items, data_type.item_type)
            entry = pa.struct([data_type.key_field, data_type.item_field])
            child = pa.StructArray.from_arrays([keys, items], fields=list(entry))
        else:
            child = _upgrade_array(array.values, data_type.value_type)
        return pa.Array.from_buffers(data_type, len(array), [validity, offsets], array.null_count, 0, [child])
    return pc.cast(array, data_type)


def to_spark(schema: pa.Schema) -> StructType:
    """The schema as Spark's StructType. Imports pyspark, starts no JVM."""
    from pyspark.sql.types import StructType

    return StructType([_spark_field(field) for field in schema])


def _spark_field(field: ArrowField) -> StructField:
    from pyspark.sql.types import StructField

    comment = comment_of(field)
    metadata = None if comment is None else {"comment": comment}
    return StructField(field.name, _spark_type(field.type), field.nullable, metadata)


def _spark_type(data_type: ArrowType) -> DataType:
    from pyspark.sql import types as spark

    if pa.types.is_decimal(data_type):
        return spark.DecimalType(data_type.precision, data_type.scale)
    if pa.types.is_map(data_type):
        return spark.MapType(_spark_type(data_type.key_type), _spark_type(data_type.item_type))
    if pa.types.is_list(data_type):
        return spark.ArrayType(_spark_type(data_type.value_type))
    if pa.types.is_struct(data_type):
        return spark.StructType([_spark_field(field) for field in data_type])
    simple: dict[str, DataType] = {
        "boolean": spark.BooleanType(),
        "tinyint": spark.ByteType(),
        "smallint": spark.ShortType(),
        "int": spark.IntegerType(),
        "bigint": spark.LongType(),
        "float": spark.FloatType(),
        "double": spark.DoubleType(),
        "string": spark.StringType(),
        "binary": spark.BinaryType(),
        "date": spark.DateType(),
        "timestamp": spark.TimestampType(),
        "timestamp_ntz": spark.TimestampNTZType(),
    }
    return simple[format_type(data_type)]
