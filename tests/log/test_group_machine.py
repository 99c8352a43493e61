"""Whatever members do, and whatever is done to them: nothing is lost, and nothing comes twice without a cause.

The machine drives the real consumers of a group on a real log, but with its own clock and without their threads: what
a thread would do is a step of its own here, so that every order of events can be tried, and a member is frozen by
giving it no steps.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from penstock.errors import MemberEvicted
from penstock.log.assignment import TopicPartition
from penstock.log.consumer_options import consumer_options
from penstock.log.intake import Intake
from penstock.log.log import Log

SESSION_SECONDS = 10.0
MEMORY = Path("/dev/shm")
SUBSCRIPTIONS = [("a.*",), ("a.one",), ("b",), ("a.*", "b")]


class Reader:
    """One member, and what its application has seen."""

    def __init__(self, machine: GroupMachine, topics: tuple[str, ...], *, is_auto_commit: bool) -> None:
        options = consumer_options(
            topics, group="g", start="earliest", auto_commit="1s" if is_auto_commit else None,
            session_timeout=f"{SESSION_SECONDS} s", processing_timeout="1h", max_rows=7, on_removed="raise",
        )  # fmt: skip
        self.topics = topics
        self.is_auto_commit = is_auto_commit
        self.in_hand: list[tuple[TopicPartition, int]] = []
        self.intake = Intake(machine.log, options, monotonic=lambda: machine.now, is_threaded=False)
        assert self.intake.attendance is not None
        self.attendance = self.intake.attendance
        self.seen_evictions = 0


class GroupMachine(RuleBasedStateMachine):
    readers = Bundle("readers")

    @initialize()
    def open_log(self) -> None:
        self.now = 1000.0
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.log = Log(self.folder, background=False)
        self.log.create("a.one", "n bigint", partitions=3)
        self.log.create("b", "n bigint", partitions=2)
        self.made = 2
        self.living: set[Reader] = set()
        self.written: dict[TopicPartition, int] = {}
        self.delivered: dict[TopicPartition, dict[int, Reader]] = {}
        """For each offset, who got it last."""
        self.processed: dict[TopicPartition, set[int]] = {}
        self.excused: set[Reader] = set()
        """Members who died, or were taken for dead: what they had in hand may come again."""

    # --- the log ---

    @rule(topic=st.sampled_from(["a.one", "a.two", "b"]), number=st.integers(0, 2), rows=st.integers(1, 10))
    def append(self, topic: str, number: int, rows: int) -> None:
        if topic in self.log.topics():
            partition = self.log.topic(topic).partitions[number % len(self.log.topic(topic).partitions)]
            partition.append(pa.record_batch({"n": pa.array(range(rows), pa.int64())}))
            key = TopicPartition(topic, partition.number, self.log.topic(topic).definition.id)
            self.written[key] = self.written.get(key, 0) + rows

    @precondition(lambda self: self.made < 4)
    @rule()
    def make_topic(self) -> None:
        if "a.two" not in self.log.topics():
            self.log.create("a.two", "n bigint", partitions=2)
            self.made += 1

    @rule()
    def delete_topic(self) -> None:
        if "a.two" in self.log.topics():
            self.log.delete("a.two")
            for key in [key for key in self.written if key.topic == "a.two"]:
                del self.written[key]

    # --- members come and go ---

    @precondition(lambda self: len(self.living) < 5)
    @rule(target=readers, topics=st.sampled_from(SUBSCRIPTIONS), is_auto_commit=st.booleans())
    def join(self, topics: tuple[str, ...], is_auto_commit: bool) -> Reader:
        reader = Reader(self, topics, is_auto_commit=is_auto_commit)
        self.living.add(reader)
        return reader

    @rule(reader=consumes(readers))
    def close(self, reader: Reader) -> None:
        self.note_loss(reader)
        with reader.intake.mutex:
            if reader.is_auto_commit:
                if reader.intake.positions:
                    self.finish(reader)
                reader.intake.settle()
                reader.intake.commit_quietly()
        if not reader.is_auto_commit:
            self.excused.add(reader)
        self.living.remove(reader)
        reader.intake.close()

    @rule(reader=consumes(readers))
    def kill(self, reader: Reader) -> None:
        self.die(reader)

    def die(self, reader: Reader) -> None:
        self.excused.add(reader)
        self.living.discard(reader)
        if reader.attendance._seat is not None:
            reader.attendance._seat.abandon()
            reader.attendance._seat = None
        reader.intake.close()

    # --- what a member does ---

    @rule(reader=readers)
    def poll(self, reader: Reader) -> None:
        evictions = reader.attendance.evictions
        if reader.is_auto_commit and evictions == reader.seen_evictions:
            self.finish(reader)  # Coming back says so; it is known only if the seat turns out to be ours still.
        found = reader.intake.wait(0, is_delivered=True)
        self.note_loss(reader)
        if reader.is_auto_commit:
            reader.in_hand = []
        for position, records in found:
            offsets = records.batch.column("_offset").to_pylist()
            assert offsets == list(range(records.start, records.stop)), "in order and without a gap"
            seen = self.delivered.setdefault(position.key, {})
            for offset in offsets:
                before = seen.get(offset)
                assert before is None or before in self.excused, f"{position.key} {offset} came twice without a cause"
                seen[offset] = reader
                reader.in_hand.append((position.key, offset))

    @rule(reader=readers)
    def commit(self, reader: Reader) -> None:
        try:
            with reader.intake.mutex:
                in_hand = [each for each in reader.in_hand if each[0] in reader.intake.positions]
                for position in reader.intake.positions.values():
                    position.settle()
                for key, offset in in_hand:  # Before: should it be taken for committed, then it was done.
                    self.processed.setdefault(key, set()).add(offset)
                reader.attendance.commit(reader.intake.positions.values())
            reader.in_hand = [each for each in reader.in_hand if each not in in_hand]
        except MemberEvicted:
            self.note_loss(reader)

    @rule(reader=readers)
    def tick(self, reader: Reader) -> None:
        reader.attendance.tick(is_changed=True)
        self.note_loss(reader)

    @rule(seconds=st.floats(0.1, SESSION_SECONDS * 1.2))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def finish(self, reader: Reader) -> None:
        for key, offset in reader.in_hand:
            self.processed.setdefault(key, set()).add(offset)

    def note_loss(self, reader: Reader) -> None:
        if reader.attendance.evictions > reader.seen_evictions:
            reader.seen_evictions = reader.attendance.evictions
            self.excused.add(reader)
            reader.in_hand = []

    # --- what always holds ---

    @invariant()
    def committed_is_processed(self) -> None:
        group = next((reader.attendance._group for reader in self.living), None)
        for key, committed in group.committed().items() if group is not None else ():
            missing = set(range(committed.offset)) - self.processed.get(key, set())
            assert not missing, f"{key} is committed up to {committed.offset}, but {sorted(missing)} are not processed"

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        holders: dict[TopicPartition, Reader] = {}
        for reader in self.living:
            if reader.attendance.is_current():
                for key in reader.intake.positions:
                    assert key not in holders, f"{key} is read by two members that both believe in their seats"
                    holders[key] = reader

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        try:
            self.everything_arrives()
        finally:
            for reader in list(self.living):
                self.die(reader)
            self.log.close()
            shutil.rmtree(self.folder)

    def everything_arrives(self) -> None:
        """Left alone, the living share the partitions evenly and get whatever was not processed."""
        for _ in range(4):
            self.now += SESSION_SECONDS / 4
            for _ in range(5):
                for reader in self.living:
                    self.tick(reader)
                for reader in self.living:
                    self.poll(reader)
                    self.commit(reader)
        for _ in range(40):
            for reader in self.living:
                self.poll(reader)
                self.commit(reader)
        if not self.living:
            return
        group = next(iter(self.living)).attendance._group
        membership = group.membership()
        assert set(membership.members) == {reader.attendance._seat.id for reader in self.living if reader.attendance._seat}
        assert membership.owners == membership.assignment, "everything has arrived where it should be"
        wanted = frozenset[TopicPartition]().union(*(group.find(reader.topics) for reader in self.living))
        assert set(membership.owners) == wanted
        for key in wanted:
            written = self.written.get(key, 0)
            assert set(range(written)) == set(self.delivered.get(key, {})), f"{key}: not everything came"
            assert group.committed()[key].offset == written


TestGroup = pytest.mark.timeout(120)(GroupMachine.TestCase)
TestGroup.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.long
class TestGroupForLong(GroupMachine.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=1500, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))
