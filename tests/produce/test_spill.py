from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import SpillDamaged
from penstock.log.files import locked
from penstock.log.folder_log import FolderLog
from penstock.log.producers import new_producer
from penstock.produce.spill import SUFFIX, Spill
from penstock.produce.spill_file import DAMAGED_SUFFIX, Content
from tests.eventually import eventually
from tests.produce.producing import files_at_most, held, is_blocked, is_in_order, stored

TOPIC_ID = "0123456789abcdef0123456789abcdef"
PRODUCER = new_producer()


def content(first: int, rows: int = 5, producer: bytes = PRODUCER, epoch: int = 0) -> Content:
    numbers = np.arange(first, first + rows)
    batch = pa.RecordBatch.from_pydict({"n": numbers, "text": [f"event {n}" for n in numbers]})
    return Content(batch, numbers, producer, epoch)


def drained(spill: Spill) -> list[int]:
    """Takes everything out, and says that the log has it."""
    found: list[int] = []
    while spill.waiting:
        frame = spill.take()
        loaded = frame.load()
        assert loaded.batch.column("n").to_pylist() == loaded.sequences.tolist()
        found += loaded.sequences.tolist()
        spill.finish(frame)
    return found


def died(spill: Spill) -> None:
    """What a kill does: the locks go, the files stay."""
    spill.let_go()


@pytest.fixture
def spill(tmp_path: Path) -> Iterator[Spill]:
    made = Spill(tmp_path, TOPIC_ID)
    yield made
    made.close()


# --- the files ---


def test_what_is_put_comes_back_in_order_and_leaves_no_file(spill: Spill) -> None:
    assert [spill.put(content(first), first) for first in (0, 5, 10)] == [True] * 3
    assert [frame.label for frame in spill.waiting] == [0, 5, 10]
    assert len(list(spill.directory.iterdir())) == 1
    assert drained(spill) == list(range(15))
    assert list(spill.directory.iterdir()) == []


def test_a_file_that_is_large_enough_is_left_and_deleted_when_done(tmp_path: Path) -> None:
    spill = Spill(tmp_path, TOPIC_ID, file_bytes=2000)
    for first in range(0, 100, 5):
        spill.put(content(first), None)
    many = len(list(tmp_path.iterdir()))
    assert many > 3
    first_half = [spill.take() for _ in range(10)]
    for frame in first_half:
        spill.finish(frame)
    assert len(list(tmp_path.iterdir())) < many
    assert drained(spill) == list(range(50, 100))
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_producer_left_is_adopted_with_its_id_and_sequences(spill: Spill) -> None:
    for first in (0, 5):
        spill.put(content(first, epoch=3), None)
    died(spill)
    heir = Spill(spill.directory, TOPIC_ID)
    assert heir.adopt() == 10
    loaded = heir.waiting[0].load()
    assert (loaded.producer, loaded.epoch, loaded.sequences.tolist()) == (PRODUCER, 3, [0, 1, 2, 3, 4])
    assert drained(heir) == list(range(10))
    assert list(spill.directory.iterdir()) == []


def test_a_living_producer_keeps_its_files(spill: Spill) -> None:
    spill.put(content(0), None)
    assert Spill(spill.directory, TOPIC_ID).adopt() == 0
    assert drained(spill) == list(range(5))


def test_two_heirs_share_what_is_left(spill: Spill) -> None:
    spill.put(content(0), None)
    died(spill)
    heirs = [Spill(spill.directory, TOPIC_ID) for _ in range(2)]
    assert [heir.adopt() for heir in heirs] == [5, 0]
    died(heirs[0])
    assert heirs[1].adopt() == 5
    assert drained(heirs[1]) == list(range(5))


def test_what_the_log_has_is_not_adopted_again(spill: Spill) -> None:
    for first in (0, 5, 10):
        spill.put(content(first), None)
    frame = spill.take()
    spill.finish(frame)
    died(spill)
    heir = Spill(spill.directory, TOPIC_ID)
    assert heir.adopt() == 10
    assert drained(heir) == list(range(5, 15))


def test_earlier_sequences_go_first_whatever_the_files_are_named(tmp_path: Path) -> None:
    late, early = Spill(tmp_path, TOPIC_ID), Spill(tmp_path, TOPIC_ID)
    late.put(content(50), None)
    early.put(content(20), None)
    late.put(content(10), None)
    died(late)
    died(early)
    heir = Spill(tmp_path, TOPIC_ID)
    heir.put(content(60), None)
    heir.adopt()
    assert drained(heir) == [*range(10, 15), *range(20, 25), *range(50, 55), *range(60, 65)]


def test_events_of_a_topic_that_was_deleted_are_left_out(spill: Spill, caplog: pytest.LogCaptureFixture) -> None:
    spill.put(content(0), None)
    died(spill)
    heir = Spill(spill.directory, "f" * 32)
    assert heir.adopt() == 0
    assert "5 events of a topic that was deleted" in caplog.text


