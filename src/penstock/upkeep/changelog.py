"""A view's changes as a topic: every row as it was and as it is, in the order of the steps.

The topic has these columns; its key is `key`, so the changes of one row stay in order:

    key        the key of the row, as JSON
    operation  insert, update or delete
    before     the row as it was; NULL for an insert
    after      the row as it is; NULL for a delete
    offsets    how far into the log the step had come, as JSON
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.schema import format_ddl
from penstock.upkeep.changes import KEY, Changes, difference
from penstock.upkeep.merge import align
from penstock.upkeep.shape import Shape
from penstock.views.fence import Fence
from penstock.views.values import one_array

TOPIC_KEY = "key"
OPERATIONS = ("insert", "update", "delete")


def changelog_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of the topic that holds the changes of a view with these columns."""
    row = pa.struct([pa.field(each.name, each.type) for each in columns])
    return pa.schema(
        [("key", pa.string()), ("operation", pa.string()), ("before", row), ("after", row), ("offsets", pa.string())]
    )


def changelog_ddl(columns: pa.Schema) -> str:
    """The same as DDL, for making the topic."""
    return format_ddl(changelog_schema(columns))


def changelog_rows(shape: Shape, changes: Changes, fence: Fence) -> pa.Table:
    """The records that tell of these changes. A row that only looks changed is not told of."""
    visible = [KEY, *shape.columns.names]
    seen = difference(changes.before.select(visible), changes.after.select(visible))
    keys = pc.unique(pa.concat_arrays([one_array(side.column(KEY)) for side in (seen.before, seen.after)]))
    was, is_now = (pc.is_in(keys, value_set=one_array(side.column(KEY))) for side in (seen.before, seen.after))
    before = _structs(shape.columns, align(seen.before, keys), was)
    after = _structs(shape.columns, align(seen.after, keys), is_now)
    kinds = np.where(~is_now.to_numpy(zero_copy_only=False), 2, np.where(was.to_numpy(zero_copy_only=False), 1, 0))
    operation = pa.array(OPERATIONS).take(pa.array(kinds))
    names = pc.if_else(is_now, after, before)
    texts = [json.dumps([_plain(row[name]) for name in shape.key], default=str) for row in names.to_pylist()]
    offsets = pa.array([fence.to_json()] * len(keys), pa.string())
    schema = changelog_schema(shape.columns)
    return pa.table([pa.array(texts, pa.string()), operation, before, after, offsets], schema=schema)


def _structs(columns: pa.Schema, rows: pa.Table, is_there: pa.Array) -> pa.Array:
    """Rows as one column of structs; NULL where there is no row."""
    arrays = [one_array(rows.column(each.name)) for each in columns]
    kinds = [pa.field(each.name, each.type) for each in columns]
    return pa.StructArray.from_arrays(arrays, fields=kinds, mask=pc.invert(is_there))


def _plain(value: object) -> object:
    return list(value.values()) if isinstance(value, dict) else value
