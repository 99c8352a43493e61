"""penstock runs: who ran a pipeline, and how it went."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from penstock.views import runs
from penstock.views.runs import Sample, ViewSteps
from penstock.views.store import open_store
from tests.cli.commands import run


def test_runs_are_listed_the_newest_first(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/views.db"
    with open_store(url) as store:
        for mode in ("batch", "stream"):
            with store.own("shop") as owner, store.transaction(owner) as tx:
                made = replace(runs.begin(tx.connection, owner, mode), rows=30, steps=3)
                samples = (Sample(1_000_000, 30, 3, 0.5, 1, 2, 0),)
                runs.note(tx.connection, replace(made, samples=samples, views={"hits": ViewSteps(2, 1)}))
                runs.end(tx.connection, made, "done")
    shown = run("runs", "--views", url)
    assert shown.index("stream") < shown.index("batch")
    assert "done" in shown
    [newest] = json.loads(run("runs", "shop", "--limit", "1", "--json", "--views", url))
    assert (newest["mode"], newest["state"], newest["records"], newest["steps"]) == ("stream", "done", 30, 3)
    assert newest["views"] == {"hits": {"steps_in_driver": 2, "steps_by_spark": 1}}
    [sample] = newest["samples"]
    assert sample == {
        "at": "1970-01-01T00:00:01Z", "records": 30, "steps": 3, "seconds": 0.5, "late": 1, "corrected": 2, "lag": 0
    }  # fmt: skip


def test_without_a_database_there_are_no_runs(tmp_path: Path) -> None:
    assert run("runs", "--json", "--views", f"sqlite:{tmp_path}/none.db") == "[]\n"
