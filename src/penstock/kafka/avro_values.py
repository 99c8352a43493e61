"""Values in Avro's single-object encoding: two marks, the fingerprint of the schema, and the record.

The fingerprint says which version of the topic's schema wrote it, so no registry is needed. Whoever has the schema
(`penstock topic schema NAME --avro`) can write such values too.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import fingerprint, to_parsing_canonical_form

from penstock.events.avro_schema import AvroSchema, avro_schema, decimal_bytes, is_text_map
from penstock.events.ddl import ArrowType
from penstock.events.encoded import Encoded, Rejected
from penstock.events.rows import encode_rows
from penstock.events.schema import format_type, upgrade
from penstock.events.times import EPOCH
from penstock.events.unfit import Unfit
from penstock.kafka.avro_columns import is_flat, read_columns
from penstock.kafka.avro_rows import write_rows
from penstock.log.definition import TopicDefinition

MARKS = b"\xc3\x01"
HEADER_BYTES = 10
PIECE_VALUES = 256
"""An odd value costs so many of its neighbours the speed, and no other."""

Convert: TypeAlias = Callable[[Any], Any]
_DAY_ZERO = EPOCH.toordinal()
_NAIVE_EPOCH = EPOCH.replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)
_LOGICAL = ("logicalType", "precision", "scale", "doc")


class AvroValues:
    """Values of a topic in Avro. Those of older versions are read as if they had been written with the current one."""

    def __init__(self, definition: TopicDefinition) -> None:
        self._schema = definition.schema
        self._versions: dict[bytes, Version] = {}
        for number in range(len(definition.schemas)):
            version = Version(definition, number)
            # Where tinyint became int, Avro sees no difference: the newer takes all that the older wrote.
            self._versions[version.header] = version
        self._current = version

    def write(self, batch: pa.RecordBatch) -> list[bytes]:
        """One value per row."""
        return self._current.write(batch)

    def read(self, values: Sequence[bytes]) -> Encoded:
        """The events of these values, in their order."""
        found: dict[bytes, list[int]] = {}
        for index, value in enumerate(values):
            found.setdefault(value[:HEADER_BYTES], []).append(index)
        pieces = [self._read(header, [values[index] for index in indexes]) for header, indexes in found.items()]
        return _in_order(pieces, [*found.values()], self._schema)

    def _read(self, header: bytes, values: list[bytes]) -> Encoded:
        """Values that begin alike."""
        version = self._versions.get(header)
        if version is None:
            reason = self._why_unknown(header)
            rejected = [Rejected(value, reason, None, index) for index, value in enumerate(values)]
            return Encoded(pa.RecordBatch.from_pylist([], self._schema), rejected, np.empty(0, np.int64))
        encoded = version.read(values)
        return Encoded(upgrade(encoded.batch, self._schema), encoded.rejected, encoded.kept)

    def _why_unknown(self, header: bytes) -> str:
        if not header.startswith(MARKS) or len(header) < HEADER_BYTES:
            found = header.hex(" ") or "nothing"
            return f"expected Avro's single-object encoding, which begins with c3 01, found {found}"
        known = ", ".join(f"{each.header[2:].hex()} (version {each.number})" for each in self._versions.values())
        return f"expected Avro with the fingerprint of a schema of this topic, {known}, found {header[2:].hex()}"


class Version:
    """One version of the schema of a topic, as Avro has it."""

    def __init__(self, definition: TopicDefinition, number: int) -> None:
        self.number = number
        self.schema = definition.schema_of(number)
        self.header = MARKS + schema_fingerprint(avro_schema(definition.name, self.schema))
        # Numbers and bytes as they are: what they mean is our own affair, so that nothing is rounded on the way.
        self._physical = parse_schema(_physical(avro_schema(definition.name, self.schema)))
        self._outward = {field.name: _outward(field.type) for field in self.schema}
        self._inward = {field.name: _inward(field.type) for field in self.schema}

    def write(self, batch: pa.RecordBatch) -> list[bytes]:
        """One value per row: all at once, where that can be."""
        return write_rows(batch, self.header) if is_flat(self.schema) else self.write_one_by_one(batch)

    def write_one_by_one(self, batch: pa.RecordBatch) -> list[bytes]:
        """The same, also where there are arrays and maps."""
        names = batch.schema.names
        columns = [_plain(column, self._outward[name]) for name, column in zip(names, batch.columns, strict=True)]
        stream, ends = io.BytesIO(), []
        for row in zip(*columns, strict=True):
            stream.write(self.header)
            schemaless_writer(stream, self._physical, dict(zip(names, row, strict=True)))
            ends.append(stream.tell())
        whole = stream.getvalue()
        return [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def read(self, values: Sequence[bytes]) -> Encoded:
        """Values with this header: all at once, or, where one is odd, some hundreds at a time and those one by one."""
        if not is_flat(self.schema):
            return self._read_one_by_one(values)
        batch = read_columns(values, HEADER_BYTES, self.schema)
        if batch is not None:
            return Encoded(batch, [], None)
        starts = range(0, len(values), PIECE_VALUES) if len(values) > PIECE_VALUES else ()
        pieces = [self.read(values[start : start + PIECE_VALUES]) for start in starts]
        places = [[*range(start, min(start + PIECE_VALUES, len(values)))] for start in starts]
        return _in_order(pieces, places, self.schema) if pieces else self._read_one_by_one(values)

    def _read_one_by_one(self, values: Sequence[bytes]) -> Encoded:
        rows: list[dict[str, Any]] = []
        positions: list[int] = []
        rejected: list[Rejected] = []
        for index, value in enumerate(values):
            try:
                rows.append(self._row(value))
                positions.append(index)
            except Unfit as unfit:
                rejected.append(Rejected(value, unfit.reason, unfit.path or None, index))
        encoded = encode_rows(rows, self.schema, lambda indexes: [values[positions[index]] for index in indexes])
        rejected += [Rejected(one.raw, one.reason, one.column, positions[one.index]) for one in encoded.rejected]
        at = np.array(positions, np.int64)
        kept = at if encoded.kept is None else at[encoded.kept]
        return Encoded(encoded.batch, sorted(rejected, key=lambda one: one.index), kept if rejected else None)

    def _row(self, value: bytes) -> dict[str, Any]:
        stream = io.BytesIO(value)
        stream.seek(HEADER_BYTES)
        try:
            row: Any = schemaless_reader(stream, self._physical, None)
        except EOFError:
            raise Unfit(f"{self._expected}, found one of {len(value)} bytes that is cut short") from None
        except (ValueError, IndexError, OverflowError, MemoryError) as error:
            raise Unfit(f"{self._expected}, found something else at byte {stream.tell()}: {error}") from None
        if stream.tell() < len(value):
            raise Unfit(f"{self._expected}, found {len(value) - stream.tell()} bytes more behind it")
        for name, inward in self._inward.items():
            if inward is not None and row[name] is not None:
                try:
                    row[name] = inward(row[name])
                except Unfit as unfit:
                    raise Unfit(unfit.reason, name) from None
        return row  # type: ignore[no-any-return]

    @property
    def _expected(self) -> str:
        return f"expected a record of schema version {self.number} in Avro"


def schema_fingerprint(schema: AvroSchema) -> bytes:
    """The CRC-64-AVRO of a schema, as it stands in values."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def _physical(schema: AvroSchema) -> AvroSchema:
    """The schema without what its numbers and bytes mean."""
    if isinstance(schema, list):
        return [_physical(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _physical(part) for name, part in schema.items() if name not in _LOGICAL}
    return schema


def _plain(column: pa.Array, outward: Convert | None) -> list[Any]:
    if pa.types.is_temporal(column.type):
        return column.view(pa.int32() if pa.types.is_date(column.type) else pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return _converted(column.to_pylist(), outward)


def _converted(values: list[Any], convert: Convert | None) -> list[Any]:
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _outward(data_type: ArrowType) -> Convert | None:
    """How a value of Arrow becomes what Avro writes; None: it is that already."""
    types = pa.types
    if types.is_timestamp(data_type):
        epoch = _NAIVE_EPOCH if data_type.tz is None else EPOCH
        return lambda value: (value - epoch) // _MICROSECOND
    if types.is_date(data_type):
        return lambda value: value.toordinal() - _DAY_ZERO
    if types.is_decimal(data_type):
        return _decimal_outward(data_type.scale, decimal_bytes(data_type.precision))
    if types.is_map(data_type):
        return _map_outward(data_type)
    return _nested(data_type, _outward)


def _inward(data_type: ArrowType) -> Convert | None:
    """How what Avro reads becomes a value that Arrow takes; None: it is that already."""
    types = pa.types
    if types.is_timestamp(data_type):
        epoch = _NAIVE_EPOCH if data_type.tz is None else EPOCH
        return _within_years(data_type, lambda value: epoch + timedelta(microseconds=value))
    if types.is_date(data_type):
        return _within_years(data_type, lambda value: date.fromordinal(value + _DAY_ZERO))
    if types.is_decimal(data_type):
        return lambda value: _scaled(int.from_bytes(value, "big", signed=True), -data_type.scale)
    if types.is_map(data_type):
        return _map_inward(data_type)
    return _nested(data_type, _inward)


def _nested(data_type: ArrowType, converter: Callable[[ArrowType], Convert | None]) -> Convert | None:
    types = pa.types
    if types.is_list(data_type):
        convert = converter(data_type.value_type)
        return None if convert is None else lambda values: _converted(values, convert)
    if types.is_struct(data_type):
        inside = {field.name: convert for field in data_type if (convert := converter(field.type)) is not None}
        return None if not inside else lambda value: value | {
            name: None if value[name] is None else convert(value[name]) for name, convert in inside.items()
        }  # fmt: skip
    return None


def _map_outward(data_type: ArrowType) -> Convert:
    """Arrow has pairs; Avro has dicts where keys are text, else entries."""
    of_key, of_item = _outward(data_type.key_type), _outward(data_type.item_type)

    def convert(pairs: list[tuple[Any, Any]]) -> Any:
        keys = _converted([key for key, _ in pairs], of_key)
        items = _converted([item for _, item in pairs], of_item)
        if is_text_map(data_type):
            return dict(zip(keys, items, strict=True))
        return [{"key": key, "value": item} for key, item in zip(keys, items, strict=True)]

    return convert


def _map_inward(data_type: ArrowType) -> Convert:
    of_key, of_item = _inward(data_type.key_type), _inward(data_type.item_type)

    def convert(found: Any) -> list[tuple[Any, Any]]:
        entries = found.items() if is_text_map(data_type) else [(each["key"], each["value"]) for each in found]
        keys = _converted([key for key, _ in entries], of_key)
        return list(zip(keys, _converted([item for _, item in entries], of_item), strict=True))

    return convert


def _decimal_outward(scale: int, size: int) -> Convert:
    return lambda value: int(_scaled(value, scale)).to_bytes(size, "big", signed=True)


def _scaled(value: Decimal | int, places: int) -> Decimal:
    with localcontext(prec=80):
        return Decimal(value).scaleb(places)


def _within_years(data_type: ArrowType, convert: Callable[[int], datetime | date]) -> Convert:
    def checked(value: int) -> datetime | date:
        try:
            return convert(value)
        except (OverflowError, ValueError):
            unit = "days" if pa.types.is_date(data_type) else "microseconds"
            expected = f"expected {format_type(data_type)} in the years 1 to 9999"
            raise Unfit(f"{expected}, found {value} {unit} since 1970") from None

    return checked


def _in_order(pieces: list[Encoded], indexes: list[list[int]], schema: pa.Schema) -> Encoded:
    """Several outcomes as one, each told at which indexes of the input its values stood."""
    if len(pieces) == 1:
        return pieces[0]
    rejected: list[Rejected] = []
    kept: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    for piece, places in zip(pieces, indexes, strict=True):
        rejected += [Rejected(one.raw, one.reason, one.column, places[one.index]) for one in piece.rejected]
        at = np.array(places, np.int64)
        kept.append(at if piece.kept is None else at[piece.kept])
    positions = np.concatenate(kept) if kept else np.empty(0, np.int64)
    order = np.argsort(positions)
    batch = pa.concat_batches([piece.batch for piece in pieces] or [pa.RecordBatch.from_pylist([], schema)])
    rejected.sort(key=lambda one: one.index)
    return Encoded(batch.take(pa.array(order)), rejected, positions[order] if rejected else None)
