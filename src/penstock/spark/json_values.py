"""JSON values of Kafka as columns, decided by Spark's own expressions: the rules of `penstock.events.values`, without
Python on the way.

A record that Python would refuse is refused here too. In a few places this is stricter, and such a record becomes a
dead letter: NaN and Infinity, which JSON does not have; numbers with an exponent in decimal columns, unless they are
whole and at most 2**53 (texts may have one); and floats of 2**63 and more written without an exponent, such as
12345678901234567890.0.

In one place it sees less: of a number with an exponent, or with more than 38 digits, Spark keeps the nearest double.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.events.values import EXACT_INTEGER_MOST

if TYPE_CHECKING:
    from pyspark.sql import Column

SHOWN_CHARACTERS_MAX = 80
_BITS: dict[type[st.DataType], int] = {st.ByteType: 8, st.ShortType: 16, st.IntegerType: 32, st.LongType: 64}
_EXACT = {str(kind): most for kind, most in EXACT_INTEGER_MOST.items()}
_FLOAT_MOST = 3.4028235677973366e38
"""From here on a number is rounded to infinity as a float of 32 bits."""
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[ T][0-9]{2}(:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?)?"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
_COMPLETED = (
    (r"\A(.{13})(?=\z|[Z+-])", "$1:00"),
    (r"\A(.{16})(?=\z|[Z+-])", "$1:00"),
    (r"([.][0-9]{6})[0-9]+", "$1"),
    (r"\A(.{19}.*)([+-][0-9]{2})\z", "$1$2:00"),
    (r"\A(.{19}.*[+-][0-9]{2})([0-9]{2})\z", "$1:$2"),
)
"""What Spark wants to see in a time: minutes, seconds, at most microseconds, and a zone with a colon."""
_BASE64 = r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_SCALED = r"([+-]?)(?=[.]?[0-9])([0-9]*)[.]?([0-9]*)[eE]([+-]?[0-9]{1,4})"
"""A decimal with an exponent: its sign, what is before and behind the point, and how far that moves."""
_TIMES = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
"""The first time and the last one: Python and Spark know the years 1 to 9999."""
_OBJECT = "map<string,variant>"
_END = secrets.token_hex(16)
"""What follows a record. Nobody can write a record that ends with it: it is another one in each process."""


def parsed(value: Column) -> Column:
    """The members of the JSON object in these bytes, by name; NULL if they are none."""
    text = value.cast("string")
    # Spark's parser stops behind the first value; in an array it sees what comes after that, too.
    both = sf.concat(sf.lit("["), sf.when(sf.is_valid_utf8(text), text), sf.lit(f',"{_END}"]'))
    array = _elements(sf.try_parse_json(both))
    is_one = (sf.size(array) == 2) & (sf.try_variant_get(sf.try_element_at(array, sf.lit(2)), "$", "string") == _END)
    return sf.when(is_one, sf.try_variant_get(sf.try_element_at(array, sf.lit(1)), "$", _OBJECT))


def member(members: Column, name: str) -> Column:
    """One member; NULL if it is not there, or is JSON's null."""
    found = sf.try_element_at(members, sf.lit(name))
    return sf.when(~sf.is_variant_null(found), found)


def event(members: Column, schema: st.StructType) -> Column:
    """The columns of an event as one struct. Only where `unfit` is NULL they are what was sent."""
    return sf.struct(*(value_of(each.dataType, member(members, each.name)).alias(each.name) for each in schema))


def unfit(members: Column, values: Column, schema: st.StructType) -> Column:
    """Why this is no event: a struct of `reason` and `column`, as dead letters have them; NULL if it is one.

    `values` is what `event` gave for these members.
    """
    names = [each.name for each in schema]
    strange = _strange(members, names)
    found = sf.when(members.isNull(), _reason(sf.lit("expected a JSON object with each name once, found another text")))
    known = f"; known: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"
    first = sf.left(sf.try_element_at(strange, sf.lit(1)), sf.lit(SHOWN_CHARACTERS_MAX))
    named = sf.concat(sf.lit("nothing is named '"), first, sf.lit(f"'{known}"))
    found = found.when(sf.size(strange) > 0, _reason(named, first))
    for each in schema:
        given = member(members, each.name)
        expected = f"expected {each.dataType.simpleString()}{'' if each.nullable else ' NOT NULL'}, found "
        shown = sf.left(sf.coalesce(sf.to_json(given), sf.lit("nothing")), sf.lit(SHOWN_CHARACTERS_MAX))
        reason = _reason(sf.concat(sf.lit(expected), shown), sf.lit(each.name))
        fits = _is_fit(each.dataType, given, values.getField(each.name), is_nullable=each.nullable)
        found = found.when(~fits, reason)
    return found


