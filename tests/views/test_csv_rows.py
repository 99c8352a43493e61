"""CSV that people open with a spreadsheet computes nothing that an event says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.views.csv_rows import csv_rows
from penstock.views.values import physical_columns

TEXTS = ["=1+1", "+cmd", "-1+1", "@x", "\t=1", "\r=1", "-5.00", "+1.5E-7", "plain", "", None, "a=b", "x\n=1"]
GUARDED = ["'=1+1", "'+cmd", "'-1+1", "'@x", "'\t=1", "'\r=1", *TEXTS[6:]]


@pytest.mark.parametrize(("raw", "expected"), [(False, GUARDED), (True, TEXTS)])
def test_text_that_a_spreadsheet_would_compute_begins_with_an_apostrophe(raw: bool, expected: list[str | None]) -> None:
    rows = pa.table({"text": TEXTS, "n": pa.array(range(-1, len(TEXTS) - 1))})
    found = csv_rows(physical_columns(rows.schema), rows, raw=raw)
    assert found.column("text").to_pylist() == expected
    assert found.column("n").to_pylist() == [*range(-1, len(TEXTS) - 1)]
