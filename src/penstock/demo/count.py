"""Counting at the end of the demo: what was acknowledged, against what is in the log and what was received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.demo.workers import BATCH, TOPIC, read_history
from penstock.log.log import Log


@dataclass(frozen=True)
class GroupCount:
    """What one consumer group received."""

    received: int
    """Different records."""
    missed: int
    """Records of the log that no member received."""
    redelivered: int
    """Records that came again after a member was killed: it had not committed them yet."""


@dataclass(frozen=True)
class Count:
    """The result of the demo."""

    sent: int
    acknowledged: int
    stored: int
    lost: int
    """Acknowledged, and not in the log."""
    stored_twice: int
    groups: dict[str, GroupCount]

    @property
    def is_clean(self) -> bool:
        """Whether the log kept its promises, and every group got every record."""
        return not self.lost and not self.stored_twice and not any(group.missed for group in self.groups.values())


def count(log: Log, producers: Iterable[Path], groups: dict[str, list[Path]]) -> Count:
    """Compares the histories with the log."""
    sent: set[tuple[str, int]] = set()
    acknowledged: set[tuple[str, int]] = set()
    for path in producers:
        for entry in read_history(path):
            numbers = {(path.stem, entry["first"] + number) for number in range(BATCH)}
            (sent if entry["do"] == "sent" else acknowledged).update(numbers)
    topic = log.topic(TOPIC)
    table = topic.slice(columns=["producer", "number"])
    stored = Counter(zip(table.column("producer").to_pylist(), table.column("number").to_pylist(), strict=True))
    return Count(
        sent=len(sent),
        acknowledged=len(acknowledged),
        stored=table.num_rows,
        lost=len(acknowledged - stored.keys()),
        stored_twice=sum(times - 1 for times in stored.values()),
        groups={name: _group(topic.end(), paths) for name, paths in groups.items()},
    )


def _group(end: dict[int, int], paths: list[Path]) -> GroupCount:
    ranges: dict[int, list[tuple[int, int]]] = {partition: [] for partition in end}
    for entry in received(paths):
        ranges[entry["partition"]].append((entry["start"], entry["stop"]))
    different = sum(_covered(spans) for spans in ranges.values())
    everything = sum(stop - start for spans in ranges.values() for start, stop in spans)
    return GroupCount(different, sum(end.values()) - different, everything - different)


def received(paths: list[Path]) -> list[dict[str, Any]]:
    """What the members of a group wrote down."""
    return [entry for path in paths for entry in read_history(path) if entry["do"] == "received"]


def _covered(spans: list[tuple[int, int]]) -> int:
    total, reached = 0, 0
    for start, stop in sorted(spans):
        total += max(stop - max(start, reached), 0)
        reached = max(reached, stop)
    return total
