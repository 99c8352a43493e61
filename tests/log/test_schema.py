"""Schemas are read as Spark reads them, written so that they read back, and grow only where old records can follow."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SchemaError, SchemaRefused
from penstock.log.schema import TIMESTAMP, TIMESTAMP_NTZ, check_growth, format_ddl, parse_ddl, to_spark, upgrade
from tests.log.ddl_strategies import SCHEMAS, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDLS = [
    "time timestamp, ip string, status int, method string, url string, seconds double",
    "a boolean, b tinyint, c byte, d smallint, e short, f int, g integer, h bigint, i long",
    "a float, b real, c double, d decimal, e dec(5), f numeric(38,38), g DECIMAL(10, 2)",
    "a string, b binary, c date, d timestamp, e timestamp_ltz, f timestamp_ntz",
    "A Int, bC STRING not null, D Timestamp NOT NULL COMMENT 'when'",
    "a array<int>, b map<string, array<double>>, c struct<x: int, y: struct<z: string>>",
    "a struct<x int, y: int NOT NULL COMMENT 'inner'>, b array<struct<`odd name`: map<int,date>>>",
    "a: int, b: string",
    """`odd name` int, `tick``s` int, `ünï` string, select int COMMENT "a \\"quoted\\" 'text'" """,
    "date date, timestamp timestamp, string string, struct struct<array: array<int>, map: map<int,int>>",
    "comment int comment 'it\\'s', not_null int, null int, not int NOT NULL",
    "1a int, a1 int, 2_ string",
    "a int -- the first\n, b int /* the\nsecond */\n",
    "a int COMMENT 'tab\\tnew\\nline \\\\ back'",
    "a int COMMENT ''",
    r"""a int COMMENT 'it''s "" \' \" \u0041 \101 \0 \% \_ \q \\% \Z' ' and' " on ""'' " """,
]

WRONG_DDLS = [
    "a",
    "a int b int",
    "a int,",
    "a array<int",
    "a array<int NOT NULL>",
    "a map<int>",
    "a decimal(2,x)",
    "a int NOT",
    "a int NULL",
    "a int NOT NULL NOT NULL",
    "a int COMMENT 'before' NOT NULL",
    "a int COMMENT x",
    "a-b int",
    "1 int",
    "1e5 int",
    "1d int",
    "ünï int",
]


@pytest.mark.spark
def test_ddl_is_read_as_spark_reads_it(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    for ddl in DDLS:
        assert to_spark(parse_ddl(ddl)) == StructType.fromDDL(ddl), ddl
        assert StructType.fromDDL(format_ddl(parse_ddl(ddl))) == StructType.fromDDL(ddl), ddl


@pytest.mark.spark
def test_what_is_refused_as_ddl_is_no_ddl_to_spark_either(spark: SparkSession) -> None:
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    for ddl in WRONG_DDLS:
        with pytest.raises(SchemaError):
            parse_ddl(ddl)
        with pytest.raises(ParseException):
            StructType.fromDDL(ddl)


@pytest.mark.parametrize("ddl", DDLS)
def test_ddl_is_written_so_that_it_reads_back(ddl: str) -> None:
    schema = parse_ddl(ddl)
    written = format_ddl(schema)
    assert parse_ddl(written).equals(schema, check_metadata=True)
    assert format_ddl(parse_ddl(written)) == written


@given(SCHEMAS)
def test_every_schema_is_written_so_that_it_reads_back(schema: pa.Schema) -> None:
    assert parse_ddl(format_ddl(schema)).equals(schema, check_metadata=True)


@given(st.text(st.sampled_from("abint string<>(),:`'\\_9 NOT NULL struct array map decimal"), max_size=40) | st.text())
def test_any_text_is_a_schema_or_an_error_that_points_into_it(text: str) -> None:
    error, schema = None, None
    try:
        schema = parse_ddl(text)
    except SchemaError as raised:
        error = raised
    if error is not None:
        assert 0 <= error.position <= len(text)
        assert error.expected
        assert error.found
    if schema is not None:
        assert parse_ddl(format_ddl(schema)).equals(schema, check_metadata=True)


def test_types_are_arrows_as_spark_maps_them() -> None:
    schema = parse_ddl("a timestamp, b timestamp_ntz NOT NULL, c decimal, d array<int>, e map<string,int>")
    assert schema.types == [
        TIMESTAMP,
        TIMESTAMP_NTZ,
        pa.decimal128(10, 0),
        pa.list_(pa.field("element", pa.int32())),
        pa.map_(pa.string(), pa.int32()),
    ]
    assert [field.nullable for field in schema] == [True, False, True, True, True]
    assert schema.field("d").type.value_field.name == "element"


@pytest.mark.parametrize(
    ("ddl", "position", "expected", "found", "hint"),
    [
        ("", 0, "a column's name", "the end", "a topic needs at least one column"),
        ("time timestmp", 5, "one of boolean", "'timestmp'", "did you mean 'timestamp'?"),
        ("a int,", 5, "the end", "','", ""),
        ("a int, , b int", 7, "a column's name", "','", ""),
        ("a int b int", 6, "',' or the end", "'b'", ""),
        ("a varchar(10)", 2, "a type that a topic keeps", "'varchar'", "write string"),
        ("a interval day", 2, "a type that a topic keeps", "'interval'", "write bigint, and count microseconds"),
        ("a variant", 2, "a type that a topic keeps", "'variant'", "write string, and keep the JSON text"),
        ("a decimal(39,2)", 10, "a precision from 1 to 38", "'39'", ""),
        ("a decimal(5,6)", 12, "a scale from 0 to 5", "'6'", ""),
        ("a array<int", 11, "'>'", "the end", ""),
        ("a struct<>", 9, "a column's name", "'>'", ""),
        ("a map<map<int,int>,int>", 6, "a map's key that is not a map", "a map", ""),
        ("a int(5)", 5, "int without a size", "'('", ""),
        ("_offset bigint", 0, "a name that does not begin with '_'", "'_offset'", "belong to the log"),
        ("a int, b int, A int", 14, "each name once", "'A' beside 'a'", ""),
        ("s struct<x: int, X: int>", 17, "each name once", "'X' beside 'x'", ""),
        ("a-b int", 1, "a column's name or type", "'-'", "needs `backticks`"),
        ("`a int", 0, "a closing `", "no end to `", ""),
        ("a int NOT NUL", 10, "NULL after NOT", "'NUL'", ""),
        ("a int DEFAULT 5", 6, "',' or the end", "'DEFAULT'", "fill in defaults in a view"),
        ("a string COLLATE UTF8_LCASE", 9, "',' or the end", "'COLLATE'", "collate in a view"),
        ("a int COMMENT oops", 14, "a text in 'quotes'", "'oops'", ""),
        ("a " + "array<" * 70 + "int" + ">" * 70, 386, "at most 64 types inside each other", "'array'", ""),
    ],
)
def test_a_bad_schema_is_refused_at_its_place(ddl: str, position: int, expected: str, found: str, hint: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_ddl(ddl)
    error = caught.value
    assert (error.position, error.found) == (position, found)
    assert expected in error.expected
    assert hint in error.hint
    shown, caret = str(error).splitlines()[1:3]
    assert caret.strip() == "^"
    assert position == len(ddl) or shown[caret.index("^")] == ddl[position]


def test_a_schema_error_shows_the_place() -> None:
    with pytest.raises(SchemaError) as caught:
        parse_ddl("time timestamp, ip strng")
    lines = str(caught.value).splitlines()
    assert lines[0] == "schema: found 'strng' at character 20"
    assert lines[1] == "    time timestamp, ip strng"
    assert lines[2] == "                       ^"
    assert lines[-1] == "  did you mean 'string'?"


def test_an_arrow_type_without_a_name_in_ddl_is_refused() -> None:
    with pytest.raises(SchemaError, match="the Arrow type uint8"):
        format_ddl(pa.schema([("a", pa.uint8())]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a int", "a int"),
        ("a int", "a int, b string"),
        ("a int", "b string, a int"),
        ("a int, c int", "a int, b struct<x: int NOT NULL>, c int COMMENT 'new'"),
        ("a tinyint", "a smallint"),
        ("a tinyint", "a bigint"),
        ("a smallint NOT NULL", "a int NOT NULL"),
        ("a int", "a bigint"),
        ("a float", "a double"),
        ("a int", "a decimal(10,0)"),
        ("a bigint", "a decimal(21,2)"),
        ("a decimal(10,2)", "a decimal(11,2)"),
        ("a decimal(10,2)", "a decimal(12,4)"),
        ("a struct<x: int>", "a struct<y: string, x: bigint>"),
        ("a array<struct<x: float>>", "a array<struct<x: double, y: int>>"),
        ("a map<int, struct<x: int>>", "a map<bigint, struct<x: int, y: int>>"),
    ],
)
def test_a_schema_may_grow(before: str, after: str) -> None:
    check_growth(parse_ddl(before), parse_ddl(after))


@pytest.mark.parametrize(
    ("before", "after", "column"),
    [
        ("a int, b int", "a int", "b"),
        ("a int", "a int, b int NOT NULL", "b"),
        ("a int, b int", "b int, a int", "a"),
        ("a bigint", "a int", "a"),
        ("a double", "a float", "a"),
        ("a int", "a double", "a"),
        ("a int", "a string", "a"),
        ("a timestamp", "a timestamp_ntz", "a"),
        ("a int", "a int NOT NULL", "a"),
        ("a int NOT NULL", "a int", "a"),
        ("a int", "a decimal(9,0)", "a"),
        ("a decimal(10,2)", "a decimal(10,3)", "a"),
        ("a decimal(10,2)", "a decimal(12,1)", "a"),
        ("a decimal(10,0)", "a bigint", "a"),
        ("a struct<x: int>", "a struct<x: string>", "a.x"),
        ("a struct<x: int, y: int>", "a struct<x: int>", "a.y"),
        ("a array<struct<x: int>>", "a array<struct<x: int, y: int NOT NULL>>", "a.element.y"),
        ("a map<int, struct<x: int>>", "a map<int, struct<x: tinyint>>", "a.value.x"),
        ("a map<bigint, int>", "a map<int, int>", "a.key"),
        ("a array<int>", "a int", "a"),
    ],
)
def test_any_other_change_is_refused_and_names_the_column(before: str, after: str, column: str) -> None:
    with pytest.raises(SchemaRefused) as caught:
        check_growth(parse_ddl(before), parse_ddl(after))
    assert caught.value.column == column
    assert "allowed:" in str(caught.value)


def test_a_renamed_column_is_refused_with_the_likely_name() -> None:
    with pytest.raises(SchemaRefused) as caught:
        check_growth(parse_ddl("status int"), parse_ddl("statuss int"))
    assert caught.value.column == "status"
    assert str(caught.value).splitlines()[-1] == "  did you mean 'statuss'?"


GROWN = (
    parse_ddl("a int, s struct<x: int, y: float>, l array<struct<x: int>>, m map<int, int>, d decimal(10,2)"),
    parse_ddl(
        "new string, a bigint, s struct<x: bigint, y: double, z: array<int>>, l array<struct<x: bigint, k: string>>, "
        "m map<bigint, decimal(12,1)>, d decimal(12,3)"
    ),
)
OLD_ROWS: list[dict[str, Any]] = [
    {
        "a": 1,
        "s": {"x": 1, "y": 0.5},
        "l": [{"x": 1}, None, {"x": None}],
        "m": [(1, 2), (3, None)],
        "d": Decimal("1.25"),
    },
    {"a": None, "s": None, "l": None, "m": None, "d": None},
    {"a": 2, "s": {"x": None, "y": None}, "l": [], "m": [], "d": Decimal("-1.00")},
]
NEW_ROWS: list[dict[str, Any]] = [
    {
        "new": None,
        "a": 1,
        "s": {"x": 1, "y": 0.5, "z": None},
        "l": [{"x": 1, "k": None}, None, {"x": None, "k": None}],
        "m": [(1, Decimal("2.0")), (3, None)],
        "d": Decimal("1.250"),
    },
    {"new": None, "a": None, "s": None, "l": None, "m": None, "d": None},
    {"new": None, "a": 2, "s": {"x": None, "y": None, "z": None}, "l": [], "m": [], "d": Decimal("-1.000")},
]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_old_records_are_read_as_the_grown_schema(start: int) -> None:
    old, new = GROWN
    check_growth(old, new)
    batch = upgrade(pa.RecordBatch.from_pylist(OLD_ROWS, old).slice(start), new)
    batch.validate(full=True)
    assert batch.schema.equals(new, check_metadata=True)
    assert batch.to_pylist() == NEW_ROWS[start:]


@given(st.data())
def test_every_batch_can_be_read_with_new_columns_beside_and_inside(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    rows = data.draw(st.lists(values_of(pa.struct(list(schema))), max_size=4))
    batch = pa.RecordBatch.from_pylist(rows, schema)
    start = data.draw(st.integers(0, len(rows)))
    grown = pa.schema([pa.field("_a", pa.int32()), *map(_grown_field, schema)])
    check_growth(schema, grown)
    upgraded = upgrade(batch.slice(start), grown)
    upgraded.validate(full=True)
    assert upgraded.num_rows == len(rows) - start
    again = pa.RecordBatch.from_pylist(rows[start:], grown)
    assert repr(upgraded.to_pylist()) == repr(again.to_pylist())


def _grown_field(field: Any) -> Any:
    return field.with_type(_grown_type(field.type))


def _grown_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        names = {field.name for field in kind}
        return pa.struct([*map(_grown_field, kind), pa.field("new" * 3 + "".join(names), pa.string())])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _grown_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _grown_type(kind.value_type)))
    return {pa.int8(): pa.int32(), pa.int32(): pa.int64(), pa.float32(): pa.float64()}.get(kind, kind)


def test_a_batch_of_the_same_schema_is_not_copied() -> None:
    batch = pa.RecordBatch.from_pylist(OLD_ROWS, GROWN[0])
    assert upgrade(batch, GROWN[0]) is batch


def test_reading_a_schema_imports_no_pyspark() -> None:
    code = "import sys; from penstock.log.schema import parse_ddl; parse_ddl('a int'); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
