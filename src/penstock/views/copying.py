"""Rows as the text that PostgreSQL's COPY reads, made column by column.

The text format and not CSV: up to PostgreSQL 17, a line of a quoted CSV value that is just `\\.` ends the copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ROWS_AT_ONCE = 20_000
_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_LARGE = pa.large_string()


def copy_lines(arrays: Sequence[pa.Array]) -> Iterator[memoryview]:
    """Lines for the rows that these plain columns make, some thousands at a time."""
    for start in range(0, len(arrays[0]), _ROWS_AT_ONCE):
        fields = [_fields(each[start : start + _ROWS_AT_ONCE]) for each in arrays]
        fields[-1] = pc.binary_join_element_wise(fields[-1], pa.scalar("\n", _LARGE), pa.scalar("", _LARGE))
        lines = fields[0]
        if len(fields) > 1:
            lines = pc.binary_join_element_wise(*fields, pa.scalar("\t", _LARGE))
        yield _bytes_of(lines)


def _fields(array: pa.Array) -> pa.Array:
    if pa.types.is_binary(array.type):
        # Two backslashes: the first one is COPY's, the second one begins bytea in hexadecimal.
        texts = pc.binary_join_element_wise(pa.scalar("\\\\x", _LARGE), _hexadecimal(array), pa.scalar("", _LARGE))
    else:
        texts = array.cast(_LARGE)
        if pa.types.is_string(array.type):
            for plain, escaped in _ESCAPES:
                texts = pc.replace_substring(texts, plain, escaped)
    return texts.fill_null("\\N") if array.null_count else texts


def _hexadecimal(array: pa.Array) -> pa.Array:
    """All bytes at once: each becomes two, so every offset doubles."""
    array = pa.concat_arrays([array.cast(pa.large_binary())])
    if array.offset:
        array = pa.array(array.to_pylist(), pa.large_binary())
    validity, offsets, data = array.buffers()
    doubled = np.frombuffer(offsets, np.int64)[: len(array) + 1] * 2
    digits = memoryview(data).hex().encode() if data is not None else b""
    return pa.Array.from_buffers(_LARGE, len(array), [validity, pa.py_buffer(doubled), pa.py_buffer(digits)])


def _bytes_of(lines: pa.Array) -> memoryview:
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int64)
    return memoryview(data)[int(ends[lines.offset]) : int(ends[lines.offset + len(lines)])]
