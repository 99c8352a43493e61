"""One wrong reading of the wall clock is not stamped on records; a topic may be quiet for a year all the same."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.check.checking import check_log
from penstock.clock import DAY_US, SteadyClock, now_us
from penstock.errors import ArrivalAhead, ClockAhead
from penstock.log.folder_log import FolderLog
from penstock.log.partition import ARRIVED
from penstock.testing import ManualClock
from tests.log.rows import START_US, numbers_of, rows, small_topic

IN_2098 = timedelta(days=72 * 365)
NOTHING = timedelta()


class Machine:
    """A wall clock that can be set, and one that runs since boot."""

    def __init__(self) -> None:
        self.wall = ManualClock(START_US)
        self.since_boot = ManualClock(1_000_000)

    def passes(self, by: timedelta, *, jump: timedelta = NOTHING) -> None:
        """Time passes; then somebody sets the wall clock forwards."""
        self.wall.move(by + jump)
        self.since_boot.move(by)

    def starts(self) -> SteadyClock:
        """The clock of a new process."""
        return SteadyClock(self.wall, self.since_boot)


def test_one_wrong_reading_is_not_stamped_on_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    with FolderLog(tmp_path, background=False, clock=machine.starts()) as log:
        (partition,) = small_topic(log, lateness="10 minutes").partitions
        arrived = []
        for n in range(5):
            machine.passes(timedelta(minutes=1), jump=IN_2098 if n == 2 else -IN_2098 if n == 3 else NOTHING)
            with caplog.at_level(logging.WARNING, "penstock.log"):
                arrived.append(partition.append(rows([n])).arrived_us)
        assert arrived == [START_US + n * 60_000_000 for n in range(1, 6)]
        assert not any(late for batch in partition.read(0) for late in batch.column("_late").to_pylist())
    [warning] = [each.message for each in caplog.records if "jumped ahead" in each.message]
    assert "2097-12-14" in warning


def test_a_topic_that_was_quiet_for_a_year_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    for is_new_process in (False, True):
        with FolderLog(tmp_path, background=False, clock=machine.starts()) as log:
            (partition,) = small_topic(log, exist_ok=True).partitions
            partition.append(rows([1]))
            if not is_new_process:
                machine.passes(timedelta(days=365))
                assert partition.append(rows([2])).arrived_us == machine.wall()
        machine.passes(timedelta(days=365))
    with FolderLog(tmp_path, background=False, clock=machine.starts()) as log:
        assert log.topic("events").partitions[0].append(rows([2])).arrived_us == machine.wall()
    assert not caplog.records


def test_a_clock_that_stays_ahead_is_believed_after_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.starts()
    machine.passes(timedelta(minutes=1), jump=timedelta(days=2))
    before = clock()
    assert before == START_US + 60_000_000
    machine.passes(timedelta(minutes=9))
    assert clock() == before + 9 * 60_000_000
    machine.passes(timedelta(minutes=1))
    assert clock() == machine.wall() == START_US + 2 * DAY_US + 11 * 60_000_000
    assert ["jumped ahead" in each.message for each in caplog.records] == [True, False]


def test_each_of_many_jumps_is_believed_after_ten_minutes() -> None:
    """A machine that is paused for two minutes in every five, and whose clock since boot does not count that."""
    machine = Machine()
    clock = machine.starts()
    for minute in range(1, 61):
        machine.passes(timedelta(minutes=1), jump=timedelta(minutes=2) if minute % 5 == 0 else NOTHING)
        behind = timedelta(microseconds=machine.wall() - clock())
        assert behind <= timedelta(minutes=6), "those of the last ten minutes"
    machine.passes(timedelta(minutes=11))
    assert clock() == machine.wall()


def test_of_two_jumps_the_first_is_not_believed_where_the_second_goes_back_further() -> None:
    machine = Machine()
    clock = machine.starts()
    for jump in (timedelta(days=2), NOTHING, timedelta(days=-1), NOTHING):
        machine.passes(timedelta(minutes=4), jump=jump)
        assert clock() == START_US + machine.since_boot() - 1_000_000
    machine.passes(timedelta(minutes=6))
    assert clock() == machine.wall()


def test_two_wrong_readings_that_differ_are_not_believed() -> None:
    machine = Machine()
    clock = machine.starts()
    for days in (100, 200, 300):
        machine.passes(timedelta(minutes=11), jump=timedelta(days=days))
        assert clock() == START_US + machine.since_boot() - 1_000_000


def test_a_clock_that_was_wrong_at_the_start_is_right_as_soon_as_it_is_set() -> None:
    machine = Machine()
    machine.wall.move(IN_2098)
    clock = machine.starts()
    machine.passes(timedelta(minutes=1), jump=-IN_2098)
    assert clock() == machine.wall()


@pytest.mark.parametrize("years", [1, 3])
def test_a_new_process_asks_the_files_of_the_topic_whether_its_clock_can_be_right(tmp_path: Path, years: int) -> None:
    with FolderLog(tmp_path, background=False) as log:
        small_topic(log, partitions=2).partitions[0].append(rows([1]))
    written = now_us() * 1000 - years * 365 * DAY_US * 1000 - 1_000_000_000
    for path in (tmp_path / "topics/events").rglob("*"):
        os.utime(path, ns=(written, written))
    with FolderLog(tmp_path, background=False) as log:
        topic = log.topic("events")
        if years > 2:
            with pytest.raises(ClockAhead) as refused:
                topic.partitions[1].append(rows([2]))
            assert refused.value.is_retryable
            topic.alter(retention_age="30 days")
            os.utime(refused.value.path, ns=(written, written))
            with pytest.raises(ClockAhead):
                topic.retain()
            assert numbers_of(topic) == [1]
            os.utime(refused.value.path)  # Somebody says that the clock is right.
        topic.partitions[1].append(rows([2]))
        assert numbers_of(topic) == [1, 2]


def test_a_reader_that_mends_the_end_after_a_power_cut_does_not_vouch_for_the_clock(tmp_path: Path) -> None:
    long_ago = (now_us() - 3 * 365 * DAY_US) * 1000
    with FolderLog(tmp_path / "log", background=False) as log:
        topic = small_topic(log)
        end = topic.partitions[0].signal
        topic.append(rows([1]))
        before = end.read_bytes()
        topic.append(rows([2]))
    end.write_bytes(before)  # It is not synced: a power cut leaves an old one.
    for path in (tmp_path / "log").rglob("*"):
        os.utime(path, ns=(long_ago, long_ago))
    with FolderLog(tmp_path / "log", background=False) as log:
        topic = log.topic(topic.name)
        assert topic.end() == {0: 2}
        with pytest.raises(ClockAhead):
            topic.append(rows([3]))


def test_arrivals_that_are_brought_along_lie_at_most_a_day_ahead(tmp_path: Path) -> None:
    def at(us: int) -> pa.Array:
        return pa.array([us], pa.int64()).view(ARRIVED)

    with FolderLog(tmp_path, background=False, clock=ManualClock(START_US)) as log:
        (partition,) = small_topic(log).partitions
        with pytest.raises(ArrivalAhead) as refused:
            partition.append(rows([1]), arrived=at(START_US + DAY_US + 1))
        assert (refused.value.arrived_us, refused.value.now_us) == (START_US + DAY_US + 1, START_US)
        assert partition.append(rows([2]), arrived=at(START_US + DAY_US)).arrived_us == START_US + DAY_US
        assert numbers_of(partition) == [2]


def test_check_notes_records_that_arrived_in_the_future(tmp_path: Path) -> None:
    wrong = ManualClock(now_us() + 72 * 365 * DAY_US)
    with FolderLog(tmp_path, background=False, clock=wrong) as log:
        small_topic(log).partitions[0].append(rows([1]))
        [report] = check_log(log)
    [finding] = report.findings
    year = datetime.now(UTC).year
    assert (finding.subject, finding.severity) == ("end", "note")
    assert any(str(year + more) in finding.found for more in (71, 72))
