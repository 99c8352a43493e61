"""The records of a frame or of a sealed file, read without a partition: for those who must look at damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.events.schema import upgrade
from penstock.log.frame import Frame
from penstock.log.partition import ARRIVED

if TYPE_CHECKING:
    from penstock.log.definition import TopicDefinition

OWN = ("_partition", "_offset", "_arrived")


def frame_records(frame: Frame, payload: pa.Buffer, definition: TopicDefinition, partition: int) -> pa.RecordBatch:
    """The records of a frame in the topic's current columns, with _partition, _offset and _arrived.

    ArrowInvalid or IndexError if they are not what the header says.
    """
    schema = definition.schema_of(frame.schema_version)
    has_arrivals = frame.arrived_min != frame.arrived_max
    batch = pa.ipc.read_record_batch(payload, schema.append(pa.field("_arrived", ARRIVED)) if has_arrivals else schema)
    batch.validate(full=True)
    if batch.num_rows != frame.records:
        raise pa.ArrowInvalid(f"{batch.num_rows} records where the header counts {frame.records}")
    stamps = (
        batch.column("_arrived")
        if has_arrivals
        else pa.array(np.full(frame.records, frame.arrived_min), pa.int64()).view(ARRIVED)
    )
    plain = batch.drop_columns(["_arrived"]) if has_arrivals else batch
    current = plain if plain.schema.equals(definition.schema) else upgrade(plain, definition.schema)
    return _with_own(current, partition, np.arange(frame.base_offset, frame.end_offset), stamps)


def row_group_records(path: Path, number: int, definition: TopicDefinition, partition: int) -> pa.RecordBatch:
    """The records of one row group in the topic's current columns, with _partition, _offset and _arrived.

    Every page is compared with its checksum: OSError or ArrowInvalid if one is not what was written.
    """
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read_row_group(number)
    table.validate(full=True)
    batch = table.combine_chunks().to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
    wanted = [name for name in definition.schema.names if name in batch.schema.names]
    current = upgrade(batch.select(wanted), definition.schema)
    return _with_own(current, partition, batch.column("_offset").to_numpy(), batch.column("_arrived"))


def arrivals_of(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """When the records arrived, in microseconds."""
    stamps: npt.NDArray[np.int64] = np.asarray(batch.column("_arrived").view(pa.int64()))
    return stamps


def row_groups_of(path: Path) -> Iterator[int]:
    """The numbers of the row groups in a file."""
    with pq.ParquetFile(path) as file:
        yield from range(file.num_row_groups)


def _with_own(
    batch: pa.RecordBatch, partition: int, offsets: npt.NDArray[np.int64], arrived: pa.Array
) -> pa.RecordBatch:
    own = [pa.array(np.full(batch.num_rows, partition, np.int32)), pa.array(offsets), arrived]
    return pa.RecordBatch.from_arrays([*batch.columns, *own], [*batch.schema.names, *OWN])
