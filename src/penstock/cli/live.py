"""What `penstock run` shows of a stream: a live table on a terminal, lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.cli.output import counted, moment

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.errors import StoreUnavailable
    from penstock.modes.compared import Compared
    from penstock.modes.lag import TopicLag
    from penstock.modes.running import RunningSet, StepReport
    from penstock.upkeep.compiled import CompiledView

RATE_SECONDS = 10.0
"""Records per second are those of the last so many seconds."""
LINE_SECONDS = 5.0
REFRESHES_PER_SECOND = 2
PROGRESS_SECONDS = 2.0
SAID_MAX = 3
"""So many of the last messages stay under the table."""
COLUMNS = ("view", "kept", "rows", "records/s", "behind", "seconds behind", "late", "corrected", "step")


@dataclass(frozen=True)
class ViewNow:
    """One view at one moment of a run."""

    view: str
    kept: str
    rows: int
    rate: float
    """Records read per second, lately."""
    behind: int | None
    seconds_behind: float | None
    late: int
    corrected: int
    step_seconds: float | None
    """How long the last step took; None before the first."""


class Watch:
    """Gathers what the steps of a stream tell. One thread steps, another may look."""

    def __init__(self) -> None:
        self._sets: list[RunningSet] = []
        self._steps: dict[str, deque[tuple[float, int]]] = {}
        self._seconds: dict[str, float] = {}
        self._starts: dict[str, dict[str, int]] = {}
        self.steps = 0

    @property
    def records(self) -> int:
        """How far the run has come in all topics together; a record that several sets of views read counts once."""
        ways: dict[str, int] = {}
        for each in self._sets:
            for topic, reached in _reached(each).items():
                ways[topic] = max(ways.get(topic, 0), reached - self._starts[each.name].get(topic, 0))
        return sum(ways.values())

    def opened(self, running: Sequence[RunningSet]) -> None:
        self._sets = list(running)
        self._starts = {each.name: _reached(each) for each in running}
        self._steps = {each.name: deque(maxlen=1000) for each in running}

    def joined(self, running: RunningSet) -> None:
        """A set that comes later, or takes the place of the one of its name."""
        is_other = [each for each in self._sets if each.name != running.name]
        self._sets = [*is_other, running]
        self._starts.setdefault(running.name, _reached(running))
        self._steps.setdefault(running.name, deque(maxlen=1000))

    def stepped(self, report: StepReport) -> None:
        self._steps[report.set].append((time.monotonic(), report.rows))
        self._seconds[report.set] = report.seconds
        self.steps += 1

    def now(self, sets: Collection[str] | None = None) -> list[ViewNow]:
        """All views, or those of some sets, as they are now: with how far they are behind the log at this moment."""
        found = []
        for each in self._sets:
            if sets is not None and each.name not in sets:
                continue
            lags = _lags(each)
            generation = each.generation
            for view in each.views:
                topics = _topics(view, {other.name: other for other in each.views})
                mine = [lags[name] for name in topics if name in lags] if lags is not None else None
                counters = generation.counters[view.name]
                found.append(
                    ViewNow(
                        view.name,
                        view.keeping.how,
                        counters.rows,
                        self._rate(each.name),
                        None if mine is None else sum(lag.records for lag in mine),
                        None if mine is None else max((lag.seconds for lag in mine), default=0.0),
                        counters.late,
                        counters.corrected,
                        self._seconds.get(each.name),
                    )
                )
        return found

    def _rate(self, name: str) -> float:
        now = time.monotonic()
        steps = [(at, rows) for at, rows in list(self._steps[name]) if at >= now - RATE_SECONDS]
        if not steps:
            return 0.0
        # A run that is younger than that counts from its first step on, with the time that one took.
        span = max(now - steps[0][0] + self._seconds.get(name, 0.0), 1e-3)
        return sum(rows for _, rows in steps) / min(span, RATE_SECONDS)


class Display:
    """Shows a stream; this one shows nothing. Enter it before the run, tell it of what happens, leave it after."""

    def __init__(self) -> None:
        self.watch = Watch()
        self._told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def opened(self, running: Sequence[RunningSet]) -> None:
        """The views that the stream keeps, before its first step."""
        self.watch.opened(running)

    def stepped(self, report: StepReport, running: RunningSet, left: int) -> None:  # noqa: ARG002
        """One step is stored."""
        self.watch.stepped(report)

    def waits(self, error: StoreUnavailable, seconds: float) -> None:
        """The database is away; the run tries again after so many seconds."""
        from penstock.modes.patience import retry_text

        self.say(retry_text(error, seconds))

    def rounded(self, pair: RunningSet, seconds: float) -> None:
        """Lambda: a new batch part and speed part are what people read now."""
        self.watch.joined(pair)
        names = [view.name for view in pair.views]
        as_of = moment(pair.fence.clock_us or None) or "an empty log"
        text = f"a new batch part of {', '.join(names)} is in, as of {as_of} ({seconds:,.1f} s)"
        self.tell(text, {"event": "round", "views": names, "generation": pair.generation.number,
                         "seconds": round(seconds, 3), "clock": moment(pair.fence.clock_us or None)})  # fmt: skip

    def batched(self, running: RunningSet, left: int) -> None:
        """Lambda: a batch part has come one step further."""
        names = [view.name for view in running.views]
        text = f"computing a batch part of {', '.join(names)}: {counted(left, 'record')} left"
        self.progress(text, {"event": "batch", "views": names, "generation": running.generation.number, "left": left})

    def replayed(self, running: RunningSet, left: int) -> None:
        """Kappa: a replay has come one step further."""
        names = [view.name for view in running.views]
        text = f"replaying {', '.join(names)}: {counted(left, 'record')} left"
        self.progress(text, {"event": "replay", "views": names, "generation": running.generation.number, "left": left})

    def compared(self, found: Sequence[Compared]) -> None:
        """Kappa: everything is replayed, and this is how the new rows differ from those people read."""
        from penstock.cli.generation import compared_document, compared_lines

        self.tell(
            "\n".join(line for each in found for line in compared_lines(each)) or "nothing to compare with",
            {"event": "compared", "views": [compared_document(each) for each in found]},
        )

    def held(self) -> None:
        """Kappa: the new rows wait."""
        self.tell("held: the old rows are read until somebody says `penstock switch`", {"event": "held"})

    def switched(self, sets: Sequence[RunningSet]) -> None:
        """Kappa: people read the new rows from now on."""
        for each in sets:
            self.watch.joined(each)
        names = [view.name for each in sets for view in each.views]
        self.tell(
            f"switched in: {', '.join(names)}; to take it back: penstock rollback {names[0]}",
            {"event": "switched", "views": names},
        )

    def tell(self, text: str, event: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Something that happened, for people and for programs."""
        print(text, flush=True)

    def progress(self, text: str, event: Mapping[str, Any]) -> None:
        """Something that goes on: of many of these the last one is enough."""
        if time.monotonic() - self._told >= PROGRESS_SECONDS:
            self._told = time.monotonic()
            self.tell(text, event)

    def say(self, text: str) -> None:
        """Something that people should know."""
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """The run is over."""


