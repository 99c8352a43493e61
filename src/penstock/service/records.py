"""Which records of a topic are meant: from an offset, a moment or a cut on, a page at a time, as they arrived."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.consume.start import parse_start
from penstock.errors import OffsetOutOfRange, RequestRefused, UnknownTopic
from penstock.log.log import Log
from penstock.log.topic import Topic
from penstock.service.answers import as_json, moment

PAGE_BYTES_MAX = 8 << 20
"""About how much is read at once, if the records are large."""
STREAM_ROWS = 500
"""So many records are read at once for those who follow."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,132}")
_CUT = re.compile(r"\d{1,5}=\d{1,19}(,\d{1,5}=\d{1,19})*")
_OWN = ("_partition", "_offset", "_arrived", "_late")

Cut = dict[int, int]
"""One offset per partition: that of the next record."""


@dataclass(frozen=True)
class Page:
    """Records, and where to go on."""

    records: list[dict[str, Any]]
    """Each with `id`, the cut after it."""
    after: Cut
    ends: Cut
    clock: str | None
    """When the last record of the topic arrived."""


def find_topic(log: Log, name: str) -> Topic:
    """The topic of that name. UnknownTopic, also for what cannot be a name: it never becomes a path."""
    if not _NAME.fullmatch(name):
        raise UnknownTopic(name, log.topics(dead=True), log.url)
    return log.topic(name)


class Handles:
    """Topics by name, for those who only ask how far they reach, and ask often. One thread.

    That a topic was deleted, or that another one has its name, is seen within a second.
    """

    FRESH_SECONDS = 1.0

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: dict[str, tuple[float, Topic]] = {}

    def find(self, name: str) -> Topic:
        """The topic of that name. UnknownTopic if there is none."""
        now = time.monotonic()
        until, topic = self._known.get(name, (0.0, None))
        if topic is None or now >= until:
            self._known.pop(name, None)
            topic = find_topic(self._log, name)
            self._known[name] = (now + self.FRESH_SECONDS, topic)
        return topic


def cut_text(cut: Mapping[int, int]) -> str:
    """A cut as people and programs carry it around: `0=17,1=4`."""
    return ",".join(f"{number}={offset}" for number, offset in sorted(cut.items()))


def parse_cut(topic: Topic, text: str) -> Cut:
    """Where to begin: earliest, latest, an offset, a time of arrival, or a cut such as 0=17,1=4.

    StartError if it is none of these, OffsetOutOfRange if the topic does not reach there any more, or yet.
    """
    starts = topic.start()
    if _CUT.fullmatch(text):
        pairs = [each.split("=") for each in text.split(",")]
        cut = {**starts, **{int(number): int(offset) for number, offset in pairs}}
        if len(cut) > len(starts):
            raise RequestRefused(
                400, f"topic {topic.name!r} has no such partition: {text}", f"it has {len(starts)}, counted from 0"
            )
    else:
        start = parse_start(text)
        cut = {partition.number: start.offset_in(partition) for partition in topic.partitions}
    for partition in topic.partitions:
        first, end = starts[partition.number], partition.end().offset
        if not first <= cut[partition.number] <= end:
            raise OffsetOutOfRange(partition.place, cut[partition.number], first, end)
    return cut


def read_page(topic: Topic, at: Mapping[int, int], rows: int, until: Mapping[int, int] | None = None) -> Page:
    """The records that arrived next, over all partitions, up to but without `until`; at least one if there is any."""
    topic.refresh()  # TopicDeleted if it is gone, or another one has its name.
    for partition in topic.partitions:
        first, offset = partition.start_offset(), at.get(partition.number, 0)
        if offset < first:
            raise OffsetOutOfRange(partition.place, offset, first, partition.end().offset)
    after = topic.cut(at, max_rows=rows, max_bytes=PAGE_BYTES_MAX, until=until)
    table = topic.slice(at, after)
    table = table.sort_by([("_arrived", "ascending"), ("_partition", "ascending"), ("_offset", "ascending")])
    reached = dict(at)
    records = []
    for event in as_json(table):
        number, offset, arrived, late = (event.pop(name) for name in _OWN)
        reached[number] = offset + 1
        records.append(
            {"id": cut_text(reached), "partition": number, "offset": offset, "arrived": arrived, "late": late,
             "event": event}
        )  # fmt: skip
    ends = {partition.number: partition.end() for partition in topic.partitions}
    clock_us = max((end.arrived_us for end in ends.values()), default=0)
    return Page(records, after, {number: end.offset for number, end in ends.items()}, moment(clock_us or None))
