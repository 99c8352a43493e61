"""One value into one column, exactly or not at all.

`converter(type)` gives a function that takes a Python value and returns it in the form Arrow wants, or raises `Unfit`
with the reason. Nothing is rounded, cut or guessed: 1.0 is an int, 1.5 is not. The fast ways of `columns.py` must agree
with what is decided here.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.events.ddl import ArrowType
from penstock.events.schema import format_type
from penstock.events.times import to_date, to_timestamp, to_timestamp_ntz
from penstock.events.unfit import Unfit, described, shown, unknown_name

Convert: TypeAlias = Callable[[Any], Any]

DECIMAL_TEXT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_INTEGER_BITS: dict[ArrowType, int] = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
EXACT_INTEGER_MOST: dict[ArrowType, int] = {pa.float32(): 1 << 24, pa.float64(): 1 << 53}


@lru_cache(maxsize=1024)
def converter(data_type: ArrowType, is_nullable: bool) -> Convert:
    """The function that fits one value into a column of this type."""
    convert = _converter(data_type)

    def with_null(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            value = _plain(value)
        if value is None or _is_missing(value):
            if is_nullable:
                return None
            raise Unfit(f"expected {format_type(data_type)} NOT NULL, found nothing")
        return convert(value)

    return with_null


def _plain(value: Any) -> Any:
    """The Python value that a NumPy value stands for."""
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        exact = value.astype("datetime64[us]")
        if exact.astype(value.dtype) != value:
            raise Unfit(f"expected a time with at most microseconds, found {value}")
        return exact.item()
    return value.tolist()


def _is_missing(value: Any) -> bool:
    # pandas has its own nothings, and we may not import pandas just to look for them.
    return type(value).__name__ in ("NaTType", "NAType")


def _converter(data_type: ArrowType) -> Convert:
    types = pa.types
    if types.is_map(data_type):
        return _map(data_type)
    if types.is_list(data_type):
        return _array(data_type)
    if types.is_struct(data_type):
        return _struct(data_type)
    if types.is_decimal(data_type):
        return _decimal(data_type)
    if types.is_floating(data_type):
        return _floating(data_type)
    if types.is_integer(data_type):
        return _integer(data_type)
    if types.is_timestamp(data_type):
        return to_timestamp_ntz if data_type.tz is None else to_timestamp
    simple: dict[ArrowType, Convert] = {
        pa.bool_(): _boolean,
        pa.string(): _string,
        pa.binary(): _binary,
        pa.date32(): to_date,
    }
    return simple[data_type]


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Unfit(f"expected boolean, found {described(value)}")


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit(f"expected string, found {described(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Unfit(f"expected string, found half a character (surrogate) at {error.start}") from None
    return str(value)


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        try:
            return base64.b64decode(value.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise Unfit(f"expected binary (bytes, or base64 text), found {described(value)}") from None
    raise Unfit(f"expected binary, found {described(value)}")


def _integer(data_type: ArrowType) -> Convert:
    name = format_type(data_type)
    half = 1 << (_INTEGER_BITS[data_type] - 1)

    def convert(value: Any) -> int:
        whole: Any = value
        if isinstance(value, float | Decimal):
            is_whole = math.isfinite(value) and -(1 << 64) < value < 1 << 64 and value == int(value)
            whole = int(value) if is_whole else None
        if not isinstance(whole, int) or isinstance(whole, bool):
            raise Unfit(f"expected {name}, found {described(value)}")
        if not -half <= whole < half:
            raise Unfit(f"expected {name}, from {-half} to {half - 1}, found {described(value)}")
        return int(whole)

    return convert


def _floating(data_type: ArrowType) -> Convert:
    name = format_type(data_type)
    exact_most = EXACT_INTEGER_MOST[data_type]

    def convert(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, float | int | Decimal):
            raise Unfit(f"expected {name}, found {described(value)}")
        if isinstance(value, int) and abs(value) > exact_most:
            raise Unfit(f"expected {name}, which keeps whole numbers up to {exact_most} exactly, found {shown(value)}")
        number = float(value)
        is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(number)
        if is_finite and (math.isinf(number) or (name == "float" and not _fits_float(number))):
            raise Unfit(f"expected {name}, found {described(value)}, which is too large for it")
        return number

    return convert


def _fits_float(number: float) -> bool:
    try:
        struct.pack("<f", number)
    except OverflowError:
        return False
    return True


def _decimal(data_type: ArrowType) -> Convert:
    name = format_type(data_type)
    scale: int = data_type.scale
    digits: int = data_type.precision - data_type.scale
    unit = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, Decimal | int | float | str):
            raise Unfit(f"expected {name}, found {described(value)}")
        if isinstance(value, str) and not DECIMAL_TEXT.fullmatch(value):
            raise Unfit(f"expected {name}, found {described(value)}")
        # A float stands for the shortest text that reads back as it: 12.1, not 12.0999999999999996447.
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if not number.is_finite():
            raise Unfit(f"expected {name}, found {described(value)}")
        if number and number.adjusted() >= digits:
            raise Unfit(f"expected {name}, found {described(value)}, which is too large for it")
        if number.is_zero():
            return Decimal(0)
        if number.adjusted() < -scale:
            raise Unfit(f"expected {name}, found {described(value)}, which has more than {scale} decimal places")
        with localcontext(prec=80):
            rounded = number.quantize(unit)
        if rounded != number:
            raise Unfit(f"expected {name}, found {described(value)}, which has more than {scale} decimal places")
        return rounded

    return convert


def _array(data_type: ArrowType) -> Convert:
    name = format_type(data_type)
    convert = converter(data_type.value_type, True)

    def convert_all(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise Unfit(f"expected {name}, found {described(value)}")
        return [_inside(convert, element, f"[{index}]") for index, element in enumerate(value)]

    return convert_all


def _map(data_type: ArrowType) -> Convert:
    name = format_type(data_type)
    convert_key = converter(data_type.key_type, False)
    convert_item = converter(data_type.item_type, True)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, Mapping):
            pairs = list(value.items())
        elif isinstance(value, list | tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            pairs = list(value)
        else:
            raise Unfit(f"expected {name}, found {described(value)}")
        result = []
        seen = set()
        for key, item in pairs:
            place = f"[{shown(key)}]"
            converted = _inside(convert_key, key, place)
            mark = repr(converted)
            if mark in seen:
                raise Unfit(f"expected each key once in {name}, found {shown(key)} twice")
            seen.add(mark)
            result.append((converted, _inside(convert_item, item, place)))
        return result

    return convert


def _struct(data_type: ArrowType) -> Convert:
    name = format_type(data_type)
    converters = {field.name: converter(field.type, field.nullable) for field in data_type}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Unfit(f"expected {name}, found {described(value)}")
        for key in value:
            if key not in converters:
                raise Unfit(unknown_name(key, list(converters)))
        return {key: _inside(convert, value.get(key), f".{key}") for key, convert in converters.items()}

    return convert


def _inside(convert: Convert, value: Any, place: str) -> Any:
    try:
        return convert(value)
    except Unfit as error:
        raise Unfit(error.reason, place + error.path) from None
