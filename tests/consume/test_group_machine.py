"""Whatever members do, and whatever is done to them: nothing is lost, and nothing comes twice without a cause.

The machine drives the real consumers of a group on a real log, but with its own clock and without their threads: what
a thread would do is a step of its own here, so that every order of events can be tried, and a member is frozen by
giving it no steps.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import uuid
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.consume import seat
from penstock.consume.assignment import TopicPartition
from penstock.consume.attendance import Attendance
from penstock.consume.intake import Intake
from penstock.consume.options import consumer_options
from penstock.errors import MemberEvicted
from penstock.log.folder_log import FolderLog

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
        assert isinstance(self.intake.attendance, Attendance)
        self.attendance = self.intake.attendance
        self.seen_evictions = 0
        self.given_up_in_hand: set[TopicPartition] = set()
        """Without automatic commits: what it neither committed nor could keep."""

    def has_seat(self) -> bool:
        seat = self.attendance._seat
        return seat is not None and seat.id in self.attendance._group.membership().members


class GroupMachine(RuleBasedStateMachine):
    readers = Bundle("readers")

    @initialize()
    def open_log(self) -> None:
        self.now = 1000.0
        numbers = itertools.count(1)  # In place of random names, so that a failure can be repeated.
        names = SimpleNamespace(uuid4=lambda: uuid.UUID(int=next(numbers) << 96))
        self.patch = mock.patch.object(seat, "uuid", names)
        self.patch.start()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.log = FolderLog(self.folder, background=False)
        self.log.create("a.one", "n bigint", partitions=3)
        self.log.create("b", "n bigint", partitions=2)
        self.made = 2
        self.living: list[Reader] = []
        self.written: dict[TopicPartition, int] = {}
        self.delivered: dict[TopicPartition, dict[int, Reader]] = {}
        """For each offset, who got it last."""
        self.processed: dict[TopicPartition, set[int]] = {}
        self.farthest: dict[TopicPartition, int] = {}
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
        self.living.append(reader)
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
    def fail(self, reader: Reader) -> None:
        """An exception ends its `with` block: what it had in hand is not done."""
        self.note_loss(reader)
        self.excused.add(reader)
        with reader.intake.mutex:
            if reader.is_auto_commit:
                reader.intake.commit_quietly()
        self.living.remove(reader)
        reader.intake.close()

    @rule(reader=consumes(readers))
    def kill(self, reader: Reader) -> None:
        self.die(reader)

    def die(self, reader: Reader) -> None:
        self.excused.add(reader)
        self.living.remove(reader)
        if reader.attendance._seat is not None:
            reader.attendance._seat.abandon()
            reader.attendance._seat = None
        reader.intake.close()

    # --- what a member does ---

    @rule(reader=readers)
    def poll(self, reader: Reader) -> None:
        committed = {key: each.offset for key, each in reader.attendance._group.committed().items()}
        if reader.is_auto_commit:
            self.finish(reader)
        found = reader.intake.wait(0, is_delivered=True)
        if reader.is_auto_commit:
            reader.in_hand = []
        self.note_loss(reader)
        for position, records in found:
            offsets = records.batch.column("_offset").to_pylist()
            assert offsets == list(range(records.start, records.stop)), "in order and without a gap"
            seen = self.delivered.setdefault(position.key, {})
            for offset in offsets:
                if offset in seen:
                    assert self.is_excused(seen[offset], position.key), f"{position.key} {offset} came twice"
                    assert offset >= committed.get(position.key, 0), f"{position.key} {offset} came after its commit"
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

    @rule(reader=readers, is_changed=st.booleans())
    def tick(self, reader: Reader, is_changed: bool) -> None:
        reader.attendance.tick(is_changed=is_changed)
        self.note_loss(reader)

    @rule(seconds=st.floats(0.1, SESSION_SECONDS * 1.2))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(reader=readers, rounds=st.integers(3, 8), is_committing=st.booleans())
    def freeze(self, reader: Reader, rounds: int, is_committing: bool) -> None:
        """Life goes on without it, for longer than its session timeout or not."""
        self.poll(reader)
        for _ in range(rounds):
            self.now += SESSION_SECONDS / 5
            for topic in ("a.one", "b"):
                self.append(topic, rounds, 1)
            for other in self.living:
                if other is not reader:
                    self.tick(other, is_changed=True)
                    self.poll(other)
                    self.commit(other)
        if is_committing:
            self.commit(reader)

    def finish(self, reader: Reader) -> None:
        for key, offset in reader.in_hand:
            self.processed.setdefault(key, set()).add(offset)

    def note_loss(self, reader: Reader) -> None:
        if reader.attendance.evictions > reader.seen_evictions:
            reader.seen_evictions = reader.attendance.evictions
            self.excused.add(reader)
            reader.in_hand = []
        unfinished = {key for key, _ in reader.in_hand} - reader.intake.positions.keys()
        assert not (unfinished and reader.is_auto_commit), f"{unfinished} was given up while the application had it"
        reader.given_up_in_hand |= unfinished
        reader.in_hand = [each for each in reader.in_hand if each[0] not in unfinished]

    def is_excused(self, reader: Reader, key: TopicPartition) -> bool:
        return reader in self.excused or not reader.has_seat() or key in reader.given_up_in_hand

    # --- what always holds ---

    @invariant()
    def committed_is_processed(self) -> None:
        group = next((reader.attendance._group for reader in self.living), None)
        for key, committed in group.committed().items() if group is not None else ():
            missing = set(range(committed.offset)) - self.processed.get(key, set())
            assert not missing, f"{key} is committed up to {committed.offset}, but {sorted(missing)} are not processed"
            assert committed.offset >= self.farthest.get(key, 0), f"the commit of {key} went back"
            self.farthest[key] = committed.offset

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
            self.patch.stop()
            shutil.rmtree(self.folder)

    def everything_arrives(self) -> None:
        """Left alone, the living share the partitions evenly and get whatever was not processed."""
        for rounds in range(4):
            self.now += SESSION_SECONDS / 4
            for _ in range(5):
                for reader in self.living:
                    self.tick(reader, is_changed=rounds == 0)  # Afterwards the signs of life must do.
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
        assert set(membership.members) == {
            reader.attendance._seat.id for reader in self.living if reader.attendance._seat
        }
        assert membership.owners == membership.assignment, "everything has arrived where it should be"
        wanted = frozenset[TopicPartition]().union(*(group.find(reader.topics) for reader in self.living))
        assert set(membership.owners) == wanted
        for key in wanted:
            written = self.written.get(key, 0)
            assert set(range(written)) == set(self.delivered.get(key, {})), f"{key}: not everything came"
            assert group.committed()[key].offset == written


def examples(count: int, steps: int) -> settings:
    return settings(max_examples=count, stateful_step_count=steps, suppress_health_check=list(HealthCheck))


def test_nothing_is_lost_or_repeated_whatever_members_do() -> None:
    run_state_machine_as_test(GroupMachine, settings=examples(30, 30))


@pytest.mark.long
def test_nothing_is_lost_or_repeated_whatever_members_do_for_long() -> None:
    run_state_machine_as_test(GroupMachine, settings=examples(500, 60))
