"""Events become columns: each one kept exactly as it was meant, or set aside with the reason.

A bad record never spoils its neighbours, and nothing is changed on the way: no number is cut or wrapped, no time loses
its nanoseconds, no unknown field is dropped (a fraction in a float or double column is the nearest one there is). What
does not fit comes back as `Rejected`, with its raw bytes, for the dead letters.

    rows.py         dicts                                       \\
    tables.py       Arrow tables and batches, pandas DataFrames  >  each column whole by columns.py, or, where
    json_lines.py   bytes of JSON lines                         /   something is odd, value by value by values.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from penstock.events.encoded import Encoded, Rejected
from penstock.events.json_lines import encode_json_lines
from penstock.events.rows import encode_rows
from penstock.events.tables import encode_pandas, encode_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Encoded", "Events", "Rejected", "encode"]

Events: TypeAlias = "Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch | pd.DataFrame | bytes"


def encode(data: Events, schema: pa.Schema) -> Encoded:
    """Fit events to a schema: every event becomes a row, or is rejected with the reason. Safe to call from any thread.

    Takes a list of dicts, an Arrow table or batch, a pandas DataFrame, or bytes of JSON lines; anything else raises
    `TypeError`. A column that is not there is NULL. Times may be ISO 8601 text (without a zone: UTC), decimals may be
    text, binary may be base64 text. Integers may stand for floats and whole floats for integers where nothing is lost.

    >>> from penstock.events.schema import parse_ddl
    >>> encoded = encode([{"status": 200}, {"status": "OK"}], parse_ddl("status int"))
    >>> encoded.batch.to_pylist(), encoded.rejected[0].reason
    ([{'status': 200}], "expected int, found the text 'OK'")
    """
    if isinstance(data, list | tuple):
        return encode_rows(data, schema)
    if isinstance(data, pa.Table | pa.RecordBatch):
        return encode_table(data, schema)
    if isinstance(data, bytes | bytearray | memoryview):
        return encode_json_lines(bytes(data), schema)
    if type(data).__name__ == "DataFrame" and hasattr(data, "iloc"):
        return encode_pandas(cast("pd.DataFrame", data), schema)
    raise TypeError(
        f"events cannot be given as {type(data).__name__}\n"
        "  expected: a list of dicts, an Arrow table or batch, a pandas DataFrame, or bytes of JSON lines"
    )