def test_every_torn_tail_is_cut(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "whole", TOPIC_ID)
    for first in (0, 5):
        spill.put(content(first), None)
    boundary = spill.waiting[1].position
    (path,) = spill.directory.iterdir()
    whole = path.read_bytes()
    died(spill)
    (tmp_path / "torn").mkdir()
    for length in range(len(whole)):
        (tmp_path / "torn" / path.name).write_bytes(whole[:length] + b"\xff" * (length % 3 * 50))
        heir = Spill(tmp_path / "torn", TOPIC_ID)
        heir.adopt()
        assert readable(heir) == (list(range(5)) if length >= boundary else []), length
        died(heir)


def test_no_single_bit_gives_wrong_events(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "whole", TOPIC_ID)
    for first in (0, 5):
        spill.put(content(first), None)
    (path,) = spill.directory.iterdir()
    whole = bytearray(path.read_bytes())
    second = spill.waiting[1].position
    died(spill)
    (tmp_path / "flipped").mkdir()
    for byte in range(second + 100):
        bit = 1 << byte % 8
        whole[byte] ^= bit
        (tmp_path / "flipped" / path.name).write_bytes(whole)
        whole[byte] ^= bit
        heir = Spill(tmp_path / "flipped", TOPIC_ID)
        heir.adopt()
        assert readable(heir) in (list(range(5)), list(range(5, 10)), list(range(10))), byte
        died(heir)


def readable(spill: Spill) -> list[int]:
    found: list[int] = []
    while spill.waiting:
        try:
            loaded = spill.take().load()
        except SpillDamaged:
            continue
        assert loaded.batch.column("n").to_pylist() == loaded.sequences.tolist()
        found += loaded.sequences.tolist()
    return found


def test_a_damaged_file_is_kept_for_people(spill: Spill, caplog: pytest.LogCaptureFixture) -> None:
    for first in (0, 5, 10):
        spill.put(content(first), None)
    middle = spill.waiting[1].position
    (path,) = spill.directory.iterdir()
    died(spill)
    damaged = bytearray(path.read_bytes())
    damaged[middle + 20] ^= 1
    path.write_bytes(damaged)
    heir = Spill(spill.directory, TOPIC_ID)
    assert heir.adopt() == 10
    assert drained(heir) == [*range(5), *range(10, 15)]
    assert [kept.suffix for kept in spill.directory.iterdir()] == [DAMAGED_SUFFIX]
    assert "is damaged" in caplog.text


def test_what_the_disk_does_not_take_waits_in_memory_in_its_place(spill: Spill) -> None:
    spill.put(content(0), "disk")
    size = sum(path.stat().st_size for path in spill.directory.iterdir())
    with files_at_most(size + 100):
        assert not spill.put(content(5), "memory")
        assert spill.is_holding
    assert spill.put(content(10), "disk again")
    assert not spill.is_holding
    assert drained(spill) == list(range(15))
    assert list(spill.directory.iterdir()) == []


# --- the producer that spills ---

EVENT_BYTES = 1000


def event(n: int) -> dict[str, Any]:
    return {"user": f"user{n % 7}", "n": n, "text": "x" * EVENT_BYTES}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False) as opened:
        opened.create("events", "user string, n bigint, text string", key="user", partitions=2)
        yield opened


def spill_files(log: FolderLog) -> list[Path]:
    return list((log.root / "spill" / "events").glob("*"))


def test_a_fast_producer_spills_keeps_the_order_and_cleans_up(log: FolderLog) -> None:
    topic = log.topic("events")
    with topic.producer(on_full="spill", buffer_bytes=40_000, batch_rows=8) as producer:
        with held(topic):
            acks = [producer.send(event(n)) for n in range(500)]
            assert spill_files(log)
            assert producer.stats.spilled > 300
        acks += [producer.send(event(n)) for n in range(500, 600)]
        producer.flush()
        assert producer.stats.acknowledged == 600
        assert all(ack.wait(0).stored == 1 for ack in acks)
    assert spill_files(log) == []
    assert stored(topic) == list(range(600))
    assert is_in_order(topic)


def test_rejected_events_and_tables_go_through_the_spill_too(log: FolderLog) -> None:
    topic = log.topic("events")
    with topic.producer(on_full="spill", buffer_bytes=40_000, batch_rows=8) as producer:
        with held(topic):
            first = [producer.send(event(n)) for n in range(100)]
            mixed = producer.send([event(100), {"n": "x"}, event(101)])
            table = producer.send(pa.table({"n": range(102, 202), "text": ["y" * 500] * 100}))
            first[-1].done  # noqa: B018 (asking must not wait)
        assert (mixed.wait().stored, mixed.wait().rejected, table.wait().stored) == (2, 1, 100)
    assert stored(topic) == list(range(202))


