"""A topic of Kafka as a frame of Spark's own source, and the records that a view gives as Spark's own sink takes them.

What comes in is what the log's reader gives, and what goes out is what a changelog holds in every other mode: who reads
either need not know how it was made. All of it is Spark's expressions, for no Python runs between two records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf

from penstock.events.schema import to_spark
from penstock.kafka.dead import name_in_grave
from penstock.kafka.java_client import reader_options
from penstock.kafka.values import ARRIVALS_US, ARRIVED_HEADER, SCHEMA_HEADER
from penstock.log.definition import DEAD_SUFFIX
from penstock.produce.dead_letters import RAW_BYTES_MAX
from penstock.spark.columns import column
from penstock.spark.json_texts import base64, json_object, json_text, quoted
from penstock.spark.json_values import event, parsed, unfit
from penstock.upkeep.changelog import OPERATIONS, TOPIC_KEY
from penstock.upkeep.fold_rows import FoldRows
from penstock.upkeep.inputs import TopicInput

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.kafka.topic import KafkaTopic
    from penstock.log.topic import Topic
    from penstock.upkeep.compiled import CompiledView

OUTGROWN = "penstock: the topic has grown"
"""What a query ends with that meets a record of a newer schema than it knows."""
NO_KEY = "[]"
"""The key of each row of a view without one, as `changelog_rows` writes it."""


def raw_records(spark: SparkSession, topic: KafkaTopic) -> DataFrame:
    """The records of a topic as Spark's source gives them: what is committed, as it comes."""
    options = {**reader_options(topic.log.connection), "subscribe": topic.name, "startingOffsets": "earliest"}
    return spark.readStream.format("kafka").options(**options, includeHeaders="true").load()


def events(raw: DataFrame, topic: Topic) -> DataFrame:
    """The events among the records of a topic, with the log's own columns."""
    own = {
        "_partition": sf.col("partition"),
        "_offset": sf.col("offset"),
        "_arrived": sf.col("arrived"),
        "_late": _late(topic),
    }
    # Taken out of the event one by one: a column may be named as one of ours is.
    found = {**{name: _member(name) for name in topic.schema.names}, **own}
    return _decoded(raw, topic).where("problem IS NULL").select(*(each.alias(name) for name, each in found.items()))


def dead_letters(raw: DataFrame, topic: Topic) -> DataFrame:
    """The records of a topic that are no events, as its dead letters hold them: a large one only from its beginning."""
    named = sf.concat(
        sf.lit(f"{name_in_grave(topic)}/"), sf.col("partition").cast("string"),
        sf.lit(" offset "), sf.col("offset").cast("string"),
    )  # fmt: skip
    size = sf.octet_length("value")
    kept = sf.concat(sf.lit(f"; kept are {RAW_BYTES_MAX:,} of its "), sf.format_number(size, 0), sf.lit(" bytes"))
    reason = sf.concat(sf.col("problem.reason"), sf.when(size > RAW_BYTES_MAX, kept).otherwise(sf.lit("")))
    letter = {
        "topic": quoted(sf.lit(topic.name)),
        "reason": quoted(reason),
        "column": sf.coalesce(quoted(sf.col("problem.column")), sf.lit("null")),
        "raw": quoted(base64(sf.substring("value", 1, RAW_BYTES_MAX))),
        "producer": quoted(named),
    }
    return (
        _decoded(raw, topic)
        .where("problem IS NOT NULL")
        .select(
            sf.lit(topic.name + DEAD_SUFFIX).alias("topic"),
            sf.lit(0).alias("partition"),
            sf.lit(None).cast("binary").alias("key"),
            json_object(letter).alias("value"),
        )
    )


def changes(view: CompiledView, source: DataFrame, target: KafkaTopic) -> DataFrame:
    """The records of a view's changelog, each an insert, with the place of the record that it comes from."""
    [given] = [each for each in view.inputs.values() if isinstance(each, TopicInput)]
    if view.spec.late == "drop":
        source = source.where("NOT _late")
    assert isinstance(view.keeper, FoldRows), view.keeper
    rows = view.keeper.prepared.over({given.name: source})
    kinds = {each.name: each.dataType for each in rows.schema}
    after = {name: json_text(kinds[name], _named(name)) for name in view.shape.columns.names}
    record = {
        "key": quoted(sf.lit(NO_KEY)),
        "operation": quoted(sf.lit(OPERATIONS[0])),
        "before": sf.lit("null"),
        "after": json_object(after),
        "offsets": quoted(_fence(given.topic)),
    }
    columns = {
        "topic": sf.lit(target.name),
        "partition": sf.lit(_partition(target)),
        "key": sf.lit(NO_KEY).cast("binary"),
        "value": json_object(record),
    }
    version = len(target.definition.schemas) - 1
    if version:
        header = sf.struct(sf.lit(SCHEMA_HEADER).alias("key"), sf.lit(str(version)).cast("binary").alias("value"))
        columns["headers"] = sf.array(header)
    return rows.select(*(found.alias(name) for name, found in columns.items()))


def _decoded(raw: DataFrame, topic: Topic) -> DataFrame:
    """Each record with its place, its arrival, and either its event or why it is none."""
    schema = to_spark(topic.schema)
    brought = _header(ARRIVED_HEADER)
    stamp = sf.timestamp_micros(sf.when(brought.between(ARRIVALS_US[0], ARRIVALS_US[-1]), brought))
    newer = _header(SCHEMA_HEADER) > len(topic.definition.schemas) - 1
    refused = sf.raise_error(sf.lit(OUTGROWN)).cast("boolean")
    return (
        raw.where(sf.col("value").isNotNull() & sf.when(newer, refused).otherwise(sf.lit(True)))
        .select("value", "partition", "offset", sf.coalesce(stamp, sf.col("timestamp")).alias("arrived"))
        .withColumn("members", parsed(sf.col("value")))
        .withColumn("event", event(sf.col("members"), schema))
        .withColumn("problem", unfit(sf.col("members"), sf.col("event"), schema))
    )


def _header(name: str) -> Column:
    """The number in the last header of this name; NULL without one."""
    headers = sf.filter(sf.col("headers"), lambda each: each["key"] == name)
    return sf.try_element_at(headers, sf.lit(-1))["value"].cast("string").try_cast("bigint")


def _late(topic: Topic) -> Column:
    """As `log.reading.late` has it."""
    definition = topic.definition
    if definition.event_time is None:
        return sf.lit(False)
    happened = sf.unix_micros(_member(definition.event_time).cast("timestamp"))
    lateness = definition.lateness
    limit = (lateness.days * 86_400 + lateness.seconds) * 1_000_000 + lateness.microseconds
    return sf.coalesce(sf.unix_micros("arrived") - happened > limit, sf.lit(False))


def _fence(topic: str) -> Column:
    """How far the log was in the view with this record, as `Fence.to_json` writes it."""
    return sf.format_string(
        f'{{"clock_us":%d,"offsets":{{"{topic}":{{"%d":%d}}}}}}',
        sf.unix_micros("__arrived"), sf.col("__partition"), sf.col("__offset") + 1,
    )  # fmt: skip


def _partition(target: KafkaTopic) -> int:
    """The partition that records of this key go to."""
    empty = {each.name: pa.nulls(1, each.type) for each in target.schema}
    keyed = pa.RecordBatch.from_pydict({**empty, TOPIC_KEY: pa.array([NO_KEY])}, target.schema)
    [(number, _, _)] = target.route(keyed)
    return number


def _member(name: str) -> Column:
    return sf.col("event").getField(name)


def _named(name: str) -> Column:
    return sf.col(column(name))
