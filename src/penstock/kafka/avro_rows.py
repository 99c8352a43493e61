"""Arrow columns as many Avro records at once: every step goes over all records, none over one of them.

Each column becomes pieces, which are bytes and how many of them each record gets; the pieces of a record are then put
one behind the other. It writes what a writer of single records would.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.events.avro_schema import decimal_bytes
from penstock.events.ddl import ArrowArray

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

_VARINT_BYTES_MAX = 10


class Piece(NamedTuple):
    """Some bytes of every record, those of the first record first."""

    content: Bytes
    lengths: Numbers


def write_rows(batch: pa.RecordBatch, header: bytes) -> list[bytes]:
    """One record per row, each behind the header. The columns must be flat (`avro_columns.is_flat`)."""
    rows = batch.num_rows
    if not rows:
        return []
    pieces = [_same(np.frombuffer(header, np.uint8), rows)]
    for column in batch.columns:
        pieces += _column(column, np.ones(rows, np.bool_))
    lengths = np.sum([piece.lengths for piece in pieces], axis=0, dtype=np.int64)
    ends = np.cumsum(lengths)
    whole = _joined(pieces, ends - lengths).tobytes()
    bounds = ends.tolist()
    return [whole[start:end] for start, end in zip([0, *bounds], bounds, strict=False)]


def _same(content: Bytes, rows: int) -> Piece:
    return Piece(np.tile(content, rows), np.full(rows, len(content), np.int64))


def _joined(pieces: list[Piece], starts: Numbers) -> Bytes:
    """The records, one behind the other; `starts` says where each begins."""
    whole = np.empty(sum(len(piece.content) for piece in pieces), np.uint8)
    for content, lengths in pieces:
        before = np.cumsum(lengths) - lengths
        whole[np.repeat(starts - before, lengths) + np.arange(len(content))] = content
        starts = starts + lengths
    return whole


def _column(array: ArrowArray, is_asked: Flags) -> list[Piece]:
    """A union with null, in the records that are asked for; the others get nothing of it."""
    is_there = is_asked & array.is_valid().to_numpy(zero_copy_only=False)
    branches = np.where(is_there, np.uint8(2), np.uint8(0))[is_asked]
    union = Piece(branches, is_asked.astype(np.int64))
    if pa.types.is_struct(array.type):
        children = [array.field(number) for number in range(array.type.num_fields)]
        return [union, *(piece for child in children for piece in _column(child, is_there))]
    present = array if is_there.all() else array.filter(pa.array(is_there))
    return [union, *(Piece(content, _spread(lengths, is_there)) for content, lengths in _values(present))]


def _spread(lengths: Numbers, is_there: Flags) -> Numbers:
    spread = np.zeros(len(is_there), np.int64)
    spread[is_there] = lengths
    return spread


def _values(array: ArrowArray) -> list[Piece]:
    """Values without NULL."""
    types, rows = pa.types, len(array)
    if not rows:
        return []
    if types.is_string(array.type) or types.is_binary(array.type):
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + rows + 1]
        lengths = np.diff(offsets).astype(np.int64)
        content = np.frombuffer(array.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        return [_longs(lengths), Piece(content, lengths)]
    if types.is_decimal(array.type):
        size = decimal_bytes(array.type.precision)
        wide = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * 16 : (array.offset + rows) * 16]
        return [_fixed(wide.reshape(rows, 16)[:, :size][:, ::-1])]
    if types.is_boolean(array.type):
        return [_fixed(array.to_numpy(zero_copy_only=False).astype(np.uint8)[:, None])]
    if types.is_floating(array.type):
        return [_fixed(array.to_numpy().copy().view(np.uint8).reshape(rows, array.type.bit_width // 8))]
    if types.is_temporal(array.type):
        array = array.view(pa.int32() if types.is_date(array.type) else pa.int64())
    return [_longs(array.to_numpy().astype(np.int64))]


def _fixed(content: npt.NDArray[Any]) -> Piece:
    return Piece(np.ascontiguousarray(content).reshape(-1), np.full(len(content), content.shape[1], np.int64))


def _longs(numbers: Numbers) -> Piece:
    """Numbers of one to ten bytes, seven bits in each, the least first; the sign is the last bit."""
    rest = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    content = np.empty((len(numbers), _VARINT_BYTES_MAX), np.uint8)
    lengths = np.ones(len(numbers), np.int64)
    for place in range(_VARINT_BYTES_MAX):
        content[:, place] = (rest & np.uint64(0x7F)).astype(np.uint8)
        rest = rest >> np.uint64(7)
        is_more = rest > 0
        if not is_more.any():
            break
        content[is_more, place] |= np.uint8(0x80)
        lengths[is_more] += 1
    return Piece(content[np.arange(_VARINT_BYTES_MAX) < lengths[:, None]], lengths)
