"""`penstock.run`: a pipeline, run from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, get_args

from penstock.alerts.courier import delivering
from penstock.durations import parse_duration
from penstock.errors import RealtimeOptionError, UnknownMode
from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine, open_engine
from penstock.modes.replays import run_kappa
from penstock.modes.rounds import EVERY, run_lambda
from penstock.modes.running import RunningSet, StepReport
from penstock.modes.stream import Stop, StreamOptions, run_stream
from penstock.modes.until import Until
from penstock.pipeline.pipeline import Pipeline
from penstock.settings import Settings, load_settings
from penstock.views.fence import Fence

Mode = Literal["batch", "stream", "lambda", "kappa"]
MODES: tuple[str, ...] = get_args(Mode)
REALTIME = "realtime"
"""The trigger of a run record at a time."""


@dataclass(frozen=True)
class RunReport:
    """What a run left behind."""

    mode: Mode
    rows: Mapping[str, int]
    """Rows of each view."""
    fences: Mapping[str, Fence]
    """How far each view has come."""


def run(
    pipeline: Pipeline,
    mode: Mode = "stream",
    *,
    once: bool = False,
    until: Until = None,
    max_rows: int | None = None,
    trigger: str | timedelta | None = None,
    batch_every: str | timedelta = EVERY,
    hold: bool = False,
    settings: Mapping[str, object] | Settings | None = None,
    on_step: Callable[[StepReport, RunningSet, int], None] | None = None,
    stop: Stop | None = None,
) -> RunReport:
    """Runs a pipeline over its log into its views; returns when a batch is done, or a stream was stopped.

    `settings` are overrides by full name (`{"log.url": "dir:./log"}`). `batch_every` is for lambda, `hold` for kappa.
    With `trigger="realtime"` it runs record at a time, into topics alone, until `stop` is called.
    See `run_batch`, `run_stream`, `run_lambda`, `run_kappa` and `run_realtime` for the rest.
    """
    if mode not in MODES:
        raise UnknownMode(mode, MODES)
    if trigger == REALTIME:
        if mode != "stream" or once or until is not None or max_rows is not None:
            raise RealtimeOptionError
        from penstock.modes.realtime import run_realtime

        chosen = settings if isinstance(settings, Settings) else load_settings(settings)
        with opened_at_a_time(pipeline, chosen) as engine:
            run_realtime(engine, chosen, stop=stop)
        return RunReport(mode, {}, {})
    pause = None if trigger is None else parse_duration(trigger)
    with opened(pipeline, settings) as engine:
        if mode == "batch":
            return report(mode, run_batch(engine, until=until, max_rows=max_rows))
        options: StreamOptions = {
            "once": once, "until": until, "max_rows": max_rows, "trigger": pause, "on_step": on_step, "stop": stop
        }  # fmt: skip
        if mode == "lambda":
            return report(mode, run_lambda(engine, every=parse_duration(batch_every), **options))
        if mode == "kappa":
            return report(mode, run_kappa(engine, hold=hold, **options))
        return report(mode, run_stream(engine, **options))


def report(mode: Mode, done: list[RunningSet]) -> RunReport:
    """What these sets of views have come to."""
    counters = {name: each for one in done for name, each in one.generation.counters.items()}
    return RunReport(
        mode,
        {name: each.rows for name, each in counters.items()},
        {view.name: one.fence for one in done for view in one.views},
    )


@contextmanager
def opened_at_a_time(pipeline: Pipeline, settings: Settings) -> Iterator[Engine]:
    """The same as `opened`, for a run record at a time: Spark gets the connector's jars, and enough threads.

    RealtimeRefused if the log is not in Kafka, ConnectorMissing without the jars: before Spark is started.
    """
    from penstock.modes.realtime_spark import realtime_spark
    from penstock.modes.realtime_views import check_log

    check_log(pipeline, settings)
    with opened(pipeline, replace(settings, spark=realtime_spark(pipeline, settings.spark)), in_steps=False) as engine:
        yield engine


@contextmanager
def opened(
    pipeline: Pipeline, settings: Mapping[str, object] | Settings | None = None, *, in_steps: bool = True
) -> Iterator[Engine]:
    """The engine for a pipeline, with the log, the database and the Spark that the settings name."""
    from penstock.log.log import open_log
    from penstock.spark import session
    from penstock.spark.cluster import check_log
    from penstock.views.store import open_store

    chosen = settings if isinstance(settings, Settings) else load_settings(settings)
    check_log(chosen)
    with open_log(chosen.log) as log, open_store(chosen.views.url, password=chosen.views.password) as store:
        spark = session(chosen.spark, name=f"penstock {pipeline.name}")
        with (
            delivering(pipeline.alerts.values(), store, chosen.alerts) as wake,
            open_engine(
                pipeline, log=log, store=store, spark=spark, keep_old=chosen.views.kept_old, in_steps=in_steps
            ) as engine,
        ):
            engine.alerts.on_told = wake
            yield engine
