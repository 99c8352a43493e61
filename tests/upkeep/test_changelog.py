"""The topic of changes tells what a row was and what it is, and nothing where there was no row."""

from __future__ import annotations

import pyarrow as pa

from penstock.pipeline.place import Place
from penstock.upkeep.changelog import changelog_rows
from penstock.upkeep.changes import KEY, Changes
from penstock.upkeep.shape import Shape
from penstock.views.fence import Fence

COLUMNS = pa.schema([("url", pa.string()), ("hits", pa.int64())])
SHAPE = Shape("hits", Place("app.py", 1, "def hits(access)"), ("url",), COLUMNS)


def rows(*given: tuple[str | None, int | None]) -> pa.Table:
    visible = pa.table([pa.array(column) for column in zip(*given, strict=True)], schema=COLUMNS)
    return SHAPE.rows(visible)


def test_a_row_that_was_not_there_is_null_and_not_a_row_of_nulls() -> None:
    changes = Changes(
        rows(("/gone", 1), ("/more", 2), ("/same", 3), (None, None)), rows(("/more", 4), ("/new", 5), ("/same", 3))
    )
    told = changelog_rows(SHAPE, changes, Fence({"access": {0: 7}}, 1)).to_pylist()
    assert {each["key"]: (each["operation"], each["before"], each["after"]) for each in told} == {
        '["/gone"]': ("delete", {"url": "/gone", "hits": 1}, None),
        '["/more"]': ("update", {"url": "/more", "hits": 2}, {"url": "/more", "hits": 4}),
        '["/new"]': ("insert", None, {"url": "/new", "hits": 5}),
        "[null]": ("delete", {"url": None, "hits": None}, None),
    }
    assert {each["offsets"] for each in told} == {'{"clock_us":1,"offsets":{"access":{"0":7}}}'}
    assert KEY not in told[0]["before"]
