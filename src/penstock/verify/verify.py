"""verify: does a pipeline give the same rows however it is run?

It is run over a recorded part of the log as a batch, by plain Spark without Penstock's engine, as streams cut into
steps of many sizes, without small plans, stopped and continued, in another environment, as lambda with batch parts at
random cuts, as kappa with a replay and a switch in the middle, and as a batch once more; every view of every run is
compared with the first batch.
"""

from __future__ import annotations

import logging
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from penstock.errors import NothingRecorded
from penstock.log.log import Log
from penstock.modes.topics import recorded_topics
from penstock.pipeline.pipeline import Pipeline
from penstock.plans.decision import Problem
from penstock.upkeep.changes import KEY
from penstock.upkeep.compare import Comparison, Example, compare
from penstock.upkeep.compiled import CompiledView, as_views, try_compile
from penstock.upkeep.explain import Explanation
from penstock.verify.causes import Cause, Seen, adds_floats, cause_of, has_floats
from penstock.verify.cuts import Recorded
from penstock.verify.elsewhere import elsewhere
from penstock.verify.killed import killed
from penstock.verify.records import Tracer, met
from penstock.verify.report import Difference, Failure, Kind, Line, Report
from penstock.verify.runs import Mode, Run, Runner, error_text, only
from penstock.verify.singles import one_by_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

BATCH, AGAIN, PLAIN, ONE_STEP, TEN_STEPS, SINGLE = (
    "batch",
    "batch again",
    "plain Spark",
    "stream, one step",
    "stream, ten steps",
    "stream, single records",
)
KAPPA = "kappa, replayed and switched"
SCHEDULED, ELSEWHERE = "stream, without small plans", "stream, other environment"
STOPPED, KILLED = "stream, stopped and continued", "stream, killed and restarted"
SINGLES = 30
"""How many records each set of views takes one by one at most."""
CHANCE_STEPS = (3, 8)
"""How many steps a run with random cuts has: between these."""
ROUND_SHARE = 0.4
"""At so many of the cuts of a lambda run a new batch part is computed."""
SCRATCH = "penstock-verify-"
"""How the name of a folder for databases begins."""
DIFFERENCES_MAX = 3
"""So many rows of each view are shown."""


def verify(
    pipeline: Pipeline,
    log: Log,
    spark: SparkSession,
    *,
    cuts: int = 3,
    faults: bool = False,
    seed: int | None = None,
    rows: int | None = None,
    singles: int = SINGLES,
    application: str | None = None,
    other_environment: bool = True,
    scratch: Path | None = None,
    on_run: Callable[[Run], None] | None = None,
) -> Report:
    """Runs the pipeline over what the log holds now in every way there is, and compares all results with the batch.

    `cuts`: how many streams with random cuts, which follow from `seed` (chosen and reported if None). `rows`: only the
    first so many records along arrival. `faults`: also in processes of their own that are killed and restarted.
    `singles`: how many records are taken one by one. `application`: the file or module that the pipeline was loaded
    from, which the process with another environment loads again; without it the pipeline is sent there as code.
    `other_environment=False` leaves that process out.
    `scratch`: an empty folder of the caller's for the databases of the runs. `on_run` is called with each
    run when it is done.

    The log is only read, and views are written to databases in a folder that is removed afterwards. Results are held in
    memory. NothingRecorded if there is nothing to compare; TopicDiffers if a topic is not what the pipeline defines.
    """
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    topics = recorded_topics(pipeline, log)
    recorded = Recorded.of(topics, rows)
    if not recorded.total:
        raise NothingRecorded(pipeline.name, list(topics), log.url)
    compiled, problems = try_compile(pipeline, spark)
    failures = [Failure("problem", each.view, each.place, each.message, each.hint, each.place) for each in problems]
    lines: list[Line] = []
    runs: list[Run] = []
    tolerant = _tolerant(compiled)
    if compiled:
        with nullcontext(scratch) if scratch else tempfile.TemporaryDirectory(prefix=SCRATCH) as folder:
            names = [view.name for view in compiled]
            runner = Runner(only(pipeline, names), log, spark, recorded, Path(folder), compiled)
            for name, mode, work in _runs(
                runner, application,
                seed=seed, cuts=cuts, singles=singles, faults=faults, other_environment=other_environment,
            ):  # fmt: skip
                run = _done(name, mode, work, names)
                runs.append(run)
                lines += _lines(compiled, run, runs[0], tolerant)
                if run is not runs[0]:
                    run.rows.clear()  # Only those of the batch are needed again.
                if on_run is not None:
                    on_run(run)
            if not all(line.agrees for line in lines):
                failures += _explained_failures(runner, lines, runs)
    return Report(
        pipeline.name,
        seed,
        recorded.records,
        tuple(lines),
        tuple(failures),
        _notes(recorded, runs),
        tuple(view.name for view in compiled if view.name in tolerant and has_floats(view)),
        _not_run(pipeline, compiled, problems),
    )


