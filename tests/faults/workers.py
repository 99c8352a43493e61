"""Processes that work on a log until somebody kills them: writers, producers, consumers and those who look after it.

Each keeps a history of its own, and goes on from there when it is started again: what was sent and not acknowledged
is sent once more, under the same numbers. What a worker did not expect goes into its history as a crash.
"""

from __future__ import annotations

import logging
import random
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.consume.consumer import Consumer
from penstock.errors import MemberEvicted, PenstockError
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.log.producers import named_producer
from penstock.produce.producer import Ack, OnFull, Producer
from tests.eventually import LIMIT_SECONDS
from tests.faults.checker import fingerprint
from tests.faults.history import SCHEMA, Entry, History, note_of, read_history

PLAIN, KEPT, TABLE = "plain", "kept", "table"
"""A topic that only grows, one with retention, one that is compacted."""
PARTITIONS = 2
GROUP = "readers"

pa.array([0])  # The first array of a process imports pandas: once for the server that all workers are forked from.


def make_topics(root: Path, *, segment_bytes: int = 16 << 10) -> None:
    """The topics that all workers use."""
    with FolderLog(root, background=False) as log:
        log.create(PLAIN, SCHEMA, key="number", event_time="time", partitions=PARTITIONS, segment_bytes=segment_bytes)
        log.create(
            KEPT,
            SCHEMA,
            partitions=PARTITIONS,
            segment_bytes=segment_bytes,
            retention_bytes=6 * segment_bytes,
            retention_age="300ms",
        )
        log.create(TABLE, SCHEMA, key="writer", partitions=PARTITIONS, segment_bytes=segment_bytes, compact=True)


def manifests(root: Path) -> list[Path]:
    """The manifest of each partition of these topics: it is there once something was sealed."""
    topics = [root / "topics" / name for name in (PLAIN, KEPT, TABLE)]
    return [topic / str(number) / "manifest.json" for topic in topics for number in range(PARTITIONS)]


