"""What a partition remembers of its producers, so that a retry stores nothing twice.

Sequences of one producer never restart. A record whose sequence is not greater than the last one stored is a
duplicate. An epoch only fences: once a newer one has written, an older one is refused.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from typing import NamedTuple

from penstock.log.frame import NO_PRODUCER, OPENING, RECORDS, Frame

ENTRY = struct.Struct("<16sIqq")
"""Id, epoch, last sequence, last seen."""
FORGOTTEN_AFTER_US = 7 * 24 * 3600 * 1_000_000
"""A producer unheard of for this long, and not named by the user, is dropped when a segment is opened."""

_NAMED = 0x80
"""Bit of an id's first byte: the user named this producer, so it is never forgotten."""
_KEYED = 0x40
"""Bit of an id's first byte: it stands for an idempotency key, so it is forgotten only after some days."""
_SPILLED = 0x20
"""Bit of an id's first byte: what it sends waited on disk, so another process may come with the same after a kill."""


def named_producer(name: str) -> bytes:
    """The id of the producer that users know by this name, in every process and for ever."""
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    return bytes([digest[0] | _NAMED]) + digest[1:]


def new_producer() -> bytes:
    """An id for a producer without a name."""
    token = secrets.token_bytes(16)
    return bytes([token[0] & ~_NAMED & ~_KEYED & ~_SPILLED]) + token[1:]


def spilled_producer(producer: bytes) -> bytes:
    """The id under which a producer without a name sends what it had spilled; one with a name keeps its own."""
    return producer if is_remembered(producer) else bytes([producer[0] | _SPILLED]) + producer[1:]


def keyed_producer(sender: str, key: str) -> bytes:
    """The id under which the log remembers an idempotency key of a sender."""
    digest = hashlib.blake2b(f"{sender}\0{key}".encode(), digest_size=16, person=b"idempotency-key").digest()
    return bytes([digest[0] & ~_NAMED | _KEYED]) + digest[1:]


def is_remembered(producer: bytes) -> bool:
    """Whether other processes may come with the same id, and what it stored: not of a producer without a name
    that keeps everything in memory."""
    return bool(producer[0] & (_NAMED | _KEYED | _SPILLED))


def is_shared(producer: bytes) -> bool:
    """Whether it is one of many ids that are used for a moment: those of idempotency keys."""
    return producer[0] & (_NAMED | _KEYED) == _KEYED


class Remembered(NamedTuple):
    """What is known of one producer."""

    epoch: int
    last_sequence: int
    seen_us: int


class KeysEnd(NamedTuple):
    """Where the idempotency keys of all closed segments end."""

    file: int
    """The newest file of them, by the segment with which it begins."""
    position: int


NO_KEYS = KeysEnd(-1, 0)


class Producers:
    """The last sequence and epoch of each producer. Kept in memory, and in the opening frame of each segment.

    Idempotency keys are too many for that: here are only those of one segment, and where the others are.
    """

    def __init__(self) -> None:
        self._by_id: dict[bytes, Remembered] = {}
        self.keys: dict[bytes, Remembered] = {}
        """The idempotency keys in this segment."""
        self.keys_end = NO_KEYS
        """Where those of the segments before it are."""

    def get(self, producer: bytes) -> Remembered | None:
        return (self.keys if is_shared(producer) else self._by_id).get(producer)

    def all(self) -> dict[bytes, Remembered]:
        return {**self._by_id, **self.keys}

    def observe(self, frame: Frame, payload: bytes = b"") -> None:
        """Takes in the next frame of the partition."""
        if frame.kind == OPENING:
            self._by_id, self.keys, self.keys_end = {}, {}, NO_KEYS
            for producer, *rest in ENTRY.iter_unpack(payload):
                if producer == NO_PRODUCER:
                    self.keys_end = KeysEnd(*rest[1:])
                else:  # Older segments had keys here as well.
                    self._note(producer, Remembered(*rest))
        elif frame.kind == RECORDS and frame.producer != NO_PRODUCER:
            self._note(frame.producer, Remembered(frame.producer_epoch, frame.last_sequence, frame.appended_us))

    def without_keys(self, keys_end: KeysEnd, now_us: int) -> Producers:
        """What the next segment begins with: keys end there, and producers unheard of for long are forgotten."""
        following = Producers()
        following.keys_end = keys_end
        following._by_id = {
            producer: seen
            for producer, seen in self._by_id.items()
            if producer[0] & _NAMED or seen.seen_us >= now_us - FORGOTTEN_AFTER_US
        }
        return following

    def to_bytes(self) -> bytes:
        """What the head of a segment says. Keys of this segment are not in it: see `keep_keys`."""
        assert not self.keys, len(self.keys)
        place = b"" if self.keys_end == NO_KEYS else ENTRY.pack(NO_PRODUCER, 0, *self.keys_end)
        return place + b"".join(ENTRY.pack(producer, *seen) for producer, seen in self._by_id.items())

    def _note(self, producer: bytes, found: Remembered) -> None:
        (self.keys if is_shared(producer) else self._by_id)[producer] = found
