"""CSV becomes columns: at the speed of pyarrow's reader, with care where it stops.

Values are separated by commas and may stand in double quotes, which are doubled inside. An empty value is NULL; one in
quotes is an empty text. Numbers, booleans (true, false, 1, 0) and times are read as the column's type wants
them, binary as base64, and arrays, maps and structs as JSON.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.events.ddl import ArrowArray, ArrowType
from penstock.events.encoded import Encoded, Rejected
from penstock.events.rows import encode_rows
from penstock.events.tables import encode_table
from penstock.events.values import EXACT_INTEGER_MOST


def _for_this_python(pattern: str) -> str:
    """Python before 3.11.5 finds too much where parts of a pattern never give back: there they may, but need not."""
    return pattern if sys.version_info >= (3, 11, 5) else pattern.replace("++", "").replace("*+", "*")


_QUOTED = r'"(?:[^"]++|"")*+"[^,\n]*+'
_VALUE = rf'(?:{_QUOTED}|(?!")[^,\n]*+)'
_RECORD = rf"(?:{_VALUE},)*+{_VALUE}(?:\n|\Z)"
_WHOLE_RECORDS = re.compile(_for_this_python(rf"(?:(?:{_VALUE},)*+{_VALUE}\n)*+").encode())
_ONE_RECORD = re.compile(_for_this_python(_RECORD))
_ONE_VALUE = re.compile(
    _for_this_python(r'(?:"(?P<quoted>(?:[^"]++|"")*+)"|(?P<plain>(?!")[^,\n]*+))(?P<end>,|\r?\n|\Z)')
)
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_INTEGER = r"[+-]?[0-9]+"


def end_of_records(data: bytes) -> int:
    """Where the last whole record ends: a line break inside quotes ends none."""
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    found = _WHOLE_RECORDS.match(data)
    return found.end() if found is not None else 0


def read_header(line: bytes) -> list[str]:
    """The names of the columns. ValueError if they cannot be read."""
    text = line.decode("utf-8-sig").removesuffix("\n")
    cells = _cells(text)
    if isinstance(cells, str):
        raise ValueError(cells)
    return [(cell or "").strip() for cell in cells]


def encode_csv(data: bytes, columns: Sequence[str], schema: pa.Schema) -> Encoded:
    """Fit the records of some CSV, without its header, to a schema. Blank lines are skipped and not counted."""
    table = _read_fast(data, columns, schema)
    if table is not None:
        encoded = encode_table(table, schema)
        if not encoded.rejected:
            return encoded
    return _encode_record_by_record(data, columns, schema)


def _read_fast(data: bytes, columns: Sequence[str], schema: pa.Schema) -> pa.Table | None:
    """All records in one go, or None if one of them needs a closer look."""
    if not data.strip():
        return None
    try:
        table = pyarrow.csv.read_csv(
            io.BytesIO(data),
            pyarrow.csv.ReadOptions(column_names=list(columns), use_threads=False, block_size=len(data) + 1),
            pyarrow.csv.ParseOptions(newlines_in_values=b'"' in data),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        arrays = [_typed(table.column(name).combine_chunks(), schema.field(name).type) for name in columns]
    except (pa.ArrowException, ValueError):
        return None
    return pa.table(arrays, names=list(columns))


def _typed(texts: ArrowArray, data_type: ArrowType) -> ArrowArray:
    """A column of texts as what the schema wants, where texts will not do. ArrowInvalid or ValueError if not so."""
    types = pa.types
    if types.is_integer(data_type):
        if not pc.all(pc.match_substring_regex(texts, f"^{_INTEGER}$"), min_count=0).as_py():
            raise ValueError(data_type)
        return pc.replace_substring_regex(texts, r"^\+", "").cast(data_type)
    if types.is_floating(data_type):
        numbers = texts.cast(pa.float64())
        if pc.any(pc.greater_equal(pc.abs(numbers), EXACT_INTEGER_MOST[data_type]), min_count=0).as_py():
            raise ValueError(data_type)  # A whole number of this size may not be exact any more.
        return numbers
    if types.is_boolean(data_type):
        return texts.cast(pa.bool_())  # By the same four words, in any case.
    if types.is_nested(data_type):
        raise ValueError(data_type)
    return texts


def _encode_record_by_record(data: bytes, columns: Sequence[str], schema: pa.Schema) -> Encoded:
    text = data.decode("utf-8", "surrogateescape")
    converts = [_convert(schema.field(name).type) for name in columns]
    raws: list[str] = []
    rows: list[Any] = []
    positions: list[int] = []
    rejected: list[Rejected] = []
    for record in _records(text):
        cells = _cells(record)
        if not isinstance(cells, str) and len(cells) != len(columns):
            cells = f"expected {len(columns)} values, found {len(cells)}"
        if isinstance(cells, str):
            rejected.append(Rejected(_raw(record), cells, None, len(raws)))
        else:
            rows.append({name: convert(cell) for name, convert, cell in zip(columns, converts, cells, strict=True)})
            positions.append(len(raws))
        raws.append(record)
    encoded = encode_rows(rows, schema, lambda indexes: [_raw(raws[positions[index]]) for index in indexes])
    if not rejected and encoded.kept is None:
        return encoded
    places = np.array(positions, np.int64)
    rejected += [Rejected(one.raw, one.reason, one.column, positions[one.index]) for one in encoded.rejected]
    rejected.sort(key=lambda one: one.index)
    return Encoded(encoded.batch, rejected, places if encoded.kept is None else places[encoded.kept])


def _records(text: str) -> list[str]:
    """The records, without blank lines. A quote that is never closed ends with its line."""
    found = []
    position = 0
    while position < len(text):
        match = _ONE_RECORD.match(text, position)
        line_end = text.find("\n", position)
        end = match.end() if match is not None else line_end + 1 if line_end >= 0 else len(text)
        record = text[position:end].rstrip("\r\n")
        if record:
            found.append(record)
        position = end
    return found


def _cells(record: str) -> list[str | None] | str:
    """The values of a record; a text instead that says what is wrong with it."""
    cells: list[str | None] = []
    position = 0
    while True:
        match = _ONE_VALUE.match(record, position)
        if match is None:
            return f"expected a comma or the end of the line after a value in quotes, at character {position + 1}"
        plain = match["plain"]
        cells.append(match["quoted"].replace('""', '"') if plain is None else plain.rstrip("\r") or None)
        position = match.end()
        if match["end"] != ",":
            return cells


def _convert(data_type: ArrowType) -> Callable[[str | None], Any]:
    """From a text to a value. What cannot be read stays a text, which then does not fit the column."""
    types = pa.types
    if types.is_integer(data_type):
        return lambda text: int(text) if text is not None and re.fullmatch(_INTEGER, text) else text
    if types.is_floating(data_type):
        return _to_number
    if types.is_boolean(data_type):
        return lambda text: None if text is None else _BOOLEANS.get(text.lower(), text)
    if types.is_nested(data_type):
        return _to_json
    return lambda text: text


def _to_number(text: str | None) -> float | str | None:
    try:
        if text is None:
            return None
        return int(text) if re.fullmatch(_INTEGER, text) else float(text)
    except ValueError:
        return text


def _to_json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def _raw(record: str) -> bytes:
    return record.encode("utf-8", "surrogateescape")
