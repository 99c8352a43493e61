"""What the tests of producers share: a small topic, and ways to be in trouble."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from penstock.log.files import locked
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.produce.producer import Producer

SCHEMA = "user string, n bigint, tags array<string>"


def new_topic(log: FolderLog, name: str = "events", **settings: Any) -> FolderTopic:
    """Four partitions, by user."""
    return log.create(name, SCHEMA, **{"key": "user", "partitions": 4, **settings})


def events(numbers: range) -> list[dict[str, Any]]:
    """Events of seven users."""
    return [{"user": f"user{n % 7}", "n": n} for n in numbers]


def stored(topic: FolderTopic) -> list[int]:
    """The numbers of all events that readers see, sorted."""
    return sorted(topic.slice(columns=["n"]).column("n").to_pylist())


def is_in_order(topic: FolderTopic) -> bool:
    """Whether each partition holds its numbers in the order they were sent."""
    found = [[n for b in p.read(0, columns=["n"]) for n in b.column("n").to_pylist()] for p in topic.partitions]
    return all(numbers == sorted(numbers) for numbers in found)


def is_blocked(producer: Producer) -> bool:
    """Whether a `send` waits for room in the buffer."""
    return producer._sender.buffer.blocked > 0


def sender_threads() -> int:
    """How many threads of producers there are."""
    return sum(thread.name.startswith("penstock") for thread in threading.enumerate())


@contextmanager
def held(topic: FolderTopic) -> Iterator[None]:
    """Nobody can append meanwhile, as if another process were at it."""
    with ExitStack() as stack:
        for partition in topic.partitions:
            stack.enter_context(locked(partition.directory / "lock"))
        yield


@contextmanager
def files_at_most(length: int) -> Iterator[None]:
    """Every write beyond so many bytes of a file fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
