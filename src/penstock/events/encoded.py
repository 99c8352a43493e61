"""What becomes of events: rows that fit, and records that were rejected. Together they are all that came."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import BatchTooLarge
from penstock.events.columns import from_values
from penstock.events.ddl import ArrowArray, ArrowField
from penstock.events.schema import format_type
from penstock.events.unfit import Unfit
from penstock.events.values import converter

Faults: TypeAlias = dict[int, tuple[str, str | None]]
"""The first thing found wrong with a row: its index, the reason, the column."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that does not fit the schema."""

    raw: bytes
    """The record as it came: the line of JSON, or the event written as JSON."""
    reason: str
    """What was expected and what was found."""
    column: str | None
    """Where, such as 'address.street' or 'tags[3]'; None if the whole record is at fault."""
    index: int
    """Its position in the input, from 0; blank lines of JSON lines are not counted."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Some events, fitted to a schema: every one of them is either a row of `batch` or in `rejected`."""

    batch: pa.RecordBatch
    """The events that fit, in the order they came, with exactly the schema asked for."""
    rejected: list[Rejected]
    """The others, in the order they came."""
    kept: npt.NDArray[np.int64] | None
    """The position in the input of each row of `batch`; None if all events were kept."""


def column_of(values: list[Any], field: ArrowField, faults: Faults) -> ArrowArray:
    """A column of Python values; a value that does not fit becomes NULL, and its row is noted in `faults`."""
    array = from_values(values, field)
    if array is not None:
        return array
    convert = converter(field.type, field.nullable)
    converted: list[Any] = []
    for index, value in enumerate(values):
        try:
            converted.append(convert(value))
        except Unfit as unfit:
            converted.append(None)
            faults.setdefault(index, (unfit.reason, field.name + unfit.path))
        except Exception as error:
            # An object of the user's own that fails when it is looked at must not stop its neighbours.
            converted.append(None)
            faults.setdefault(index, (f"expected {format_type(field.type)}, found {error!r}", field.name))
    return pa.array(converted, field.type)


def sort_out(
    arrays: list[ArrowArray], schema: pa.Schema, faults: Faults, raws: Callable[[list[int]], list[bytes]]
) -> Encoded:
    """The rows without faults as a batch, the others as `Rejected`; `raws` gives the bytes of rows by their index."""
    for array, name in zip(arrays, schema.names, strict=True):
        # pyarrow cuts what does not fit one array (2 GiB of text) into several without a word.
        if isinstance(array, pa.ChunkedArray):
            raise BatchTooLarge(name, len(array))
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if not faults:
        return Encoded(batch, [], None)
    is_kept = np.ones(batch.num_rows, np.bool_)
    is_kept[list(faults)] = False
    indexes = sorted(faults)
    rejected = [Rejected(raw, *faults[index], index) for index, raw in zip(indexes, raws(indexes), strict=True)]
    return Encoded(batch.filter(pa.array(is_kept)), rejected, np.flatnonzero(is_kept).astype(np.int64))


def raw_of(event: object) -> bytes:
    """An event as JSON, so that people can read what was refused; its repr if it cannot be written so."""
    for write in (_as_json, repr):
        try:
            return write(event).encode("utf-8", "backslashreplace")
        except Exception:
            continue
    return f"<{type(event).__name__} that cannot be shown>".encode()


def _as_json(event: object) -> str:
    return json.dumps(event, default=_in_json)


def _in_json(value: Any) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist() if value.dtype.kind in "biufUO" else str(value)
    return value.isoformat() if isinstance(value, date) else str(value)
