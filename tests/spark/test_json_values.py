"""Spark's own expressions read and write JSON by the same rules as Python does, value by value."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from penstock.events.schema import parse_ddl, to_spark
from penstock.kafka.json_values import JsonValues
from penstock.spark.json_texts import json_object, json_text
from penstock.spark.json_values import event, member, parsed, unfit, value_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDL = (
    "t timestamp, n timestamp_ntz, d date, b boolean, i int, l bigint, y tinyint, f float, x double, m decimal(10,2), "
    "c decimal(18,8), w decimal(20,0), "
    "s string, r binary, a array<int>, o struct<p: int NOT NULL, q: string>, k map<string, double>, z map<int, int>"
)
VALUES = {
    "t": """ "2026-01-01" "2026-01-01T00:00:00Z" "2026-01-01\\u002010:11" "2026-01-01T10" "2026-01-01T10:11Z" 5 "now"
        "2026-01-01T10:11:12.1234567+02:00" "2026-01-01T10:11:12+0230" "2026-01-01T10:11:12-02" "2026-01-01Z" true
        "2026-13-01" "0000-01-01" "0001-01-01" "2026-01-01T24:00:00" "2026-01-01T10:11:60" "2026-01-01T10:11:12."
        "2026-01-01T10:11:12.123456789" "2026-02-30" "9999-12-31T23:59:59.999999" "9999-12-31T23:59:59-05:00"
        "0001-01-01T00:00:00+05:00" "2026-01-01+02:00" "12:30" "2026"
        "2026-01-01T10:11+02" "2026-01-01t10:11:12z" "2026-01-01T10:11:12.1234567890" "2026-01-01\\n" "" null {} """,
    "n": '"2026-01-01T10:11:12" "2026-01-01T10:11:12Z" "2026-01-01T10:11:12.5" 5',
    "d": '"2026-01-01" "2026-1-1" "0000-01-01" "2026-02-29" "2024-02-29" "2024-02-29T00:00:00" 5',
    "b": 'true false "true" 1 null',
    "i": '1 1.0 1.5 "1" 2147483647 2147483648 1e3 1E+3 -0 1.00 true [1] 123456789012345678901234567890 -5.0 1e400',
    "l": "9223372036854775807 9223372036854775808 -9223372036854775808 1e18 1e19 12345678901234567.0",
    "y": "127 128 -128 -129",
    "f": """0.1 16777216 16777217 3.5e38 1e-50 "1" 3.4028235e38 3.40282356e38 -0.5
        20000000.0 16777217.0 -20000000.0 1e10 9007199254740993""",
    "x": """0.1 9007199254740992 9007199254740993 1e400 1e308 12345678901234567890 0.1234567890123456789012345 1.0 true
        9007199254740994.0 -9999999999999998.0 1e16 123456789012345678.0 12345678901234567890123""",
    "m": """ 1 1.5 1.55 1.555 1.550 "1.5" "+1.5" ".5" "5." "." "" 12345678 123456789 "12345678.99" 1e2 1.5e1 "001.5"
        "1e2" "1E-2" "15e-1" "1.5E-2" "-.5e+1" "+5.e0" "e1" "1e" "1e1e1" ".e1" "1e-3" "0e9999" "0E-9999" "1e99999"
        "100e-2" "0.0000123e7" "12345678e1" "123456789e-1" "1e8" 0 0.00 -0.01 "00000000000000001" true "1,5" """,
    "c": '"0E-8" "1E-8" "-1.5E-7" "1.5E-8" 0 0.00000001 "9999999999.99999999"',
    "w": "1e15 12345678901234567890 9007199254740992 123456789012345678901",
    "s": '"a" "é\\u00e9\\n\\"" 5 "\\ud83d\\ude00" "\\ud800" null {} "\\u0000" ""',
    "r": '"aGk=" "aGk" "a-_=" "" 5 "aGk=\\n"',
    "a": '[] [1,2] [1,null] [1.5] ["1"] {} null [[1]]',
    "o": '{} {"p":1} {"p":1,"q":"x"} {"p":1,"z":1} {"p":"1"} [] null {"p":null}',
    "k": '{} {"a":1} {"a":null} {"a":"x"} {"a":1.5}',
    "z": '{"1":2} null',
    "strange": "1",
}
WHOLE = (
    b"", b" ", b"null", b"5", b"[]", b"{}", b'{"i":1,"i":2}', b'{"i":1} ', b' {"i":1}', b'{"i":1}x', b'{"i":1,}',
    b"{'i':1}", b'{"s":"\xff"}', b'{"I":1}', b'{"i":1}{"i":2}', b'{"i":1},{"i":2}', b'{"i":1}],[{"i":2}',
    b'\xef\xbb\xbf{"i":1}', b'{"i":1}\n', b'{"s":"a\nb"}', b'{"i":01}', b'{"i":+1}', b'{"i":.5}', b'// c\n{"i":1}',
    b'{"i":1},"the end of the record"]x',
    b'{"o":{"p":1,"p":2}}', b'{"s":"\\x"}', b'{"i":1', b'{"i"}', b'{"s":"a","i":7,"x":2.5,"b":true}',
)  # fmt: skip
STRICTER = (b'{"f": NaN}', b'{"x": 12345678901234567890.0}', b'{"m": 1e-2}', b'{"w": 1.2345678901234566e+17}')
"""What Python takes, and Spark here does not; as the module says."""


def documents() -> list[bytes]:
    texts = [f'{{"{name}": {value}}}' for name, values in VALUES.items() for value in values.split()]
    return [*(text.encode() for text in texts), *WHOLE]


def decoded(spark: SparkSession, values: list[bytes]) -> list[dict[str, Any]]:
    schema = to_spark(parse_ddl(DDL))
    frame = spark.createDataFrame([*enumerate(values)], "number int, value binary")
    members = frame.select("number", parsed(sf.col("value")).alias("m"))
    found = members.withColumn("e", event(sf.col("m"), schema)).withColumn(
        "unfit", unfit(sf.col("m"), sf.col("e"), schema)
    )
    found = found.drop("m")
    rows: list[dict[str, Any]] = found.orderBy("number").toArrow().to_pylist()
    return rows


def test_the_same_values_are_events_and_the_others_are_not(spark: SparkSession) -> None:
    accepted = 0
    for value, found in zip(documents(), decoded(spark, documents()), strict=True):
        encoded = JsonValues(parse_ddl(DDL)).read([value])
        if encoded.rejected:
            assert found["unfit"] is not None, (value, encoded.rejected[0].reason)
            assert found["unfit"]["reason"]
            # Python says where in the column, too.
            assert (encoded.rejected[0].column or "").startswith(found["unfit"]["column"] or ""), value
        else:
            assert found["unfit"] is None, (value, found["unfit"])
            assert repr(found["e"]).replace("-0.0", "0.0") == repr(encoded.batch.to_pylist()[0]).replace("-0.0", "0.0")
            accepted += 1
    assert 60 < accepted < len(documents()) - 60


def test_where_it_is_stricter_it_is_so_still(spark: SparkSession) -> None:
    assert not JsonValues(parse_ddl(DDL)).read([*STRICTER]).rejected
    assert all(each["unfit"] for each in decoded(spark, [*STRICTER]))


def test_what_is_written_reads_back_as_what_python_writes(spark: SparkSession) -> None:
    schema = parse_ddl(DDL.removesuffix(", z map<int, int>"))
    values = JsonValues(schema)
    encoded = values.read([each for each in documents() if b'"z"' not in each])
    special: list[dict[str, Any]] = [
        {"x": float("nan"), "f": float("inf")},
        {"s": "\u2028 \x7f </script> \t"},
        {"x": 1e22, "f": 1e-10},
        {"r": bytes(range(256)), "c": Decimal("1E-8"), "w": Decimal(10) ** 19},
    ]
    rows = [*encoded.batch.to_pylist(), *({**dict.fromkeys(schema.names), **each} for each in special)]
    batch = pa.RecordBatch.from_pylist(rows, schema)
    frame = spark.createDataFrame(pa.Table.from_batches([batch])).withColumn("place", sf.monotonically_increasing_id())
    members = {each.name: json_text(each.dataType, sf.col(each.name)) for each in to_spark(schema)}
    texts = frame.select("place", json_object(members).alias("text")).orderBy("place").toArrow().column("text")
    ours, theirs = values.read([text.encode() for text in texts.to_pylist()]), values.read(values.write(batch))
    assert not ours.rejected
    assert repr(ours.batch.to_pylist()) == repr(theirs.batch.to_pylist())
    assert ours.batch.num_rows == len(rows) > 60


def test_what_python_writes_is_read(spark: SparkSession) -> None:
    rows: list[dict[str, Any]] = [
        {"c": Decimal(0)},
        {"c": Decimal("0.00000001")},
        {"c": Decimal("-0.00000150")},
        {"f": 2e7, "x": 2.0**53 + 2},
        {"f": 3.4e38, "x": 9.5e15},
        {"f": 1e-10, "x": 1e300},
        {"l": 2**63 - 1, "t": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)},
    ]
    schema = parse_ddl(DDL.removesuffix(", z map<int, int>"))
    batch = pa.RecordBatch.from_pylist([{**dict.fromkeys(schema.names), **each} for each in rows], schema)
    values = JsonValues(schema).write(batch)
    assert b'"c":"0.00000001"' in values[1]
    assert JsonValues(schema).read(values).batch.equals(batch)
    found = decoded(spark, values)
    assert [each["unfit"] for each in found] == [None] * len(rows)
    assert [{name: each["e"][name] for name in schema.names} for each in found] == batch.to_pylist()


def test_no_column_makes_a_large_plan(spark: SparkSession) -> None:
    """Spark plans a query anew for each batch: with decimals of 120,000 characters, batches of 5 s took 14."""
    members = spark.createDataFrame([], "members map<string, variant>")
    for each in to_spark(parse_ddl(DDL)):
        read = members.select(value_of(each.dataType, member(sf.col("members"), each.name)))
        assert len(read._jdf.queryExecution().analyzed().toString()) < 10_000, each
