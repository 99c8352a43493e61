"""Every event is kept exactly as it was meant, or set aside with the reason; nothing is lost and nothing changed."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.encode import encode
from penstock.events.schema import parse_ddl
from tests.events.access_events import ACCESS, GOOD, comparable
from tests.events.ddl_strategies import ODD_VALUES, SCHEMAS, nullable, values_of


def test_an_unknown_field_is_a_rejection_and_not_dropped() -> None:
    encoded = encode([GOOD, {**GOOD, "statsu": 1}, {1: 2}, 5, None], ACCESS)
    assert encoded.batch.num_rows == 1
    assert [(one.index, one.column) for one in encoded.rejected] == [(1, "statsu"), (2, "1"), (3, None), (4, None)]
    assert encoded.rejected[0].reason == (
        "nothing is named 'statsu'; known: time, ip, status, url, seconds; did you mean 'status'?"
    )
    assert encoded.rejected[2].reason == (
        "expected an event with the columns time, ip, status, url, seconds, found the number 5"
    )


def test_a_null_in_a_not_null_column_is_a_rejection_in_every_form() -> None:
    rows = [GOOD, {**GOOD, "status": None}]
    table = pa.Table.from_pylist(rows)
    lines = b'{"status": 200}\n{"status": null}\n'
    for data in (rows, table, pd.DataFrame(rows), lines):
        encoded = encode(data, ACCESS)
        assert [(one.index, one.reason) for one in encoded.rejected] == [(1, "expected int NOT NULL, found nothing")]
        assert encoded.kept is not None
        assert encoded.kept.tolist() == [0]


def test_a_bad_record_never_spoils_its_neighbours() -> None:
    rows = [dict(GOOD, status=index) for index in range(1000)]
    rows[500] = {**GOOD, "status": "x"}
    encoded = encode(rows, ACCESS)
    assert encoded.batch.column("status").to_pylist() == [index for index in range(1000) if index != 500]
    assert encoded.batch.schema.equals(ACCESS, check_metadata=True)
    assert [one.index for one in encoded.rejected] == [500]
    assert json.loads(encoded.rejected[0].raw) == {**GOOD, "status": "x", "time": "2026-01-31T12:00:00+00:00"}


def test_an_event_that_fails_when_looked_at_is_rejected_too() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("broken")

    around: list[Any] = []
    around.append(around)
    encoded = encode([{"a": Broken()}, {"a": 1}, {"a": around}], parse_ddl("a int"))
    assert encoded.batch.to_pylist() == [{"a": 1}]
    assert [one.index for one in encoded.rejected] == [0, 2]
    assert all(one.raw for one in encoded.rejected)


def test_events_may_be_any_mapping_and_stay_untouched() -> None:
    event: defaultdict[str, int] = defaultdict(int, status=1)
    encoded = encode([event, OrderedDict(status=2)], ACCESS)
    assert encoded.batch.column("status").to_pylist() == [1, 2]
    assert encoded.batch.column("url").to_pylist() == [None, None]
    assert dict(event) == {"status": 1}


def test_no_events_are_an_empty_batch() -> None:
    data: Any
    for data in ([], b"", b"\n \n", ACCESS.empty_table(), ACCESS.empty_table().to_pandas()):
        encoded = encode(data, ACCESS)
        assert encoded.batch.num_rows == 0
        assert encoded.batch.schema == ACCESS
        assert encoded.rejected == []


def test_what_is_no_events_at_all_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="events cannot be given as int"):
        encode(5, ACCESS)


@given(st.data())
def test_events_that_fit_are_all_kept_and_come_back_the_same(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    rows = data.draw(st.lists(values_of(pa.struct(list(schema))), max_size=4))
    encoded = encode(rows, schema)
    assert encoded.rejected == []
    assert encoded.kept is None
    assert encoded.batch.schema.equals(schema, check_metadata=True)
    assert comparable(encode(encoded.batch.to_pylist(), schema)) == comparable(encoded)
    assert comparable(encode(encoded.batch, schema)) == comparable(encoded)
    assert comparable(encode(pa.Table.from_batches([encoded.batch]), schema)) == comparable(encoded)


@given(st.data())
def test_no_record_is_lost_and_none_changes_another(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    row = st.fixed_dictionaries({}, optional={field.name: nullable(field.type) | ODD_VALUES for field in schema})
    rows = data.draw(st.lists(row | ODD_VALUES | st.just({"_unknown": 1}), max_size=6))
    encoded = encode(rows, schema)
    encoded.batch.validate(full=True)
    kept = list(range(len(rows))) if encoded.kept is None else encoded.kept.tolist()
    assert sorted([*kept, *(one.index for one in encoded.rejected)]) == list(range(len(rows)))
    assert len(kept) == encoded.batch.num_rows
    alone = [encode([row], schema) for row in rows]
    assert repr(encoded.batch.to_pylist()) == repr([row for one in alone for row in one.batch.to_pylist()])
    assert [one.reason for one in encoded.rejected] == [one.reason for many in alone for one in many.rejected]