def _runs(
    runner: Runner,
    application: str | None,
    *,
    seed: int,
    cuts: int,
    singles: int,
    faults: bool,
    other_environment: bool,
) -> Iterator[tuple[str, Mode, Callable[[], Run]]]:
    """The name of each run, its mode, and what does it."""
    recorded = runner.recorded
    batch = Run(BATCH, "batch")

    def first() -> Run:
        done = runner.batch(BATCH)
        batch.rows = done.rows
        return done

    yield BATCH, "batch", first
    yield AGAIN, "batch", lambda: runner.batch(AGAIN, is_new=True)
    yield PLAIN, "plain", lambda: runner.plain(PLAIN, batch)
    yield ONE_STEP, "stream", lambda: runner.stream(ONE_STEP, [recorded.end])
    yield TEN_STEPS, "stream", lambda: runner.stream(TEN_STEPS, recorded.evenly(10))
    for number in range(cuts):
        random = Random(f"{seed} cut {number}")
        name, places = f"stream, random cuts {number + 1}", recorded.by_chance(random, random.randint(*CHANCE_STEPS))
        yield name, "stream", partial(runner.stream, name, places)
    if singles:
        yield SINGLE, "stream", lambda: one_by_one(runner, SINGLE, BATCH, singles)
    for number in range(max(1, cuts - 1)):
        random = Random(f"{seed} lambda {number}")
        name, places = f"lambda, random cuts {number + 1}", recorded.by_chance(random, random.randint(*CHANCE_STEPS))
        rounds = {place for place in range(1, len(places)) if random.random() < ROUND_SHARE}
        yield name, "lambda", partial(runner.paired, name, places, rounds)
    steps = recorded.evenly(6)
    replayed_at = Random(f"{seed} replay").randint(1, len(steps))
    stopped_at = Random(f"{seed} stop").randint(1, max(1, len(steps) - 1))
    yield KAPPA, "kappa", lambda: runner.replayed(KAPPA, steps, replayed_at)
    yield STOPPED, "stream", lambda: runner.stopped(STOPPED, steps, stopped_at)
    yield SCHEDULED, "stream", lambda: runner.scheduled(SCHEDULED, recorded.evenly(3))
    if other_environment:
        yield ELSEWHERE, "stream", lambda: elsewhere(runner, ELSEWHERE, recorded.evenly(3), application)
    if faults:
        yield KILLED, "stream", lambda: killed(runner, KILLED, recorded.evenly(10), Random(f"{seed} kill"))


def _done(name: str, mode: Mode, work: Callable[[], Run], views: Sequence[str]) -> Run:
    """A run; what keeps it from running at all is an error of every view, and the other runs go on."""
    try:
        return work()
    except Exception as error:
        _log.debug("the run %s failed", name, exc_info=error)
        return Run(name, mode, errors=dict.fromkeys(views, error))


def _explained_failures(runner: Runner, lines: Sequence[Line], runs: Sequence[Run]) -> list[Failure]:
    """What is wrong with each view that does not agree, traced to the log as far as the batch left anything."""
    try:
        with runner.results(BATCH) as engine, Tracer.over(engine) as tracer:
            return list(_failures(runner.compiled, lines, runs, tracer))
    except Exception as error:
        _log.debug("rows cannot be traced to the log", exc_info=error)
        return list(_failures(runner.compiled, lines, runs, None))


def _notes(recorded: Recorded, runs: Sequence[Run]) -> tuple[str, ...]:
    notes = [f"{run.name}: {run.note}" for run in runs if run.note]
    if recorded.removed:
        notes.append(f"retention has removed {recorded.removed:,} records before; what is left was compared")
    return tuple(notes)


def _not_run(pipeline: Pipeline, compiled: Sequence[CompiledView], problems: Sequence[Problem]) -> dict[str, str]:
    known = {view.name for view in compiled} | {each.view for each in problems}
    return {name: "a view that it reads has a problem" for name in as_views(pipeline).views if name not in known}


