"""Records as Kafka holds them: a value in JSON or Avro, a key to compact by, and headers for what only we know.

Anybody may write such topics, and read them. What a value is, the topic says; each way is one file with a `Values` in
it, `json_values.py` and `avro_values.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import TopicDefinitionError
from penstock.events.encoded import Encoded
from penstock.kafka.json_values import JsonValues, plain, to_json, unfit_for_json
from penstock.log.definition import TopicDefinition

ARRIVED_HEADER = "penstock-arrived"
"""When a record arrived, in microseconds, where it was brought along: it counts instead of the broker's stamp."""
ARRIVALS_US = range(-62_135_596_800_000_000, 253_402_300_800_000_000)
"""The years 1 to 9999: a number beyond them is no arrival, but somebody else's idea of that header."""
SCHEMA_HEADER = "penstock-schema"
"""The version of the schema that its writer knew; left out for the first."""
NULL_KEY = b"\x00null"
"""The key of a record whose only key column is NULL: no text is like it."""

Headers = list[tuple[str, bytes]]
Written = tuple[bytes | None, bytes | None, Headers | None]
"""Key, value and headers of one record; one without a value is passed over by readers."""


class Values(Protocol):
    """One way to write the events of a topic as bytes. What `write` makes, `read` gives back exactly."""

    def write(self, batch: pa.RecordBatch) -> list[bytes]:
        """One value per row of a batch in the topic's current schema."""
        ...

    def read(self, values: Sequence[bytes]) -> Encoded:
        """The events in the topic's current schema; what is none of this topic is rejected, with the reason."""
        ...


@lru_cache(maxsize=256)
def values_of(definition: TopicDefinition) -> Values:
    """How the values of a topic are written."""
    if definition.values == "avro":
        from penstock.kafka.avro_values import AvroValues

        return AvroValues(definition)
    return JsonValues(definition.schema)


def check_values(definition: TopicDefinition) -> None:
    """TopicDefinitionError if a column could not be read again as it was written."""
    unfit = next(unfit_for_json(definition.schema), None) if definition.values == "json" else None
    if unfit is not None:
        found = f"'json' with the column {unfit!r}"
        hint = '\n  make the topic with values="avro", or make the keys text'
        raise TopicDefinitionError(definition.name, "values", "maps with text as their keys, in Kafka", found, hint)


def written(batch: pa.RecordBatch, definition: TopicDefinition, *, arrived: pa.Array | None = None) -> list[Written]:
    """The rows of a batch in the topic's current schema, as Kafka shall hold them."""
    values = values_of(definition).write(batch)
    keys = _keys([plain(batch.column(name)) for name in definition.key], batch.num_rows)
    headers = _headers(batch.num_rows, definition.schema_version, arrived)
    return list(zip(keys, values, headers, strict=True))


def sizes_over(records: Sequence[Written], limit: int) -> dict[int, int]:
    """The records that have more bytes than that, by their places, with their sizes."""
    return {
        place: size
        for place, (key, value, headers) in enumerate(records)
        if (size := len(key or b"") + len(value or b"") + sum(len(name) + len(text) for name, text in headers or ()))
        > limit
    }


def _headers(rows: int, schema_version: int, arrived: pa.Array | None) -> list[Headers | None]:
    common: Headers = [(SCHEMA_HEADER, str(schema_version).encode())] if schema_version else []
    if arrived is None:
        return [common or None] * rows
    stamps = arrived.cast(pa.timestamp("us", tz="UTC")).view(pa.int64()).to_pylist()
    return [[*common, (ARRIVED_HEADER, str(stamp).encode())] for stamp in stamps]


def _keys(columns: Sequence[Sequence[Any]], rows: int) -> list[bytes | None]:
    """What records are compacted and shown by. A single text is itself, everything else is JSON."""
    if not columns:
        return [None] * rows
    if len(columns) > 1:
        return [to_json(list(values)) for values in zip(*columns, strict=True)]
    return [_key(value) for value in columns[0]]


def _key(value: Any) -> bytes:
    if value is None:
        return NULL_KEY
    if isinstance(value, str):
        return value.encode()
    return b"%d" % value if type(value) is int else to_json(value)
