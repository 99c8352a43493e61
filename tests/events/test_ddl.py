"""Schemas are read as Spark reads them, and written so that they read back."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SchemaError
from penstock.events.schema import TIMESTAMP, TIMESTAMP_NTZ, format_ddl, parse_ddl, to_spark
from tests.events.ddl_strategies import SCHEMAS

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


def test_reading_a_schema_imports_no_pyspark() -> None:
    code = (
        "import sys; from penstock.events.schema import parse_ddl; parse_ddl('a int'); print('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
