"""Random pipelines in SQL: a batch, and a stream with replays and new batch parts, hold what plain Spark computes."""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, reject, settings
from pyspark.sql import SparkSession

from penstock.modes.engine import Engine, open_engine
from penstock.modes.running import RunningSet
from penstock.upkeep.compiled import try_compile
from penstock.verify.cuts import Cut
from penstock.verify.plain import PlainSpark
from penstock.views.store import Store, open_store
from tests.modes.agreement.random_sql import DDL, NAMES_ROWS, SqlCase, sql_cases
from tests.modes.agreement.test_property import SLOW, TURNS, cuts, recorded, scratch
from tests.modes.harness import plain

pytestmark = pytest.mark.spark

Tables = dict[str, pa.Table]
COUNT = int(os.environ.get("PENSTOCK_TEST_PIPELINES", "200"))
WITH_SESSION = [*SLOW, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]


@settings(max_examples=6, derandomize=True, suppress_health_check=WITH_SESSION)
@given(case=sql_cases())
def test_batch_and_stream_hold_what_plain_spark_computes(case: SqlCase, spark: SparkSession) -> None:
    assert_like_plain_spark(case, spark)


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
@settings(max_examples=COUNT, suppress_health_check=WITH_SESSION)
@given(case=sql_cases())
def test_many_more_of_them(case: SqlCase, spark: SparkSession) -> None:
    """PENSTOCK_TEST_PIPELINES=3000 tries that many."""
    assert_like_plain_spark(case, spark)


def assert_like_plain_spark(case: SqlCase, spark: SparkSession) -> None:
    with scratch() as folder:
        names = folder / "names.json"
        names.write_text("\n".join(map(json.dumps, NAMES_ROWS)))
        app = case.pipeline(str(names))
        compiled, problems = try_compile(app, spark)
        for problem in problems:
            event(f"refused: {problem.message[:40]}")
        if not compiled:
            reject()
        for view in compiled:
            event(f"kept by {view.keeping.how}")
        log, topics = recorded(folder, case, DDL)
        end = {name: topic.end() for name, topic in topics.items()}
        found: dict[str, Tables] = {}
        with log:
            for how, advance in (("batch", as_batch), ("stream", as_stream)):
                with (
                    open_store(f"sqlite:{folder}/{how}.db") as store,
                    open_engine(app, log=log, store=store, spark=spark, views=compiled) as engine,
                ):
                    found[how] = advance(engine, store, case, end)
            oracle = PlainSpark(app, topics, end, spark)
            for view in compiled:
                expected = in_order(oracle.rows(view, found["batch"][view.name]))
                for how, tables in found.items():
                    assert in_order(tables[view.name]) == expected, f"{view.name} as a {how}"


def as_batch(engine: Engine, store: Store, case: SqlCase, end: Cut) -> Tables:
    held: Tables = {}
    for views in engine.sets:
        *_, running = engine.build(views, end)
        held |= read(store, running)
    return held


def as_stream(engine: Engine, store: Store, case: SqlCase, end: Cut) -> Tables:
    held: Tables = {}
    for views in engine.sets:
        names = {name for view in views for name in view.topics}
        running = engine.open(views)
        for cut, turn in zip([*cuts(case, end), end], [*case.turns, "step"], strict=True):
            running = TURNS[turn](engine, running, {name: cut[name] for name in names})
        held |= read(store, running)
    return held


def read(store: Store, running: RunningSet) -> Tables:
    found = {}
    for view in running.views:
        table = store.read(view.shape.table(running.generation.layers))
        found[view.name] = table.select(view.shape.columns.names)
    return found


def in_order(table: pa.Table) -> list[Any]:
    rows = [tuple(without_minus_zero(plain(each)) for each in row.values()) for row in table.to_pylist()]
    return sorted(rows, key=repr)


def without_minus_zero(value: Any) -> Any:
    """Of 0.0 and -0.0, Spark takes either as the least, the greatest or the key of both."""
    return 0.0 if isinstance(value, float) and value == 0 else value
