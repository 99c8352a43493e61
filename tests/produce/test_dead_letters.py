from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import TopicDefinitionError
from penstock.events.encode import Rejected
from penstock.log.folder_log import FolderLog
from penstock.log.producers import named_producer
from penstock.produce.dead_letters import SCHEMA, DeadLetters

LETTERS = [
    Rejected(b'{"n": "x"}', "expected bigint, found the text 'x'", "n", 0),
    Rejected(b"\xff", "no JSON", None, 1),
]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False) as opened:
        opened.create("events", "n bigint", partitions=2)
        yield opened


def test_the_topic_is_made_on_first_need_with_one_partition(log: FolderLog) -> None:
    dead_letters = DeadLetters(log.topic("events"))
    batch = dead_letters.batch(LETTERS, "shop")
    assert log.topics(dead=True) == ["events"]
    dead_letters.append(batch)
    assert log.topics(dead=True) == ["events", "events.dead"]
    assert len(log.topic("events.dead").partitions) == 1


def test_a_dead_letter_keeps_reason_column_and_raw_bytes(log: FolderLog) -> None:
    dead_letters = DeadLetters(log.topic("events"))
    dead_letters.append(dead_letters.batch(LETTERS, "shop"))
    rows = log.topic("events.dead").slice().select(["topic", "reason", "column", "raw", "producer"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("events", "expected bigint, found the text 'x'", "n", b'{"n": "x"}', "shop"),
        ("events", "no JSON", None, b"\xff", "shop"),
    ]


def test_a_letter_that_is_too_large_for_the_log_is_shortened(log: FolderLog) -> None:
    log.record_bytes_max = 1024
    dead_letters = DeadLetters(log.topic("events"))
    large = Rejected(b"x" * 5000, "no JSON", None, 2)
    dead_letters.append(dead_letters.batch([*LETTERS, large], "shop"))
    rows = log.topic("events.dead").slice().select(["reason", "raw"]).to_pylist()
    assert [each["raw"] for each in rows] == [*(each.raw for each in LETTERS), b"x" * 512]
    assert rows[2]["reason"] == "no JSON; kept are 512 of its 5,000 bytes"


def test_two_processes_may_bury_first(log: FolderLog) -> None:
    with FolderLog(log.root, background=False) as other:
        for each in (log, other):
            dead_letters = DeadLetters(each.topic("events"))
            dead_letters.append(dead_letters.batch(LETTERS, "shop"))
    assert log.topic("events.dead").end() == {0: 4}


def test_what_does_not_fit_dead_letters_stays_with_them(log: FolderLog) -> None:
    with log.create("events.dead", SCHEMA).producer() as producer:
        assert producer.send({"colour": "red"}).wait().rejected == 1
    assert log.topics(dead=True) == ["events", "events.dead"]
    assert [row["raw"] for row in log.topic("events.dead").slice().to_pylist()] == [b'{"colour": "red"}']


def test_a_retry_buries_once_and_never_meets_the_sequences_of_events(log: FolderLog) -> None:
    dead_letters = DeadLetters(log.topic("events"))
    batch, producer = dead_letters.batch(LETTERS, "relay"), named_producer("relay")
    for _ in range(2):
        dead_letters.append(batch, producer=producer, sequences=np.array([5, 7]))
    grave = log.topic("events.dead")
    assert grave.end() == {0: 2}
    with grave.producer(name="relay") as sender:
        assert sender.send({"topic": "other"}, sequence=1).wait().stored == 1


def test_a_topic_of_that_name_with_other_columns_is_not_written(log: FolderLog) -> None:
    log.create("events.dead", "topic string, reason int")
    dead_letters = DeadLetters(log.topic("events"))
    with pytest.raises(TopicDefinitionError) as refused:
        dead_letters.append(dead_letters.batch(LETTERS, "shop"))
    assert (refused.value.topic, refused.value.setting) == ("events.dead", "schema")
    assert log.topic("events.dead").end() == {0: 0}


def test_more_columns_are_fine(log: FolderLog) -> None:
    log.create("events.dead", SCHEMA + ", note string")
    dead_letters = DeadLetters(log.topic("events"))
    dead_letters.append(dead_letters.batch(LETTERS, "shop"))
    assert log.topic("events.dead").end() == {0: 2}
