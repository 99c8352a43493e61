"""All promises about the speed of lambda and kappa, measured in one go.

    python -m bench.lambda_kappa [--json] [--quick] [--only NAME ...]

Both sides of every ratio run on the same machine over the same log, warmed up; reads, rounds and replays in turns,
medians of five. `--quick` uses fewer rows and rounds. The last line of `--json` is one JSON object.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.measuring import in_turns, main
from bench.pipeline_data import DDL, events, filled_topic
from bench.structured_streaming import counts
from penstock import Log, Pipeline
from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine, open_engine
from penstock.modes.replays import Watch, run_kappa
from penstock.modes.rounds import Rounds
from penstock.modes.running import RunningSet
from penstock.modes.stream import Stop, run_stream
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from penstock.views.store import Store, open_store

AIMS = {
    "merged_read_vs_plain": ("<=", 1.5),
    "batch_round_vs_batch": ("<=", 1.1),
    "replay_vs_batch": (">=", 0.7),
    "replay_beside_live_vs_batch": (">=", 0.4),
    "live_latency_during_replay_vs_before": ("<=", 2.5),
}
MEASUREMENTS = ("merged_read", "batch_round", "replay", "replay_beside_live")
KEYS = 1000
LIVE_RATE = 500
"""Events per second beside a replay."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rows: int = 10_000_000
    rounds: int = 5
    seconds: float = 15.0
    """How long the live stream runs before the replay begins."""

    @staticmethod
    def quick() -> Size:
        return Size(2_000_000, 3, 8.0)


def counting(*, is_beside: bool = False) -> Pipeline:
    """A windowed count per key; and, if wanted, another one over a topic of its own, which is live meanwhile."""
    app = Pipeline("counting")
    app.topic("events", DDL, event_time="time", key="key")
    app.view(key=["window", "key"], name="counted")(_counted)
    if is_beside:
        app.topic("live", DDL, event_time="time", key="key")
        app.view(key=["window", "key"], name="fresh")(_fresh)
    return app


def _counted(events: DataFrame) -> DataFrame:
    return counts(events)


def _fresh(live: DataFrame) -> DataFrame:
    return counts(live)


