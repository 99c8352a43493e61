"""A schema grows only where old records can follow, and then they do."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SchemaRefused
from penstock.events.schema import check_growth, parse_ddl, upgrade
from tests.events.ddl_strategies import SCHEMAS, values_of


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
