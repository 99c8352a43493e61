"""Values of records: what is written is read again, and what is no event is told from one. Needs no broker."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import TopicDefinitionError
from penstock.events.avro_schema import avro_schema
from penstock.events.encode import encode
from penstock.events.schema import format_ddl
from penstock.kafka.avro_values import MARKS, Version, schema_fingerprint
from penstock.kafka.values import Values, values_of
from penstock.log.definition import TopicDefinition
from tests.events.ddl_strategies import SIMPLE, TYPES, decimals, nullable
from tests.events.ddl_strategies import values_of as python_values_of

Format = Literal["json", "avro"]
DDL = "time timestamp, word string, n int NOT NULL, price decimal(10,2), tags array<string>, m map<string,bigint>"
FLAT = (
    "time timestamp, word string, n int, b tinyint, f float, d double, price decimal(10,2), s struct<x: int, y: string>"
)


def topic(*ddls: str, values: Format = "avro") -> TopicDefinition:
    return TopicDefinition("late-orders", tuple(ddls), values=values)


def codec(*ddls: str, values: Format = "avro") -> Values:
    return values_of(topic(*ddls, values=values))


def batch_of(rows: list[dict[str, Any]], ddl: str) -> pa.RecordBatch:
    encoded = encode(rows, topic(ddl).schema)
    assert not encoded.rejected
    return encoded.batch


def by_others(row: dict[str, Any], ddl: str, **options: Any) -> bytes:
    """A value that another program wrote, which was given the schema."""
    schema = json.loads(json.dumps(avro_schema("late-orders", topic(ddl).schema)))
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row, **options)
    return MARKS + schema_fingerprint(schema) + stream.getvalue()


def read_by_others(value: bytes, ddl: str) -> Any:
    schema = json.loads(json.dumps(avro_schema("late-orders", topic(ddl).schema)))
    return fastavro.schemaless_reader(io.BytesIO(value[10:]), fastavro.parse_schema(schema), None)


# --- what is written is read again ---

NAMES = st.sampled_from(["a", "b", "key", "value", "A1", "_x"])
SCHEMAS = st.lists(st.tuples(TYPES, st.booleans()), min_size=1, max_size=4)


def renamed(kind: Any) -> Any:
    """The same type with names that Avro can have."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(f"f{i}", renamed(each.type), each.nullable) for i, each in enumerate(kind)])
    if types.is_map(kind):
        return pa.map_(kind.key_type, renamed(kind.item_type))
    return pa.list_(pa.field("element", renamed(kind.value_type))) if types.is_list(kind) else kind


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), SCHEMAS)
def test_every_value_of_every_type_comes_back_from_avro(data: st.DataObject, kinds: list[tuple[Any, bool]]) -> None:
    schema = pa.schema([pa.field(f"c{i}", renamed(kind), is_null) for i, (kind, is_null) in enumerate(kinds)])
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries(
                {each.name: nullable(each.type) if each.nullable else python_values_of(each.type) for each in schema}
            ),
            max_size=5,
        )
    )
    ddl = format_ddl(schema)
    batch = batch_of(rows, ddl)
    found = codec(ddl).read(codec(ddl).write(batch))
    assert (found.rejected, found.kept) == ([], None)
    assert found.batch.schema.equals(batch.schema)
    assert str(found.batch.to_pylist()) == str(batch.to_pylist())  # NaN is not equal to itself.


FLAT_TYPES = st.recursive(
    SIMPLE | decimals(),
    lambda inside: st.lists(inside, min_size=1, max_size=3).map(
        lambda kinds: pa.struct([pa.field(f"f{i}", kind) for i, kind in enumerate(kinds)])
    ),
    max_leaves=4,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.lists(FLAT_TYPES, min_size=1, max_size=4), st.integers(0, 3))
def test_what_is_written_at_once_is_what_is_written_one_by_one(
    data: st.DataObject, kinds: list[Any], start: int
) -> None:
    schema = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(kinds)])
    row = st.fixed_dictionaries({each.name: nullable(each.type) for each in schema})
    batch = batch_of(data.draw(st.lists(row, max_size=8)), format_ddl(schema)).slice(start)
    version = Version(topic(format_ddl(schema)), 0)
    values = version.write(batch)
    assert values == version.write_one_by_one(batch)
    assert str(version.read(values).batch.to_pylist()) == str(batch.to_pylist())


