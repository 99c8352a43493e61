from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.eventually import eventually
from tests.produce.producing import events, held, is_blocked, new_topic, stored


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False) as opened:
        yield opened


@pytest.fixture
def topic(log: FolderLog) -> FolderTopic:
    return new_topic(log)


def test_what_was_sent_may_be_changed_afterwards(topic: FolderTopic) -> None:
    event: dict[str, Any] = {"user": "ann", "n": 1, "tags": ["a"]}
    frame = pd.DataFrame({"n": [3]})
    with topic.producer(linger="1h") as producer:
        producer.send(event)
        event["n"] = 2
        event["tags"].append("b")
        producer.send([event])
        event["tags"].clear()
        producer.send(frame)
        frame.loc[0, "n"] = 99
    found = {row["n"]: row["tags"] for row in topic.slice().to_pylist()}
    assert found == {1: ["a"], 2: ["a", "b"], 3: None}


def test_block_makes_send_wait_for_room_and_counts_it(topic: FolderTopic) -> None:
    with topic.producer(buffer_bytes=5000) as producer:
        sender = threading.Thread(target=lambda: [producer.send(event) for event in events(range(1000))])
        with held(topic):
            sender.start()
            eventually(lambda: is_blocked(producer))
            assert producer.stats.sent < 100
        sender.join()
    assert stored(topic) == list(range(1000))
    assert producer.stats.blocked_seconds > 0


def test_drop_drops_what_is_being_sent_and_says_so(topic: FolderTopic) -> None:
    with topic.producer(buffer_bytes=5000, on_full="drop") as producer:
        with held(topic):
            acks = [producer.send(event) for event in events(range(1000))]
            lines = producer.send(b'{"n": 1}\n{"n": 2}\n' + b"\n" * 5000)
        producer.flush()
        receipts = [ack.wait(0) for ack in acks]
        kept = [n for n, receipt in enumerate(receipts) if receipt.stored]
        assert stored(topic) == kept
        assert 0 < len(kept) < 100
        assert all(receipt.dropped == 1 for receipt in receipts if not receipt.stored)
        assert lines.wait(0).dropped == 2
        stats = producer.stats
        assert (stats.sent, stats.dropped, stats.acknowledged) == (len(kept), 1002 - len(kept), len(kept))


@pytest.mark.parametrize("on_full", ["block", "drop", "spill"])
def test_an_event_larger_than_the_whole_buffer_goes_alone(topic: FolderTopic, on_full: Any) -> None:
    with topic.producer(buffer_bytes=2000, on_full=on_full) as producer:
        for n in range(3):
            assert producer.send({"user": "x" * 100_000, "n": n}).wait().stored == 1
