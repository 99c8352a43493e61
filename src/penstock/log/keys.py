"""What a partition remembers of idempotency keys: in files of their own, for at least seven days.

A key is known from the header of the frame that was stored under it. Before a segment is closed, its keys are added to
the newest of these files and synced; the head of the next segment says where they end. So each key is written twice,
however many there are, and a power cut takes none that was acknowledged. What stands behind that end was left by a
process that died while it closed the segment; the next one writes it again.
"""

from __future__ import annotations

import itertools
import os
import secrets
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from penstock.clock import Clock
from penstock.errors import CorruptionError, TooManyKeys
from penstock.log.files import create_file, read_exactly, sync_data, write_all
from penstock.log.open_files import open_fd, with_descriptor
from penstock.log.producers import ENTRY, FORGOTTEN_AFTER_US, NO_KEYS, KeysEnd, Producers, Remembered

SUFFIX = ".keys"
KEYS_MAX = 8_000_000
"""So many keys are remembered in a partition; no new one is taken beyond."""
FILE_BYTES_MAX = 8 << 20
"""A file that is larger is followed by another one."""
FILE_AGE_MAX_US = 24 * 3600 * 1_000_000
"""So is one that is older: files are deleted whole."""
RECENT_MAX = 1 << 16
"""So many keys are kept in a dictionary; then they are put in order with the others, which takes less memory."""

_HEADER = struct.Struct("<8sQq")
HEADER_BYTES = 64
_MAGIC = b"PnKeys\x00\x01"
_BLOCK = struct.Struct("<4sIIIq")
BLOCK_MAGIC = b"PnKy"
_UNCHECKED = 8
_SEED = struct.Struct("<QQ")
_ENTRIES = np.dtype([("high", ">u8"), ("low", ">u8"), ("epoch", "<u4"), ("last", "<i8"), ("seen", "<i8")])
Entries = npt.NDArray[Any]


