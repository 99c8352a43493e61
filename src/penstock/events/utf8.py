"""Text that is not UTF-8. Arrow keeps any bytes as a string; decoding them later fails."""

from __future__ import annotations

import pyarrow as pa

from penstock.events.ddl import ArrowArray


def rows_not_utf8(array: ArrowArray) -> list[int]:
    """The places of values with such a text in them. ArrowInvalid if the array is broken in another way."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
    else:
        return []
    if len(array) == 1:
        return [0]
    middle = len(array) // 2
    # Copies: of a slice of lists Arrow looks at the values beside it, too.
    low, high = (array.take(pa.array(range(*each))) for each in ((0, middle), (middle, len(array))))
    return [*rows_not_utf8(low), *(middle + row for row in rows_not_utf8(high))]