WHOLE = {
    "a": True, "b": -128, "c": -32768, "d": -(1 << 31), "e": (1 << 63) - 1, "f": 0.1, "g": float("nan"),
    "h": Decimal("-" + "9" * 35 + ".999"), "i": 'ä"\n€', "j": b"\x00\xff", "k": date(1, 1, 1),
    "l": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "m": datetime.fromisoformat("9999-12-31T23:59:59.999999"), "n": [1, None], "o": {"-type": 1.5, "": None},
    "p": {7: "seven"}, "q": {"x": 1, "y": [{"z": Decimal("0.05")}, None]},
}  # fmt: skip
EVERYTHING = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f double, g float, h decimal(38,3), i string, j binary, k date,"
    " l timestamp, m timestamp_ntz, n array<int>, o map<string, double>, p map<int, string>,"
    " q struct<x: int, y: array<struct<z: decimal(4,2)>>>"
)


def test_the_limits_of_every_type_come_back_and_nulls_stay() -> None:
    rows = [WHOLE, dict.fromkeys(WHOLE), WHOLE | {"g": float("-inf"), "f": float("inf")}]
    batch = batch_of(rows, EVERYTHING)
    found = codec(EVERYTHING).read(codec(EVERYTHING).write(batch))
    assert found.rejected == []
    assert str(found.batch.to_pylist()) == str(batch.to_pylist())


def test_others_read_what_we_wrote_with_the_schema_they_were_given() -> None:
    [value] = codec(EVERYTHING).write(batch_of([WHOLE], EVERYTHING))
    found = read_by_others(value, EVERYTHING)
    entries = found.pop("p")
    assert str(found) == str({name: WHOLE[name] for name in found})
    assert entries == [{"key": 7, "value": "seven"}]


def test_what_others_write_with_the_schema_is_read() -> None:
    row = {**WHOLE, "p": [{"key": 7, "value": "seven"}]}
    found = codec(EVERYTHING).read([by_others(row, EVERYTHING)])
    assert (found.rejected, found.kept) == ([], None)
    assert str(found.batch.to_pylist()) == str(batch_of([WHOLE], EVERYTHING).to_pylist())


# --- the schema ---


def test_the_fingerprint_is_that_of_the_specification() -> None:
    assert schema_fingerprint("int") == bytes.fromhex("7275d51a3f395c8f")[::-1]


def test_the_schema_is_made_the_same_way_for_ever() -> None:
    ddl = "time timestamp COMMENT 'when', price decimal(10,2), at struct<lat: double, lon: double>, m map<int, date>"
    assert json.dumps(avro_schema("7-late.orders", topic(ddl).schema), separators=(",", ":")) == (
        '{"type":"record","name":"_7_late_orders","namespace":"penstock","fields":['
        '{"name":"time","type":["null",{"type":"long","logicalType":"timestamp-micros"}],"default":null,"doc":"when"},'
        '{"name":"price","type":["null",{"type":"fixed","name":"decimal_10_2","namespace":"penstock._7_late_orders.price",'
        '"size":5,"logicalType":"decimal","precision":10,"scale":2}],"default":null},'
        '{"name":"at","type":["null",{"type":"record","name":"at","namespace":"penstock._7_late_orders","fields":['
        '{"name":"lat","type":["null","double"],"default":null},{"name":"lon","type":["null","double"],"default":null}'
        ']}],"default":null},'
        '{"name":"m","type":["null",{"type":"array","items":{"type":"record","name":"m",'
        '"namespace":"penstock._7_late_orders","fields":[{"name":"key","type":"int"},'
        '{"name":"value","type":["null",{"type":"int","logicalType":"date"}],"default":null}]}}],"default":null}]}'
    )


@pytest.mark.parametrize("column", ["`user-id` string", "a struct<`größe`: int>", "m map<int, struct<`1st`: int>>"])
def test_a_name_that_avro_cannot_have_is_refused_when_the_topic_is_made(column: str) -> None:
    topic(column, values="json")
    with pytest.raises(TopicDefinitionError, match="letters, digits and _"):
        topic(column)
    with pytest.raises(TopicDefinitionError, match="letters, digits and _"):
        topic("n int").grown(f"n int, {column}")


# --- versions ---


def test_values_of_older_versions_are_read_with_the_current_columns() -> None:
    old = "n tinyint, price decimal(10,2), s struct<x: int>"
    new = "n bigint, price decimal(12,3), s struct<x: bigint, y: string>, word string"
    row = {"n": 1, "price": Decimal("1.25"), "s": {"x": 2}}
    values = [
        *codec(new).write(batch_of([row | {"word": "new"}], new)),
        *codec(old).write(batch_of([row], old)),
        b"no Avro",
        *codec(new).write(batch_of([row | {"word": "newer"}], new)),
    ]
    found = codec(old, new).read(values)
    assert found.batch.to_pylist() == [
        {"n": 1, "price": Decimal("1.250"), "s": {"x": 2, "y": None}, "word": word} for word in ("new", None, "newer")
    ]
    assert [each.index for each in found.rejected] == [2]
    assert found.kept is not None
    assert found.kept.tolist() == [0, 1, 3]


