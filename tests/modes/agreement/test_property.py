"""Whatever the views, the records, the cuts and the modes: views hold what all records so far make of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, example, given, reject, settings
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.log.partition import Offsets
from penstock.modes import running as running_module
from penstock.modes.batch import run_batch
from penstock.modes.beside import build
from penstock.modes.engine import Engine, open_engine
from penstock.modes.rounds import make_pair
from penstock.modes.running import RunningSet
from penstock.upkeep.compiled import CompiledView, try_compile
from penstock.upkeep.step import finish
from penstock.views.store import Store, open_store
from tests.modes.agreement.grammar import DDL, TOPICS, Aggregate, Groups, Joined, Row
from tests.modes.agreement.model import How, Kept, expected, open_model
from tests.modes.agreement.random_sql import SqlCase
from tests.modes.agreement.random_views import ARRIVED_FROM, LATENESS, START, Case, Turn, cases
from tests.modes.harness import plain

pytestmark = pytest.mark.spark


def moving(how: How) -> Case:
    """Counts per key, and over them how many keys have each count: a row leaves its group with every record.

    Redone over redone, rows carry a group already, which is not the one they are read by; folded, the last row of a
    group takes the group with it.
    """
    counted = Groups("v0", ("events",), None, {"k": "text"}, None, (Aggregate("rows", None),), ("int",))
    upper = (Aggregate("rows", None),) if how == "fold" else (Aggregate("max", "k"),)
    over = Groups("v1", ("v0",), None, {"v0_a0": "int"}, None, upper, ("int",) if how == "fold" else ("text",))
    records = (("events", {"time": START, "k": "a", "g": 0, "n": 1}, ARRIVED_FROM),) * 3
    return Case(
        (Kept(counted, how), Kept(over, how)), records, ((0.3,) * 4,), ("step",), is_batch_first=False, big_rows=1_000
    )


def beginning() -> Case:
    """A count of all records, and a join of that count: on an empty log there is a row already, and then another."""
    counted = Groups("v0", ("events",), None, {}, None, (Aggregate("rows", None),), ("int",))
    over = Joined("v1", ("v0", "others"), "v0_a0", "g", "g", "int")
    records = (("events", {"time": START, "k": "a", "g": 0, "n": 1}, ARRIVED_FROM),) * 3
    return Case(
        (Kept(counted, "fold"), Kept(over, "group", is_traced=False)), records, ((0.0,) * 4,), ("step",),
        is_batch_first=False, big_rows=1_000,
    )  # fmt: skip


OpenEngine = Callable[[Path, FolderLog, Sequence[Kept]], AbstractContextManager[tuple[Engine, Store]]]
"""Opens an engine over views and a log, in a folder."""

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=40, suppress_health_check=SLOW)
@example(moving("fold"))
@example(moving("group"))
@example(beginning())
@given(cases())
def test_after_every_step_views_are_what_the_records_so_far_make_of_them(case: Case) -> None:
    assert_right_after_every_step(case)


@pytest.mark.long
@settings(max_examples=500, suppress_health_check=SLOW)
@given(cases())
def test_many_more_of_them(case: Case) -> None:
    assert_right_after_every_step(case)


@settings(
    max_examples=15,
    derandomize=True,
    suppress_health_check=[*SLOW, HealthCheck.function_scoped_fixture],
)
@given(case=cases(views_max=3))
def test_spark_agrees_with_the_model(case: Case, spark: SparkSession) -> None:
    """A sample of the same: the functions are analysed, planned and computed by Spark, and kept as the plans allow."""

    @contextmanager
    def with_spark(folder: Path, log: FolderLog, kept: Sequence[Kept]) -> Iterator[tuple[Engine, Store]]:
        app = in_sql(kept)
        views, problems = try_compile(app, spark)
        if problems:
            event("refused")
            reject()
        with (
            open_store(f"sqlite:{folder}/views.db") as store,
            open_engine(app, log=log, store=store, spark=spark, views=views) as engine,
        ):
            for view in views:
                event(f"kept by {view.keeping.how}")
            yield engine, store

    assert_right_after_every_step(case, with_spark)


def in_sql(kept: Sequence[Kept]) -> Pipeline:
    """The views of a case as people write them."""
    app = Pipeline("sample")
    for name in TOPICS:
        app.topic(name, DDL, key="k", event_time="time", lateness=LATENESS, partitions=2, durability="os")
    for each in kept:
        key = None if each.view.key is None else list(each.view.key)
        app.view(each.view.name, sql=each.view.sql, key=key, late=each.late)
    return app


def assert_right_after_every_step(case: Case, opened: OpenEngine = open_model) -> None:
    with scratch() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_module, "BIG_ROWS", case.big_rows)
        patch.setattr(running_module, "FILL_ROWS", 5)
        log, topics = recorded(folder, case)
        with log, opened(folder, log, case.views) as (engine, store):
            ends = {name: topic.end() for name, topic in topics.items()}
            for views in engine.sets:
                read = {name for view in views for name in view.topics}
                running = None
                for cut, turn in zip([*cuts(case, ends), ends], [*case.turns, "step"], strict=True):
                    stop = {name: cut[name] for name in read}
                    if running is None and case.is_batch_first:
                        [running] = run_batch(engine, sets=[views], until=stop)
                    else:
                        running = TURNS[turn](engine, running or engine.open(views), stop)
                    assert held(store, running) == meant(case, views, topics, cut)


def step(engine: Engine, running: RunningSet, stop: Mapping[str, Offsets]) -> RunningSet:
    """What a stream does."""
    running.step(stop)
    return running


def new_round(engine: Engine, running: RunningSet, stop: Mapping[str, Offsets]) -> RunningSet:
    """What lambda does: a new batch part up to where the live one is, and on top of it a speed part that goes on."""
    reached = running.fence.offsets or {name: topic.start() for name, topic in running.topics.items()}
    until = {name: dict(offsets) for name, offsets in reached.items()}
    pair = finish(make_pair(engine, engine.new(running.views), until, rows=3))
    engine.switch(pair, is_same_code=True)
    pair.step(stop)
    return pair


def replay(engine: Engine, running: RunningSet, stop: Mapping[str, Offsets]) -> RunningSet:
    """What kappa does: everything again, in several steps, into a new generation that is then switched in."""
    new = engine.new(running.views)
    finish(build(new, stop, 4))
    engine.switch(new)
    return new


TURNS: Mapping[Turn, Callable[[Engine, RunningSet, Mapping[str, Offsets]], RunningSet]] = {
    "step": step,
    "round": new_round,
    "replay": replay,
}


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory, where there is one: these runs are not about disks."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def recorded(folder: Path, case: Case | SqlCase, ddl: str = DDL) -> tuple[FolderLog, dict[str, FolderTopic]]:
    """A log that holds the records of a case, as they came."""
    log = FolderLog(folder / "log", background=False)
    topics = {
        name: log.create(name, ddl, key="k", event_time="time", lateness=LATENESS, partitions=2, durability="os")
        for name in TOPICS
    }
    for name, topic in topics.items():
        mine = [(row, arrived) for where, row, arrived in case.records if where == name]
        if mine:
            stamps = pa.array([arrived for _, arrived in mine], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
            topic.append(pa.Table.from_pylist([row for row, _ in mine], schema=topic.schema), arrived=stamps)
    return log, topics


def cuts(case: Case | SqlCase, ends: Mapping[str, Offsets]) -> list[dict[str, Offsets]]:
    """Where each step ends, one after the other."""
    found, reached = [], {name: dict.fromkeys(offsets, 0) for name, offsets in ends.items()}
    for parts in case.cuts:
        part = iter(parts)
        for name, offsets in reached.items():
            reached[name] = {
                number: offset + round((ends[name][number] - offset) * next(part)) for number, offset in offsets.items()
            }
        found.append({name: dict(offsets) for name, offsets in reached.items()})
    return found


def meant(
    case: Case, views: Sequence[CompiledView], topics: Mapping[str, FolderTopic], until: Mapping[str, Offsets]
) -> dict[str, list[Any]]:
    names = {view.name for view in views}
    return {
        kept.view.name: in_order(rows, [*kept.view.columns])
        for kept, rows in zip(case.views, expected(case.views, topics, until).values(), strict=True)
        if kept.view.name in names
    }


def held(store: Store, running: RunningSet) -> dict[str, list[Any]]:
    found = {}
    for view in running.views:
        table = store.read(view.shape.table(running.generation.layers))
        assert running.generation.counters[view.name].rows == table.num_rows, view.name
        found[view.name] = in_order(table.to_pylist(), view.shape.columns.names)
    return found


def in_order(rows: Sequence[Row], names: Sequence[str]) -> list[Any]:
    return sorted((tuple(plain(row[name]) for name in names) for row in rows), key=repr)
