"""penstock run: a pipeline over its log into its views, in one of four modes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli.options import AppFile, Json, LogUrl, ViewsUrl, settings_of
from penstock.cli.output import counted, moment, print_json_line, rate_text

if TYPE_CHECKING:
    from penstock.cli.bar import BatchDisplay
    from penstock.cli.live import Display
    from penstock.cli.signals import Signals
    from penstock.modes.engine import Engine
    from penstock.modes.running import RunningSet
    from penstock.upkeep.compiled import CompiledView


def run(
    context: typer.Context,
    app: AppFile,
    mode: Annotated[
        Literal["batch", "stream", "lambda", "kappa"],
        typer.Option(
            help="stream: keep the views up to date. batch: compute them anew, then switch over. lambda: both, a batch "
            "part every hour and a speed part since. kappa: stream, and replay views whose code changed."
        ),
    ] = "stream",
    once: Annotated[bool, typer.Option("--once", help="Stream up to what is there now, then end.")] = False,
    until: Annotated[
        str | None, typer.Option(metavar="PLACE", help="End at a time of arrival, or at offsets: access:0=100.")
    ] = None,
    max_rows: Annotated[int | None, typer.Option(min=1, help="The most records that one step takes.")] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            help="The least time between the steps of a stream: 2s. realtime: no steps but record at a time, from "
            "Kafka to Kafka."
        ),
    ] = None,
    batch_every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Lambda: how often a new batch part is computed. [default: 1h]")
    ] = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="Kappa: do not switch replayed views in; wait for `penstock switch`.")
    ] = False,
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss", help="Batch and kappa: also if retention has removed records that views still count."
        ),
    ] = False,
    as_json: Json = False,
    views_url: ViewsUrl = None,
    log_url: LogUrl = None,
) -> None:
    """Run a pipeline. Ctrl-C or SIGTERM ends it cleanly; a second Ctrl-C at once. A run that was killed goes on.

    \b
    Example:
      penstock run weblogs.py
      penstock run weblogs.py --once
      penstock run weblogs.py --mode batch --until 2026-01-01T00:00:00Z
      penstock run weblogs.py --mode lambda --batch-every 6h
      penstock run weblogs.py --mode kappa --hold
      penstock run payments.py --trigger realtime
    """
    if mode == "batch" and (once or trigger is not None):
        raise typer.BadParameter("--once and --trigger are for streams; a batch ends by itself")
    if batch_every is not None and mode != "lambda":
        raise typer.BadParameter("--batch-every is for --mode lambda: no other mode has batch parts")
    if hold and mode != "kappa":
        raise typer.BadParameter("--hold is for --mode kappa: no other mode replays views")
    if trigger == "realtime":
        if mode != "stream" or once or until is not None or max_rows is not None:
            raise typer.BadParameter(
                "--trigger realtime has no steps that could end it: no --mode, --once, --until or --max-rows"
            )
        from penstock.cli.realtime import run_at_a_time

        run_at_a_time(app, settings_of(context, log_url, views_url), as_json=as_json)
        return
    from penstock.cli.signals import Signals, StoppedEarly
    from penstock.durations import parse_duration
    from penstock.modes.replays import Watch, run_kappa
    from penstock.modes.rounds import EVERY, run_lambda
    from penstock.modes.run import opened
    from penstock.modes.stream import Stop, StreamOptions, run_stream
    from penstock.pipeline.loading import load_pipeline

    every = EVERY if batch_every is None else parse_duration(batch_every)
    pause = None if trigger is None else parse_duration(trigger)
    pipeline = load_pipeline(app)
    settings = settings_of(context, log_url, views_url)
    stop, display = Stop(), stream_display(pipeline.name, as_json=as_json)
    try:
        with Signals() as signals, opened(pipeline, settings) as engine:
            if mode == "batch":
                batch(engine, signals, until=until, max_rows=max_rows, allow_loss=allow_loss, as_json=as_json)
                return
            signals.begun(lambda: _ask(stop, display))
            began = time.monotonic()
            options: StreamOptions = {
                "once": once, "until": until, "max_rows": max_rows, "trigger": pause, "on_open": display.opened,
                "on_step": display.stepped, "on_retry": display.waits, "stop": stop,
            }  # fmt: skip
            with display:
                if mode == "lambda":
                    done = run_lambda(
                        engine, every=every, on_round=display.rounded, on_batch=display.batched, **options
                    )
                elif mode == "kappa":
                    watch = Watch(display.replayed, display.compared, display.held, display.switched)
                    done = run_kappa(engine, hold=hold, allow_loss=allow_loss, watch=watch, **options)
                else:
                    done = run_stream(engine, **options)
            _tell_stream(done, display, time.monotonic() - began, was_stopped=signals.is_asked, as_json=as_json)
    except StoppedEarly:
        print("stopped before the first step", file=sys.stderr)


def batch(
    engine: Engine,
    signals: Signals,
    *,
    sets: Sequence[Sequence[CompiledView]] | None = None,
    until: str | None = None,
    max_rows: int | None = None,
    allow_loss: bool = False,
    as_json: bool = False,
) -> None:
    """Computes views anew, all or those of `sets`, and shows how far it is. Stopped, it leaves views as they were."""
    from penstock.cli.signals import cancel_jobs
    from penstock.modes.batch import BATCH_ROWS, run_batch
    from penstock.modes.stream import Stop
    from penstock.modes.until import reached

    over, stop = threading.Event(), Stop()

    def ask() -> None:
        stop()
        cancel_jobs(engine.spark, over)

    signals.begun(ask)
    done: list[RunningSet] = []
    chosen = engine.sets if sets is None else sets
    began = time.monotonic()
    read: dict[str, int] = {}
    if not allow_loss:
        for views in chosen:
            engine.check_replay(views)
    engine.make_topics(chosen, until)
    try:
        with batch_display(engine, max_rows or BATCH_ROWS, as_json=as_json) as display:

            def progressed(running: RunningSet, left: int) -> None:
                display.progressed(running, left)
                if signals.is_asked and left:
                    raise _Abandoned

            for views in chosen:
                if signals.is_asked:
                    raise _Abandoned
                topics = {name: engine.log.topic(name) for view in views for name in view.topics}
                ends = reached(until, topics)
                counts = {
                    name: sum(max(ends[name][number] - start, 0) for number, start in topic.start().items())
                    for name, topic in topics.items()
                }
                display.begun([view.name for view in views], sum(counts.values()))
                done += run_batch(
                    engine, until=until, sets=[views], max_rows=max_rows, on_progress=progressed,
                    allow_loss=allow_loss, stop=stop,
                )  # fmt: skip
                read |= counts  # By topic: a record that several sets of views read counts once.
    except Exception as error:
        if not signals.is_asked:
            raise
        _tell_abandoned(done, chosen, error, as_json=as_json)
        return
    finally:
        over.set()
    _tell_batch(done, sum(read.values()), time.monotonic() - began, as_json=as_json)


class _Abandoned(Exception):
    """A batch was asked to stop."""


def _ask(stop: Any, display: Display) -> None:
    display.say("stopping after this step; Ctrl-C again ends at once")
    stop()


def stream_display(name: str, *, as_json: bool) -> Display:
    """What fits where the output goes."""
    from penstock.cli.live import JsonLines, Lines, Screen

    return JsonLines() if as_json else Screen(name) if sys.stdout.isatty() else Lines()


def batch_display(engine: Engine, step_rows: int, *, as_json: bool) -> BatchDisplay:
    """What fits where the output goes."""
    from penstock.cli.bar import Bar, BatchJson, BatchLines

    return BatchJson() if as_json else Bar(engine.spark, step_rows) if sys.stdout.isatty() else BatchLines()


def _tell_stream(
    done: Sequence[RunningSet], display: Display, seconds: float, *, was_stopped: bool, as_json: bool
) -> None:
    watch = display.watch
    if as_json:
        print_json_line({"event": "stopped" if was_stopped else "end", "records": watch.records, "steps": watch.steps,
                         "seconds": round(seconds, 3), "views": _views(done)})  # fmt: skip
        return
    told = f"{counted(watch.records, 'record')} in {counted(watch.steps, 'step')}, {seconds:,.1f} s"
    print(f"{'stopped' if was_stopped else 'done'}: {told}; {_as_of(done)}")


def _tell_batch(done: Sequence[RunningSet], records: int, seconds: float, *, as_json: bool) -> None:
    if as_json:
        print_json_line({"event": "end", "records": records, "seconds": round(seconds, 3), "views": _views(done)})
        return
    for each in done:
        for view in each.views:
            rows = counted(each.generation.counters[view.name].rows, "row")
            print(f"{view.name} ({view.keeping.how}): {rows}, generation {each.generation.number}")
    print(
        f"done: {counted(records, 'record')} in {seconds:,.1f} s ({rate_text(records, seconds)}); "
        f"{counted(sum(len(each.views) for each in done), 'view')} switched in, {_as_of(done)}"
    )


def _tell_abandoned(
    done: Sequence[RunningSet], chosen: Sequence[Sequence[CompiledView]], error: Exception, *, as_json: bool
) -> None:
    """A batch that was asked to stop. An error beside `_Abandoned` is what cancelling Spark's jobs looks like."""
    finished = {view.name for each in done for view in each.views}
    left = [view.name for views in chosen for view in views if view.name not in finished]
    if as_json:
        print_json_line({"event": "stopped", "views": _views(done), "abandoned": left, "was": type(error).__name__})
        return
    new = f"; new: {', '.join(sorted(finished))}" if finished else ""
    print(f"stopped: the batch is abandoned; as they were: {', '.join(left)}{new}")


def _views(done: Sequence[RunningSet]) -> dict[str, Any]:
    return {
        view.name: {
            "rows": each.generation.counters[view.name].rows,
            "late": each.generation.counters[view.name].late,
            "corrected": each.generation.counters[view.name].corrected,
            "generation": each.generation.number,
            "clock": moment(each.fence.clock_us),
            "fence": {topic: dict(offsets) for topic, offsets in each.fence.offsets.items()},
        }
        for each in done
        for view in each.views
    }


def _as_of(done: Sequence[RunningSet]) -> str:
    clock = max((each.fence.clock_us for each in done), default=0)
    return f"as of {moment(clock)}" if clock else "the log is empty"