def test_a_wider_decimal_is_another_schema_to_a_fingerprint() -> None:
    old, new = "price decimal(10,2)", "price decimal(11,3)"
    [value] = codec(old).write(batch_of([{"price": Decimal("1.25")}], old))
    assert codec(old, new).read([value]).batch.to_pylist() == [{"price": Decimal("1.250")}]


def test_a_newer_version_that_avro_writes_alike_takes_what_the_older_wrote() -> None:
    [small] = codec("n tinyint").write(batch_of([{"n": 100}], "n tinyint"))
    [large] = codec("n int").write(batch_of([{"n": 1000}], "n int"))
    assert codec("n tinyint", "n int").read([small, large]).batch.to_pylist() == [{"n": 100}, {"n": 1000}]


# --- what is no event ---


@pytest.mark.parametrize("ddl", [DDL, FLAT])
def test_what_is_no_avro_of_the_topic_is_rejected_and_its_neighbours_are_not(ddl: str) -> None:
    [good] = codec(ddl).write(batch_of([{"n": 1, "word": "fine"}], ddl))
    [stranger] = codec("other string").write(batch_of([{"other": "x"}], "other string"))
    bad = {
        b"": "begins with c3 01, found nothing",
        b'{"n": 1}': "begins with c3 01, found 7b 22",
        good[:9]: "begins with c3 01",
        stranger: f"found {stranger[2:10].hex()}",
        good[:-1]: "cut short",
        good[:10]: "cut short",
        good + b"\x00": "1 bytes more",
        good[:10] + b"\xff" * 40: "schema version 0 in Avro",
    }
    values = [each for wrong in bad for each in (good, wrong)]
    found = codec(ddl).read([*values, good])
    assert found.batch.to_pylist() == codec(ddl).read([good]).batch.to_pylist() * (len(bad) + 1)
    for each, (raw, reason) in zip(found.rejected, bad.items(), strict=True):
        assert (each.raw, values[each.index]) == (raw, raw)
        assert reason in each.reason


@pytest.mark.parametrize(
    ("ddl", "row", "column", "reason"),
    [
        ("n int NOT NULL", {"n": None}, "n", "NOT NULL"),
        ("n tinyint", {"n": 300}, "n", "from -128 to 127"),
        ("p decimal(3,1)", {"p": Decimal("99.9")}, None, ""),
        ("a array<smallint>", {"a": [1, 1 << 20]}, "a[1]", "from -32768"),
    ],
)
def test_what_avro_can_say_and_the_column_cannot_is_rejected(
    ddl: str, row: dict[str, Any], column: str | None, reason: str
) -> None:
    found = codec(ddl).read([by_others(row, ddl)])
    assert [each.column for each in found.rejected] == ([column] if column else [])
    assert all(reason in each.reason for each in found.rejected)


@pytest.mark.parametrize("ddl", ["t timestamp", "t timestamp, a array<int>"])
def test_a_time_beyond_the_years_that_python_knows_is_rejected(ddl: str) -> None:
    values = [by_others({"t": datetime(2026, 1, 1, tzinfo=UTC), "a": None}, ddl)]
    header, stream = values[0][:10], io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema("long"), 1 << 60)
    values.append(header + b"\x02" + stream.getvalue() + b"\x00" * ("a " in ddl))
    [rejected] = codec(ddl).read(values).rejected
    assert (rejected.index, rejected.column) == (1, "t")
    assert "in the years 1 to 9999" in rejected.reason


def test_more_digits_than_a_decimal_has_are_rejected_and_not_rounded() -> None:
    ddl = "p decimal(3,1)"
    [value] = codec(ddl).write(batch_of([{"p": Decimal("99.9")}], ddl))
    [rejected] = codec(ddl).read([value[:-2] + (1000).to_bytes(2, "big")]).rejected
    assert rejected.column == "p"
    assert "too large" in rejected.reason


@settings(max_examples=300)
@given(st.binary(max_size=60), st.sampled_from([DDL, FLAT]))
def test_nothing_stops_a_reader(garbage: bytes, ddl: str) -> None:
    [good] = codec(ddl).write(batch_of([{"n": 1}], ddl))
    found = codec(ddl).read([good, good[:10] + garbage, good])
    assert found.batch.num_rows + len(found.rejected) == 3
    assert found.batch.num_rows >= 2