def events(writer: str, first: int, count: int, schema: pa.Schema) -> pa.RecordBatch:
    """The records of a writer, as they are always written: the same number, the same record."""
    numbers = np.arange(first, first + count)
    columns = {
        "writer": pa.array([writer] * count),
        "number": pa.array(numbers),
        "note": pa.array([note_of(writer, number) for number in numbers.tolist()]),
        "time": pa.array(numbers * 60_000_000, pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_arrays(
        [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema],
        schema=schema,
    )


def write(root: Path, histories: Path, writer: str, seed: int) -> None:
    """Appends to partitions of all topics, as a producer with a name that a retry is known by."""
    with _history(histories, writer) as (history, past):
        dice = random.Random(seed)
        log = FolderLog(root, background=dice.random() < 0.5)
        for entry in _unanswered(past):
            append(history, log.topic(entry["topic"]), writer, entry["partition"], entry["first"], entry["count"])
        following = 1 + max((entry["first"] + entry["count"] for entry in past if entry["do"] == "send"), default=0)
        while True:
            topic = log.topic(dice.choice([PLAIN, PLAIN, KEPT, TABLE]))
            count = dice.randint(1, 40)
            append(history, topic, writer, dice.randrange(PARTITIONS), following, count)
            following += count + dice.randint(0, 3)


def produce(root: Path, histories: Path, writer: str, seed: int) -> None:
    """Sends by the public way: a `Producer` with a name, sequences, several sends on their way at once."""
    with _history(histories, writer) as (history, past):
        dice = random.Random(seed)
        log = FolderLog(root)
        lives = sum(entry["do"] == "begun" for entry in past)
        on_full: OnFull = dice.choice(["block", "spill"])
        producer = Producer(log.topic(PLAIN), name=writer, epoch=lives, on_full=on_full, buffer_bytes=16 << 10)
        history.add("begun", writer=writer)
        again = [(entry["first"], entry["count"]) for entry in _unanswered(past)]
        following = 1 + max((entry["first"] + entry["count"] for entry in past if entry["do"] == "send"), default=0)
        under_way: list[tuple[Entry, Ack]] = []
        while True:
            first, count = again.pop(0) if again else (following, dice.randint(1, 20))
            following = max(following, first + count)
            under_way.append(_sent(history, producer, writer, first, count, dice, sequence=first))
            while under_way and (under_way[0][1].done or len(under_way) > 8):
                _acknowledged(history, *under_way.pop(0))


def spill(root: Path, histories: Path, name: str, seed: int) -> None:
    """Sends faster than the log takes, so that events wait on disk. Whoever comes next sends what a dead one left."""
    with _history(histories, name) as (history, past):
        dice = random.Random(seed)
        writer = f"{name}.{sum(entry['do'] == 'begun' for entry in past)}"
        history.add("begun", writer=writer)
        producer = Producer(FolderLog(root).topic(PLAIN), on_full="spill", buffer_bytes=8 << 10)
        following = 0
        under_way: list[tuple[Entry, Ack]] = []
        while True:
            count = dice.randint(1, 40)
            under_way.append(_sent(history, producer, writer, following, count, dice))
            following += count
            while under_way and (under_way[0][1].done or len(under_way) > 60):
                _acknowledged(history, *under_way.pop(0))


def _sent(
    history: History, producer: Producer, writer: str, first: int, count: int, dice: random.Random,
    sequence: int | None = None,
) -> tuple[Entry, Ack]:  # fmt: skip
    fields = {"topic": PLAIN, "writer": writer, "partition": None, "first": first, "count": count}
    history.add("send", **fields)
    data = events(writer, first, count, producer.topic.schema)
    return fields, producer.send(data if dice.random() < 0.5 else data.to_pylist(), sequence=sequence)


def _acknowledged(history: History, fields: Entry, ack: Ack) -> None:
    receipt = ack.wait(LIMIT_SECONDS)
    assert receipt.stored + receipt.duplicates == fields["count"], (receipt, fields)
    history.add("ack", **fields)


def consume(root: Path, histories: Path, reader: str, seed: int) -> None:
    """Reads as a member of a group, and commits every now and then."""
    with _history(histories, reader) as (history, _):
        dice = random.Random(seed)
        log = FolderLog(root, background=False)
        with Consumer(log, PLAIN, group=GROUP, auto_commit=None, max_rows=500) as consumer:
            while True:
                receive(history, consumer)
                if dice.random() < 0.3:
                    commit(history, consumer)


def receive(history: History, consumer: Consumer) -> None:
    """Notes down what the consumer is given, if anything comes."""
    for records in consumer.poll(0.2):
        notes = records.batch.column("note").to_pylist()
        assert len(notes) == records.stop - records.start, records
        place = {"topic": records.topic, "partition": records.partition, "start": records.start, "stop": records.stop}
        history.add("received", group=GROUP, **place, fingerprint=fingerprint(notes))


def commit(history: History, consumer: Consumer) -> None:
    """Commits, and notes down what is committed for sure."""
    before = consumer.positions()
    try:
        consumer.commit()
    except MemberEvicted:  # It was slow, and others go on at the last commit.
        return
    after = consumer.positions()
    for (topic, partition), offset in before.items():
        if (topic, partition) in after:
            history.add("committed", group=GROUP, topic=topic, partition=partition, offset=offset)


def maintain(root: Path, histories: Path, name: str, seed: int) -> None:
    """Seals, retains and compacts all the time."""
    with _history(histories, name):
        dice = random.Random(seed)
        log = FolderLog(root, background=False)
        while True:
            topic = log.topic(dice.choice([PLAIN, KEPT, TABLE]))
            maintain_once(topic, dice)
            if dice.random() < 0.1:
                topic.seal(active=True)
            time.sleep(0.002)


def maintain_once(topic: FolderTopic, dice: random.Random) -> None:
    """One chore of those that are due now and then."""
    chores: list[Callable[[], object]] = [topic.seal, topic.retain, topic.compact]
    dice.choice(chores)()


def append(history: History, topic: FolderTopic, writer: str, partition: int, first: int, count: int) -> None:
    """Appends records under numbers that a retry is known by, and notes down before and after."""
    fields = {"topic": topic.name, "writer": writer, "partition": partition, "first": first, "count": count}
    history.add("send", **fields)
    batch = events(writer, first, count, topic.schema)
    sequences = np.arange(first, first + count)
    appended = topic.partitions[partition].append(batch, producer=named_producer(writer), sequences=sequences)
    assert appended.count + appended.duplicates == count, (appended, fields)
    history.add("ack", **fields, base=None if appended.duplicates else appended.base_offset)


def _unanswered(past: list[Entry]) -> list[Entry]:
    """What was sent and not acknowledged, in order."""
    answered = {(entry["topic"], entry["first"]) for entry in past if entry["do"] == "ack"}
    waiting = {(entry["topic"], entry["first"]): entry for entry in past if entry["do"] == "send"}
    return [entry for key, entry in waiting.items() if key not in answered]


class _Warnings(logging.Handler):
    """Warnings of the log go into the history as well."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.WARNING)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        self._history.add("warning", text=record.getMessage())


@contextmanager
def _history(histories: Path, name: str) -> Iterator[tuple[History, list[Entry]]]:
    path = histories / f"{name}.jsonl"
    past = list(read_history(path))
    history = History(path)
    logging.getLogger("penstock").addHandler(_Warnings(history))
    logging.getLogger("penstock").propagate = False
    try:
        yield history, past
    except BaseException as error:
        history.add("crash", worker=name, error=traceback.format_exc(), is_ours=isinstance(error, PenstockError))
        raise
