"""The page Runs: who worked on a pipeline, how fast, and how it ended; and the generations of every view."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dashboard.beat import Beat
from penstock.dashboard.markup import card
from penstock.dashboard.numbers import NOTHING, count, duration, rate
from penstock.dashboard.screen import Screen
from penstock.dashboard.sheet import Cell, Column, Sheet, Tone, badge, link, moment, spark
from penstock.views.catalog import Generation
from penstock.views.runs import Run

RUN_COLUMNS = [
    Column("pipeline", "Pipeline"),
    Column("state", "State"),
    Column("mode", "Mode"),
    Column("process", "Process", is_right=True),
    Column("host", "Host"),
    Column("since", "Began"),
    Column("length", "Took", is_right=True),
    Column("rows", "Records", is_right=True),
    Column("rate", "Records/s", is_right=True),
    Column("steps", "Steps", is_right=True),
    Column("seconds", "Step time", is_right=True),
]
GENERATION_COLUMNS = [
    Column("view", "View"),
    Column("number", "Generation", is_right=True),
    Column("state", "State"),
    Column("rows", "Rows", is_right=True),
    Column("fence", "Fence", is_wide=True),
    Column("created", "Made"),
    Column("switched", "Switched in"),
    Column("retired", "Replaced"),
]
NOTE = "The copies of each view: the one people read, those kept for a rollback, those being built."
RATE_US = 10_000_000
_TONES: dict[str, Tone] = {"running": "good", "done": "", "stopped": "", "killed": "warn"}
_STATES: dict[str, Tone] = {"live": "good", "building": "warn", "ready": "warn"}


def build(screen: Screen) -> None:
    """Runs, then generations."""
    with screen.main:
        with card("Runs"):
            runs = Sheet("Runs, the newest first", RUN_COLUMNS, "No run has noted itself yet: penstock run app.py")
        with card("Generations", NOTE):
            generations = Sheet("Generations of views", GENERATION_COLUMNS, "There is no view yet.")

    def refresh(beat: Beat) -> None:
        runs.show(run_rows(beat.runs, beat.at_us))
        generations.show(_generation_rows(beat.generations, beat.at_us))

    screen.live(refresh)


def run_rows(runs: Sequence[Run], now_us: int) -> list[list[Cell]]:
    """Runs as rows of a sheet with RUN_COLUMNS."""
    return [_run_row(each, now_us) for each in runs]


def _run_row(run: Run, now_us: int) -> list[Cell]:
    is_alive = run.is_alive()
    state = "running" if is_alive else run.outcome or "killed"
    ended_us = now_us if is_alive else run.ended_us or run.seen_us
    seconds = [each.seconds for each in run.samples][-60:]
    recent = [each for each in run.samples if each.at_us > now_us - RATE_US]
    speed = rate(sum(each.rows for each in recent) / (RATE_US / 1e6)) if is_alive else NOTHING
    return [
        run.pipeline,
        badge(state, "bad" if state.startswith("failed") else _TONES.get(state, "")),
        run.mode,
        {"text": f"{run.pid}", "title": f"process {run.pid} on {run.host}"},
        run.host,
        moment(run.started_us, now_us),
        duration(float(max(ended_us - run.started_us, 0) // 1_000_000)),
        count(run.rows),
        speed,
        count(run.steps),
        spark(seconds, duration(seconds[-1])) if seconds else NOTHING,
    ]


def _generation_rows(generations: Sequence[Generation], now_us: int) -> list[list[Cell]]:
    lines = [(name, each) for each in generations for name in each.views]
    lines.sort(key=lambda line: (line[0], -line[1].number))
    return [
        [
            link(name, "views", name) if each.state == "live" else name,
            count(each.number) if each.beneath is None else f"{each.number} on {each.beneath}",
            badge(each.state, _STATES.get(each.state, "")),
            count(each.counters[name].rows),
            fence_text(each),
            moment(each.created_us, now_us),
            moment(each.switched_us, now_us),
            moment(each.retired_us, now_us),
        ]
        for name, each in lines
    ]


def fence_text(generation: Generation) -> str:
    """How far it has come: `access 0=17, 1=4`."""
    parts = [
        f"{topic} {', '.join(f'{number}={count(offset)}' for number, offset in sorted(offsets.items()))}"
        for topic, offsets in sorted(generation.fence.offsets.items())
    ]
    return "; ".join(parts) or NOTHING
