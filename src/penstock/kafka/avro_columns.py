"""Many Avro records as Arrow columns at once: every step goes over all records, none over one of them.

Avro is read from left to right, and so it is done here, but for all records side by side: one position in each, which
moves on field by field. What is odd (cut short, too long, a number out of its range) makes it give up; then the caller
looks at each record on its own. What is accepted here is what it would find too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.events.avro_schema import decimal_bytes
from penstock.events.ddl import TIMESTAMP, TIMESTAMP_NTZ, ArrowArray, ArrowField, ArrowType
from penstock.events.times import DATE_LEAST, DATE_MOST, TIME_LEAST_US, TIME_MOST_US

Numbers: TypeAlias = npt.NDArray[np.int64]

_VARINT_BYTES_MAX = 10
_LITTLE: dict[ArrowType, np.dtype[Any]] = {pa.float32(): np.dtype("<f4"), pa.float64(): np.dtype("<f8")}
_RANGES = {
    pa.int8(): (np.int8, -(1 << 7), (1 << 7) - 1),
    pa.int16(): (np.int16, -(1 << 15), (1 << 15) - 1),
    pa.int32(): (np.int32, -(1 << 31), (1 << 31) - 1),
    pa.int64(): (np.int64, -(1 << 63), (1 << 63) - 1),
    pa.date32(): (np.int32, DATE_LEAST, DATE_MOST),
    TIMESTAMP: (np.int64, TIME_LEAST_US, TIME_MOST_US),
    TIMESTAMP_NTZ: (np.int64, TIME_LEAST_US, TIME_MOST_US),
}


class Odd(Exception):
    """Some record needs a closer look."""


def is_flat(schema: pa.Schema) -> bool:
    """Whether these columns can be read at once: arrays and maps, of any length, cannot."""
    return all(_is_flat_type(field.type) for field in schema)


def read_columns(values: Sequence[bytes], skip: int, schema: pa.Schema) -> pa.RecordBatch | None:
    """The records as a batch; None if one of them needs a closer look. `skip` bytes of each are its header."""
    try:
        reader = _Reader(values, skip)
        arrays = [reader.column(field, np.arange(len(values))) for field in schema]
        reader.check_ends()
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (Odd, IndexError, pa.ArrowException):
        return None


def _is_flat_type(data_type: ArrowType) -> bool:
    types = pa.types
    if types.is_struct(data_type):
        return all(_is_flat_type(field.type) for field in data_type)
    return not types.is_nested(data_type)


class _Reader:
    """Records side by side, each read up to its position."""

    def __init__(self, values: Sequence[bytes], skip: int) -> None:
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self._ends = np.cumsum(lengths)
        self._positions = self._ends - lengths + skip
        self._bytes = np.frombuffer(b"".join(values), np.uint8)

    def check_ends(self) -> None:
        """Every record must be read to its last byte, and no further."""
        if not np.array_equal(self._positions, self._ends):
            raise Odd

    def column(self, field: ArrowField, records: Numbers) -> ArrowArray:
        """A column of these records: each value is a union with null."""
        branches = self._taken(records, 1)[:, 0]
        is_there = branches == 2
        if not (is_there | (branches == 0)).all():
            raise Odd
        if is_there.all():
            return self._array(field.type, records)
        if not field.nullable:
            raise Odd
        array = self._array(field.type, records[is_there])
        places = np.cumsum(is_there) - 1
        return array.take(pa.array(places, mask=~is_there))

    def _array(self, data_type: ArrowType, records: Numbers) -> ArrowArray:
        """What is there, without NULL."""
        types = pa.types
        if types.is_struct(data_type):
            children = [self.column(field, records) for field in data_type]
            return pa.StructArray.from_arrays(children, fields=list(data_type))
        if types.is_boolean(data_type):
            flags = self._taken(records, 1)[:, 0]
            if (flags > 1).any():
                raise Odd
            return pa.array(flags == 1)
        if types.is_floating(data_type):
            kind = _LITTLE[data_type]
            return pa.array(self._taken(records, kind.itemsize).view(kind)[:, 0])
        if types.is_decimal(data_type):
            return _decimals(self._taken(records, decimal_bytes(data_type.precision)), data_type)
        if types.is_string(data_type) or types.is_binary(data_type):
            return self._texts(data_type, records)
        width, least, most = _RANGES[data_type]
        numbers = self._longs(records)
        if len(numbers) and (numbers.min() < least or numbers.max() > most):
            raise Odd
        return pa.array(numbers.astype(width, copy=False)).view(data_type)

    def _texts(self, data_type: ArrowType, records: Numbers) -> ArrowArray:
        lengths = self._longs(records)
        starts = self._moved(records, lengths)
        offsets = np.zeros(len(records) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] >= 1 << 31:
            raise Odd
        content = self._bytes[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
        array = pa.Array.from_buffers(data_type, len(records), buffers)
        array.validate(full=True)  # Text must be UTF-8.
        return array

    def _longs(self, records: Numbers) -> Numbers:
        """Numbers of one to ten bytes, seven bits in each, the least first; the sign is the last bit."""
        positions, ends = self._positions[records], self._ends[records]
        found = np.zeros(len(records), np.uint64)
        going: Any = slice(None)
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            at = positions[going]
            if (at >= ends[going]).any():
                raise Odd
            byte = self._bytes[at]
            if shift == 63 and (byte > 1).any():
                raise Odd
            found[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            positions[going] = at + 1
            is_more = byte > 0x7F
            if not is_more.any():
                self._positions[records] = positions
                half, sign = (found >> np.uint64(1)).view(np.int64), (found & np.uint64(1)).view(np.int64)
                return half ^ -sign
            going = np.flatnonzero(is_more) if isinstance(going, slice) else going[is_more]
        raise Odd

    def _taken(self, records: Numbers, width: int) -> npt.NDArray[np.uint8]:
        """The next bytes of each record, as many of all."""
        starts = self._moved(records, np.int64(width))
        taken: npt.NDArray[np.uint8] = self._bytes[starts[:, None] + np.arange(width)]
        return taken

    def _moved(self, records: Numbers, lengths: Any) -> Numbers:
        """Moves over so many bytes, which must be there, and returns where they begin."""
        starts = self._positions[records]
        stops = starts + lengths
        if (stops < starts).any() or (stops > self._ends[records]).any():
            raise Odd
        self._positions[records] = stops
        return starts


def _decimals(content: npt.NDArray[np.uint8], data_type: ArrowType) -> ArrowArray:
    """Numbers with the greatest byte first, as Arrow has them: 16 bytes, the least first."""
    wide = np.empty((len(content), 16), np.uint8)
    wide[:, content.shape[1] :] = np.where(content[:, :1] > 0x7F, np.uint8(0xFF), np.uint8(0))
    wide[:, : content.shape[1]] = content[:, ::-1]
    array = pa.Array.from_buffers(data_type, len(content), [None, pa.py_buffer(wide)])
    array.validate(full=True)  # No more digits than the type has.
    return array
