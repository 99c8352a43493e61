"""The page Clocks: when things happened against when they arrived, and what of it is late."""

from __future__ import annotations

from penstock.dashboard.beat import Beat
from penstock.dashboard.chart import Chart, Series
from penstock.dashboard.control import choice
from penstock.dashboard.markup import Tag, card
from penstock.dashboard.numbers import count, duration, plural
from penstock.dashboard.recent import points_of
from penstock.dashboard.screen import Screen
from penstock.log.definition import DEAD_SUFFIX
from penstock.service.records import find_topic

DRAWN = 600
SCREEN_NOTE = (
    "Each dot is one of the newest records: to the right when it arrived, upwards its own time. The dashed line is the "
    "watermark, arrival less lateness: whatever lies below it came late."
)


def build(screen: Screen) -> None:
    """A scatter of the newest records of one topic."""
    chosen = {"topic": ""}

    def choose(name: str) -> None:
        chosen["topic"] = name
        screen.again()

    with screen.main, card("Event time and arrival", SCREEN_NOTE):
        with Tag("div", classes="controls"):
            control = choice("Topic", [], "", choose)
        told = Tag("p", "", "note")
        chart = Chart("There is no record with an event time yet.", height=420, x_name="arrived")

    async def refresh(beat: Beat) -> None:
        names = [name for name, each in beat.topics.items() if each.event_time and not name.endswith(DEAD_SUFFIX)]
        if chosen["topic"] not in names:
            newest = max(names, key=lambda name: beat.topics[name].arrived_us or 0, default="")
            chosen["topic"] = newest
        control.show(options=[[name, name] for name in names], value=chosen["topic"])
        name = chosen["topic"]
        if not name:
            told.say("No topic has an event time." if beat.topics else "There is no topic yet.")
            chart.dots("", [])
            return
        ends = tuple(beat.topics[name].end.items())
        key = ("clocks", name)
        points = await screen.read(key, lambda: points_of(find_topic(screen.service.log, name), DRAWN), ends)
        lateness_us = beat.topics[name].lateness_us
        late = [(arrived, happened) for arrived, happened, is_late in points if is_late]
        on_time = [(arrived, happened) for arrived, happened, is_late in points if not is_late]
        told.say(
            f"{plural(len(points), 'newest record')}, {count(len(late))} late. Lateness: {duration(lateness_us / 1e6)}."
        )
        if not points:
            chart.dots("", [])
            return
        first, last = min(each[0] for each in points), max(each[0] for each in points)
        watermark = [(first, first - lateness_us), (last, last - lateness_us)]
        label = (
            f"Event time against arrival of {plural(len(points), 'record')} of {name}; {count(len(late))} of them late"
        )
        chart.dots(label, [
            Series("on time", on_time, 0, "dots"),
            Series("late", late, 1, "triangles"),
            Series("watermark", watermark, 5, "dashed"),
        ])  # fmt: skip

    screen.live(refresh)
