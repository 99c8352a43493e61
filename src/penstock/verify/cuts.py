"""Ways to cut a recorded log into steps: evenly, by chance, record by record.

A plan of steps is a list of cuts, each further than the one before; the last one is the end of what is compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa

from penstock.log.partition import Offsets
from penstock.log.topic import Topic

Cut = dict[str, Offsets]
"""By topic, one offset per partition."""


@dataclass(frozen=True)
class Arrival:
    """One record, by its place in the order of arrival over all topics."""

    place: int
    topic: str
    partition: int
    offset: int
    is_late: bool


@dataclass(frozen=True)
class Recorded:
    """The part of a log that is compared: what is there of some topics now, or the first records of it."""

    topics: Mapping[str, Topic]
    start: Cut
    end: Cut

    @staticmethod
    def of(topics: Mapping[str, Topic], rows: int | None) -> Recorded:
        """Everything that is there at this moment, or the first `rows` records along arrival."""
        everything = Recorded(
            topics,
            {name: topic.start() for name, topic in topics.items()},
            {name: topic.end() for name, topic in topics.items()},
        )
        if rows is None or rows >= everything.total:
            return everything
        *_, end = [everything.start, *everything.one_by_one(rows)]
        return Recorded(topics, everything.start, end)

    @property
    def records(self) -> dict[str, int]:
        """How many there are, by topic."""
        return {
            name: sum(end - self.start[name][number] for number, end in ends.items()) for name, ends in self.end.items()
        }

    @property
    def total(self) -> int:
        return sum(self.records.values())

    @property
    def removed(self) -> int:
        """How many records retention has taken away before."""
        return sum(offset for starts in self.start.values() for offset in starts.values())

    def evenly(self, count: int) -> list[Cut]:
        """About `count` steps, along arrival."""
        at, cuts = self.start, []
        sizes = {name: max(1, -(-records // count)) for name, records in self.records.items()}
        while at != self.end:
            at = {
                name: topic.cut(at[name], max_rows=sizes[name], until=self.end[name])
                for name, topic in self.topics.items()
            }
            cuts.append(at)
        return cuts or [self.end]

    def by_chance(self, random: Random, count: int) -> list[Cut]:
        """At most `count` steps; each partition is cut by itself, so that some run ahead of others."""
        places = {
            (name, number): sorted(random.randint(self.start[name][number], end) for _ in range(count - 1))
            for name, ends in self.end.items()
            for number, end in ends.items()
        }
        cuts = [
            {name: {number: places[name, number][step] for number in ends} for name, ends in self.end.items()}
            for step in range(count - 1)
        ]
        steps = pairwise([self.start, *cuts, self.end])
        return [after for before, after in steps if before != after] or [self.end]

    def one_by_one(self, count: int) -> Iterator[Cut]:
        """A step for each of the first `count` records, in order of arrival over all topics."""
        at = {name: dict(offsets) for name, offsets in self.start.items()}
        for each in self.arriving(count):
            at[each.topic][each.partition] = each.offset + 1
            yield {name: dict(offsets) for name, offsets in at.items()}

    def alone(self, chosen: Collection[Arrival]) -> list[Cut]:
        """A step for each of these records, given in order of arrival, and one for all that lies between two of them.

        What comes after the last one is left out.
        """
        if not chosen:
            return []
        wanted, cuts = {*chosen}, [self.start]
        at = {name: dict(offsets) for name, offsets in self.start.items()}
        for each in self.arriving(1 + max(each.place for each in chosen)):
            if each in wanted and at != cuts[-1]:
                cuts.append({name: dict(offsets) for name, offsets in at.items()})
            at[each.topic][each.partition] = each.offset + 1
            if each in wanted:
                cuts.append({name: dict(offsets) for name, offsets in at.items()})
        return cuts[1:]

    def arriving(self, count: int) -> Iterator[Arrival]:
        """The first `count` records, in order of arrival over all topics."""
        names = list(self.topics)
        found = [self._first(number, name, count) for number, name in enumerate(names)]
        arrived, topic, partition, offset, late = np.concatenate(found, axis=1)
        for place, each in enumerate(np.lexsort((offset, partition, topic, arrived))[:count]):
            yield Arrival(place, names[topic[each]], int(partition[each]), int(offset[each]), bool(late[each]))

    def _first(self, number: int, name: str, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """The first records of one topic as five rows: arrival, topic, partition, offset, is late."""
        topic = self.topics[name]
        stop = topic.cut(self.start[name], max_rows=count, until=self.end[name])
        table = topic.slice(self.start[name], stop, columns=[])
        return np.stack(
            [
                table.column("_arrived").combine_chunks().view(pa.int64()).to_numpy(zero_copy_only=False),
                np.full(table.num_rows, number, np.int64),
                table.column("_partition").to_numpy().astype(np.int64),
                table.column("_offset").to_numpy(),
                table.column("_late").to_numpy().astype(np.int64),
            ]
        )
