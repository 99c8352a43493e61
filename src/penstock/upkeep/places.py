"""Which record a row comes from: packed into the 16 bytes that are the key of a row that has no other."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

PACKED = struct.Struct(">HHQI")
"""The number of the topic, the partition, the offset, and the place among the rows of that record; sorts as the log."""


@dataclass(frozen=True)
class RecordPlace:
    """One record of the log, and which of the rows that it gave."""

    topic: str
    partition: int
    offset: int
    position: int = 0

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}" + (f"#{self.position}" if self.position else "")


def unpacked(key: bytes, topics: Sequence[str]) -> RecordPlace:
    """The record behind the key of a row without one. `topics` are those of the view, in its order.

    >>> str(unpacked(bytes.fromhex("00010003000000000000001100000002"), ["orders", "refunds"]))
    'refunds/3@17#2'
    """
    number, partition, offset, position = PACKED.unpack(key)
    return RecordPlace(topics[number] if number < len(topics) else str(number), partition, offset, position)


def packed(place: RecordPlace, topics: Sequence[str]) -> bytes:
    """The key of a row that comes from this record."""
    return PACKED.pack(list(topics).index(place.topic), place.partition, place.offset, place.position)


def parse_place(text: str) -> RecordPlace | None:
    """`refunds/3@17#2` as people write it; None if it is not one.

    >>> parse_place("orders/0@7")
    RecordPlace(topic='orders', partition=0, offset=7, position=0)
    """
    topic, slash, rest = text.partition("/")
    numbers, _, position = rest.partition("#")
    partition, at, offset = numbers.partition("@")
    if not (slash and at and partition.isdigit() and offset.isdigit() and (position or "0").isdigit()):
        return None
    return RecordPlace(topic, int(partition), int(offset), int(position or 0))
