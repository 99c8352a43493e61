"""A row's key as 16 bytes: the hash of an encoding in which the same keys, and no others, are the same bytes.

Each value is a tag that tells its type, then its bytes: of a fixed number, or after their length. NULL is a tag alone,
so it is not empty text. -0.0 is 0.0 and every NaN is the same NaN; integers of all widths agree, and so do both floats;
a decimal is its digits at the column's scale. Structs, lists and maps hold their values encoded in the same way; a map
is the same in whatever order it is written.

Where a time is part of the key (a window, a timestamp, a date), its second comes first and the hash has 12 bytes: rows
of one time lie together in the database, so a step over the last minute touches few pages of a table of years.

This is written to disk: whoever changes it changes KEY_FORMAT too, and all views are built anew.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.views.stack import Stack
from penstock.views.values import is_window, one_array

KEY_FORMAT = 2
HASH_BYTES = 16
TIME_BYTES = 4

_NULL = b"\x00"
_DAY_SECONDS = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOOLEAN, _INTEGER, _FLOAT, _DECIMAL, _TEXT, _BYTES = 1, 2, 3, 4, 5, 6
_DATE, _TIMESTAMP, _TIMESTAMP_NTZ, _TIME, _INTERVAL, _MONTHS = 7, 8, 9, 10, 11, 12
_LIST, _MAP, _STRUCT = 13, 14, 15

_FEW_KEYS = 5_000
"""Up to so many keys come from a small step: the next one is likely to bring many of them again."""
_SOME_ROWS = 100_000
"""Up to so many rows may be those of many views, in which the same few keys come often."""
_KNOWN_MAX = 100_000
_KNOWN_BYTES = 128
"""So many keys are remembered, and none that is longer when it is encoded."""
_known: dict[int, dict[bytes, bytes]] = {HASH_BYTES: {}, HASH_BYTES - TIME_BYTES: {}}
"""By their size, hashes of keys that small steps brought: looked up in a fifth of the time of making them."""

Matrix = npt.NDArray[np.uint8]
"""A line of bytes for each value."""
Halves = npt.NDArray[np.uint64]
"""The first, or the last, eight bytes of hashes."""
Fixed = list[bytes | Matrix]
"""Bytes of which each row has as many as all others, side by side: the same for all rows, or a line for each."""


def key_hashes(table: pa.Table, columns: Sequence[str], *, remembers: bool = True) -> pa.Array:
    """The hash of each row's key, as binary(16). Without columns all rows have the same: a view of one row.

    Whoever hashes what will hardly come again, such as whole rows to compare them, has none of it remembered.
    """
    rows = table.num_rows
    arrays = [one_array(table.column(name)) for name in columns]
    timed = next((each for each in arrays if _has_time(each.type)), None)
    if timed is None:
        hashes = _digests(arrays, rows, HASH_BYTES, remembers=remembers)
    else:
        digests = _digests(arrays, rows, HASH_BYTES - TIME_BYTES, remembers=remembers)
        hashes = np.concatenate([_seconds(timed), digests], axis=1)
    return _fixed_binary(hashes)


def halves(keys: pa.Array) -> tuple[Halves, Halves]:
    """The first and the last eight bytes of each hash as numbers, which sort as they do; only the first have a time."""
    numbers = _raw(keys, HASH_BYTES).view(">u8")
    return numbers[:, 0].astype(np.uint64), numbers[:, 1].astype(np.uint64)


def key_order(stack: Stack, primary: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """The order in which rows are stored, within each table: written so, they change page by page, not all over.

    Only by the first half of a hash, which is nearly always all of it, and found three times as fast. None where rows
    go by something else.
    """
    if len(primary) != 1 or stack.rows.schema.field(primary[0]).type != pa.binary(HASH_BYTES):
        return None
    firsts, _ = halves(one_array(stack.rows.column(primary[0])))
    return np.concatenate([start + np.argsort(firsts[start:stop], kind="stable") for start, stop in stack.spans])


def key_hash(values: Sequence[Any], types: Sequence[pa.DataType]) -> bytes:
    """The hash of one key, as `key_hashes` has it, for whoever asks for a single row: ten times quicker."""
    encoded = b"".join([_encoded_value(value, kind) for value, kind in zip(values, types, strict=True)])
    timed = next((pa.array([value], kind) for value, kind in zip(values, types, strict=True) if _has_time(kind)), None)
    if timed is None:
        return blake2b(encoded, digest_size=HASH_BYTES).digest()
    return _seconds(timed).tobytes() + blake2b(encoded, digest_size=HASH_BYTES - TIME_BYTES).digest()


def _encoded_value(value: Any, kind: pa.DataType) -> bytes:
    types = pa.types
    if value is None:
        return _NULL
    if types.is_integer(kind):
        return struct.pack("<Bq", _INTEGER, value)
    if types.is_string(kind) or types.is_large_string(kind):
        data: bytes = value.encode()
        return struct.pack("<BQ", _TEXT, len(data)) + data
    if types.is_timestamp(kind) and kind.unit == "us" and isinstance(value, datetime):
        tag = _TIMESTAMP_NTZ if kind.tz is None else _TIMESTAMP
        since = value - (_EPOCH if kind.tz is not None else _EPOCH.replace(tzinfo=None))
        return struct.pack("<Bq", tag, since // timedelta(microseconds=1))
    if types.is_struct(kind):
        fields = [_encoded_value(value.get(each.name), each.type) for each in kind]
        return struct.pack("<BI", _STRUCT, len(fields)) + b"".join(fields)
    encoded: bytes = _encoded(pa.array([value], kind))[0].as_py()
    return encoded


# --- the time of a key ---


def _has_time(kind: pa.DataType) -> bool:
    """Whether it is a time, or a window, whose start is one."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) or is_window(kind))


