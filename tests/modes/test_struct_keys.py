"""A struct whose fields are all NULL is a key like any other: not NULL itself, and found again at the next step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from tests.modes.harness import Lab
from tests.postgresql import OwnServer

pytestmark = pytest.mark.spark

KINDS = {
    "two times": "struct(t AS start, u AS end)",
    "NULL and two NULLs": "IF(n IS NULL, struct(t AS start, u AS end), NULL)",
    "nested": "struct(struct(s, n) AS inner, n)",
}


def pipeline(key: str) -> Pipeline:
    app = Pipeline("keys")
    window = "struct<start: timestamp, end: timestamp>"
    app.topic("events", f"id bigint, s string, n bigint, t timestamp, u timestamp, w {window}", partitions=2)
    rows = f"(SELECT {key} AS k, id, n FROM events)"
    app.view("folded", key="k", sql=f"SELECT k, count(*) AS events, sum(n) AS n FROM {rows} GROUP BY k")
    app.view("latest", key="k", sql=f"SELECT k, id % 2 AS odd FROM {rows}")
    app.view("redone", key="w", sql="SELECT w, count(DISTINCT id % 3) AS ids FROM events GROUP BY w")
    app.view("above", key="k", sql="SELECT k, events, n FROM folded")
    app.view("largest", key="events", sql="SELECT events, min_by(k, n) AS k FROM folded GROUP BY events")
    return app


def events(count: int) -> list[dict[str, object]]:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        {
            "id": number,
            "s": "a" if number % 3 == 0 else None,
            "n": number if number % 4 == 0 else None,
            "t": moment if number % 6 == 0 else None,
            "u": moment if number % 5 == 0 else None,
            "w": {"start": moment if number % 6 == 0 else None, "end": None} if number % 4 else None,
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_struct_of_nulls_is_a_key_of_its_own(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    lab = filled(tmp_path, spark, kind)
    batch = lab.batch()
    keys = [row[0] for row in batch["folded"]]
    assert len(set(keys)) == len(keys)
    assert any(key is not None and set(key) <= {None, (None, None)} for key in keys)
    assert lab.stream(9) == batch


@pytest.mark.system
def test_so_it_is_in_postgresql_and_in_every_mode(
    tmp_path: Path, spark: SparkSession, own_postgresql: OwnServer
) -> None:
    kind = "NULL and two NULLs"
    expected = filled(tmp_path / "sqlite", spark, kind).batch()
    lab = filled(tmp_path / "postgresql", spark, kind, own_postgresql.new_database)
    for found in (lab.batch(), lab.stream(9), lab.as_lambda(9), lab.as_kappa(9)):
        assert found == expected


def filled(folder: Path, spark: SparkSession, kind: str, new_url: Callable[[], str] | None = None) -> Lab:
    folder.mkdir(exist_ok=True)
    lab = Lab(folder, pipeline(KINDS[kind]), spark, new_url)
    for _ in range(2):
        lab.append("events", events(13))
    assert [view.keeping.how for view in lab.compiled()][:3] == ["fold", "fold", "redo"]
    return lab
