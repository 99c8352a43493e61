"""Runs a pipeline over the same events in several ways, in one Spark session, and gives what its views hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.log.folder_log import FolderLog
from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine, open_engine
from penstock.modes.replays import run_kappa
from penstock.modes.rounds import run_lambda
from penstock.modes.stream import run_stream
from penstock.modes.topics import make_topics
from penstock.pipeline.pipeline import Pipeline
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from penstock.views.store import Store, open_store

Rows = dict[str, list[tuple[Any, ...]]]


class Lab:
    """A log with events in it, and a new database for each run: a SQLite file, or what `new_url` gives."""

    def __init__(
        self,
        folder: Path,
        pipeline: Pipeline,
        spark: SparkSession,
        new_url: Callable[[], str] | None = None,
        compiled: tuple[CompiledView, ...] | None = None,
    ) -> None:
        self.folder = folder
        self.pipeline = pipeline
        self.spark = spark
        self.log = FolderLog(folder / "log", background=False)
        self.topics = {name: self.log.topic(name) for name in make_topics(pipeline, self.log)}
        self._new_url = new_url
        self._runs = 0
        self._compiled = compiled

    def compiled(self) -> tuple[CompiledView, ...]:
        """The views of the pipeline, analysed once for all runs; another lab of the same pipeline may take them."""
        if self._compiled is None:
            self._compiled = compile_pipeline(self.pipeline, self.spark)
        return self._compiled

    def append(self, topic: str, rows: Sequence[Mapping[str, Any]], arrived: Sequence[int] | None = None) -> None:
        """Adds events; `arrived` in microseconds says when each came, else they come now."""
        target = self.topics[topic]
        table = pa.Table.from_pylist([dict(row) for row in rows], schema=target.schema)
        stamps = None if arrived is None else pa.array(arrived, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        target.append(table, arrived=stamps)

    @contextmanager
    def engine(
        self,
        name: str | None = None,
        pipeline: Pipeline | None = None,
        url: str | None = None,
        compiled: Sequence[CompiledView] | None = None,
    ) -> Iterator[tuple[Engine, Store]]:
        """An engine over a database: a new one, or the one of that name or address."""
        self._runs += 1
        if url is None and name is None and self._new_url is not None:
            url = self._new_url()
        views = compiled or (self.compiled() if pipeline is None else None)
        with (
            # However long this process is kept waiting, no server ends its transactions.
            open_store(
                url or f"sqlite:{self.folder / (name or f'views{self._runs}')}.db", lease=timedelta(hours=1)
            ) as store,
            open_engine(pipeline or self.pipeline, log=self.log, store=store, spark=self.spark, views=views) as engine,
        ):
            yield engine, store

    def batch(self) -> Rows:
        """What the views hold after a batch."""
        with self.engine() as (engine, store):
            run_batch(engine)
            return rows_of(engine, store)

    def stream(self, max_rows: int | None) -> Rows:
        """What they hold after a stream of steps of at most so many records."""
        with self.engine() as (engine, store):
            run_stream(engine, once=True, max_rows=max_rows)
            return rows_of(engine, store)

    def as_lambda(self, max_rows: int | None = None, cuts: int = 4) -> Rows:
        """What they hold after a batch part, speed steps on top of it, a second round beside more of them, and so on.

        The batch parts end at odd ones of so many cuts along arrival, the speed parts go on to the even ones.
        """
        with self.engine() as (engine, store):
            for number, cut in enumerate(self.cuts(cuts)):
                # Every other run is due for a new batch part; the others only go on with the speed part.
                every = timedelta(0) if number % 2 == 0 else timedelta(hours=1)
                run_lambda(engine, every=every, once=True, until=cut, max_rows=max_rows)
            assert all(live.beneath for views in engine.sets if (live := engine.live(views)))
            return rows_of(engine, store)

    def as_kappa(self, max_rows: int | None = None) -> Rows:
        """What they hold after a stream by other code, a replay by this one in the middle of it, and the rest."""
        middle, *_ = self.cuts(2)
        other_code = [replace(view, fingerprint="other") for view in self.compiled()]
        url = self._new_url() if self._new_url is not None else f"sqlite:{self.folder / 'kappa'}.db"
        with self.engine(url=url, compiled=other_code) as (engine, store):
            run_stream(engine, until=middle, max_rows=max_rows)
        with self.engine(url=url) as (engine, store):
            run_kappa(engine, once=True, max_rows=max_rows)
            return rows_of(engine, store)

    def cuts(self, count: int) -> list[str]:
        """So many places along the log, the last one its end, as `--until` takes them."""
        topics = {name: topic.end() for name, topic in self.topics.items()}
        return [
            ",".join(
                f"{name}:{number}={-(-end * (place + 1) // count)}"
                for name, ends in topics.items()
                for number, end in ends.items()
            )
            for place in range(count)
        ]


def rows_of(engine: Engine, store: Store) -> Rows:
    """The rows of every view as readers see them, sorted."""
    found: Rows = {}
    for views in engine.sets:
        live = engine.live(views)
        assert live is not None
        for view in views:
            table = store.read(view.shape.table(live.layers)).select(view.shape.columns.names)
            found[view.name] = sorted((tuple(map(plain, row.values())) for row in table.to_pylist()), key=repr)
            assert live.counters[view.name].rows == table.num_rows, view.name
    return found


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(plain(each) for each in value.values())
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, float):
        return round(value, 9)
    return tuple(map(plain, value)) if isinstance(value, list) else value
