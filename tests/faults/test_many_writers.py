"""Eight processes write to four partitions at once: offsets without a gap, and each writer's order kept."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from penstock.log.folder_log import FolderLog
from penstock.produce.producer import Producer
from tests.faults.history import SCHEMA, History, read_history
from tests.faults.opened import judge_opened
from tests.faults.workers import append, events

WRITERS = 8
PARTITIONS = 4


def write_batches(root: Path, histories: Path, writer: str, total: int, batch: int) -> None:
    """Appends to one partition after the other; every second writer by a producer, which spreads each batch."""
    history = History(histories / f"{writer}.jsonl")
    with FolderLog(root) as log:
        topic = log.topic("t")
        if int(writer.removeprefix("w")) % 2:
            for turn, first in enumerate(range(0, total, batch)):
                append(history, topic, writer, turn % PARTITIONS, first, batch)
            return
        with Producer(topic) as producer:
            waiting = []
            for first in range(0, total, batch):
                fields = {"topic": "t", "writer": writer, "partition": None, "first": first, "count": batch}
                history.add("send", **fields)
                waiting.append((fields, producer.send(events(writer, first, batch, topic.schema))))
            for fields, ack in waiting:
                ack.wait()
                history.add("ack", **fields)


@pytest.mark.parametrize(
    ("total", "batch"),
    [(8_000, 100), pytest.param(1_000_000, 500, marks=pytest.mark.long)],
    ids=["some", "a-million"],
)
def test_writers_in_eight_processes_keep_offsets_gapless_and_their_order(
    tmp_path: Path, total: int, batch: int
) -> None:
    root, histories = tmp_path / "log", tmp_path / "histories"
    histories.mkdir()
    with FolderLog(root, background=False) as log:
        log.create("t", SCHEMA, key="number", event_time="time", partitions=PARTITIONS, segment_bytes=4 << 20)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.workers"])
    processes = [
        context.Process(target=write_batches, args=(root, histories, f"w{number}", total // WRITERS, batch))
        for number in range(WRITERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    verdict = judge_opened(root, list(read_history(histories)))
    assert verdict.is_clean, str(verdict)
    assert (verdict.records, verdict.acknowledged) == (total, total)
    assert len(verdict.partitions) == PARTITIONS
    assert min(stored.records.num_rows for stored in verdict.partitions.values()) > total // PARTITIONS // 2
