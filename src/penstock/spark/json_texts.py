"""Columns as JSON texts, made by Spark's own expressions: what `penstock.kafka.values` writes, without Python.

Readers find the same values, though not always the same characters: 1E10 is 10000000000.0, and 1.0E-7 is 1e-07.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql import types as st

if TYPE_CHECKING:
    from pyspark.sql import Column

_NULL = "null"


def json_text(kind: st.DataType, value: Column) -> Column:
    """The JSON of a value of this type. Never NULL: it is `null` then."""
    return sf.coalesce(_present(kind, value), sf.lit(_NULL))


def json_object(members: dict[str, Column]) -> Column:
    """An object of JSON texts by name."""
    pieces = [sf.concat(quoted(sf.lit(name)), sf.lit(":"), text) for name, text in members.items()]
    return sf.concat(sf.lit("{"), sf.concat_ws(",", *pieces), sf.lit("}"))


def quoted(text: Column) -> Column:
    """A text as JSON has it."""
    written = sf.to_json(sf.array(text))
    return sf.when(text.isNotNull(), sf.substring(written, sf.lit(2), sf.length(written) - 2))


def base64(value: Column) -> Column:
    """Bytes as text in one line: Spark breaks it after 76 characters, and readers take no line breaks."""
    return sf.replace(sf.base64(value), sf.lit("\r\n"), sf.lit(""))


def _present(kind: st.DataType, value: Column) -> Column:
    """The JSON of a value; NULL where that is NULL."""
    if isinstance(kind, st.StructType):
        members = {each.name: json_text(each.dataType, value.getField(each.name)) for each in kind}
        return sf.when(value.isNotNull(), json_object(members))
    if isinstance(kind, st.ArrayType):
        texts = sf.transform(value, lambda each: json_text(kind.elementType, each))
        return sf.concat(sf.lit("["), sf.array_join(texts, ","), sf.lit("]"))
    if isinstance(kind, st.MapType):
        entries = sf.transform(
            sf.map_entries(value),
            lambda each: sf.concat(
                quoted(_plain(kind.keyType, each["key"])), sf.lit(":"), json_text(kind.valueType, each["value"])
            ),
        )
        return sf.concat(sf.lit("{"), sf.array_join(entries, ","), sf.lit("}"))
    text = _plain(kind, value)
    return text if isinstance(kind, st.NumericType | st.BooleanType) and not _is_decimal(kind) else quoted(text)


def _plain(kind: st.DataType, value: Column) -> Column:
    """A simple value as a text, not quoted yet."""
    if isinstance(kind, st.FloatType):
        return value.cast("double").cast("string")
    if isinstance(kind, st.BinaryType):
        return base64(value)
    if isinstance(kind, st.TimestampType | st.TimestampNTZType):
        zone = "+00:00" if isinstance(kind, st.TimestampType) else ""
        micros = sf.unix_micros(value.cast("timestamp")) % 1_000_000
        fraction = sf.when(micros == 0, sf.lit("")).otherwise(sf.date_format(value, ".SSSSSS"))
        return sf.concat(sf.date_format(value, "yyyy-MM-dd HH:mm:ss"), fraction, sf.lit(zone))
    return value.cast("string")


def _is_decimal(kind: st.DataType) -> bool:
    return isinstance(kind, st.DecimalType)
