"""Rows as lines over time, and which windows were corrected after they closed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.dashboard.numbers import microseconds
from penstock.dashboard.windows import (
    Corrections,
    as_number,
    corrected_in,
    group_name,
    lines_of,
    number_columns,
    window_of,
)
from penstock.upkeep.changelog import changelog_schema
from penstock.views.catalog import KnownView
from penstock.views.fence import Fence
from tests.dashboard.shop import BY_PRODUCT, PER_MINUTE

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KNOWN = KnownView("per_minute", "f", PER_MINUTE, "fold", ("window", "country"))


def row(minute: int, country: str, orders: int | None) -> dict[str, Any]:
    window = {"start": NOON + minute * MINUTE, "end": NOON + (minute + 1) * MINUTE}
    return {"window": window, "country": country, "orders": orders, "amount": Decimal(1)}


def at(minute: int) -> int:
    return microseconds(NOON + minute * MINUTE)


def test_a_view_is_drawn_over_the_window_of_its_key() -> None:
    assert window_of(KNOWN) == "window"
    assert window_of(KnownView("by_product", "f", BY_PRODUCT, "redo", ("product",))) is None
    assert number_columns(KNOWN) == ["orders", "amount"]


def test_the_greatest_groups_have_a_line_each() -> None:
    rows = [row(0, "Chile", 5), row(1, "Chile", 7), row(0, "Japan", 20), row(0, "Kenya", 1), row(1, "Kenya", None)]
    lines = lines_of(rows, KNOWN, "window", "orders", 2)
    assert lines.groups == {("Japan",): {at(0): 20.0}, ("Chile",): {at(0): 5.0, at(1): 7.0}}
    assert lines.left_out == 1
    assert group_name((), "orders") == "orders"


@pytest.mark.parametrize("value", [None, True, "7", float("nan"), float("inf"), 10**400])
def test_what_is_no_number_is_not_drawn(value: Any) -> None:
    assert as_number(value) is None


def test_a_closed_window_that_changes_while_somebody_watches_is_marked() -> None:
    corrections = Corrections()
    corrections.watch([row(0, "Chile", 5), row(3, "Chile", 5)], KNOWN, "window", at(2), 1)
    corrections.watch([row(0, "Chile", 5), row(3, "Chile", 9)], KNOWN, "window", at(2), 1)
    assert corrections.marked == set()  # The second one is still open.
    corrections.watch([row(0, "Chile", 6)], KNOWN, "window", at(2), 1)
    assert corrections.marked == {(json.dumps(["Chile"]), at(0))}


def test_other_code_is_no_correction_and_what_is_unknown_marks_nothing() -> None:
    corrections = Corrections()
    for orders, closed, generation in ((5, at(2), 1), (6, at(2), 2), (7, None, 2)):
        corrections.watch([row(0, "Chile", orders)], KNOWN, "window", closed, generation)
    assert corrections.marked == set()


def test_a_changelog_tells_what_was_corrected() -> None:
    def change(minute: int, orders: int, clock: int) -> dict[str, Any]:
        offsets = Fence({"orders": {0: clock}}, at(clock)).to_json()
        return {"key": "k", "operation": "update", "before": row(minute, "Chile", orders - 1),
                "after": row(minute, "Chile", orders), "offsets": offsets}  # fmt: skip

    changes = [change(0, 5, 1), change(1, 5, 4), change(0, 6, 5), change(4, 2, 5)]
    table = pa.Table.from_pylist(changes, schema=changelog_schema(PER_MINUTE))
    lateness = 2 * 60_000_000
    # The step at 12:04 found the clock at 12:01, so nothing was closed then; the one at 12:05 found it at 12:04.
    assert corrected_in(table, KNOWN, "window", lateness) == {(json.dumps(["Chile"]), at(0))}