def _seconds(array: pa.Array) -> Matrix:
    """The second of each time, from 1970 as far as 4 bytes reach; the first one where it is earlier, or NULL."""
    times = _fields(array)[0] if pa.types.is_struct(array.type) else array
    if pa.types.is_date32(times.type):  # Not cast to a timestamp: there are dates beyond the last one.
        numbers = _numbers(times.view(pa.int32())).astype(np.int64) * _DAY_SECONDS
    else:
        numbers = _numbers(_as(times, pa.timestamp("us", times.type.tz)).view(pa.int64())) // 1_000_000
    seconds: npt.NDArray[Any] = np.minimum(np.maximum(numbers, 0), (1 << 32) - 1).astype(">u4")
    return seconds.view(np.uint8).reshape(len(array), TIME_BYTES)


# --- the hash of a key ---


def _digests(arrays: Sequence[pa.Array], rows: int, size: int, *, remembers: bool) -> Matrix:
    """The hash of each row."""
    if not arrays or not rows:
        return np.tile(np.frombuffer(blake2b(digest_size=size).digest(), np.uint8), (rows, 1))
    encoded, longest = _encoded_rows(arrays, rows)
    if not remembers or rows > _SOME_ROWS or longest > _KNOWN_BYTES:
        return _matrix(_hashed(_pieces(encoded), size), size)
    coded = encoded.dictionary_encode()
    pieces = _pieces(coded.dictionary)
    digests = _remembered(pieces, size) if len(pieces) <= _FEW_KEYS else _hashed(pieces, size)
    found: Matrix = _matrix(digests, size)[coded.indices.to_numpy()]
    return found


def _hashed(pieces: Sequence[bytes], size: int) -> bytes:
    begin = blake2b(digest_size=size).copy  # A copy is made in two thirds of the time of a new one.
    return b"".join([_digest(begin(), piece) for piece in pieces])


def _remembered(pieces: Sequence[bytes], size: int) -> bytes:
    known = _known[size]
    try:
        return b"".join(map(known.__getitem__, pieces))
    except KeyError:
        if len(known) > _KNOWN_MAX:
            known = _known[size] = {}  # A new one: another thread may be reading the old one.
        for piece in pieces:
            if piece not in known:
                known[piece] = blake2b(piece, digest_size=size).digest()
        return b"".join(map(known.__getitem__, pieces))


