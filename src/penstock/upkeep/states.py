"""Aggregates of `penstock.agg` in a table: what Spark's job returned for them, as states to keep and numbers to read.

A column that holds one is a struct whose only field is named `__penstock_<rule>`, whatever its alias (`state_column`).
A fold compacts it, merges it with the state that is stored, and finishes that; a redo finishes it at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.aggregates.partials import state_column
from penstock.upkeep.merge import RULES

__all__ = ["compact_table", "finish_table", "finished", "finished_schema", "state_column", "state_columns"]


def state_columns(schema: pa.Schema) -> dict[str, str]:
    """The columns that hold an aggregate of `penstock.agg`, as Spark returned them, each with its rule."""
    return {field.name: rule for field in schema if (rule := state_column(field)) is not None}


def compact_table(table: pa.Table) -> pa.Table:
    """The same table with every such column as binary states, ready to merge and to store."""
    for name, rule in state_columns(table.schema).items():
        table = _with(table, name, RULES[rule].compact(_one(table[name])))
    return table


def finish_table(table: pa.Table, rules: Mapping[str, str] | None = None) -> tuple[pa.Table, pa.Table]:
    """What readers see, and the states behind it under the same names.

    Finds the columns as Spark returned them by itself; `rules` names those that are states already.
    """
    rules = {**state_columns(table.schema), **(rules or {})}
    compacted = compact_table(table)
    visible = compacted
    for name, rule in rules.items():
        visible = _with(visible, name, RULES[rule].finish(_one(compacted[name])))
    return visible, compacted.select(list(rules))


def finished(table: pa.Table) -> pa.Table:
    """What readers see of a job's result."""
    return finish_table(table)[0]


def finished_schema(schema: pa.Schema) -> pa.Schema:
    """The columns that readers see, without any rows. Raises AggregateTypeError."""
    return finished(schema.empty_table()).schema


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, pa.field(name, column.type), column)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
