"""A large static table that is written to during a run ends the run before anything of the new content is stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import TableChanged
from penstock.modes.batch import run_batch
from penstock.modes.stream import run_stream
from penstock.pipeline import tables
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark


def write_names(path: Path, name: str) -> None:
    """Exchanges the file, as programs do that never leave half of one."""
    unfinished = path.with_suffix(".new")
    unfinished.write_text(f"k,name\na,{name}\nb,{name}\n")
    unfinished.replace(path)


@pytest.fixture
def lab(tmp_path: Path, spark: SparkSession) -> Lab:
    write_names(tmp_path / "names.csv", "old")
    app = Pipeline("named")
    app.topic("events", "k string", key="k")
    app.table("names", str(tmp_path / "names.csv"), schema="k string, name string")
    app.view("hits", key="name", sql="SELECT name, count(*) AS n FROM events JOIN names USING (k) GROUP BY name")
    made = Lab(tmp_path, app, spark)
    made.append("events", [{"k": key} for key in "aab"])
    return made


def test_a_stream_ends_before_it_mixes_two_contents(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SNAPSHOT_BYTES_MAX", 4)
    with lab.engine() as (engine, store):
        run_stream(engine, once=True)
        write_names(lab.folder / "names.csv", "new")
        lab.append("events", [{"k": "a"}])
        with pytest.raises(TableChanged, match="has changed during the run") as raised:
            run_stream(engine, once=True)
        assert raised.value.table == "names"
        with pytest.raises(TableChanged):
            run_batch(engine)
        assert rows_of(engine, store) == {"hits": [("old", 3)]}


def test_a_small_table_is_read_once(lab: Lab) -> None:
    with lab.engine() as (engine, store):
        run_stream(engine, once=True)
        write_names(lab.folder / "names.csv", "new")
        lab.append("events", [{"k": "a"}])
        run_stream(engine, once=True)
        assert rows_of(engine, store) == {"hits": [("old", 4)]}
