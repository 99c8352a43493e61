"""A topic's columns as Spark sees them, and the conditions that Spark evaluates where Python does not.

Every reader gives the same schema, whether records come from Parquet, through Python or from the driver: all of the
topic's columns nullable, as Spark reads any file, then _partition, _offset, _arrived and _late.

Expressions are SQL texts: PySpark asks the JVM a dozen questions for every `Column` it makes, 5 ms each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TopicDefinitionError, UnknownColumn
from penstock.events.schema import to_spark
from penstock.log.definition import OWN_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.log.definition import TopicDefinition
    from penstock.log.hours import TimeRange
    from penstock.log.topic import Topic

_DAY_US = 86_400_000_000
_OFFSET_BITS = 52
"""4,500 million million records in a partition, and 2,048 partitions: more than a topic can have."""
_LATENESS_US_MAX = 1 << 62
_EPOCH_NTZ = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def chosen_columns(topic: Topic, columns: Sequence[str] | None) -> list[str]:
    """The topic's columns that were asked for; the log's own are always there and may be named or not."""
    known = topic.schema.names
    if columns is None:
        return list(known)
    for name in columns:
        if name not in known and name not in OWN_COLUMNS:
            raise UnknownColumn(topic.name, name, [*known, *OWN_COLUMNS])
    return [name for name in dict.fromkeys(columns) if name not in OWN_COLUMNS]


def check_event_time(definition: TopicDefinition) -> None:
    """Raises where a range of event time is asked of a topic that has none."""
    if definition.event_time is None:
        raise TopicDefinitionError(
            definition.name, "a range of event time", "a topic whose event_time names a column", "no event_time"
        )


def spark_schema(topic: Topic, names: Sequence[str]) -> StructType:
    """What `topic.read` gives: the columns named, then the log's own."""
    return _schema(topic, names, never_null=("_late",))


def source_schema(topic: Topic, names: Sequence[str]) -> StructType:
    """What the Python source gives: the same, and Spark knows that the log's own columns are never NULL.

    That spares it a question per value, which is a good part of the cost of a row that comes from Python.
    """
    return _schema(topic, names, never_null=OWN_COLUMNS)


def _schema(topic: Topic, names: Sequence[str], never_null: Sequence[str]) -> StructType:
    fields = [_nullable(field).with_nullable(field.name not in never_null) for field in topic.read_schema(names)]
    return to_spark(pa.schema(fields))


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """The type with every NOT NULL inside it taken away."""
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(nullable_type(kind.key_type), nullable_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(nullable_type(kind.value_type))
    return kind


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, nullable_type(field.type), metadata=field.metadata)


def column(name: str) -> str:
    """A column by its name, whatever characters that has."""
    return "`" + name.replace("`", "``") + "`"


def maybe_null(name: str, expression: str | None = None) -> str:
    """The column as one that could be NULL, as far as the schema says; Spark's optimizer sees through it."""
    return f"nullif({expression or name}, NULL) AS {name}"


def with_place(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Partition and offset as one number, in the place of both: one column less on the way from Python to Spark."""
    offsets = batch.column("_offset")
    number = batch.column("_partition")[0].as_py()  # A batch is of one partition.
    places = pc.add(offsets, pa.scalar(number << _OFFSET_BITS, pa.int64()))
    at = batch.schema.get_field_index("_offset")
    return batch.set_column(at, batch.schema.field(at), places).drop_columns(["_partition"])


def place_columns(name: str) -> list[str]:
    """_partition and _offset again, from the number that `with_place` made of them."""
    return [
        maybe_null("_partition", f"cast(shiftright({name}, {_OFFSET_BITS}) AS int)"),
        maybe_null("_offset", f"{name} & {(1 << _OFFSET_BITS) - 1}"),
    ]


def late_column(definition: TopicDefinition) -> str:
    """`_late` as Spark computes it: the same as `penstock.log.reading.late`, for every value and in every time zone."""
    if definition.event_time is None:
        return "false AS _late"
    due_us = f"(unix_micros(_arrived) - {_number(_microseconds(definition))})"
    event_time = column(definition.event_time)
    if _is_ntz(definition):
        # Spark turns a timestamp_ntz into a number only by way of the session's zone; a distance needs no zone.
        return f"coalesce({event_time} - {_EPOCH_NTZ} < {_interval(due_us)}, false) AS _late"
    return f"coalesce(unix_micros({event_time}) < {due_us}, false) AS _late"


def within_arrival(ranges: Sequence[TimeRange]) -> str:
    """Whether a record arrived in one of the ranges."""
    return _within("_arrived", ranges, is_ntz=False)


def within_event_time(definition: TopicDefinition, ranges: Sequence[TimeRange]) -> str:
    """Whether a record's event time is in one of the ranges. Never where it is NULL."""
    assert definition.event_time is not None
    return _within(column(definition.event_time), ranges, is_ntz=_is_ntz(definition))


def within_offsets(start: int, stop: int) -> str:
    """Whether a record's offset is from `start` up to `stop`."""
    return f"(_offset >= {_number(start)} AND _offset < {_number(stop)})"


def any_of(conditions: Sequence[str]) -> str:
    """Whether one of them holds: as a balanced tree, for Spark descends into every level of it."""
    if not conditions:
        return "false"
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return f"({any_of(conditions[:half])} OR {any_of(conditions[half:])})"


def _within(value: str, ranges: Sequence[TimeRange], *, is_ntz: bool) -> str:
    inside = []
    for low, high in ranges:
        bounds = [f"{value} IS NOT NULL"]
        bounds += [] if low is None else [f"{value} >= {_moment(low, is_ntz)}"]
        bounds += [] if high is None else [f"{value} < {_moment(high, is_ntz)}"]
        inside.append(f"({' AND '.join(bounds)})")
    return any_of(inside)


def _moment(us: int, is_ntz: bool) -> str:
    """A constant: Spark folds it, so that it reaches the statistics of Parquet."""
    return f"({_EPOCH_NTZ} + {_interval(_number(us))})" if is_ntz else f"timestamp_micros({_number(us)})"


def _interval(us: str) -> str:
    """So many microseconds, exactly: whole days, and seconds as a decimal."""
    rest = f"({us} % {_DAY_US}L)"
    seconds = f"cast(cast({rest} AS decimal(18,0)) * 0.000001BD AS decimal(18,6))"
    return f"make_dt_interval(cast(({us} - {rest}) div {_DAY_US}L AS int), 0, 0, {seconds})"


def _number(value: int) -> str:
    """A constant of 64 bits; the least of them has no literal of its own."""
    return f"cast('{value}' AS bigint)" if value < 0 else f"{value}L"


def _is_ntz(definition: TopicDefinition) -> bool:
    assert definition.event_time is not None
    return definition.schema.field(definition.event_time).type.tz is None


def _microseconds(definition: TopicDefinition) -> int:
    lateness = definition.lateness
    limit = (lateness.days * 86_400 + lateness.seconds) * 1_000_000 + lateness.microseconds
    return min(limit, _LATENESS_US_MAX)
