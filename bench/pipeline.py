"""All promises about the speed of pipelines, measured in one go.

    python -m bench.pipeline [--json] [--quick] [--only NAME ...]

Both sides of every ratio run on the same machine over the same log in turns, warmed up, medians of five. `--quick` uses
fewer rows and rounds. The last line of `--json` is one JSON object.
"""

from __future__ import annotations

import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from bench import structured_streaming
from bench.measuring import in_turns, main
from bench.pipeline_data import DDL, FILE_ROWS, events, filled_topic, strayed
from penstock import Log, Pipeline
from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine, open_engine
from penstock.modes.running import RunningSet, step_together
from penstock.modes.stream import Stop, run_stream
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from penstock.upkeep.step import finish
from penstock.views.store import Store, open_store

AIMS = {
    "batch_vs_plain": ("<=", 1.05),
    "catch_up_vs_structured_streaming": (">=", 2.0),
    "catch_up_vs_structured_streaming_small_steps": (">=", 2.0),
    "step_vs_structured_streaming": ("<=", 0.4),
    "step_20_views_vs_1": ("<=", 4.0),
    "latency_ms_p50": ("<=", 250.0),
    "latency_ms_p99": ("<=", 600.0),
    "redo_step_growth_window": ("<=", 1.5),
    "redo_step_growth_join": ("<=", 1.5),
}
KEYS = 1000
STEP_ROWS = 1000
WARM_UP_STEPS = 100


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rows: int = 10_000_000
    rounds: int = 5
    steps: int = 30
    growth: tuple[int, ...] = (1_000_000, 10_000_000, 100_000_000)
    seconds: float = 20.0

    @staticmethod
    def quick() -> Size:
        return Size(2_000_000, 3, 12, (1_000_000, 4_000_000), 8.0)


