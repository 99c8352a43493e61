"""Records as events: dicts, one for each."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pyarrow as pa
import pyarrow.types as types

Event = dict[str, Any]


def events_of(batch: pa.RecordBatch) -> list[Event]:
    """The rows of a batch as dicts. A time beyond the year 9999, which Python cannot hold, stays in microseconds.

    >>> events_of(pa.record_batch({"n": [1, 2], "s": ["a", None]}))
    [{'n': 1, 's': 'a'}, {'n': 2, 's': None}]
    """
    names = batch.schema.names
    columns = [_times(column) if types.is_timestamp(column.type) else column.to_pylist() for column in batch.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _times(column: pa.Array) -> list[Any]:
    """Each different time is turned into a datetime once: many records arrive at the same moment."""
    encoded = column.dictionary_encode()
    moments = encoded.dictionary.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).astype(object)
    if column.type.tz is not None:
        moments = [moment if isinstance(moment, int) else moment.replace(tzinfo=UTC) for moment in moments]
    return [None if index is None else moments[index] for index in encoded.indices.to_pylist()]
