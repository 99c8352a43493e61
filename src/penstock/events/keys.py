"""Which partition a key belongs to: a hash that never changes.

The same key gives the same partition in every process, on every machine, in every version, and after a column was
widened: 5 is the same key as tinyint, bigint, double or decimal. NULL is a key of its own, -0.0 is 0.0, and every NaN
is the same NaN. `key_hash` does for one key what `partition_of` does for a batch. Changing anything here would tear
keys from their partitions, so the tests hold golden values.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.events.ddl import ArrowArray, ArrowType

Hashes: TypeAlias = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_SEED = 0x50656E73746F636B
_NULL = 0x6E756C6C6E756C6C
_NAN = 0x7FF8000000000000
_TEXT = 0x9E3779B97F4A7C15
_REAL = 0xC2B2AE3D27D4EB4F
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def partition_of(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each row, by the columns that make up its key. Every column must be `is_keyable`."""
    hashes = key_hashes(batch, key)
    return (hashes % np.uint64(partitions)).astype(np.int32)


def key_hashes(batch: pa.RecordBatch, key: Sequence[str]) -> Hashes:
    """The hash of each row's key, 64 bits."""
    hashes = np.full(batch.num_rows, _SEED, np.uint64)
    for name in key:
        hashes = _mixed(hashes ^ _column_hashes(batch.column(name)))
    return hashes


def key_hash(values: Sequence[object]) -> int:
    """The hash of one key, given as Python values in the order of the key's columns."""
    total = _SEED
    for value in values:
        total = _mix(total ^ _value_hash(value))
    return total


def is_keyable(data_type: ArrowType) -> bool:
    """Whether a column of this type can be part of a key: everything but arrays, maps and structs."""
    return not pa.types.is_nested(data_type)


def _column_hashes(column: ArrowArray) -> Hashes:
    kind = column.type
    types = pa.types
    assert is_keyable(kind), f"a key cannot hold {kind}"
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if types.is_string(kind) or types.is_binary(kind):
        hashes = _text_hashes(_filled(column.view(pa.binary()), b"").to_pylist())
    elif types.is_decimal(kind):
        hashes = np.fromiter(map(_decimal_hash, _filled(column, Decimal(0)).to_pylist()), np.uint64, len(column))
    elif types.is_floating(kind):
        hashes = _float_hashes(_filled(column, 0.0).to_numpy(zero_copy_only=False).astype(np.float64))
    else:
        hashes = _mixed(_filled(_integers(column), 0).to_numpy().astype(np.int64).view(np.uint64))
    if nulls is not None:
        hashes[nulls] = _NULL
    return hashes


def _integers(column: ArrowArray) -> ArrowArray:
    """The integers that stand for numbers, times, dates and booleans."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        assert kind.unit == "us", f"times are kept as microseconds, not as {kind}"
        return column.view(pa.int64())
    if pa.types.is_date32(kind):
        return column.view(pa.int32())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    assert pa.types.is_signed_integer(kind), f"a key cannot hold {kind}"
    return column


def _filled(column: ArrowArray, value: object) -> ArrowArray:
    return column.fill_null(value) if column.null_count else column


def _text_hashes(values: list[bytes]) -> Hashes:
    checksums = np.fromiter(map(google_crc32c.value, values), np.uint64, len(values))
    lengths = np.fromiter(map(len, values), np.uint64, len(values))
    return _mixed((checksums | lengths << np.uint64(32)) ^ np.uint64(_TEXT))


def _float_hashes(values: npt.NDArray[np.float64]) -> Hashes:
    with np.errstate(invalid="ignore"):
        is_whole = (np.abs(values) < 2.0**63) & (np.trunc(values) == values)
        whole = np.where(is_whole, values, 0.0).astype(np.int64).view(np.uint64)
    hashes = np.where(is_whole, _mixed(whole), _mixed(values.view(np.uint64) ^ np.uint64(_REAL)))
    hashes[np.isnan(values)] = _NAN
    return hashes


def _value_hash(value: object) -> int:
    """What `_column_hashes` gives for one value."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return _NULL
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return _mix((google_crc32c.value(bytes(value)) | (len(value) << 32 & _MASK)) ^ _TEXT)
    if isinstance(value, float):
        return int(_float_hashes(np.array([value]))[0])
    if isinstance(value, Decimal):
        return _decimal_hash(value)
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return _value_hash((moment - _EPOCH) // _MICROSECOND)
    if isinstance(value, date):
        return _value_hash(value.toordinal() - _EPOCH.toordinal())
    if isinstance(value, int):
        return _mix(value & _MASK) if -(1 << 63) <= value < 1 << 63 else _value_hash(str(int(value)))
    raise TypeError(f"a key cannot hold a {type(value).__name__}")


def _decimal_hash(value: Decimal) -> int:
    """A whole number hashes as the integer, any other as its shortest text: 1.50 is 1.5."""
    if not value.is_finite():
        return _value_hash(float(value))
    # Not by normalize(): that rounds to whatever precision the calling program has set.
    text = f"{value:f}"
    shortest = text.rstrip("0").rstrip(".") if "." in text else text
    return _value_hash(shortest if "." in shortest else int(shortest))


def _mixed(hashes: Hashes) -> Hashes:
    """SplitMix64's finaliser: every bit of the input stirs every bit of the output."""
    hashes = hashes ^ (hashes >> np.uint64(30))
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    hashes ^= hashes >> np.uint64(27)
    hashes *= np.uint64(0x94D049BB133111EB)
    hashes ^= hashes >> np.uint64(31)
    return hashes


def _mix(value: int) -> int:
    """`_mixed` for one value."""
    value ^= value >> 30
    value = value * 0xBF58476D1CE4E5B9 & _MASK
    value ^= value >> 27
    value = value * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
