"""The fence: how far into the log a set of views has come, and what time it was there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Origin:
    """What identifies the topic that a fence was taken in: another topic of the same name has other records."""

    topic_id: str
    arrived_us: Mapping[int, int]
    """Partition -> `_arrived` of the last record below the fence. A log that lost its tail stores another one there."""


@dataclass(frozen=True)
class Fence:
    """One offset per partition of each topic, and a clock. The rows of a view are a function of this and nothing else.

    Everything below the offsets is in the views, nothing from them on is. It is stored in the transaction that stores
    the rows it stands for. It keeps its own copy of the offsets; do not change it.
    """

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic -> partition -> the first offset that is not in yet."""
    clock_us: int = 0
    """The greatest `_arrived` so far, or a tick; 0 before the first record."""
    kept: Mapping[str, Mapping[int, int]] | None = None
    """How far the rows have come that are kept for redos; None for views that keep none.

    Empty where none are kept yet though all records are read, of which there were none: a view that counts has a row
    then too, which those over it have to keep.
    """
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """Topic -> what a run compares with the log before it continues from this fence."""

    is_static: bool = False
    """Of views that read no topic: their only step was taken. No offset can say so."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", _copied(self.offsets))
        object.__setattr__(self, "kept", None if self.kept is None else _copied(self.kept))

    def to_json(self) -> str:
        """The same text for the same fence, whatever the order in which it was put together."""
        return self._json

    @cached_property
    def _json(self) -> str:
        document: dict[str, object] = {"clock_us": self.clock_us, "offsets": _in_order(self.offsets)}
        if self.kept is not None:
            document["kept"] = _in_order(self.kept)
        if self.origins:
            arrived = _in_order({topic: each.arrived_us for topic, each in self.origins.items()})
            document["origins"] = {
                topic: {"id": self.origins[topic].topic_id, "arrived_us": arrived[topic]} for topic in arrived
            }
        if self.is_static:
            document["static"] = True
        return json.dumps(document, separators=(",", ":"), sort_keys=False)

    @classmethod
    def from_json(cls, text: str) -> Fence:
        """What `to_json` wrote."""
        read = json.loads(text)
        origins = read.get("origins", {})
        arrived = _numbered({topic: each["arrived_us"] for topic, each in origins.items()})
        return cls(
            _numbered(read["offsets"]),
            read["clock_us"],
            _numbered(read["kept"]) if "kept" in read else None,
            {topic: Origin(each["id"], arrived[topic]) for topic, each in origins.items()},
            "static" in read,
        )

    def lag_behind(self, ends: Mapping[str, Mapping[int, int]]) -> int:
        """How many records there are between this fence and these ends, over the topics and partitions of `ends`.

        A partition the fence does not know counts from its beginning; one that it is ahead of counts as nothing.
        """
        return sum(
            max(end - self.offsets.get(topic, {}).get(number, 0), 0)
            for topic, partitions in ends.items()
            for number, end in partitions.items()
        )


def _copied(offsets: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
    return {topic: dict(partitions) for topic, partitions in offsets.items()}


def _in_order(offsets: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    return {
        topic: {str(number): offset for number, offset in sorted(partitions.items())}
        for topic, partitions in sorted(offsets.items())
    }


def _numbered(offsets: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    return {
        topic: {int(number): offset for number, offset in partitions.items()} for topic, partitions in offsets.items()
    }
