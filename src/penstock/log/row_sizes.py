"""How many bytes rows take in the log: each by itself, and as pieces of a batch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

RECORD_BYTES_MAX = 64 << 20
"""The largest record that a log takes, unless its settings say otherwise."""
ARRIVAL_BYTES = 8


def pieces_of(batch: pa.RecordBatch, bytes_max: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cuts a batch into pieces of at most so many bytes, each with its first row. A single row may be larger.

    Sizes are those of the rows themselves: a batch is halved until the pieces fit, however unlike its rows are.
    """
    waiting = [(0, batch)] if batch.num_rows else []
    while waiting:
        start, piece = waiting.pop()
        if piece.num_rows == 1 or _fits(piece, bytes_max):
            yield start, piece
        else:
            half = piece.num_rows // 2
            waiting += [(start + half, piece.slice(half)), (start, piece.slice(0, half))]


def rows_over(batch: pa.RecordBatch, bytes_max: int) -> dict[int, int]:
    """The rows that have more bytes than that, with their sizes."""
    return {start: _size_of(piece) for start, piece in pieces_of(batch, bytes_max) if not _fits(piece, bytes_max)}


def _fits(piece: pa.RecordBatch, bytes_max: int) -> bool:
    """Whole buffers are never smaller than the rows in them, and their size is known at once."""
    whole: int = piece.get_total_buffer_size() + ARRIVAL_BYTES * piece.num_rows
    return whole <= bytes_max or _size_of(piece) <= bytes_max


def _size_of(piece: pa.RecordBatch) -> int:
    size: int = piece.nbytes + ARRIVAL_BYTES * piece.num_rows
    return size