class Screen(Display):
    """A table on a terminal, refreshed by itself."""

    def __init__(self, title: str) -> None:
        super().__init__()
        from rich.live import Live

        from penstock.cli.terminal import Terminal

        self._title = title
        self._said: list[str] = []
        self._progress = ""
        self._live = Live(
            get_renderable=self._table, console=Terminal(highlight=False), refresh_per_second=REFRESHES_PER_SECOND
        )

    def opened(self, running: Sequence[RunningSet]) -> None:
        super().opened(running)
        self._live.start(refresh=True)

    def say(self, text: str) -> None:
        if self._live.is_started:
            self._said.append(text)  # Shown under the table: a handler of signals must not print into it.
        else:
            super().say(text)

    def tell(self, text: str, event: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._progress = ""
        if self._live.is_started:
            self._live.console.print(text, markup=False)  # Above the table, which moves down.
        else:
            print(text, flush=True)

    def progress(self, text: str, event: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._progress = text

    def close(self) -> None:
        self._progress = ""
        if self._live.is_started:
            self._live.stop()

    def _table(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        said = [*self._said[-SAID_MAX:], *([self._progress] if self._progress else [])]
        return Group(views_table(self._title, self.watch), *(Text(text) for text in said))


class Lines(Display):
    """One line per view every few seconds, for views that took a step since."""

    def __init__(self, seconds: float = LINE_SECONDS) -> None:
        super().__init__()
        self._seconds = seconds
        self._due = time.monotonic() + seconds
        self._moved: set[str] = set()

    def stepped(self, report: StepReport, running: RunningSet, left: int) -> None:
        super().stepped(report, running, left)
        self._moved.add(report.set)
        if time.monotonic() >= self._due:
            self._print()

    def close(self) -> None:
        self._print()

    def _print(self) -> None:
        self._due = time.monotonic() + self._seconds
        at = datetime.now(UTC).strftime("%H:%M:%S")
        for each in self.watch.now(self._moved):
            print(f"{at} {line_of(each)}", flush=True)
        self._moved.clear()


class JsonLines(Display):
    """One JSON object per step, and one for each other thing that happens."""

    def tell(self, text: str, event: Mapping[str, Any]) -> None:  # noqa: ARG002
        print(json.dumps(event, ensure_ascii=False, default=str), flush=True)

    def stepped(self, report: StepReport, running: RunningSet, left: int) -> None:
        super().stepped(report, running, left)
        now = {each.view: each for each in self.watch.now([report.set])}
        document = {
            "event": "step",
            "records": report.rows,
            "seconds": round(report.seconds, 6),
            "left": left,
            "clock": moment(report.fence.clock_us),
            "fence": {topic: dict(offsets) for topic, offsets in report.fence.offsets.items()},
            "unfit": report.unfit,
            "views": {view.name: _document(now[view.name], report) for view in running.views},
        }
        print(json.dumps(document, ensure_ascii=False, default=str), flush=True)


def views_table(title: str, watch: Watch) -> Table:
    """All views of a run, for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=SIMPLE_HEAD,
        title=f"{title}   {counted(watch.records, 'record')} in {counted(watch.steps, 'step')}",
        title_justify="left",
        pad_edge=False,
        show_edge=False,
    )
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for each in watch.now():
        table.add_row(*(Text(cell) for cell in _cells(each)))
    return table


def line_of(now: ViewNow) -> str:
    """One view at one moment, as one line."""
    _, kept, _, rate, behind, seconds, late, corrected, step = _cells(now)
    return (
        f"{now.view} ({kept}): {counted(now.rows, 'row')}, {rate} records/s, {behind} behind ({seconds}), {late} late, "
        f"{corrected} corrected, step {step}"
    )


def _cells(now: ViewNow) -> tuple[str, ...]:
    return (
        now.view,
        now.kept,
        f"{now.rows:,}",
        f"{now.rate:,.0f}",
        "-" if now.behind is None else f"{now.behind:,}",
        "-" if now.seconds_behind is None else f"{now.seconds_behind:,.1f} s",
        f"{now.late:,}",
        f"{now.corrected:,}",
        "-" if now.step_seconds is None else f"{now.step_seconds * 1000:,.0f} ms",
    )


def _document(now: ViewNow, report: StepReport) -> dict[str, Any]:
    return {
        "rows": now.rows,
        "changed": report.changed[now.view],
        "late": report.late[now.view],
        "corrected": report.corrected[now.view],
        "records_per_second": round(now.rate, 1),
        "behind": now.behind,
        "seconds_behind": None if now.seconds_behind is None else round(now.seconds_behind, 3),
    }


def _reached(running: RunningSet) -> dict[str, int]:
    """How many records of each topic are below the fence of a set."""
    starts = {name: sum(topic.start().values()) for name, topic in running.topics.items()}
    found = {topic: sum(offsets.values()) for topic, offsets in running.fence.offsets.items()}
    return {**starts, **found}


def _lags(running: RunningSet) -> dict[str, TopicLag] | None:
    """How far a set is behind each of its topics; None where that cannot be read just now."""
    from penstock.clock import now_us
    from penstock.errors import PenstockError
    from penstock.modes.lag import topic_lag

    offsets = running.fence.offsets
    try:
        return {name: topic_lag(topic, offsets.get(name, {}), now_us()) for name, topic in running.topics.items()}
    except (PenstockError, OSError):
        return None


def _topics(view: CompiledView, views: Mapping[str, CompiledView]) -> set[str]:
    return {*view.topics, *(topic for name in view.upstream for topic in _topics(views[name], views))}
