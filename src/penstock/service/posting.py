"""Events that come in by HTTP: stored in order, on disk before the answer, and once, however often they are sent.

Bodies that wait at the same moment are stored together: one write and one wait for the disk. Each of them still has its
own answer, and is stored whole or not at all; what is wrong with one is no matter of the others.

An idempotency key is remembered by the partitions themselves, as the log remembers producers: a retry finds it there,
also after a restart. It is kept for at least seven days after its last use. What was sent under a key is part of what
is remembered, so the same key with other events is refused and not mistaken for a retry.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import EventsRefused, PenstockError, RecordTooLarge, RequestRefused
from penstock.events.json_lines import encode_json_lines
from penstock.log.frame import FRAME_BYTES_MAX
from penstock.log.producers import keyed_producer
from penstock.log.topic import Routed, Topic

_NAMED = 0x80
"""Bit of a producer's id that only producers named by a user have; theirs are kept for ever."""
_ROWS_BITS = 24
"""So many events, as a power of two, may be in one body."""
_SHOWN = 10
"""So many events that do not fit are named in an answer. The rest of the body is not read."""
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
    batch = _encoded(topic, body)
    if key is None:
        return _append(topic, topic.route(batch), None, 0)
    producer = keyed_producer(sender, key)
    first = int.from_bytes(hashlib.blake2b(body, digest_size=8).digest()) >> (_ROWS_BITS + 1) << _ROWS_BITS
    with _LOCKS[producer[1] % len(_LOCKS)]:
        _check_same(topic, producer, first, key)
        return _append(topic, _routed(topic, batch, producer), producer, first)


def post_together(topic: Topic, bodies: Sequence[bytes]) -> list[Posted | Exception]:
    """Stores several bodies of JSON lines, without keys, and says what became of each: where it is, or why it is not.

    A body is on disk whole, or nothing of it is, also after a crash, as far as its events go to one partition.
    """
    outcomes: list[Posted | Exception | None] = [None] * len(bodies)
    batches: list[tuple[int, pa.RecordBatch]] = []
    whole = _encoded_at_once(topic, bodies)
    if whole is None:
        for place, body in enumerate(bodies):
            try:
                batches.append((place, _encoded(topic, body)))
            except PenstockError as error:
                outcomes[place] = error
    elif whole[0].nbytes <= FRAME_BYTES_MAX // 2:
        return _append_together(topic, *whole)
    else:
        starts = [0, *itertools.accumulate(whole[1])]
        batches = [(place, whole[0].slice(starts[place], rows)) for place, rows in enumerate(whole[1])]
    for group in _fitting(batches):
        joined = pa.concat_batches([batch for _, batch in group])
        found = _append_together(topic, joined, [batch.num_rows for _, batch in group])
        for (place, _), outcome in zip(group, found, strict=True):
            outcomes[place] = outcome
    return [each for each in outcomes if each is not None]


def _encoded(topic: Topic, body: bytes) -> pa.RecordBatch:
    """All events of a body; EventsRefused or RequestRefused if there are none, or one does not fit."""
    encoded = encode_json_lines(body, topic.schema, rejected_most=_SHOWN)
    if encoded.rejected:
        shown = [(each.index, each.column, each.reason) for each in encoded.rejected[:_SHOWN]]
        raise EventsRefused(topic.name, shown, is_complete=len(encoded.rejected) < _SHOWN)
    try:
        topic.check_sizes(topic.name, encoded.batch)
    except RecordTooLarge as error:
        shown = [(row, None, error.reason(row)) for row in sorted(error.rows)[:_SHOWN]]
        raise EventsRefused(topic.name, shown, is_complete=len(error.rows) <= _SHOWN) from None
    if not encoded.batch.num_rows:
        raise RequestRefused(400, "there is no event in the body", "expected: one JSON object, or one on each line")
    if encoded.batch.num_rows >= 1 << _ROWS_BITS:
        raise RequestRefused(413, f"{encoded.batch.num_rows} events in one body", "expected: fewer than 16 million")
    return encoded.batch


def _encoded_at_once(topic: Topic, bodies: Sequence[bytes]) -> tuple[pa.RecordBatch, list[int]] | None:
    """The events of all bodies, and how many each has; None if any of them needs a closer look.

    A line is one event or none. So where there are as many events as lines, each line is an event of its own body.
    """
    stripped = [body.strip(b" \t\r\n") for body in bodies]
    rows = [body.count(b"\n") + 1 for body in stripped]
    encoded = encode_json_lines(b"\n".join(stripped), topic.schema, rejected_most=1)
    if encoded.rejected or encoded.batch.num_rows != sum(rows):
        return None
    try:
        topic.check_sizes(topic.name, encoded.batch)
    except RecordTooLarge:
        return None
    return encoded.batch, rows


def _fitting(batches: Sequence[tuple[int, pa.RecordBatch]]) -> Iterator[list[tuple[int, pa.RecordBatch]]]:
    """As many at a time as go into one frame of the log, which is there whole or not at all."""
    group: list[tuple[int, pa.RecordBatch]] = []
    size = 0
    for place, batch in batches:
        if group and size + batch.nbytes > FRAME_BYTES_MAX // 2:
            yield group
            group, size = [], 0
        group.append((place, batch))
        size += batch.nbytes
    if group:
        yield group


def _append_together(topic: Topic, batch: pa.RecordBatch, rows: Sequence[int]) -> list[Posted | Exception]:
    """Stores the events of several bodies, so many of each, with one append to each partition."""
    bounds = np.concatenate([[0], np.cumsum(rows)])
    ranges: list[list[tuple[int, int, int]]] = [[] for _ in rows]
    failed: dict[int, Exception] = {}
    for number, part, places in topic.route(batch):
        counts = np.searchsorted(places, bounds).tolist()
        held = [body for body in range(len(rows)) if counts[body + 1] > counts[body]]
        try:
            appended = topic.partitions[number].append(part)
        except Exception as error:
            failed.update(dict.fromkeys(held, error))
            continue
        for body in held:
            ranges[body] += [(number, *each) for each in appended.ranges_of(counts[body], counts[body + 1])]
    return [failed.get(body) or Posted(tuple(found), 0) for body, found in enumerate(ranges)]


def _append(topic: Topic, routed: list[Routed], producer: bytes | None, first: int) -> Posted:
    ranges, duplicates = [], 0
    for number, part, rows in routed:
        sequences = None if producer is None else rows.astype(np.int64) + first
        appended = topic.partitions[number].append(part, producer=producer, sequences=sequences)
        duplicates += appended.duplicates
        ranges += [(number, *each) for each in appended.ranges_of(0, appended.count)]
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