def _encoded_rows(arrays: Sequence[pa.Array], rows: int) -> tuple[pa.Array, int]:
    """Each row as it is encoded, and how long the longest of them is."""
    fixed = _all_fixed(arrays)
    if fixed is not None:
        matrix = _side_by_side(fixed, rows)
        return _fixed_binary(matrix), matrix.shape[1]
    joined = _joined([_encoded(each) for each in arrays])
    return joined, pc.max(pc.binary_length(joined)).as_py()


def _pieces(encoded: pa.Array) -> list[bytes]:
    """Each value by itself."""
    if not pa.types.is_fixed_size_binary(encoded.type):
        return encoded.to_pylist()  # type: ignore[no-any-return]
    return _cut(_raw(encoded, encoded.type.byte_width))  # All of a size, so numpy can cut them.


def _matrix(data: bytes, width: int) -> Matrix:
    return np.frombuffer(data, np.uint8).reshape(-1, width)


def _fixed_binary(matrix: Matrix) -> pa.Array:
    rows, width = matrix.shape
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, data])


def _cut(matrix: Matrix) -> list[bytes]:
    """Each line by itself."""
    lines: Any = np.ascontiguousarray(matrix).view(np.dtype((np.void, matrix.shape[1])))
    pieces: list[bytes] = lines.ravel().tolist()
    return pieces


def _digest(begun: Any, piece: bytes) -> bytes:
    begun.update(piece)
    digest: bytes = begun.digest()
    return digest


# --- the encoding of a key ---


def _encoded(array: pa.Array) -> pa.Array:
    """Each value as tag and bytes; never NULL."""
    whole = _encoded_valid(array)
    if not array.null_count:
        return whole
    return pc.if_else(array.is_valid(), whole, pa.scalar(_NULL, pa.large_binary()))


def _encoded_valid(array: pa.Array) -> pa.Array:
    """The same; what stands where the array is NULL does not matter."""
    kind, types = array.type, pa.types
    fixed = _fixed(array)
    if fixed is not None:
        return _as_binary(fixed, len(array))
    if types.is_null(kind):
        return pa.array([_NULL] * len(array), pa.large_binary())
    if types.is_string(kind) or types.is_large_string(kind):
        return _sized(_TEXT, array.cast(pa.large_string()).view(pa.large_binary()))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _sized(_BYTES, array.cast(pa.large_binary()))
    if types.is_struct(kind):
        return _joined([_as_binary(_struct_tag(array), len(array)), *map(_encoded, _fields(array))])
    if types.is_map(kind):
        return _maps(array)
    if types.is_fixed_size_list(kind):
        return _encoded_valid(array.cast(pa.list_(kind.value_field)))
    assert types.is_list(kind) or types.is_large_list(kind), f"a key cannot hold {kind}"
    return _lists(array)


def _fixed(array: pa.Array) -> Fixed | None:
    """Each value as tag and bytes, where all have as many; None where they do not."""
    kind, types = array.type, pa.types
    if types.is_boolean(kind):
        return _tagged(_BOOLEAN, _numbers(array.cast(pa.int8())).astype("<i1"))
    if types.is_integer(kind):
        return _tagged(_INTEGER, _numbers(_as(array, pa.int64())))
    if types.is_floating(kind):
        return _tagged(_FLOAT, _floats(array))
    if types.is_decimal(kind):
        return _decimals(array)
    if types.is_date32(kind):
        return _tagged(_DATE, _numbers(array.view(pa.int32()).cast(pa.int64())))
    if types.is_timestamp(kind):
        tag = _TIMESTAMP_NTZ if kind.tz is None else _TIMESTAMP
        return _tagged(tag, _numbers(_as(array, pa.timestamp("us", kind.tz)).view(pa.int64())))
    if types.is_time(kind):
        return _tagged(_TIME, _numbers(array.cast(pa.time64("ns")).view(pa.int64())))
    if types.is_duration(kind):
        return _tagged(_INTERVAL, _numbers(array.cast(pa.duration("us")).view(pa.int64())))
    if types.is_interval(kind):
        return _tagged(_MONTHS, _raw(array, 16))
    if types.is_struct(kind):
        fields = _all_fixed(_fields(array))
        return None if fields is None else [*_struct_tag(array), *fields]
    return None


