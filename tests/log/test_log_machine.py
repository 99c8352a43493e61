"""Any order of appends, retries, rolls, seals, retention, crashes and reopenings: the log is what the model says."""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.errors import OffsetOutOfRange
from penstock.log.folder_log import FolderLog
from penstock.log.producers import named_producer
from penstock.log.segment import hot_bases, segment_path
from penstock.testing import ManualClock
from tests.log.rows import rows, small_topic


class LogMachine(RuleBasedStateMachine):
    """One partition against a plain list of (number, arrival)."""

    @initialize()
    def create(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.model: list[tuple[int, int]] = []
        self.removed = 0
        self.next_number = 0
        self.sequences = {"a": 0, "b": 0}
        self.log = FolderLog(self.root, background=False, clock=self.clock)
        small_topic(self.log, retention_age="1 day")

    def fresh(self, count: int) -> list[int]:
        self.next_number += count
        return list(range(self.next_number - count, self.next_number))

    def store(self, numbers: list[int]) -> None:
        arrived = max([self.clock.now_us, *(stamp for _, stamp in self.model[-1:])])
        self.model += [(number, arrived) for number in numbers]

    @rule(count=st.integers(0, 30))
    def append(self, count: int) -> None:
        numbers = self.fresh(count)
        appended = self.log.topic("events").partitions[0].append(rows(numbers))
        assert (appended.base_offset, appended.count) == (len(self.model), count)
        self.store(numbers)

    @rule(name=st.sampled_from("ab"), count=st.integers(1, 10), again=st.integers(0, 10))
    def append_as_producer(self, name: str, count: int, again: int) -> None:
        """Some records are sent once more, in front of new ones."""
        again = min(again, self.sequences[name])
        numbers = self.fresh(count)
        first = self.sequences[name] - again
        batch = rows([0] * again + numbers)
        sequences = np.arange(first, self.sequences[name] + count)
        appended = (
            self.log.topic("events").partitions[0].append(batch, producer=named_producer(name), sequences=sequences)
        )
        assert (appended.count, appended.duplicates) == (count, again)
        self.sequences[name] += count
        self.store(numbers)

    @rule(hours=st.integers(-30, 30))
    def clock_jumps(self, hours: int) -> None:
        self.clock.move(timedelta(hours=hours))

    @rule()
    def roll(self) -> None:
        self.log.topic("events").partitions[0].roll()

    @rule(active=st.booleans())
    def seal(self, active: bool) -> None:
        self.log.topic("events").seal(active=active)

    @rule()
    def retain(self) -> None:
        (removed,) = self.log.topic("events").retain()
        assert removed.start_offset >= self.removed
        self.removed = removed.start_offset

    @rule(end_is_lost=st.booleans())
    def restart(self, end_is_lost: bool) -> None:
        self.log.close()
        if end_is_lost:
            (self.root / "topics/events/0/end").unlink(missing_ok=True)
        self.log = FolderLog(self.root, background=False, clock=self.clock)

    @rule(garbage=st.binary(min_size=1, max_size=300))
    def crash_with_a_torn_tail(self, garbage: bytes) -> None:
        self.log.close()
        directory = self.root / "topics/events/0"
        if hot_bases(directory):
            with segment_path(directory, hot_bases(directory)[-1]).open("ab") as file:
                file.write(garbage)
        self.log = FolderLog(self.root, background=False, clock=self.clock)

    @precondition(lambda self: self.removed > 0)
    @rule()
    def removed_offsets_are_refused(self) -> None:
        with pytest.raises(OffsetOutOfRange):
            list(self.log.topic("events").partitions[0].read(self.removed - 1))

    @rule(data=st.data())
    def slice_of_arrival(self, data: st.DataObject) -> None:
        stamps = sorted({stamp for _, stamp in self.model}) or [0]
        low = data.draw(st.sampled_from(stamps))
        high = data.draw(st.sampled_from(stamps)) + 1
        found = self.log.topic("events").slice(columns=["n"], arrived=(low, high)).column("n").to_pylist()
        assert found == [n for n, stamp in self.model[self.removed :] if low <= stamp < high]

    @invariant()
    def is_what_the_model_says(self) -> None:
        if not hasattr(self, "log"):
            return
        topic = self.log.topic("events")
        table = topic.slice(columns=["n"])
        arrived = table.column("_arrived").combine_chunks().view(pa.int64()).to_pylist()
        assert list(zip(table.column("n").to_pylist(), arrived, strict=True)) == self.model[self.removed :]
        assert table.column("_offset").to_pylist() == list(range(self.removed, len(self.model)))
        assert topic.end() == {0: len(self.model)}

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            shutil.rmtree(self.root)


def test_the_log_is_what_the_model_says() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=25, stateful_step_count=20))


@pytest.mark.long
def test_the_log_is_what_the_model_says_at_length() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=150, stateful_step_count=40))