def test_with_nothing_in_the_way_nothing_is_spilled(log: FolderLog) -> None:
    with log.producer("events", on_full="spill") as producer:
        for n in range(200):
            producer.send(event(n))
    assert producer.stats.spilled == 0
    assert spill_files(log) == []


def test_send_waits_when_the_spill_cannot_be_written_and_nothing_is_lost(
    log: FolderLog, caplog: pytest.LogCaptureFixture
) -> None:
    topic = log.topic("events")
    (log.root / "spill").mkdir()
    (log.root / "spill" / "events").write_text("a file where a folder must be")
    caplog.set_level(logging.CRITICAL)
    with topic.producer(on_full="spill", buffer_bytes=40_000, batch_rows=8) as producer:
        thread = threading.Thread(target=lambda: [producer.send(event(n)) for n in range(300)])
        with held(topic):
            thread.start()
            eventually(lambda: is_blocked(producer))
        thread.join()
    assert stored(topic) == list(range(300))
    assert is_in_order(topic)
    assert (producer.stats.spilled, producer.stats.blocked_seconds > 0) == (0, True)


CHILD = """
import sys, time
from penstock.log.folder_log import FolderLog
log = FolderLog(sys.argv[1], background=False)
name = sys.argv[3] or None
producer = log.producer("events", on_full="spill", buffer_bytes=40_000, batch_rows=8, name=name)
for n in range(int(sys.argv[2])):
    producer.send({"user": f"user{n % 7}", "n": n, "text": "x" * 1000}, sequence=n if name else None)
while producer.stats.spilled < int(sys.argv[2]) - 60:
    time.sleep(0.01)
print("spilled", flush=True)
time.sleep(3600)
"""


def killed_while_spilling(log: FolderLog, *, count: int = 400, name: str = "", drained: Sequence[int] = ()) -> None:
    """A process spills while the log is held, and is killed: at once, or while it sends to the `drained` partitions."""
    topic = log.topic("events")
    command = [sys.executable, "-c", CHILD, str(log.root), str(count), name]
    with ExitStack() as everything:
        locks = [everything.enter_context(ExitStack()) for _ in topic.partitions]
        for lock, partition in zip(locks, topic.partitions, strict=True):
            lock.enter_context(locked(partition.directory / "lock"))
        child = everything.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        everything.callback(child.kill)
        assert child.stdout is not None
        assert child.stdout.readline() == "spilled\n"
        for number in drained:
            locks[number].close()
        eventually(lambda: all(topic.partitions[number].end().offset > 0 for number in drained))


@pytest.mark.parametrize("on_full", ["spill", "block"])
def test_what_a_killed_process_spilled_is_sent_by_the_next_producer(log: FolderLog, on_full: Any) -> None:
    killed_while_spilling(log)
    topic = log.topic("events")
    assert stored(topic) == []
    with log.producer("events", on_full=on_full) as producer:
        producer.send(event(1000)).wait()
        assert producer.stats.sent == producer.stats.acknowledged == 1
        eventually(lambda: producer.stats.adopted > 300)  # Those of the other partition may take longer.
    found = stored(topic)
    assert found[-1] == 1000
    assert found[:-1] == list(range(found[0], found[0] + len(found) - 1))  # Less what was in memory, at both ends.
    assert is_in_order(topic)
    assert spill_files(log) == []


@pytest.mark.parametrize("drained", [(0,), (0, 1)])
def test_a_kill_in_the_middle_of_sending_stores_nothing_twice(log: FolderLog, drained: Sequence[int]) -> None:
    killed_while_spilling(log, drained=drained)
    topic = log.topic("events")
    with log.producer("events"):
        pass
    found = stored(topic)
    assert len(found) == len(set(found))
    assert set(range(60, 350)) <= set(found)
    assert is_in_order(topic)
    assert spill_files(log) == []


def test_the_spill_of_a_named_producer_does_not_overtake_what_it_repeats(log: FolderLog) -> None:
    killed_while_spilling(log, name="relay")
    assert spill_files(log)
    with log.producer("events"):
        pass
    topic = log.topic("events")
    assert (stored(topic), spill_files(log)) == ([], [])
    with log.producer("events", name="relay") as producer:
        for n in range(500):
            producer.send(event(n), sequence=n)
    assert stored(topic) == list(range(500))


def test_what_cannot_be_sent_on_stays_for_the_next(log: FolderLog, caplog: pytest.LogCaptureFixture) -> None:
    killed_while_spilling(log)
    caplog.set_level(logging.CRITICAL)
    with FolderLog(log.root, background=False) as unlucky:
        unlucky.topic("events").end()
        with files_at_most(10), unlucky.producer("events") as producer:
            producer.flush()
    assert stored(log.topic("events")) == []
    assert any(path.suffix == SUFFIX for path in spill_files(log))
    with log.producer("events"):
        pass
    assert len(stored(log.topic("events"))) > 300
    assert spill_files(log) == []
