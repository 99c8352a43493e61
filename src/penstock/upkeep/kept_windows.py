"""The rows of a topic that a redo by window may need again, kept beside the view in pieces.

A window is read whole or not at all, so its rows need not be rows of the database as well. Those of one step that fall
into one slide of the window are one piece, an Arrow message, found by the time at which the slide begins. A late event
adds a small piece to an old slide; where many have come together they become one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.upkeep.changes import is_among
from penstock.upkeep.kept_rows import NO_TIME, TIME, KeptChange, joined_ranges, times_of
from penstock.views.catalog import Layers
from penstock.views.tables import In, Ranges, StoredTable, table_name
from penstock.views.values import one_array

TIME_MAX = np.iinfo(np.int64).max

PLACE = ("_partition", "_offset")
"""A piece goes by the place of its first record, which is in no other one."""
COUNT, MESSAGE = "_count", "_rows"

PIECES_MAX = 64
"""The small pieces of a slide become one when more than these were read."""
PIECE_BYTES = 16 << 20
"""A larger piece is cut; every database takes one of this size."""


@dataclass(frozen=True)
class KeptWindows:
    """The kept rows of one topic of one view. They belong to a generation and vanish with it."""

    purpose: ClassVar[str] = "kept pieces"

    name: str
    """Of the table, without the generation."""
    columns: pa.Schema
    """What is kept: what the view needs, the time that decides the window, and the place in the log."""
    time: str
    """The column that says when: the event time or the arrival."""
    slide_us: int
    offset_us: int
    """Slides begin so long after 1970, and every `slide_us` from there."""

    def table(self, layers: Layers) -> StoredTable:
        """How it is stored."""
        schema = pa.schema(
            [
                (TIME, pa.int64()),
                ("_partition", pa.int32()),
                ("_offset", pa.int64()),
                (COUNT, pa.int64()),
                (MESSAGE, pa.binary()),
            ]
        )
        beneath = self.table(layers[1:]) if layers[1:] else None
        return StoredTable(table_name(self.name, layers[0]), schema, (TIME, *PLACE), (), beneath)

    def chosen(self, records: pa.Table) -> pa.Table:
        """What is kept of records. Those without a time are in no window."""
        with_time = records.filter(pc.is_valid(records.column(self.time)))
        return with_time.select(self.columns.names).cast(self.columns)

    def pieces_in(self, ranges: Sequence[tuple[int, int]]) -> Ranges:
        """All pieces that may hold rows of these moments."""
        return Ranges(TIME, joined_ranges([(max(start - self.slide_us + 1, NO_TIME), stop) for start, stop in ranges]))

    def rows(self, pieces: pa.Table) -> pa.Table:
        """What is in the pieces."""
        messages = one_array(pieces.column(MESSAGE))
        batches = [pa.ipc.read_record_batch(each.as_buffer(), self.columns) for each in messages]
        return pa.Table.from_batches(batches, self.columns)

    def times(self, rows: pa.Table) -> pa.Array:
        """When each row was, in microseconds."""
        return times_of(rows, self.time)

    def starts(self, rows: pa.Table, length_us: int) -> npt.NDArray[np.int64]:
        """Start of each window of that length that a row falls into, within the range of timestamps."""
        slides = np.unique(self._slides(rows))
        slides = slides[(slides >= NO_TIME + length_us) & (slides <= TIME_MAX - length_us)]
        back = np.arange(-(-length_us // self.slide_us)) * self.slide_us
        return np.unique(slides[:, np.newaxis] - back)

    def _slides(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """When the slide of each row begins."""
        times = self.times(rows).to_numpy()
        since = np.mod(np.mod(times, self.slide_us) - self.offset_us, self.slide_us)
        return np.where(times < NO_TIME + self.slide_us, NO_TIME, times - since)

    def change(self, layers: Layers, new: pa.Table, read: pa.Table | None = None) -> KeptChange:
        """Keeps `new` rows, which were `chosen`. Slides with too many of the pieces that were `read` are made one."""
        table, crowded = self.table(layers), _crowded(read) if read is not None else None
        if crowded is not None and read is not None:
            old = self.rows(read.filter(is_among(one_array(read.column(TIME)), crowded.values)))
            new = pa.concat_tables([old, new])
        pieces = [(slide, *piece) for slide, rows in self._by_slide(new) for piece in _pieces(rows)]
        columns = zip(*pieces, strict=True) if pieces else [()] * len(table.schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, table.schema, strict=True)]
        return KeptChange(table, pa.table(arrays, schema=table.schema), crowded)

    def _by_slide(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """When each slide begins, and its rows."""
        if not rows.num_rows:
            return
        slides = self._slides(rows)
        order: npt.NDArray[np.int64] = np.argsort(slides, kind="stable")
        found, starts = np.unique(slides[order], return_index=True)
        rows = rows.take(pa.array(order))
        for slide, start, stop in zip(found.tolist(), starts, [*starts[1:], len(order)], strict=True):
            yield slide, rows.slice(start, stop - start)


def _crowded(pieces: pa.Table) -> In | None:
    """The slides that have too many small pieces."""
    is_small = pc.less(pc.binary_length(pieces.column(MESSAGE)), PIECE_BYTES // 2)
    counts = pc.value_counts(one_array(pieces.filter(is_small).column(TIME)))
    found = counts.field("values").filter(pc.greater(counts.field("counts"), PIECES_MAX))
    return In(TIME, found) if len(found) else None


def _pieces(rows: pa.Table) -> Iterator[tuple[int, int, int, bytes]]:
    """The rows of one slide, as they are stored: the place of the first, how many there are, and all of them."""
    if rows.nbytes > PIECE_BYTES and rows.num_rows > 1:
        middle = rows.num_rows // 2
        yield from _pieces(rows[:middle])
        yield from _pieces(rows[middle:])
        return
    [batch] = rows.combine_chunks().to_batches()
    partition, offset = (batch.column(name)[0].as_py() for name in PLACE)
    yield partition, offset, batch.num_rows, batch.serialize().to_pybytes()