def _all_fixed(arrays: Sequence[pa.Array]) -> Fixed | None:
    """The same of several columns; None where one of them is not so, or has a NULL."""
    found: Fixed = []
    for each in arrays:
        fixed = None if each.null_count else _fixed(each)
        if fixed is None:
            return None
        found += fixed
    return found


def _fields(array: pa.Array) -> list[pa.Array]:
    fields: list[pa.Array] = array.flatten()
    return fields


def _struct_tag(array: pa.Array) -> Fixed:
    return [struct.pack("<BI", _STRUCT, array.type.num_fields)]


def _tagged(tag: int, values: npt.NDArray[Any]) -> Fixed:
    """Values of a fixed size, each behind its tag."""
    rows = len(values)
    wide = values.view(np.uint8).reshape(rows, -1) if rows else np.empty((0, values.dtype.itemsize), np.uint8)
    return [bytes([tag]), wide]


def _side_by_side(fixed: Fixed, rows: int) -> Matrix:
    widths = [len(each) if isinstance(each, bytes) else each.shape[1] for each in fixed]
    matrix = np.empty((rows, sum(widths)), np.uint8)
    stop = 0
    for each, width in zip(fixed, widths, strict=True):
        start, stop = stop, stop + width
        matrix[:, start:stop] = np.frombuffer(each, np.uint8) if isinstance(each, bytes) else each
    return matrix


def _as_binary(fixed: Fixed, rows: int) -> pa.Array:
    return _fixed_binary(_side_by_side(fixed, rows)).cast(pa.large_binary())


def _sized(tag: int, values: pa.Array) -> pa.Array:
    """Bytes of any length, each behind its tag and its length."""
    values = values.fill_null(b"") if values.null_count else values
    lengths = pc.binary_length(values).to_numpy().astype("<u8")
    return _joined([_as_binary(_tagged(tag, lengths), len(values)), values])


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """The bytes of several columns, row by row."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    array = array.fill_null(0) if array.null_count else array
    numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers


def _floats(array: pa.Array) -> npt.NDArray[Any]:
    values = _numbers(array.cast(pa.float64())) + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan
    return values


def _decimals(array: pa.Array) -> Fixed:
    """The scale, then the digits as one number of 32 bytes: enough for every decimal."""
    wide = array.cast(pa.decimal256(76, array.type.scale))
    return [struct.pack("BB", _DECIMAL, array.type.scale % 256), _raw(wide, 32)]


def _raw(array: pa.Array, size: int) -> npt.NDArray[Any]:
    """The bytes of an array whose values all have the same size; anything where it is NULL."""
    data = array.buffers()[1]
    numbers = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return numbers[array.offset * size : (array.offset + len(array)) * size].reshape(-1, size)


def _lists(array: pa.Array) -> pa.Array:
    """The number of values, then each of them."""
    values = _encoded(_inside(array, array.values))
    starts = array.offsets.to_numpy().astype(np.int64) if len(array) else np.zeros(1, np.int64)
    lists = pa.LargeListArray.from_arrays(pa.array(starts - starts[0]), values)
    return _joined(
        [
            _as_binary(_tagged(_LIST, np.diff(starts).astype("<u4")), len(array)),
            pc.binary_join(lists, pa.scalar(b"", pa.large_binary())),
        ]
    )


def _maps(array: pa.Array) -> pa.Array:
    """The number of entries, then each of them, in the order of their encoded keys."""
    keys = _encoded(_inside(array, array.keys)).to_pylist()
    items = _encoded(_inside(array, array.items)).to_pylist()
    starts = array.offsets.to_numpy().astype(np.int64) if len(array) else np.zeros(1, np.int64)
    starts = starts - starts[0]
    texts = [
        b"".join([part for entry in sorted(zip(keys[low:high], items[low:high], strict=True)) for part in entry])
        for low, high in pairwise(starts.tolist())
    ]
    counts = _as_binary(_tagged(_MAP, np.diff(starts).astype("<u4")), len(array))
    return _joined([counts, pa.array(texts, pa.large_binary())])


def _inside(array: pa.Array, values: pa.Array) -> pa.Array:
    """The part of the values that the array's lists reach over: a slice keeps the values of its whole."""
    offsets = array.offsets
    return values.slice(offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()) if len(array) else values[:0]
