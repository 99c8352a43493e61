"""The page of one topic: partitions, consumer groups, and its recent, late and dead events, as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.consume.groups import GroupStatus
from penstock.dashboard.beat import Beat
from penstock.dashboard.chart import Chart, Series
from penstock.dashboard.history import rates_of
from penstock.dashboard.markup import Facts, Tag, card
from penstock.dashboard.numbers import NOTHING, ago, count, duration, plural, rate, size
from penstock.dashboard.recent import SEARCHED, Shown, late_of, newest, raw_text, shown
from penstock.dashboard.screen import Screen
from penstock.dashboard.sheet import Cell, Column, Sheet, badge, moment
from penstock.errors import PenstockError
from penstock.events.schema import format_ddl
from penstock.log.definition import DEAD_SUFFIX
from penstock.service.records import find_topic

EVENTS = 15
SHOWN_SECONDS = 600
STEP_US = 5_000_000
PARTITIONS = [
    Column("partition", "Partition"), Column("start", "First offset", is_right=True),
    Column("end", "Next offset", is_right=True), Column("records", "Records", is_right=True),
    Column("bytes", "Size", is_right=True), Column("newest", "Newest event"),
]  # fmt: skip
GROUPS = [
    Column("group", "Group"), Column("partition", "Partition", is_right=True), Column("owner", "Member", is_wide=True),
    Column("committed", "Committed", is_right=True), Column("lag", "Lag", is_right=True), Column("when", "When"),
]  # fmt: skip
RECORDS = [
    Column("offset", "Offset", is_steady=True), Column("arrived", "Arrived"),
    Column("delay", "After its time", is_right=True), Column("event", "Event", is_mono=True),
]  # fmt: skip
DEAD = [
    Column("offset", "Offset", is_steady=True), Column("arrived", "Arrived"), Column("column", "Column"),
    Column("reason", "Reason", is_wide=True), Column("raw", "As it came", is_mono=True),
]  # fmt: skip


@dataclass(frozen=True)
class _Found:
    schema: str
    key: str
    bytes: dict[int, int]
    arrived: dict[int, int]
    recent: list[Shown]
    late: list[Shown]
    searched: int
    dead: list[dict[str, Any]]
    groups: list[GroupStatus]


def build(screen: Screen, name: str) -> None:
    """Everything about one topic."""
    with screen.main:
        with Tag("div", classes="columns"):
            with card("About"):
                facts = Facts()
            with card("Events per second"):
                chart = Chart("No events have come in the last ten minutes.", unit="/s", height=190)
        with card("Partitions"):
            partitions = Sheet("Partitions", PARTITIONS, "It is not there.")
        with card("Consumer groups"):
            groups = Sheet("Consumer groups and their lag", GROUPS, "No group reads this topic.")
        with card("Recent events"):
            recent = Sheet("Recent events, the newest first", RECORDS, "There is none yet.")
        with card("Late events", f"Among the last {count(SEARCHED)} records. All of them: penstock late {name}"):
            late = Sheet("Late events, the newest first", RECORDS, "None of them came late.")
        with card("Dead events", "What did not fit the schema, as it came."):
            dead = Sheet("Dead events, the newest first", DEAD, "There is none.")

    async def refresh(beat: Beat) -> None:
        topic = beat.topics.get(name)
        if topic is None:
            screen.about.say("" if beat.log_problem else "There is no topic of this name.")
            partitions.show([])
            return
        found = await screen.read(("topic", name), lambda: _read(screen, name))
        screen.about.say(plural(topic.records, "record"))
        facts.say("Schema", found.schema)
        facts.say("Key", found.key or NOTHING)
        facts.say("Event time", topic.event_time or NOTHING)
        facts.say("Lateness", duration(topic.lateness_us / 1e6) if topic.event_time else NOTHING)
        facts.say("Newest event", ago(topic.arrived_us, beat.at_us))
        facts.say("Events/s", rate(screen.pulse.rate(name)))
        line = rates_of(screen.pulse.points(SHOWN_SECONDS), name, STEP_US)
        now = rate(screen.pulse.rate(name))
        drawn = [Series(name, line)] if any(value for _, value in line) else []
        chart.lines(f"Events per second of the last ten minutes, now {now}", drawn,
                    span=(beat.at_us - SHOWN_SECONDS * 1_000_000, beat.at_us))  # fmt: skip
        partitions.show([
            [str(number), count(topic.start[number]), count(end), count(end - topic.start[number]),
             size(found.bytes.get(number)), moment(found.arrived.get(number) or None, beat.at_us)]
            for number, end in sorted(topic.end.items())
        ])  # fmt: skip
        groups.show(_group_rows(found.groups, name, beat.at_us))
        recent.show([_record(each, beat.at_us) for each in found.recent])
        late.show([_record(each, beat.at_us) for each in found.late])
        dead.show([
            [count(each["offset"]), moment(each["arrived_us"], beat.at_us), each["column"] or NOTHING, each["reason"],
             each["raw"]]
            for each in found.dead
        ])  # fmt: skip

    screen.live(refresh)


def _record(each: Shown, now_us: int) -> list[Cell]:
    delay = NOTHING if each.delay_us is None else duration(abs(each.delay_us) / 1e6)
    sign = "" if each.delay_us is None or each.delay_us >= 0 else "-"
    place = f"{each.partition}/{each.offset}"
    told = badge(f"late: {delay}", "warn") if each.is_late else f"{sign}{delay}"
    return [place, moment(each.arrived_us, now_us), told, each.text]


def _group_rows(groups: list[GroupStatus], topic: str, now_us: int) -> list[list[Cell]]:
    return [
        [group.name, str(each.partition), each.owner or NOTHING, count(each.committed), count(each.lag),
         moment(each.committed_us, now_us)]
        for group in groups
        for each in group.partitions
        if each.topic == topic
    ]  # fmt: skip


def _read(screen: Screen, name: str) -> _Found:
    screen.service.prompt.check()
    log = screen.service.log
    topic = find_topic(log, name)
    table = newest(topic, SEARCHED if topic.definition.event_time else EVENTS)
    groups = []
    for group in log.groups.names():
        try:
            groups.append(log.groups.status(group))
        except PenstockError:
            continue  # It was forgotten at this moment, or is of a version of its own.
    return _Found(
        format_ddl(topic.schema),
        ", ".join(topic.definition.key or ()),
        {each.number: each.describe().bytes or 0 for each in topic.partitions},
        {each.number: each.end().arrived_us for each in topic.partitions},
        shown(topic, table.slice(max(table.num_rows - EVENTS, 0))),
        shown(topic, late_of(table, EVENTS)),
        table.num_rows,
        _dead(screen, name),
        groups,
    )


def _dead(screen: Screen, name: str) -> list[dict[str, Any]]:
    log, grave = screen.service.log, f"{name}{DEAD_SUFFIX}"
    if name.endswith(DEAD_SUFFIX) or grave not in log.topics(grave):
        return []
    topic = log.topic(grave)
    table = newest(topic, EVENTS)
    if not {"reason", "column", "raw"} <= {*table.column_names}:
        return []
    return [
        {"offset": row["_offset"], "arrived_us": each.arrived_us, "column": row["column"],
         "reason": row["reason"] or "", "raw": raw_text(row["raw"])}
        for row, each in zip(table.to_pylist()[::-1], shown(topic, table), strict=True)
    ]  # fmt: skip
