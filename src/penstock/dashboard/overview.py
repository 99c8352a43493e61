"""The page Overview: how fast events come, how far views are behind, what runs, and the latest alerts."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dashboard.alerts import COLUMNS as ALERT_COLUMNS
from penstock.dashboard.alerts import entry_rows
from penstock.dashboard.beat import Beat
from penstock.dashboard.chart import Chart, Series
from penstock.dashboard.history import per_second, rates_of
from penstock.dashboard.markup import Tag, Tile, card
from penstock.dashboard.numbers import NOTHING, count, duration, plural, rate
from penstock.dashboard.runs import RUN_COLUMNS, run_rows
from penstock.dashboard.screen import Screen
from penstock.dashboard.sheet import Sheet
from penstock.log.definition import DEAD_SUFFIX

SHOWN_SECONDS = 600
STEP_US = 5_000_000
TOPICS_DRAWN = 6


def build(screen: Screen) -> None:
    """Numbers, charts, runs and alerts."""
    with screen.main:
        with Tag("dl", classes="tiles", style="margin:0"):
            events = Tile("Events", "a second")
            lag = Tile("Lag", "records not in views yet")
            late = Tile("Late", "events seen by views")
            corrected = Tile("Corrected", "rows of closed windows")
            step = Tile("Step time", "of the latest step")
            views = Tile("Views")
        with Tag("div", classes="columns"):
            with card("Events per second"):
                arrivals = Chart("No events have come in the last ten minutes.", unit="/s")
            with card("Lag"):
                lags = Chart("Nothing is known yet: there is no view.", unit="records")
        with Tag("div", classes="columns"):
            with card("Step time"):
                steps = Chart("No step was made in the last ten minutes.", unit="ms")
            with card("Late events"):
                lates = Chart("No step was made in the last ten minutes.", unit="events")
        with card("What runs now"):
            running = Sheet("Runs at work", RUN_COLUMNS, "Nothing runs at the moment.")
        with card("Latest alerts"):
            alerts = Sheet("Latest alerts", ALERT_COLUMNS, "No alert was raised.")

    def refresh(beat: Beat) -> None:
        known = {name: state for name, state in beat.topics.items() if not name.endswith(DEAD_SUFFIX)}
        rates = screen.pulse.rates([*known])
        found = [each for each in rates.values() if each is not None]
        events.say(rate(sum(found)) if found else NOTHING)
        lag.say(count(beat.lag) if beat.views else NOTHING)
        late.say(count(sum(each.counters.late for each in beat.views.values())))
        corrected.say(count(sum(each.counters.corrected for each in beat.views.values())))
        seconds = _step_seconds(beat)
        step.say(duration(seconds) if seconds is not None else NOTHING)
        views.say(count(len(beat.views)), f"of {plural(len(known), 'topic')}")
        alive = [each for each in beat.runs if each.is_alive()]
        running.show(run_rows(alive, beat.at_us))
        alerts.show(entry_rows(beat.entries[:5], beat.at_us))
        _draw(screen, beat, [*known], rates, arrivals, lags)
        _draw_steps(beat, steps, lates)

    screen.live(refresh)


def _draw_steps(beat: Beat, steps: Chart, lates: Chart) -> None:
    """How long steps took and how many late events they met, of each pipeline, as its runs have noted."""
    span = (beat.at_us - SHOWN_SECONDS * 1_000_000, beat.at_us)
    seconds: dict[str, list[tuple[int, float]]] = {}
    late: dict[str, list[tuple[int, float]]] = {}
    for run in reversed(beat.runs):
        samples = [each for each in run.samples if each.at_us >= span[0]]
        if samples:
            seconds.setdefault(run.pipeline, []).extend((each.at_us, each.seconds * 1000) for each in samples)
            late.setdefault(run.pipeline, []).extend((each.at_us, float(each.late)) for each in samples)
    names = sorted(seconds)
    told = "; ".join(f"{name}: last {seconds[name][-1][1]:.0f} ms" for name in names)
    steps.lines(
        f"The longest step of each second, over the last ten minutes. {told}",
        [Series(name, _thinned(seconds[name]), number) for number, name in enumerate(names)],
        span=span,
    )
    told = "; ".join(f"{name}: {count(round(sum(value for _, value in late[name])))}" for name in names)
    lates.lines(
        f"Late events that steps met in the last ten minutes. {told}",
        [Series(name, late[name], number) for number, name in enumerate(names)],
        span=span,
    )


def _draw(
    screen: Screen, beat: Beat, topics: Sequence[str], rates: dict[str, float | None], arrivals: Chart, lags: Chart
) -> None:
    points = screen.pulse.points(SHOWN_SECONDS)
    span = (beat.at_us - SHOWN_SECONDS * 1_000_000, beat.at_us)
    lines = {name: rates_of(points, name, STEP_US) for name in topics}
    busy = sorted(lines, key=lambda name: (-max((value for _, value in lines[name]), default=0.0), name))
    drawn = sorted(each for each in busy[:TOPICS_DRAWN] if any(value for _, value in lines[each]))
    told = "; ".join(f"{name}: now {rate(rates[name])}" for name in drawn)
    series = [Series(name, lines[name], number) for number, name in enumerate(drawn)]
    arrivals.lines(f"Events per second of the last ten minutes. {told}", series, span=span)
    behind = [(each.at_us, float(each.lag)) for each in points if each.lag is not None]
    late = per_second([(each.at_us, each.late) for each in points if each.late is not None], STEP_US)
    label = f"Records not in views yet, over the last ten minutes; now {count(beat.lag)}"
    if any(value for _, value in late):
        label += f"; late events a second, at most {rate(max(value for _, value in late))}"
    lags.lines(label, [Series("lag", _thinned(behind), 1)] if beat.views or behind else [], span=span)


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The greatest value of every five seconds."""
    found: dict[int, tuple[int, float]] = {}
    for at, value in points:
        place = at // STEP_US
        if place not in found or value >= found[place][1]:
            found[place] = (at, value)
    return list(found.values())


def _step_seconds(beat: Beat) -> float | None:
    samples = [each for run in beat.runs for each in run.samples if each.steps]
    return max(samples, key=lambda each: each.at_us).seconds if samples else None