def _is_fit(kind: st.DataType, given: Column, value: Column, *, is_nullable: bool = True) -> Column:
    """Whether what was given can be in a column of this type; `value` is what became of it. Never NULL."""
    fits = value.isNotNull()
    if isinstance(kind, st.ArrayType):
        fits &= _all_fit(kind.elementType, _elements(given), value)
    elif isinstance(kind, st.MapType):
        fits &= _all_fit(kind.valueType, sf.map_values(_members(given)), sf.map_values(value))
    elif isinstance(kind, st.StructType):
        members = _members(given)
        fits &= sf.coalesce(sf.size(_strange(members, kind.names)) == 0, sf.lit(False))
        for each in kind:
            field = value.getField(each.name)
            fits &= _is_fit(each.dataType, member(members, each.name), field, is_nullable=each.nullable)
    return fits | given.isNull() if is_nullable else fits


def _all_fit(kind: st.DataType, given: Column, values: Column) -> Column:
    """Whether each element of an array fits."""
    pairs = sf.arrays_zip(given.alias("given"), values.alias("value"))
    fits = sf.forall(pairs, lambda each: _is_fit(kind, _present(each["given"]), each["value"]))
    return sf.coalesce(fits, sf.lit(False))


def value_of(kind: st.DataType, given: Column) -> Column:
    """The value in this type; NULL if it does not fit, or is NULL itself."""
    if isinstance(kind, st.ArrayType):
        return sf.transform(_elements(given), lambda each: value_of(kind.elementType, _present(each)))
    if isinstance(kind, st.StructType):
        members = _members(given)
        return sf.when(members.isNotNull(), event(members, kind))
    if isinstance(kind, st.MapType):
        found = sf.transform_values(_members(given), lambda _, each: value_of(kind.valueType, _present(each)))
        return found if isinstance(kind.keyType, st.StringType) else sf.lit(None).cast(kind)
    return _named_once(given, lambda value: _SIMPLE[type(kind)](kind, value))


def _strange(members: Column, names: list[str]) -> Column:
    """The names of members that nothing is named after, in order."""
    return sf.array_except(sf.map_keys(members), sf.array(*map(sf.lit, names)).cast("array<string>"))


def _members(given: Column) -> Column:
    return sf.try_variant_get(given, "$", _OBJECT)


def _elements(given: Column) -> Column:
    return sf.try_variant_get(given, "$", "array<variant>")


def _present(each: Column) -> Column:
    return sf.when(~sf.is_variant_null(each), each)


def _reason(reason: Column, column: Column | None = None) -> Column:
    named = sf.lit(None).cast("string") if column is None else column
    return sf.struct(reason.alias("reason"), named.alias("column"))


def _kind(given: Column) -> Column:
    return sf.schema_of_variant(given)


def _text(given: Column) -> Column:
    """A JSON text, and nothing else."""
    return sf.when(_kind(given) == "STRING", sf.try_variant_get(given, "$", "string"))


def _matching(text: Column, pattern: str) -> Column:
    return _named_once(text, lambda found: sf.when(found.rlike(rf"\A(?:{pattern})\z"), found))


def _string(_: st.DataType, given: Column) -> Column:
    return _text(given)


def _boolean(_: st.DataType, given: Column) -> Column:
    return sf.when(_kind(given) == "BOOLEAN", sf.try_variant_get(given, "$", "boolean"))


def _binary(_: st.DataType, given: Column) -> Column:
    return sf.try_to_binary(_matching(_text(given), _BASE64), sf.lit("base64"))


def _integer(kind: st.DataType, given: Column) -> Column:
    """1.0 and 1e2 are whole numbers, 1.5 is none."""
    of = _kind(given)
    digits = _matching(sf.try_variant_get(given, "$", "string"), "-?[0-9]+([.]0*)?")
    double = sf.try_variant_get(given, "$", "double")
    whole = (
        sf.when(of == "BIGINT", sf.try_variant_get(given, "$", "bigint"))
        .when(of.startswith("DECIMAL"), sf.split_part(digits, sf.lit("."), sf.lit(1)).try_cast("bigint"))
        .when((of == "DOUBLE") & (double == sf.rint(double)), double.try_cast("bigint"))
    )
    half = 1 << (_BITS[type(kind)] - 1)
    return _named_once(whole, lambda found: sf.when(found.between(-half, half - 1), found.try_cast(kind)))


