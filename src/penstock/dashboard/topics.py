"""The page Topics: what there is, how much of it, and how fast it grows."""

from __future__ import annotations

from penstock.dashboard.beat import Beat
from penstock.dashboard.markup import card
from penstock.dashboard.numbers import NOTHING, count, duration, plural, rate
from penstock.dashboard.screen import Screen
from penstock.dashboard.sheet import Column, Sheet, link, moment
from penstock.log.definition import DEAD_SUFFIX

COLUMNS = [
    Column("topic", "Topic"),
    Column("partitions", "Partitions", is_right=True),
    Column("records", "Records", is_right=True),
    Column("rate", "Events/s", is_right=True),
    Column("newest", "Newest event"),
    Column("lateness", "Lateness", is_right=True),
    Column("dead", "Dead letters", is_right=True),
]


def build(screen: Screen) -> None:
    """All topics; dead letters stand with the topic they did not fit."""
    with screen.main, card("All topics"):
        sheet = Sheet("Topics", COLUMNS, "There is no topic yet: penstock topic create NAME --schema '...'")

    def refresh(beat: Beat) -> None:
        names = [name for name in beat.topics if not name.endswith(DEAD_SUFFIX)]
        rates = screen.pulse.rates(names)
        rows = []
        for name in names:
            topic, dead = beat.topics[name], beat.topics.get(f"{name}{DEAD_SUFFIX}")
            rows.append([
                link(name, "topics", name), count(len(topic.end)), count(topic.records), rate(rates[name]),
                moment(topic.arrived_us, beat.at_us),
                duration(topic.lateness_us / 1e6) if topic.event_time else NOTHING,
                count(dead.records if dead else 0),
            ])  # fmt: skip
        alone = [
            [link(name, "topics", name), count(len(state.end)), count(state.records), NOTHING,
             moment(state.arrived_us, beat.at_us), NOTHING, NOTHING]
            for name, state in beat.topics.items()
            if name.endswith(DEAD_SUFFIX) and name.removesuffix(DEAD_SUFFIX) not in beat.topics
        ]  # fmt: skip
        sheet.show([*rows, *alone])
        screen.about.say(plural(len(names), "topic"))

    screen.live(refresh)
