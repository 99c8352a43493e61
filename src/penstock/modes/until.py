"""How far a run goes: everything there is now, some offsets, or a moment of arrival."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from penstock.consume.start import parse_time
from penstock.errors import StartError, UntilError
from penstock.log.partition import Offsets
from penstock.log.topic import Topic

Until = str | datetime | Mapping[str, Mapping[int, int]] | None


def reached(until: Until, topics: Mapping[str, Topic]) -> dict[str, Offsets]:
    """The cut at which a run ends, never beyond what is there now.

    `until` is a moment of arrival (ISO 8601 or datetime), or offsets by topic: `{"access": {0: 100}}`, as text
    `access:0=100,access:1=80` or `access=100` for a topic of one partition. None is the end of the log.
    """
    ends = {name: topic.end() for name, topic in topics.items()}
    if until is None:
        return ends
    if isinstance(until, datetime) or (isinstance(until, str) and "=" not in until):
        return _at_moment(until, topics, ends)
    offsets = _parse_offsets(until, topics) if isinstance(until, str) else until
    for name, partitions in offsets.items():
        if name not in topics or not set(partitions) <= set(ends[name]):
            raise UntilError(json.dumps({name: dict(partitions)}), known=list(topics))
    return {
        name: {number: min(offsets.get(name, {}).get(number, end), end) for number, end in each.items()}
        for name, each in ends.items()
    }


def _at_moment(moment: str | datetime, topics: Mapping[str, Topic], ends: Mapping[str, Offsets]) -> dict[str, Offsets]:
    """Everything that arrived before the moment."""
    try:
        arrived = parse_time(moment).arrived_us
    except StartError as error:
        raise UntilError(str(moment), known=list(topics)) from error
    assert arrived is not None
    return {
        name: {part.number: min(part.offset_at(arrived), ends[name][part.number]) for part in topic.partitions}
        for name, topic in topics.items()
    }


def _parse_offsets(text: str, topics: Mapping[str, Topic]) -> dict[str, Offsets]:
    """`access:0=100,orders=7`: a topic, a partition unless it has only one, an offset."""
    found: dict[str, Offsets] = {}
    for part in text.split(","):
        place, _, offset = part.strip().partition("=")
        topic, _, number = place.partition(":")
        if not offset.isdigit() or (number and not number.isdigit()):
            raise UntilError(text, known=list(topics))
        if not number and topic in topics and len(topics[topic].partitions) > 1:
            raise UntilError(text, known=list(topics))
        found.setdefault(topic, {})[int(number or 0)] = int(offset)
    return found