def _floating(kind: st.DataType, given: Column) -> Column:
    """Whole numbers are taken as far as they are kept exactly; all others are the nearest that there is.

    Spark forgets the `.0` of a decimal. Yet what is one, and fits into 64 bits, had a point: else it were a BIGINT.
    """
    of = _kind(given)
    most = _EXACT["float" if isinstance(kind, st.FloatType) else "double"]
    whole = sf.try_variant_get(given, "$", "bigint")
    double = sf.try_variant_get(given, "$", "double")
    has_fraction = sf.try_variant_get(given, "$", "string").contains(".")
    found = (
        sf.when(of == "BIGINT", sf.when((whole >= -most) & (whole <= most), whole.cast("double")))
        .when(of == "DOUBLE", double)
        .when(of.startswith("DECIMAL") & (has_fraction | (sf.abs(double) < 2.0**63)), double)
    )
    below = float("inf") if isinstance(kind, st.DoubleType) else _FLOAT_MOST
    return _named_once(found, lambda number: sf.when(sf.abs(number) < below, number.cast(kind)))


def _decimal(kind: st.DataType, given: Column) -> Column:
    """Every digit counts: what would be rounded does not fit."""
    assert isinstance(kind, st.DecimalType)
    of = _kind(given)
    double = sf.try_variant_get(given, "$", "double")
    # Beyond that a double is no longer the number that was written.
    is_whole = (of == "DOUBLE") & (double == sf.rint(double)) & (sf.abs(double) <= _EXACT["double"])
    written = sf.when(is_whole, double.try_cast("bigint").cast("string")).when(
        (of == "BIGINT") | (of == "STRING") | of.startswith("DECIMAL"), sf.try_variant_get(given, "$", "string")
    )
    digits, scale = kind.precision - kind.scale, kind.scale
    fraction = rf"[.][0-9]{{0,{scale}}}0*"
    pattern = rf"[+-]?(?=[.]?[0-9])0*[0-9]{{0,{digits}}}({fraction})?"
    return _matching(_named_once(written, _unscaled), pattern).try_cast(kind)


def _unscaled(text: Column) -> Column:
    """A decimal with its point where its exponent has it, and no exponent: 1E-2 is 0.01. Others as they are."""
    pattern = rf"\A{_SCALED}\z"
    sign, whole, fraction, exponent = (sf.regexp_extract(text, pattern, number) for number in range(1, 5))
    moved = exponent.try_cast("int")
    # With so many zeros around it, the point moves to a place that is there.
    zeros = sf.repeat(sf.lit("0"), sf.abs(moved))
    digits, point = sf.concat(zeros, whole, fraction, zeros), sf.abs(moved) + sf.length(whole) + moved
    plain = sf.concat(sign, sf.left(digits, point), sf.lit("."), sf.substring(digits, point + 1, sf.length(digits)))
    return sf.when(text.rlike(pattern), plain).otherwise(text)


def _named_once(value: Column, use: Callable[[Column], Column]) -> Column:
    """What `use` makes of a value that it names often: written out each time, plans would grow with every level.

    Spark plans a query anew for each batch, and computes what is written out as often as it stands there.
    """
    return sf.get(sf.transform(sf.array(value), use), sf.lit(0))


def _date(_: st.DataType, given: Column) -> Column:
    found = _matching(_text(given), _DATE).try_cast("date")
    return sf.when(found >= sf.lit("0001-01-01").cast("date"), found)


def _timestamp(kind: st.DataType, given: Column) -> Column:
    """Finer digits than microseconds are cut off; without a zone it is UTC, which is the session's."""
    zone = "" if isinstance(kind, st.TimestampNTZType) else _ZONE
    text = _matching(_text(given), rf"{_DATE}({_TIME}{zone})?")
    for pattern, whole in _COMPLETED:
        text = sf.regexp_replace(text, pattern, whole)
    least, most = (sf.lit(each).cast(kind) for each in _TIMES)
    return _named_once(text.try_cast(kind), lambda found: sf.when(found.between(least, most), found))


_SIMPLE: dict[type[st.DataType], Callable[[st.DataType, Column], Column]] = {
    st.StringType: _string,
    st.BooleanType: _boolean,
    st.BinaryType: _binary,
    st.ByteType: _integer,
    st.ShortType: _integer,
    st.IntegerType: _integer,
    st.LongType: _integer,
    st.FloatType: _floating,
    st.DoubleType: _floating,
    st.DecimalType: _decimal,
    st.DateType: _date,
    st.TimestampType: _timestamp,
    st.TimestampNTZType: _timestamp,
}