def _tolerant(compiled: Sequence[CompiledView]) -> set[str]:
    """Views that add floating-point numbers up, or are made of such."""
    found: set[str] = set()
    for view in compiled:
        if adds_floats(view) or found & {*view.upstream}:
            found.add(view.name)
    return found


def _lines(compiled: Sequence[CompiledView], run: Run, reference: Run, tolerant: set[str]) -> Iterator[Line]:
    """Each view of one run, compared with the batch."""
    for view in compiled:
        error = run.errors.get(view.name)
        comparison: Comparison | None = None
        if view.name in run.rows and view.name in reference.rows:
            sides = reference.rows[view.name], run.rows[view.name]
            if run.mode == "plain":  # It knows nothing of stored keys.
                sides = sides[0].drop_columns([KEY]), sides[1]
            try:
                comparison = compare(*sides, view.spec.key, is_tolerant=view.name in tolerant)
            except Exception as found:
                error = run.errors[view.name] = found
        elif error is None:
            continue  # The batch failed: there is nothing to compare with.
        told = "" if error is None else error_text(error)
        seconds = run.seconds.get(view.name, 0.0)
        yield Line(run.name, run.mode, view.name, seconds, comparison, run is reference, told)


def _failures(
    compiled: Sequence[CompiledView], lines: Sequence[Line], runs: Sequence[Run], tracer: Tracer | None
) -> Iterator[Failure]:
    """What is wrong with each view that does not agree; those that others are made of come first."""
    differing: set[str] = set()
    for view in compiled:
        own = [line for line in lines if line.view == view.name]
        if not all(line.agrees for line in own):
            errors = {run.name: run.errors[view.name] for run in runs if view.name in run.errors}
            yield _failure(view, own, errors, [name for name in view.upstream if name in differing], tracer)
            differing.add(view.name)


def _failure(
    view: CompiledView,
    lines: Sequence[Line],
    errors: Mapping[str, Exception],
    upstream: Sequence[str],
    tracer: Tracer | None,
) -> Failure:
    agrees = {line.run: line.agrees for line in lines}
    bad = [line for line in lines if not line.agrees]
    said = tuple(f"{line.run} ({line.comparison.differing:,} rows)" if line.comparison else line.run for line in bad)
    if BATCH in errors:
        error = errors[BATCH]
        culprit = getattr(error, "view", None)
        hint = f"it moves together with view {culprit!r}" if culprit not in (None, view.name) else ""
        return Failure("error", view.name, view.spec.place, error_text(error), hint, runs=said)
    differences = _differences(view, bad, tracer)
    runs = {line.run for line in bad}
    seen = Seen(
        repeats=agrees.get(AGAIN, True),
        one_step=agrees.get(ONE_STEP, True),
        only_plain=runs == {PLAIN},
        only_after_restart=runs <= {STOPPED, KILLED},
        only_elsewhere=runs == {ELSEWHERE},
        only_by_scheduler=SCHEDULED in runs and runs <= {SCHEDULED, PLAIN, ELSEWHERE},
        upstream=upstream,
    )

    def groups() -> str:
        if tracer is None:
            return ""
        named = (met(view, each.example, each.explained, tracer.engine.spark) for each in differences)
        return next(filter(None, named), "")

    try:
        cause = cause_of(view, seen, groups)
    except Exception as error:
        _log.debug("the cause of what differs in %s could not be guessed", view.name, exc_info=error)
        cause = Cause("its rows differ, and the cause could not be guessed", "", view.spec.place)
    told = [cause.text, *dict.fromkeys(map(error_text, errors.values()))]
    kind: Kind = "difference" if differences else "error"
    return Failure(kind, view.name, view.spec.place, "\n".join(told), cause.hint, cause.place, said, tuple(differences))


def _differences(view: CompiledView, bad: Sequence[Line], tracer: Tracer | None) -> list[Difference]:
    """Some rows of the first run that has any which differ."""
    for line in bad:
        if line.comparison is not None and line.comparison.examples:
            examples = line.comparison.examples[:DIFFERENCES_MAX]
            return [Difference(line.run, each, _explained(view, each, tracer)) for each in examples]
    return []


def _explained(view: CompiledView, example: Example, tracer: Tracer | None) -> Explanation | None:
    """What a row is made of. A view that could not be computed right may not be explained either."""
    try:
        return None if tracer is None else tracer.explain(view, example)
    except Exception as error:
        _log.debug("a row of %s could not be explained: %s", view.name, error)
        return None