class Bench:
    """One Spark session and one folder for all measurements."""

    def __init__(self, folder: Path, spark: SparkSession, size: Size) -> None:
        self.folder = folder
        self.spark = spark
        self.size = size
        self._log: Log | None = None
        self._views: tuple[CompiledView, ...] | None = None
        self._number = 0

    @property
    def log(self) -> Log:
        """A log with all the rows, sealed."""
        if self._log is None:
            self._log = filled_topic(self.folder / "log", self.size.rows, KEYS).log
        return self._log

    @property
    def views(self) -> tuple[CompiledView, ...]:
        """The view, analysed once."""
        self._views = self._views or compile_pipeline(counting(), self.spark)
        return self._views

    def _database(self) -> Path:
        self._number += 1
        return self.folder / f"views{self._number}.db"

    def batch(self) -> None:
        """Everything as a batch into a new database."""
        with open_store(f"sqlite:{self._database()}") as store, self._engine(store, self.views) as engine:
            run_batch(engine)

    def _engine(self, store: Store, views: tuple[CompiledView, ...]) -> AbstractContextManager[Engine]:
        return open_engine(counting(), log=self.log, store=store, spark=self.spark, views=views)

    # --- the promises ---

    def merged_read(self) -> dict[str, float]:
        """The same rows read by their name: from one table, and from a batch part with a speed part on top."""
        topic = self.log.topic("events")
        [(partition, end)] = topic.end().items()
        most = {"events": {partition: end - end // 100}}
        with (
            open_store(f"sqlite:{self._database()}") as plain,
            open_store(f"sqlite:{self._database()}") as merged,
            self._engine(plain, self.views) as one,
            self._engine(merged, self.views) as two,
        ):
            run_batch(one)
            run_batch(two, until=most)
            _one_round(two, until=most)
            run_stream(two, once=True)  # The last hundredth is in the speed part.
            sides = {"plain": plain, "merged": merged}
            assert len({_total(store) for store in sides.values()}) == 1
            [[window]] = plain.query("SELECT max(window_start) FROM counted")[1]
            asked = {
                "read": "SELECT * FROM counted",
                "sum": TOTAL,
                "window": f"SELECT * FROM counted WHERE window_start = '{window}'",
            }
            taken = {
                what: in_turns({name: _reading(store, sql) for name, store in sides.items()}, 4 * self.size.rounds)
                for what, sql in asked.items()
            }
        return {
            **{f"merged_{what}_vs_plain": each["merged"] / each["plain"] for what, each in taken.items()},
            "merged_read_ms": taken["read"]["merged"] * 1000,
        }

    def batch_round(self) -> dict[str, float]:
        """A round of lambda beside an idle pair, to the switch, against a batch."""
        with open_store(f"sqlite:{self._database()}") as store, self._engine(store, self.views) as engine:
            run_batch(engine)
            taken = in_turns({"round": lambda: _one_round(engine), "batch": self.batch}, self.size.rounds)
        return {"batch_round_vs_batch": taken["round"] / taken["batch"], "batch_round_seconds": taken["round"]}

    def replay(self) -> dict[str, float]:
        """A replay of kappa with nothing else running, to the switch, against a batch."""
        with open_store(f"sqlite:{self._database()}") as store:
            with self._engine(store, self.views) as engine:
                run_batch(engine)
            taken = in_turns({"replay": lambda: self._replay(store), "batch": self.batch}, self.size.rounds)
        rate = self.size.rows / taken["replay"]
        return {"replay_vs_batch": taken["batch"] / taken["replay"], "replay_rows_per_second": rate}

    def _replay(self, store: Store) -> None:
        """The code changed: the fingerprint says so."""
        self._number += 1
        changed = tuple(replace(view, fingerprint=f"changed {self._number}") for view in self.views)
        with self._engine(store, changed) as engine:
            run_kappa(engine, once=True)

    def replay_beside_live(self) -> dict[str, float]:
        """A replay beside a live view with events coming in, against a batch; and what the live one feels of it."""
        app = counting(is_beside=True)
        views = compile_pipeline(app, self.spark)
        self.log.create("live", DDL, event_time="time", key="key", exist_ok=True)
        batch = in_turns({"batch": self.batch}, self.size.rounds)["batch"]
        with open_store(f"sqlite:{self._database()}") as store:
            with open_engine(app, log=self.log, store=store, spark=self.spark, views=views) as engine:
                run_batch(engine)
                before = self._live(lambda live: run_stream(engine, stop=live.stop, on_step=live.on_step))
            changed = tuple(replace(view, fingerprint="changed") if view.name == "counted" else view for view in views)
            with open_engine(app, log=self.log, store=store, spark=self.spark, views=changed) as engine:
                began = time.monotonic()
                replayed: list[float] = []
                watch = Watch(switched=lambda _: replayed.append(time.monotonic() - began))
                during = self._live(
                    lambda live: run_kappa(engine, watch=watch, stop=live.stop, on_step=live.on_step),
                    until=lambda: bool(replayed),
                )
        waits = {"before": before.settled(), "during": during.settled(until=replayed[0] + began)}
        return {
            "replay_beside_live_vs_batch": batch / replayed[0],
            "live_latency_during_replay_vs_before": statistics.median(waits["during"])
            / statistics.median(waits["before"]),
            "live_latency_ms_before": statistics.median(waits["before"]) * 1000,
            "live_latency_ms_during": statistics.median(waits["during"]) * 1000,
            "live_latency_ms_p99_during": sorted(waits["during"])[int(len(waits["during"]) * 0.99)] * 1000,
        }

    def _live(self, run: Callable[[Live], object], until: Callable[[], bool] = lambda: True) -> Live:
        """Runs a stream with events coming in for some seconds, and as long as `until` is not so."""
        live = Live(self.log, self.size.seconds)
        live.start(until)
        run(live)
        live.join()
        return live


TOTAL = "SELECT count(*), sum(hits), max(window_end) FROM counted"


@dataclass
class Live:
    """Events that come in at a steady rate, and how long each waits until it is in the view."""

    log: Log
    seconds: float
    stop: Stop = field(default_factory=Stop)
    waits: list[tuple[float, float]] = field(default_factory=list)
    """When it came in, and how long it took."""

    def start(self, until: Callable[[], bool]) -> None:
        self._appended: list[tuple[int, float]] = []
        self._thread = threading.Thread(target=self._produce, args=(until,))
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def on_step(self, _: object, running: RunningSet, __: int) -> None:
        if "live" in running.topics:
            now, reached = time.monotonic(), running.fence.offsets["live"][0]
            while self._appended and self._appended[0][0] <= reached:
                came = self._appended.pop(0)[1]
                self.waits.append((came, now - came))

    def settled(self, until: float | None = None) -> list[float]:
        """Without the first quarter, in which things get warm, and what came after `until`."""
        mine = [wait for came, wait in self.waits if until is None or came <= until]
        return mine[len(mine) // 4 :]

    def _produce(self, until: Callable[[], bool]) -> None:
        topic, began, number, rows = self.log.topic("live"), time.monotonic(), 0, LIVE_RATE // 100
        while time.monotonic() - began < self.seconds or not until():
            done = topic.append(events(number * rows, rows, KEYS))
            self._appended.append((done[0].base_offset + rows, time.monotonic()))
            number += 1
            time.sleep(max(0.0, began + number / 100 - time.monotonic()))
        time.sleep(1)
        self.stop()


def _one_round(engine: Engine, until: Mapping[str, Mapping[int, int]] | None = None) -> None:
    """One round of lambda, now."""
    run_stream(engine, once=True, until=until, beside=Rounds(engine, every=timedelta(0)))


def _reading(store: Store, sql: str) -> Callable[[], None]:
    def read() -> None:
        assert store.query(sql)[1]

    return read


def _total(store: Store) -> tuple[object, ...]:
    return store.query(TOTAL)[1][0]


if __name__ == "__main__":
    main(__doc__, Bench, Size(), Size.quick(), MEASUREMENTS, AIMS)