class Keys:
    """The idempotency keys of the closed segments of a partition, as far as one process has read them.

    Reading and adding need the partition's lock.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._forget()

    def find(self, key: bytes, end: KeysEnd) -> Remembered | None:
        """What was stored under a key; None if it was never used, or is forgotten. CorruptionError names the file."""
        self.read_to(end)
        found = self._recent.get(key)
        if found is not None:
            return found
        high, low = struct.unpack(">QQ", key)
        first, stop = (int(np.searchsorted(self._highs, np.uint64(high), side)) for side in ("left", "right"))
        same = self._entries[first:stop]
        same = same[same["low"] == low]
        return _remembered(same[np.argmax(same["last"])]) if len(same) else None

    def check_room(self, place: str, more: int, end: KeysEnd) -> None:
        """TooManyKeys if, with so many more of the open segment, no further one can be remembered."""
        self.read_to(end)
        if self._count() + more >= KEYS_MAX and self._oldest_us < self._clock() - FORGOTTEN_AFTER_US:
            self._put_in_order([])
        if self._count() + more >= KEYS_MAX:
            raise TooManyKeys(place, KEYS_MAX)

    def all(self, end: KeysEnd) -> dict[bytes, Remembered]:
        """Every key that is remembered."""
        self.read_to(end)
        self._put_in_order([])
        return {struct.pack(">QQ", each["high"], each["low"]): _remembered(each) for each in self._entries}

    def _forget(self) -> None:
        self._known = NO_KEYS
        self._recent: dict[bytes, Remembered] = {}
        self._entries: Entries = np.empty(0, _ENTRIES)
        self._highs: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._oldest_us = 0

    def _count(self) -> int:
        return len(self._entries) + len(self._recent)

    def read_to(self, end: KeysEnd) -> None:
        """Reads what was added since the last time. CorruptionError names the file that is damaged or missing."""
        if end == self._known:
            return
        if end < self._known:
            self._forget()
        blocks = [block for path, start, stop in self._unread(end) for block in _blocks(path, start, stop)]
        if self._count() + sum(map(len, blocks)) - len(self._entries) > RECENT_MAX:
            self._put_in_order(blocks)
        else:
            for block in blocks:
                self._recent |= {bytes(each): Remembered(*rest) for each, *rest in ENTRY.iter_unpack(block.tobytes())}
        self._known = end

    def _unread(self, end: KeysEnd) -> Iterator[tuple[Path, int, int]]:
        """Files, each with the bytes to read of it."""
        for base, stop in files_to(self._directory, end):
            if base >= self._known.file:
                path = keys_path(self._directory, base)
                if base == end.file and not path.exists():
                    raise CorruptionError(path, "the file of idempotency keys is missing")
                start = self._known.position if base == self._known.file else HEADER_BYTES
                yield path, start, path.stat().st_size if stop is None else stop

    def _put_in_order(self, blocks: Sequence[Entries]) -> None:
        recent = b"".join(ENTRY.pack(key, *found) for key, found in self._recent.items())
        entries = np.concatenate([self._entries, *blocks, np.frombuffer(recent, _ENTRIES)])
        entries = entries[entries["seen"] >= self._clock() - FORGOTTEN_AFTER_US]
        highs = entries["high"].astype(np.uint64)
        order = np.argsort(highs, kind="stable")
        self._entries, self._highs = entries[order], highs[order]
        self._recent = {}
        self._oldest_us = int(entries["seen"].min()) if len(entries) else 0


def keep_keys(directory: Path, base: int, producers: Producers, now_us: int) -> Producers:
    """What the head of the next segment shall say, once the keys of this one, which begins at `base`, are on disk.

    Everything in the segment is on disk already: a key must not be known whose records a power cut may take.
    """
    end = producers.keys_end
    before = [each for each in key_files(directory) if each != base]  # One of `base` was left by a process that died.
    if end.file not in before:  # The head is lost, or somebody deleted the file to go on without it.
        end = KeysEnd(before[-1], keys_path(directory, before[-1]).stat().st_size) if before else NO_KEYS
    if producers.keys:
        keys_path(directory, base).unlink(missing_ok=True)
        end = _add(directory, end, base, producers.keys, now_us)
        _delete_old(directory, now_us)
    return producers.without_keys(end, now_us)


def key_files(directory: Path) -> list[int]:
    """The files of keys in a directory, by the segments with which they begin, in order."""
    names = with_descriptor(directory, lambda: os.listdir(directory))
    return sorted(int(name[: -len(SUFFIX)]) for name in names if name.endswith(SUFFIX))


def files_to(directory: Path, end: KeysEnd) -> list[tuple[int, int | None]]:
    """The files that hold the keys up to an end, and how far the last one, which may be missing, is to be read."""
    older: list[tuple[int, int | None]] = [(base, None) for base in key_files(directory) if base < end.file]
    return older if end == NO_KEYS else [*older, (end.file, end.position)]


def keys_path(directory: Path, base: int) -> Path:
    """Where the file of keys is that begins with those of the segment at `base`."""
    return directory / f"{base:020d}{SUFFIX}"


def _add(directory: Path, end: KeysEnd, base: int, keys: Mapping[bytes, Remembered], now_us: int) -> KeysEnd:
    if end == NO_KEYS:
        return _new_file(directory, base, keys, now_us)
    path = keys_path(directory, end.file)
    fd = open_fd(path, os.O_RDWR)
    try:
        try:
            file = _FileHeader.read(path, fd)
        except CorruptionError:  # Whoever asks for a key is told; everybody else goes on.
            return _new_file(directory, base, keys, now_us)
        if os.fstat(fd).st_size > end.position:  # Also where another file follows: this one is read to its end then.
            os.ftruncate(fd, end.position)
            sync_data(fd)
        if end.position > FILE_BYTES_MAX or file.created_us + FILE_AGE_MAX_US <= now_us:
            return _new_file(directory, base, keys, now_us)
        position = write_all(fd, [_block(file.id, end.position, base, keys)], end.position)
        sync_data(fd)
    finally:
        os.close(fd)
    return KeysEnd(end.file, position)


def _new_file(directory: Path, base: int, keys: Mapping[bytes, Remembered], now_us: int) -> KeysEnd:
    file_id = secrets.randbits(64)
    content = file_header(file_id, now_us) + _block(file_id, HEADER_BYTES, base, keys)
    create_file(keys_path(directory, base), content)
    return KeysEnd(base, len(content))


def file_header(file_id: int, now_us: int) -> bytes:
    """The first bytes of a file of keys."""
    header = _HEADER.pack(_MAGIC, file_id, now_us).ljust(HEADER_BYTES - 4, b"\0")
    return header + _crc(header)


def is_header(header: bytes | bytearray) -> bool:
    """Whether they are the first bytes of a file of keys."""
    return len(header) == HEADER_BYTES and header[:8] == _MAGIC and _crc(bytes(header[:-4])) == header[-4:]


def _block(file_id: int, position: int, base: int, keys: Mapping[bytes, Remembered]) -> bytes:
    entries = b"".join(ENTRY.pack(key, *found) for key, found in keys.items())
    covered = _BLOCK.pack(BLOCK_MAGIC, 0, len(keys), 0, base)[_UNCHECKED:] + entries
    return BLOCK_MAGIC + _crc(_SEED.pack(file_id, position) + covered) + covered


def _blocks(path: Path, position: int, stop: int) -> Iterator[Entries]:
    """The keys between two positions of a file. CorruptionError where they are not what was written."""
    fd = open_fd(path, os.O_RDONLY)
    try:
        file = _FileHeader.read(path, fd)
        content = memoryview(read_exactly(fd, stop - position, position))
    finally:
        os.close(fd)
    at = 0
    while position + at < stop:
        found = block_at(content, at, file.id, position + at)
        if found is None:
            raise CorruptionError(path, "idempotency keys are not what was written", position=position + at)
        entries, at = found
        yield entries


def file_id_of(header: bytes) -> int:
    """The random number of a file, with which every checksum in it begins."""
    file_id: int = _HEADER.unpack_from(header)[1]
    return file_id


def block_at(content: memoryview, at: int, file_id: int, position: int) -> tuple[Entries, int] | None:
    """The keys of a block, and where the next one begins; None if it is not what was written at this position."""
    if at + _BLOCK.size > len(content):
        return None
    magic, _, count, skipped, _ = _BLOCK.unpack_from(content, at)
    end = at + _BLOCK.size + ENTRY.size * count
    if magic != BLOCK_MAGIC or end + skipped > len(content):
        return None
    covered = bytes(content[at + _UNCHECKED : end])
    if _crc(_SEED.pack(file_id, position) + covered) != bytes(content[at + 4 : at + _UNCHECKED]):
        return None
    return np.frombuffer(content[at + _BLOCK.size : end], _ENTRIES), end + skipped


def skipping(file_id: int, position: int, after: int) -> bytes:
    """A block without keys that says to skip what was damaged."""
    covered = _BLOCK.pack(BLOCK_MAGIC, 0, 0, after - position - _BLOCK.size, -1)[_UNCHECKED:]
    block = BLOCK_MAGIC + _crc(_SEED.pack(file_id, position) + covered) + covered
    return block.ljust(after - position, b"\0")


def _delete_old(directory: Path, now_us: int) -> None:
    """Deletes files whose keys are all forgotten: the next file was begun so long ago."""
    bases = key_files(directory)
    for older, newer in itertools.pairwise(bases):
        path = keys_path(directory, newer)
        fd = open_fd(path, os.O_RDONLY)
        try:
            created_us = _FileHeader.read(path, fd).created_us
        except CorruptionError:
            return
        finally:
            os.close(fd)
        if created_us >= now_us - FORGOTTEN_AFTER_US:
            return
        keys_path(directory, older).unlink()


@dataclass(frozen=True)
class _FileHeader:
    id: int
    created_us: int

    @staticmethod
    def read(path: Path, fd: int) -> _FileHeader:
        header = os.pread(fd, HEADER_BYTES, 0)
        if not is_header(header):
            raise CorruptionError(path, "its header is not that of a file of idempotency keys", position=0)
        return _FileHeader(*_HEADER.unpack_from(header)[1:])


def _remembered(entry: Any) -> Remembered:
    return Remembered(int(entry["epoch"]), int(entry["last"]), int(entry["seen"]))


def _crc(content: bytes) -> bytes:
    return struct.pack("<I", google_crc32c.value(content))