class Bench:
    """One Spark session and one folder for all measurements."""

    def __init__(self, folder: Path, spark: SparkSession, size: Size) -> None:
        self.folder = folder
        self.spark = spark
        self.size = size
        self._number = 0

    @contextmanager
    def engine(
        self, pipeline: Pipeline, log: Log, views: Sequence[CompiledView] | None = None
    ) -> Iterator[tuple[Engine, Store]]:
        """An engine over a new database; its views are compiled, unless they were before."""
        self._number += 1
        path = self.folder / f"views{self._number}.db"
        with (
            open_store(f"sqlite:{path}") as store,
            open_engine(pipeline, log=log, store=store, spark=self.spark, views=views) as engine,
        ):
            yield engine, store

    # --- the promises ---

    def batch_vs_plain(self) -> dict[str, float]:
        """A folded view as a batch, and the same job by hand over the same files into the same kind of table."""
        topic = filled_topic(self.folder / "batch", self.size.rows, KEYS)
        files = [str(path) for path in sorted(topic.directory.glob("*/*.parquet"))]
        schema = self.spark.read.parquet(*files).schema
        answers = set()
        app = counting()
        views = compile_pipeline(app, self.spark)

        def ours() -> None:
            with self.engine(app, topic.log, views) as (engine, _):
                [running] = run_batch(engine)
                answers.add(running.generation.counters["counts_0"].rows)

        def by_hand() -> None:
            self._number += 1
            target = structured_streaming.Target(self.folder / f"plain{self._number}.db")
            target.write(structured_streaming.counts(self.spark.read.schema(schema).parquet(*files)))
            answers.add(target.count()[0])

        taken = in_turns({"ours": ours, "plain": by_hand}, self.size.rounds)
        assert len(answers) == 1, answers
        rate = self.size.rows / taken["ours"]
        return {"batch_vs_plain": taken["ours"] / taken["plain"], "batch_rows_per_second": rate}

    def catch_up_vs_structured_streaming(self) -> dict[str, float]:
        """A windowed count per key, in steps of one file of half a million events each, and of a fifth of that."""
        large, small = (self._catch_up(rows) for rows in (FILE_ROWS, FILE_ROWS // 5))
        return {**large, **{f"{name}_small_steps": value for name, value in small.items()}}

    def _catch_up(self, step_rows: int) -> dict[str, float]:
        topic = filled_topic(self.folder / f"catch-up{step_rows}", self.size.rows, KEYS, file_rows=step_rows)
        files = sorted(topic.directory.glob("*/*.parquet"))
        expected = []
        app = counting()
        views = compile_pipeline(app, self.spark)

        def ours() -> None:
            with self.engine(app, topic.log, views) as (engine, store):
                [running] = run_stream(engine, once=True, max_rows=step_rows)
                [view] = running.views
                table = store.read(view.shape.table(running.generation.layers), columns=["hits"])
                expected.append((table.num_rows, sum(table.column("hits").to_pylist())))

        def streaming() -> None:
            self._number += 1
            expected.append(structured_streaming.catch_up(self.spark, files, self.folder / f"streaming{self._number}"))

        taken = in_turns({"ours": ours, "streaming": streaming}, self.size.rounds)
        assert len(set(expected)) == 1, set(expected)
        return {
            "catch_up_vs_structured_streaming": taken["streaming"] / taken["ours"],
            "catch_up_rows_per_second": self.size.rows / taken["ours"],
            "structured_streaming_rows_per_second": self.size.rows / taken["streaming"],
        }

    def step_vs_structured_streaming(self) -> dict[str, float]:
        """The median of single steps of 1,000 events each."""
        ours = self._median_steps({"one": counting()}, "small")["one"]
        files = []
        for number in range(self.size.steps):
            path = self.folder / f"small{number}.parquet"
            pq.write_table(events(number * STEP_ROWS, STEP_ROWS, KEYS), path)
            files.append(path)
        warm = self.size.steps // 3
        sides = {
            name: statistics.median(
                structured_streaming.step_seconds(self.spark, files, self.folder / f"ss-{name}", tuned=name == "tuned")[
                    warm:
                ]
            )
            for name in ("tuned", "defaults")
        }
        return {
            "step_vs_structured_streaming": ours / sides["tuned"],
            "step_vs_structured_streaming_defaults": ours / sides["defaults"],
            "step_ms": ours * 1000,
            "structured_streaming_step_ms": sides["tuned"] * 1000,
            "structured_streaming_defaults_step_ms": sides["defaults"] * 1000,
        }

    def step_20_views_vs_1(self) -> dict[str, float]:
        """A step of 1,000 events with 20 views over one topic, against one view, in turns.

        The same with 20 views of five kinds, for those whose rows have the same types are merged and written together.
        """
        alike = self._median_steps({f"{count}_views": counting(count) for count in (1, 5, 20)}, "views")
        unlike = self._median_steps({"1_views": counting(), "20_mixed_views": mixed(20)}, "mixed")
        return {
            "step_20_views_vs_1": alike["20_views"] / alike["1_views"],
            "step_20_mixed_views_vs_1": unlike["20_mixed_views"] / unlike["1_views"],
            **{f"step_ms_{name}": seconds * 1000 for name, seconds in {**unlike, **alike}.items()},
        }

    def latency(self) -> dict[str, float]:
        """From the append to the commit of the step that holds it, at 1,000 events a second into 1,000 keys."""
        log = Log(self.folder / "latency", background=False)
        with self.engine(counting(lateness="1000 days"), log) as (engine, _):
            topic = log.topic("events")
            appended: list[tuple[int, float]] = []
            waits: list[float] = []
            stop = Stop()

            def on_step(_: object, running: RunningSet, __: int) -> None:
                now, reached = time.monotonic(), running.fence.offsets["events"][0]
                while appended and appended[0][0] <= reached:
                    waits.append(now - appended.pop(0)[1])

            def produce() -> None:
                began = time.monotonic()
                number = 0
                while time.monotonic() - began < self.size.seconds:
                    done = topic.append(events(number * 10, 10, KEYS))
                    appended.append((done[0].base_offset + 10, time.monotonic()))
                    number += 1
                    time.sleep(max(0.0, began + number / 100 - time.monotonic()))
                time.sleep(1)
                stop()

            producing = threading.Thread(target=produce)
            producing.start()
            run_stream(engine, on_step=on_step, stop=stop)
            producing.join()
        settled = sorted(waits[len(waits) // 4 :])
        return {
            "latency_ms_p50": settled[len(settled) // 2] * 1000,
            "latency_ms_p99": settled[int(len(settled) * 0.99)] * 1000,
        }

    def redo_step_growth(self) -> dict[str, float]:
        """A step of 1,000 events of views that are redone, on a long log against a short one; some events stray."""
        sizes = (self.size.rows // 10, self.size.rows)
        figures = {}
        for name, pipeline in (("window", distinct_per_minute()), ("join", joined())):
            medians = [self._redo_steps(pipeline, rows, self.folder / f"redo-{name}-{rows}") for rows in sizes]
            figures[f"redo_step_growth_{name}"] = medians[1] / medians[0]
            figures[f"redo_step_ms_{name}"] = medians[1] * 1000
        return figures

    def growth(self) -> dict[str, float]:
        """What catching up costs as the log, and the number of keys, grow; and the memory of the driver."""
        figures = {}
        for rows in self.size.growth:
            topic = filled_topic(self.folder / f"rows{rows}", rows, KEYS)
            figures[f"catch_up_ns_per_row_{rows}"] = self._catch_up_ns(topic.log, rows)
        for keys in (1_000, 100_000, 1_000_000):
            topic = filled_topic(self.folder / f"keys{keys}", 3_600_000, keys)
            figures[f"catch_up_ns_per_row_{keys}_keys"] = self._catch_up_ns(topic.log, 3_600_000)
        figures["driver_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
        return figures

    # --- helpers ---

    def _catch_up_ns(self, log: Log, rows: int) -> float:
        with self.engine(counting(), log) as (engine, _):
            began = time.monotonic()
            run_stream(engine, once=True)
            return (time.monotonic() - began) / rows * 1e9

    def _median_steps(self, pipelines: Mapping[str, Pipeline], folder: str) -> dict[str, float]:
        """How long a step of 1,000 events takes with each pipeline, in turns, once warm."""
        taken: dict[str, list[float]] = {name: [] for name in pipelines}
        with ExitStack() as opened:
            sides = {}
            for name, pipeline in pipelines.items():
                log = Log(self.folder / folder / name, background=False)
                engine, _ = opened.enter_context(self.engine(pipeline, log))
                sides[name] = (log.topic("events"), [engine.open(views) for views in engine.sets])
            for number in range(self.size.steps + WARM_UP_STEPS):
                for name, (topic, running) in sides.items():
                    topic.append(events(number * STEP_ROWS, STEP_ROWS, KEYS))
                    began = time.monotonic()
                    ends = {"events": topic.end()}  # Asked once for all views, as a stream does.
                    finish(step_together([(each, ends) for each in running]))
                    taken[name].append(time.monotonic() - began)
        return {name: statistics.median(steps[WARM_UP_STEPS:]) for name, steps in taken.items()}

    def _redo_steps(self, pipeline: Pipeline, rows: int, folder: Path) -> float:
        topic = filled_topic(folder, rows, KEYS)
        is_join = "others" in pipeline.topics
        other = filled_topic(folder, rows, KEYS, name="others") if is_join else None
        with self.engine(pipeline, topic.log) as (engine, _):
            [running] = run_stream(engine, once=True)
            finish(running.fill_kept_rows())
            taken = []
            for number in range(self.size.steps // 2 + 5):
                topic.append(strayed(rows + number * STEP_ROWS, STEP_ROWS, KEYS))
                if other is not None:
                    other.append(strayed(rows + number * STEP_ROWS, STEP_ROWS, KEYS, seed=2))
                began = time.monotonic()
                running.step(running.ends())
                taken.append(time.monotonic() - began)
        return statistics.median(taken[5:])


def counting(views: int = 1, lateness: str = "10 minutes", partitions: int = 1) -> Pipeline:
    """So many windowed counts per key."""
    app = Pipeline("counting")
    app.topic("events", DDL, event_time="time", key="key", lateness=lateness, partitions=partitions)
    for number in range(views):

        def counts(events: DataFrame, number: int = number) -> DataFrame:
            return structured_streaming.counts(events if number == 0 else events.filter(sf.col("key") % 20 != number))

        app.view(key=["window", "key"], name=f"counts_{number}")(_bound(counts))
    return app


def mixed(views: int) -> Pipeline:
    """So many views of five kinds: other keys, other windows, other aggregates."""
    app = Pipeline("mixed")
    app.topic("events", DDL, event_time="time", key="key", lateness="10 minutes")
    kinds = (
        (["window", "key"], "window(time, '1 minute') AS window, key", "count(*) AS hits, max(value) AS most"),
        (["key"], "key", "count(*) AS hits, min(time) AS first, max(time) AS last"),
        (["window"], "window(time, '10 seconds') AS window", "count(*) AS hits, sum(key) AS total"),
        (
            ["window", "key"],
            "window(time, '1 hour') AS window, key",
            "min(value) AS least, bool_or(value > 0.9) AS high",
        ),
        (["name"], "concat('key ', key) AS name", "sum(CAST(value * 100 AS DECIMAL(18,0))) AS cents"),
    )
    for number in range(views):
        key, columns, aggregates = kinds[number % len(kinds)]
        sql = f"SELECT {columns}, {aggregates} FROM events WHERE key % 20 <> {number} GROUP BY ALL"
        app.view(f"view_{number}", key=key, sql=sql)
    return app


def _bound(function: Callable[..., DataFrame]) -> Callable[[DataFrame], DataFrame]:
    """The function with a single parameter, as a view's function has it."""

    def counts(events: DataFrame) -> DataFrame:
        return function(events)

    return counts


def distinct_per_minute() -> Pipeline:
    """A distinct count per minute, which has to be redone."""
    app = Pipeline("distinct")
    app.topic("events", DDL, event_time="time", key="key")

    @app.view(key="window")
    def users(events: DataFrame) -> DataFrame:
        return events.groupBy(sf.window("time", "1 minute")).agg(sf.countDistinct("key").alias("users"))

    return app


def joined() -> Pipeline:
    """Two topics, joined by key and hundredth of a second."""
    app = Pipeline("joined")
    app.topic("events", DDL, event_time="time", key="key")
    app.topic("others", DDL, event_time="time", key="key")

    @app.view(key=["key", "time", "other"], within="key", horizon="1 second")
    def pairs(events: DataFrame, others: DataFrame) -> DataFrame:
        hundredth = sf.floor(sf.unix_micros("time") / 10_000).alias("hundredth")
        other = others.select("key", hundredth, sf.col("time").alias("other"), sf.col("value").alias("other_value"))
        met = events.select("key", hundredth, "time").join(other, ["key", "hundredth"])
        return met.groupBy("key", "time", "other").agg(sf.max("other_value").alias("value"))

    return app


MEASUREMENTS = (
    "batch_vs_plain",
    "catch_up_vs_structured_streaming",
    "step_vs_structured_streaming",
    "step_20_views_vs_1",
    "latency",
    "redo_step_growth",
    "growth",
)


if __name__ == "__main__":
    main(__doc__, Bench, Size(), Size.quick(), MEASUREMENTS, AIMS)
