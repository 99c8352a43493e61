"""penstock lag: how far views are behind the log, in records and in seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.cli.stored_views import Stored, stored


@pytest.fixture
def web(tmp_path: Path) -> Stored:
    return stored(tmp_path)


def test_lag_is_told_for_each_view_and_topic(web: Stored) -> None:
    lines = json.loads(run("lag", "--json", *web.options))
    assert [(each["view"], each["topic"], each["records"]) for each in lines] == [
        ("hits", "access", 2),
        ("total", "access", 2),
    ]
    assert lines[0]["fence"] == {"0": 8}
    assert lines[0]["ends"] == {"0": 10}
    assert lines[0]["seconds"] > 0
    assert "records behind" in run("lag", *web.options)


def test_lag_of_one_pipeline_leaves_the_others_out(web: Stored, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text('from penstock import Pipeline\n\napp = Pipeline("other")\n')
    assert run("lag", str(tmp_path / "other.py"), "--json", *web.options) == "[]\n"
