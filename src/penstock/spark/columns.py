"""A topic's columns as Spark sees them, and the conditions that Spark evaluates where Python does not.

Every reader gives the same schema, whether records come from Parquet, through Python or from the driver: all of the
topic's columns nullable, as Spark reads any file, then _partition, _offset, _arrived and _late.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as sf

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


def column(name: str) -> Column:
    """A column by its name, whatever characters that has."""
    return sf.col("`" + name.replace("`", "``") + "`")


def maybe_null(name: str, expression: str | None = None) -> Column:
    """The column as one that could be NULL, as far as the schema says; Spark's optimizer sees through it."""
    return sf.expr(f"nullif({expression or name}, NULL)").alias(name)


def with_place(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Partition and offset as one number, in the place of both: one column less on the way from Python to Spark."""
    offsets = batch.column("_offset")
    number = batch.column("_partition")[0].as_py()  # A batch is of one partition.
    places = pc.add(offsets, pa.scalar(number << _OFFSET_BITS, pa.int64()))
    at = batch.schema.get_field_index("_offset")
    return batch.set_column(at, batch.schema.field(at), places).drop_columns(["_partition"])


def place_columns(name: str) -> list[Column]:
    """_partition and _offset again, from the number that `with_place` made of them."""
    return [
        maybe_null("_partition", f"cast(shiftright({name}, {_OFFSET_BITS}) AS int)"),
        maybe_null("_offset", f"{name} & {(1 << _OFFSET_BITS) - 1}"),
    ]


def late_column(definition: TopicDefinition) -> Column:
    """`_late` as Spark computes it: the same as `penstock.log.reading.late`, for every value and in every time zone."""
    if definition.event_time is None:
        return sf.lit(False)
    limit_us = _microseconds(definition)
    due_us = sf.unix_micros(sf.col("_arrived")) - sf.lit(limit_us)
    if _is_ntz(definition):
        # Spark turns a timestamp_ntz into a number only by way of the session's zone; a distance needs no zone.
        is_late = _since_epoch(column(definition.event_time)) < _interval(due_us)
    else:
        is_late = sf.unix_micros(column(definition.event_time)) < due_us
    return sf.coalesce(is_late, sf.lit(False))


def within_arrival(ranges: Sequence[TimeRange]) -> Column:
    """Whether a record arrived in one of the ranges."""
    return _within(sf.col("_arrived"), ranges, is_ntz=False)


def within_event_time(definition: TopicDefinition, ranges: Sequence[TimeRange]) -> Column:
    """Whether a record's event time is in one of the ranges. Never where it is NULL."""
    assert definition.event_time is not None
    return _within(column(definition.event_time), ranges, is_ntz=_is_ntz(definition))


def any_of(conditions: Sequence[Column]) -> Column:
    """Whether one of them holds: as a balanced tree, for Spark descends into every level of it."""
    if not conditions:
        return sf.lit(False)
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return any_of(conditions[:half]) | any_of(conditions[half:])


def _within(value: Column, ranges: Sequence[TimeRange], *, is_ntz: bool) -> Column:
    inside = []
    for low, high in ranges:
        bounds = [] if low is None else [value >= _moment(low, is_ntz)]
        bounds += [] if high is None else [value < _moment(high, is_ntz)]
        inside.append(reduce(lambda one, other: one & other, bounds, value.isNotNull()))
    return any_of(inside)


def _moment(us: int, is_ntz: bool) -> Column:
    """A constant: Spark folds it, so that it reaches the statistics of Parquet."""
    return _epoch_ntz() + _interval(sf.lit(us)) if is_ntz else sf.timestamp_micros(sf.lit(us))


def _since_epoch(value: Column) -> Column:
    return value - _epoch_ntz()


def _epoch_ntz() -> Column:
    return sf.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'")


def _interval(us: Column) -> Column:
    """So many microseconds, exactly: whole days, and seconds as a decimal."""
    seconds = (us % sf.lit(_DAY_US)).cast("decimal(18,0)") * sf.expr("0.000001BD")
    days = sf.call_function("div", us - us % sf.lit(_DAY_US), sf.lit(_DAY_US))
    return sf.make_dt_interval(days.cast("int"), sf.lit(0), sf.lit(0), seconds.cast("decimal(18,6)"))


def _is_ntz(definition: TopicDefinition) -> bool:
    assert definition.event_time is not None
    return definition.schema.field(definition.event_time).type.tz is None


def _microseconds(definition: TopicDefinition) -> int:
    lateness = definition.lateness
    limit = (lateness.days * 86_400 + lateness.seconds) * 1_000_000 + lateness.microseconds
    return min(limit, _LATENESS_US_MAX)
