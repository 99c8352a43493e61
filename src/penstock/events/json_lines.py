"""JSON lines become columns: one event a line, at the speed of pyarrow's reader, with the care of Python's.

pyarrow reads all lines at once, but stops at the first bad one, and is less strict than we are (a block that begins
with `null` even ends the process). So it is asked only where it cannot go wrong, and what it refuses is read again line
by line.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from penstock.events.ddl import ArrowArray, ArrowType
from penstock.events.encoded import Encoded, Rejected
from penstock.events.rows import encode_rows
from penstock.events.tables import encode_table
from penstock.events.unfit import Unfit, shortened, shown, unknown_name
from penstock.events.values import EXACT_INTEGER_MOST

_BLOCK_BYTES = 4 << 20
_SPLIT_BYTES = 64 << 10
_PIECE_LINES = 256
_LARGE_CHARACTERS = 64 << 10
_MEMBER = re.compile(r'[ \t\r]*[{,][ \t\r]*"((?:[^"\\]|\\.)*+)"[ \t\r]*:[ \t\r]*', re.DOTALL)


def encode_json_lines(data: bytes, schema: pa.Schema, *, rejected_most: int | None = None) -> Encoded:
    """Fit JSON lines to a schema. Blank lines are skipped and not counted; every other line is one JSON object.

    With `rejected_most`, reading ends soon after so many lines were rejected: what follows is in neither part.
    """
    encoded = _encode_at_once(data, schema)
    if encoded is not None:
        return encoded
    return _encode_in_pieces(_lines(data), schema, rejected_most)


def encode_json_values(values: Sequence[bytes], schema: pa.Schema) -> Encoded:
    """Fit JSON values to a schema. Each is one JSON object, or rejected: also what is blank."""
    together = b"\n".join(values)
    is_one_a_line = together.count(b"\n") == len(values) - 1
    encoded = _encode_at_once(together, schema) if is_one_a_line else None
    if encoded is not None and encoded.batch.num_rows == len(values):
        return encoded
    return _encode_in_pieces(values, schema)


def _lines(data: bytes) -> Iterator[bytes]:
    """The lines that are not blank. Split block by block: as objects, millions of lines need far more memory."""
    start = 0
    while start < len(data):
        stop = data.find(b"\n", start + _SPLIT_BYTES)
        stop = len(data) if stop < 0 else stop
        yield from filter(bytes.strip, data[start:stop].split(b"\n"))
        start = stop + 1


def _encode_in_pieces(lines: Iterable[bytes], schema: pa.Schema, rejected_most: int | None = None) -> Encoded:
    """A bad line costs its piece the fast way, and no other."""
    remaining = iter(lines)
    pieces: list[Encoded] = []
    rejected = 0
    while (rejected_most is None or rejected < rejected_most) and (
        piece := list(itertools.islice(remaining, _PIECE_LINES))
    ):
        pieces.append(_encode_piece(piece, schema))
        rejected += len(pieces[-1].rejected)
    return _joined(pieces, schema)


def _encode_piece(lines: Sequence[bytes], schema: pa.Schema) -> Encoded:
    encoded = _encode_at_once(b"\n".join(lines), schema)
    return (
        encoded if encoded is not None and encoded.batch.num_rows == len(lines) else _encode_one_by_one(lines, schema)
    )


def _encode_at_once(data: bytes, schema: pa.Schema) -> Encoded | None:
    """All lines in one go, or None if any of them needs a closer look."""
    table = _read_at_once(data, schema)
    if table is None:
        return None
    try:
        encoded = encode_table(table, schema)
    except pa.ArrowInvalid:
        # pyarrow reads text that is not UTF-8 as if it were.
        return None
    return None if encoded.rejected else encoded


def _read_at_once(data: bytes, schema: pa.Schema) -> pa.Table | None:
    """What pyarrow reads, or None if any line needs a closer look."""
    if b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    data = data.strip(b"\n")
    # Every line begins with { and ends with }: then a line break is never inside an event.
    lines = data.count(b"\n") + 1
    if data[:1] != b"{" or data[-1:] != b"}" or data.count(b"}\n{") != lines - 1:
        return None
    wanted = _reading_schema(schema)
    if wanted is None:
        return None
    is_large = len(data) > _BLOCK_BYTES
    try:
        table = pyarrow.json.read_json(
            io.BytesIO(data),
            pyarrow.json.ReadOptions(use_threads=is_large, block_size=_BLOCK_BYTES if is_large else len(data) + 1),
            pyarrow.json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="error"),
        )
    except (pa.ArrowException, ValueError):
        return None
    if table.num_rows != lines:
        return None
    return table if all(_is_exact(chunk) for column in table.columns for chunk in column.chunks) else None


def _reading_schema(schema: pa.Schema) -> pa.Schema | None:
    """How pyarrow shall read the columns: what it would read by looser rules than ours, it reads as text."""
    fields = []
    for field in schema:
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            fields.append(pa.field(field.name, pa.string()))
        elif _is_read_alike(field.type):
            fields.append(pa.field(field.name, field.type))
        else:
            return None
    return pa.schema(fields)


def _is_read_alike(data_type: ArrowType) -> bool:
    """Whether pyarrow reads this type from JSON by our rules, but for whole numbers rounded to floats."""
    types = pa.types
    if types.is_list(data_type):
        return _is_read_alike(data_type.value_type)
    if types.is_struct(data_type):
        return all(_is_read_alike(field.type) for field in data_type)
    return not (types.is_map(data_type) or types.is_binary(data_type) or types.is_temporal(data_type))


def _is_exact(array: ArrowArray) -> bool:
    """Whether no float is so large that it may be a whole number that pyarrow rounded."""
    types = pa.types
    if types.is_list(array.type) or types.is_struct(array.type):
        children = [array.flatten()] if types.is_list(array.type) else array.flatten()
        return all(_is_exact(child) for child in children)
    if not types.is_floating(array.type):
        return True
    values = array.drop_null().to_numpy()
    return bool((np.abs(values) < EXACT_INTEGER_MOST[array.type]).all())


def _encode_one_by_one(lines: Sequence[bytes], schema: pa.Schema) -> Encoded:
    rows: list[Any] = []
    positions: list[int] = []
    rejected: list[Rejected] = []
    for index, line in enumerate(lines):
        try:
            text = line.decode()
            if len(text) > _LARGE_CHARACTERS:
                _check_names(text, schema.names)
            rows.append(_DECODER.decode(text))
            positions.append(index)
        except (ValueError, ArithmeticError, RecursionError) as error:
            place = error.path if isinstance(error, Unfit) else ""
            rejected.append(Rejected(line, _reason(error), place or None, index))
    encoded = encode_rows(rows, schema, lambda indexes: [lines[positions[index]] for index in indexes])
    if not rejected and encoded.kept is None:
        return encoded
    rejected += [Rejected(one.raw, one.reason, one.column, positions[one.index]) for one in encoded.rejected]
    rejected.sort(key=lambda one: one.index)
    at = np.array(positions, np.int64)
    return Encoded(encoded.batch, rejected, at if encoded.kept is None else at[encoded.kept])


def _joined(pieces: list[Encoded], schema: pa.Schema) -> Encoded:
    """Several outcomes as one, with positions counted from the first piece on."""
    if len(pieces) == 1:
        return pieces[0]
    kept: list[npt.NDArray[np.int64]] = []
    rejected: list[Rejected] = []
    start = 0
    for piece in pieces:
        rows = piece.batch.num_rows
        kept.append((np.arange(rows, dtype=np.int64) if piece.kept is None else piece.kept) + start)
        rejected += [Rejected(one.raw, one.reason, one.column, one.index + start) for one in piece.rejected]
        start += rows + len(piece.rejected)
    batches = [piece.batch for piece in pieces] or [pa.RecordBatch.from_pylist([], schema)]
    return Encoded(pa.concat_batches(batches), rejected, np.concatenate(kept) if rejected else None)


def _reason(error: Exception) -> str:
    if isinstance(error, Unfit):
        return error.reason
    if isinstance(error, json.JSONDecodeError):
        return f"expected a JSON object, found an error at character {error.pos + 1}: {error.msg}"
    if isinstance(error, UnicodeDecodeError):
        return f"expected UTF-8, found the byte 0x{error.object[error.start]:02x} at byte {error.start + 1}"
    if isinstance(error, RecursionError):
        return "expected a JSON object, found one nested too deeply"
    return f"expected a JSON object, found a number that cannot be read: {error}"


def _check_names(text: str, known: list[str]) -> None:
    """Refuses a large event at its first wrong name, before all of it becomes objects. The decoder finds all else."""
    seen: set[str] = set()
    at = 0
    while member := _MEMBER.match(text, at):
        name = _DECODER.decode(f'"{member[1]}"')
        if name in seen:
            raise Unfit(f"expected each name once, found {shown(name)} twice")
        if name not in known:
            raise Unfit(unknown_name(name, known), shortened(name))
        seen.add(name)
        try:
            _, at = _DECODER.raw_decode(text, member.end())
        except json.JSONDecodeError:
            return


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    event = dict(pairs)
    if len(event) < len(pairs):
        del event
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise Unfit(f"expected each name once, found {shown(twice)} twice")
    return event


def _number(text: str) -> float | Decimal:
    """A float, unless its text says something else: then a decimal, which keeps every digit for decimal columns."""
    number = float(text)
    return number if repr(number) == text else Decimal(text)


def _integer(text: str) -> int | float:
    """An integer, but -0, which only floats have."""
    return int(text) if text != "-0" else -0.0


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_int=_integer)
