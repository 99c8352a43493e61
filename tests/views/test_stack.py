"""Tables one below the other are cut again where they were put together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.views.stack import Stack, alike, renamed

ONE = pa.table({"a": pa.array([1, 2]), "b": pa.array(["x", None])})
OTHER = pa.table({"c": pa.array([3]), "d": pa.array(["y"])})
NONE = ONE.slice(0, 0)


@pytest.mark.parametrize("tables", [[ONE], [ONE, OTHER], [NONE, ONE, NONE, OTHER, NONE]])
def test_each_table_comes_back_with_its_rows_under_the_names_of_the_first(tables: list[pa.Table]) -> None:
    stack = Stack.of(tables)
    assert stack.rows.num_rows == sum(each.num_rows for each in tables)
    for part, table in zip(stack.cut(stack.rows), tables, strict=True):
        assert part.equals(renamed(table, tables[0].schema))
    numbers = stack.cut(stack.rows.column(0).combine_chunks())
    assert [each.to_pylist() for each in numbers] == [each.column(0).to_pylist() for each in tables]


def test_one_table_is_not_copied() -> None:
    assert Stack.of([ONE]).rows is ONE


def test_items_are_together_that_are_alike_and_those_with_many_rows_alone() -> None:
    rows = {"a": 1, "b": 2, "A": 3, "many": 9, "more": 9}
    groups = alike([*rows], lambda name: rows[name], lambda name: name.isupper(), rows_max=8)
    assert groups == [["a", "b"], ["A"], ["many"], ["more"]]
