"""A topic in Kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException

from penstock.errors import PenstockError, RecordTooLarge, TopicDeleted
from penstock.events.encoded import Rejected
from penstock.kafka.brokers import ASK_AGAIN_SECONDS
from penstock.kafka.connection import AROUND_RECORD_BYTES, RECORD_BYTES_MAX
from penstock.kafka.dead import DeadRecords
from penstock.kafka.partition import KafkaPartition
from penstock.kafka.values import Written, check_values, sizes_over, written
from penstock.kafka.writing import TO_ALLOW
from penstock.log.definition import TopicDefinition
from penstock.log.partition import Offsets
from penstock.log.row_sizes import rows_over
from penstock.log.topic import Topic

if TYPE_CHECKING:
    from penstock.kafka.log import KafkaLog

logger = logging.getLogger("penstock.kafka")

CHECK_SECONDS = 10.0
"""So often the brokers are asked at most whether the topic is still there."""
ALWAYS_TAKEN_BYTES = 64 << 10
"""Nobody sets brokers up so that they refuse this."""
SMALL_BYTES = 4 << 10
"""A record of so few bytes in Arrow is taken in whatever form."""


class KafkaTopic(Topic):
    """A handle on a topic in Kafka."""

    partitions: tuple[KafkaPartition, ...]

    def __init__(self, log: KafkaLog, definition: TopicDefinition) -> None:
        super().__init__(definition)
        self.log: KafkaLog = log
        self.partitions = tuple(KafkaPartition(self, number) for number in range(definition.partitions))
        self._numbers = range(definition.partitions)
        self._ends: Offsets = {}
        self._dead = DeadRecords(self)
        self._check_at = 0.0

    def refresh(self, *, is_fresh: bool = False) -> bool:  # noqa: ARG002 (it always is)
        definition = self._found()
        is_changed = definition != self._definition
        self._definition = definition
        return is_changed

    def check_there(self) -> None:
        if time.monotonic() >= self._check_at:  # It asks the brokers.
            self._check_at = time.monotonic() + CHECK_SECONDS
            self._found()

    def _found(self) -> TopicDefinition:
        definition = self.log.definitions.all().get(self.name)
        if definition is None or definition.id != self._definition.id:
            raise TopicDeleted(self.name)
        return definition

    def _change(self, change: Callable[[TopicDefinition], TopicDefinition]) -> None:
        while True:
            self.refresh()
            changed = change(self._definition)
            check_values(changed)
            if self.log.definitions.change(changed, self._definition):
                break
        self.refresh()
        self.log.set_up(changed)

    # --- where it begins and ends ---

    def start(self) -> Offsets:
        return self.log.brokers.starts(self.name, self._numbers)

    def end(self) -> Offsets:
        """The ends. A broker that has just become the leader may know less than the one before: it is asked again.

        Where it stays so, records are lost, and readers that were farther are told.
        """
        deadline = time.monotonic() + self.log.connection.answer_seconds
        while True:
            known = self._ends
            found = self.log.brokers.ends(self.name, self._numbers)
            if time.monotonic() > deadline or all(found[each] >= known.get(each, 0) for each in found):
                self._ends = found
                return dict(found)
            time.sleep(ASK_AGAIN_SECONDS)

    def cut(
        self,
        after: Mapping[int, int],
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        until: Mapping[int, int] | None = None,
    ) -> Offsets:
        """The next cut, by the stamps of the brokers. Kafka counts offsets, not bytes: `max_bytes` is an estimate."""
        from penstock.kafka.partition import RECORD_BYTES

        farthest = dict(self.end() if until is None else until)
        starts = self.start() if any(after.get(number, 0) == 0 for number in farthest) else {}
        reached = {number: max(after.get(number, 0), starts.get(number, 0)) for number in farthest}
        limits = [max_rows, None if max_bytes is None else max(max_bytes // RECORD_BYTES, 1)]
        limit = min((each for each in limits if each is not None), default=None)
        if limit is None or _distance(reached, farthest) <= limit:
            return farthest
        return self._cut_by_time(reached, farthest, limit)

    def _cut_by_time(self, reached: Offsets, farthest: Offsets, limit: int) -> Offsets:
        behind = [number for number in farthest if farthest[number] > reached[number]]
        if len(behind) > 1:
            firsts = [self.partitions[each].first_stamped(reached[each], farthest[each]) for each in behind]
            low = min((each for each in firsts if each is not None), default=0)
            high = self.log.clock() // 1000 + 1
            best: Offsets | None = None
            while high - low > 1:
                middle = (low + high) // 2
                found = self.log.brokers.stamped_at(self.name, behind, middle)
                there = {n: min(max(found.get(n, reached[n]), reached[n]), farthest[n]) for n in farthest}
                distance = _distance(reached, there)
                if distance > limit:
                    high = middle
                else:
                    low = middle
                    best = there if distance else best
                    if distance * 4 >= limit * 3:
                        break
            if best is not None:
                return best
        # One partition, or one moment that holds more than the limit: each goes its share.
        share = max(limit // len(behind), 1)
        return {n: min(reached[n] + share, farthest[n]) if n in behind else reached[n] for n in farthest}

    def count_late(self, start: Mapping[int, int], until: Mapping[int, int]) -> int:
        if self._definition.event_time is None:
            return 0
        return sum(
            int(pc.sum(batch.column("_late")).as_py() or 0)
            for partition in self.partitions
            if start.get(partition.number, 0) < until.get(partition.number, 0)
            for batch in partition.read(start.get(partition.number, 0), until[partition.number], columns=[])
        )

    def latest_arrivals(self, start: Mapping[int, int], until: Mapping[int, int]) -> dict[int, int]:
        stops = [(each, until.get(each.number, 0)) for each in self.partitions]
        found = {each.number: each.arrived_before(stop) for each, stop in stops if stop > start.get(each.number, 0)}
        return {number: arrived for number, arrived in found.items() if arrived}

    # --- what is too large, and what is no event ---

    def check_sizes(self, place: str, batch: pa.RecordBatch) -> None:
        """Writes the larger records as Kafka would hold them; small ones fit whatever they become."""
        rows = [*rows_over(batch, SMALL_BYTES)]
        if rows:
            try:
                self.check_written(place, written(*self.fit(batch.take(pa.array(rows)))))
            except RecordTooLarge as error:
                large = {rows[taken]: size for taken, size in error.rows.items()}
                raise RecordTooLarge(place, error.size, error.limit, large, TO_ALLOW) from None

    def check_written(self, place: str, records: Sequence[Written]) -> None:
        """RecordTooLarge if the brokers would not take all of these. They are asked only where it may matter."""
        if sizes_over(records, ALWAYS_TAKEN_BYTES):
            large = sizes_over(records, self._record_bytes_max)
            if large:
                raise RecordTooLarge(place, large[min(large)], self._record_bytes_max, large, TO_ALLOW)

    @cached_property
    def _record_bytes_max(self) -> int:
        told = self.log.brokers.settings_of(self.name).get("max.message.bytes", RECORD_BYTES_MAX)
        allowed = min(self.log.connection.record_bytes_max, int(told)) - AROUND_RECORD_BYTES
        return min(allowed, self.log.record_bytes_max)

    def bury(self, partition: int, rejected: Sequence[tuple[int, Rejected]]) -> None:
        """Brings records that are no events to the dead letters, each once, whoever meets them and how often.

        They stay where they are as well, so nothing is lost if that fails.
        """
        try:
            self._dead.bury(partition, rejected)
        except (PenstockError, KafkaException) as error:
            logger.warning("log: %s/%d: %d records are no events; they could not be brought to the dead letters: %s",
                           self.name, partition, len(rejected), error)  # fmt: skip


def _distance(low: Mapping[int, int], high: Mapping[int, int]) -> int:
    return sum(max(offset - low[number], 0) for number, offset in high.items())
