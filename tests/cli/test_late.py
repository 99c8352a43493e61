"""penstock late: events that came later than their topic allows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import fails, run
from tests.cli.stored_views import Stored, stored


@pytest.fixture
def web(tmp_path: Path) -> Stored:
    return stored(tmp_path)


def test_late_events_are_listed_with_how_late_they_are(web: Stored) -> None:
    found = json.loads(run("late", "access", "--json", *web.log))
    assert found["late"] == 1
    [event] = found["events"]
    assert event == {
        "partition": 0, "offset": 9, "arrived": "2026-01-01T13:09:00Z", "event_time": "2026-01-01T12:09:00Z",
        "late_by_seconds": 3600.0, "columns": {"url": "/1"},
    }  # fmt: skip
    text = run("late", "access", *web.log)
    assert "1:00:00" in text
    assert "1 event of access came later than the 2 minutes allowed" in text
    assert json.loads(run("late", "access", "--since", "2026-01-02T00:00:00Z", "--json", *web.log))["late"] == 0


def test_nothing_is_late_where_there_is_no_event_time(web: Stored) -> None:
    run("topic", "create", "plain", "--schema", "n int", *web.log)
    assert "it has no event time" in fails("late", "plain", *web.log)
