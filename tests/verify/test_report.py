"""A report says the same as text, as JSON and as a page, and nothing in the data can change the page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.pipeline.place import Place
from penstock.upkeep.compare import Comparison, Example
from penstock.upkeep.explain import Explanation, Record, UpstreamRow
from penstock.upkeep.places import RecordPlace
from penstock.verify.page import page
from penstock.verify.report import Difference, Failure, Line, Report, explained_lines

pytestmark = pytest.mark.spark

EVIL = "<script>alert('$seed & ${x}')</script>"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def report(**changes: Any) -> Report:
    example = Example("different", {"url": EVIL}, {"url": EVIL, "n": 1}, {"url": EVIL, "n": float("nan")}, ("n",))
    record = Record("access", 0, 17, NOON, NOON, None, {"url": EVIL, "raw": b"\x00"})
    explained = Explanation("hits", {"url": EVIL}, "", (record,), 1)
    failure = Failure(
        "difference",
        "hits",
        Place("app.py", 14, f"def hits(access): {EVIL}"),
        f"right in one step and wrong in many: {EVIL}",
        "leave within= out",
        Place("app.py", 16, ""),
        ("stream, ten steps (1 rows)",),
        (Difference("stream, ten steps", example, explained),),
    )
    lines = (
        Line("batch", "batch", "hits", 1.25, Comparison(3, 3, 0, 0, 0), is_reference=True),
        Line("stream, ten steps", "stream", "hits", 2.5, Comparison(3, 2, 1, 0, 0, (example,))),
    )
    given: dict[str, Any] = {"lines": lines, "failures": (failure,), "notes": (f"note {EVIL}",), **changes}
    return Report(EVIL, 7, {EVIL: 3}, **given)


def test_text_names_the_line_both_rows_and_the_records() -> None:
    text = report().text()
    for part in ("app.py:14", "app.py:16", "access/0 offset 17, arrived 2026-01-01T12:00:00Z", "n=1", "n=nan"):
        assert part in text
    assert "1 of 1 view failed: hits" in text


def test_json_is_plain_json_whatever_the_values_are() -> None:
    document = json.loads(report().json(), parse_constant=pytest.fail)
    [failure] = document["failures"]
    assert failure["differences"][0]["found"] == {"url": EVIL, "n": "nan"}
    assert failure["differences"][0]["records"][0]["offset"] == 17
    assert (document["agrees"], failure["cause_place"]["line"]) == (False, 16)


def test_everything_in_the_page_is_escaped() -> None:
    html = page(report())
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 6
    assert 'class="bad"' in html


def test_a_report_without_failures_agrees_and_says_what_was_compared_how() -> None:
    good = report(failures=(), tolerant=("means",))
    assert good.agrees
    assert "everything agrees: 1 view, 2 runs" in good.text()
    assert "views that add such numbers up (means): they may differ by 1e-09 of the larger one" in good.text()
    assert "within" not in report(failures=()).compared


def test_rows_of_a_view_without_a_key_are_named_by_their_records() -> None:
    rows = (UpstreamRow("lines", {}, RecordPlace("orders", 0, 17)), UpstreamRow("hits", {"url": "/"}))
    lines = [*explained_lines(Explanation("total", {"c": 2}, "", upstream=rows, upstream_total=2))]
    assert lines == ["made of 2 rows of other views:", "  lines: orders/0@17", "  hits: url='/'"]
