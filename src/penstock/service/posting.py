"""Events that come in by HTTP: stored in order, on disk before the answer, and once, however often they are sent.

An idempotency key is remembered by the partitions themselves, as the log remembers producers: a retry finds it there,
also after a restart. It is kept for at least seven days after its last use. What was sent under a key is part of what
is remembered, so the same key with other events is refused and not mistaken for a retry.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import EventsRefused, RequestRefused
from penstock.events.encode import encode
from penstock.log.topic import Routed, Topic

_NAMED = 0x80
"""Bit of a producer's id that only producers named by a user have; theirs are kept for ever."""
_ROWS_BITS = 24
"""So many events, as a power of two, may be in one body."""
_SHOWN = 10
"""So many events that do not fit are named in an answer."""
_LOCKS = tuple(threading.Lock() for _ in range(64))


@dataclass(frozen=True)
class Posted:
    """What became of the events of one request. They are on disk."""

    ranges: tuple[tuple[int, int, int], ...]
    """Partition, the first offset, the offset after the last."""
    duplicates: int
    """How many had been stored before, under the same key."""

    @property
    def stored(self) -> int:
        return sum(stop - start for _, start, stop in self.ranges)


def post(topic: Topic, body: bytes, *, key: str | None = None, sender: str = "") -> Posted:
    """Stores events given as JSON lines, all of them or, if one does not fit, none.

    With a `key`, what this sender has stored under it before is left out. If a partition fails, those written before it
    keep their part; sent again with the same key, only the rest is stored.
    """
    encoded = encode(body, topic.schema)
    if encoded.rejected:
        shown = [(each.index, each.column, each.reason) for each in encoded.rejected[:_SHOWN]]
        raise EventsRefused(topic.name, len(encoded.rejected), shown)
    if not encoded.batch.num_rows:
        raise RequestRefused(400, "there is no event in the body", "expected: one JSON object, or one on each line")
    if encoded.batch.num_rows >= 1 << _ROWS_BITS:
        raise RequestRefused(413, f"{encoded.batch.num_rows} events in one body", "expected: fewer than 16 million")
    if key is None:
        return _append(topic, topic.route(encoded.batch), None, 0)
    producer = _producer(sender, key)
    first = int.from_bytes(hashlib.blake2b(body, digest_size=8).digest()) >> (_ROWS_BITS + 1) << _ROWS_BITS
    with _LOCKS[producer[1] % len(_LOCKS)]:
        _check_same(topic, producer, first, key)
        return _append(topic, _routed(topic, encoded.batch, producer), producer, first)


def _append(topic: Topic, routed: list[Routed], producer: bytes | None, first: int) -> Posted:
    ranges, duplicates = [], 0
    for number, part, rows in routed:
        sequences = None if producer is None else rows.astype(np.int64) + first
        appended = topic.partitions[number].append(part, producer=producer, sequences=sequences)
        duplicates += appended.duplicates
        if appended.count:
            ranges.append((number, appended.base_offset, appended.base_offset + appended.count))
    return Posted(tuple(ranges), duplicates)


def _routed(topic: Topic, batch: pa.RecordBatch, producer: bytes) -> list[Routed]:
    """Where a retry finds it again: events without a key of their own all go to one partition."""
    if topic.definition.key:
        return topic.route(batch)
    return [(producer[2] % len(topic.partitions), batch, np.arange(batch.num_rows))]


def _check_same(topic: Topic, producer: bytes, first: int, key: str) -> None:
    """Refuses a key under which something else was stored: the log would take some of it for a repetition."""
    for partition in topic.partitions:
        last = partition.last_sequence(producer)
        if last is not None and last >> _ROWS_BITS != first >> _ROWS_BITS:
            raise RequestRefused(
                409,
                f"other events were stored in {topic.name!r} under the idempotency key {key!r}; nothing was stored now",
                "a key belongs to one body: repeat that body, or choose a new key for this one",
            )


def _producer(sender: str, key: str) -> bytes:
    """The id under which the log remembers this key. Not a named one: those are never forgotten."""
    digest = hashlib.blake2b(f"{sender}\0{key}".encode(), digest_size=16, person=b"idempotency-key").digest()
    return bytes([digest[0] & ~_NAMED]) + digest[1:]
